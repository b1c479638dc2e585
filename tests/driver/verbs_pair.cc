// SPDX-License-Identifier: Apache-2.0
//
// The driver suite over an RDMA device of the kernel, by both interfaces of libibverbs. Most machines have no
// such device, so tests/interop/verbs_test.py runs it in a guest that has rxe, and owners of cards run it as
// a part of sluice-card-check. What differs between devices is probed.
#include <cstdlib>

#include "cli/card_check/probes.h"
#include "cli/card_check/subject.h"
#include "controlplane/cm/rdma_cm_manager.h"
#include "dataplane/base/setup_error.h"
#include "pmd/verbs/verbs.h"
#include "tests/driver/connection_fixture.h"

namespace sluice::rdma::conformance {
namespace {

constexpr std::uint32_t kShared = 32;
constexpr std::uint32_t kSharedBytes = 1u << 20;  // of the longest Send in the suite

verbs::DeviceConfig config_of_subject() {
  return {.device = card_check::subject().device, .port = card_check::subject().port};
}

class VerbsPair final : public DriverPair {
 public:
  explicit VerbsPair(verbs::Interface interface, std::uint32_t shared_receives = 0, bool windows = true)
      : missing_(missing_of(interface, shared_receives)), shares_receives_(shared_receives > 0) {
    if (missing_ != nullptr) return;
    left_ = open(interface, shared_receives, windows);
    right_ = open(interface, shared_receives, windows);
  }
  ~VerbsPair() override {
    std::string all;
    for (verbs::Verbs* const device : {left_.get(), right_.get()})
      for (std::string notice; device != nullptr && device->take_notice(notice);)
        all += (all.empty() ? "" : "; ") + notice;
    if (testing::Test::HasFailure()) testing::Test::RecordProperty("driver_notices", all);
  }
  verbs::Verbs& left() override { return *left_; }
  verbs::Verbs& right() override { return *right_; }
  ConnectionManager* left_manager() override { return managed(left_manager_); }
  ConnectionManager* right_manager() override { return managed(right_manager_); }
  void carry() override {
    if (++carries_ % kCarriesPerCheck != 0) return;
    left_->handle_events();
    right_->handle_events();
  }
  const char* missing() override { return missing_; }
  PeerAddress left_address() override { return address_of(*left_, card_check::subject().left_gid); }
  PeerAddress right_address() override { return address_of(*right_, card_check::subject().right_gid); }
  // rxe of Linux 6.1 reports an operation error, and checks only the bounds of the region.
  WcStatus refusal_of_too_long() override {
    return card_check::status_of_too_long() == IBV_WC_REM_OP_ERR ? WcStatus::RemoteOperationError
                                                                 : WcStatus::RemoteInvalidRequest;
  }
  // rxe of newer kernels completes the request as flushed.
  WcStatus local_error(WcStatus named) override {
    return card_check::status_of_local_error() == IBV_WC_WR_FLUSH_ERR ? WcStatus::WrFlushError : named;
  }
  bool holds_window_bounds() override {
    return left_->limits().max_windows == 0 || card_check::holds_window_bounds();
  }
  bool shares_receives() override { return shares_receives_; }
  bool moves_data() override { return false; }

 private:
  static std::unique_ptr<verbs::Verbs> open(verbs::Interface interface, std::uint32_t shared_receives,
                                            bool windows) {
    verbs::DeviceConfig config = config_of_subject();
    config.max_queue_pairs = 16;
    config.interface = interface;
    config.shared_receives = shared_receives;
    config.shared_receive_bytes = kSharedBytes;
    config.windows = windows;
    config.call_regions = !windows;
    return verbs::open(config);
  }
  /// Returns which feature of the device the tests need and do not find, or null.
  static const char* missing_of(verbs::Interface interface, std::uint32_t shared_receives) {
    if (shared_receives > 0 && !card_check::has_shared_receives())
      return "the device has no shared receive queue";
    if (interface != verbs::Interface::Extended) return nullptr;
    const auto device = open(interface, 0, true);
    const auto qp = device->create_queue_pair({});
    return device->has_extended_posting() && device->has_extended_polling()
               ? nullptr
               : "the provider has no extended interface";
  }
  static PeerAddress address_of(const verbs::Verbs& device, std::optional<std::uint32_t> gid) {
    return gid ? card_check::address_of_gid(*gid) : device.addresses()[0];
  }
  /// Both ends are addresses of the same machine.
  ConnectionManager* managed(std::unique_ptr<cm::RdmaCmManager>& by) {
    if (by == nullptr) by = std::make_unique<cm::RdmaCmManager>(right_address());
    return by.get();
  }
  static constexpr std::uint32_t kCarriesPerCheck = 1000;
  const char* const missing_;  ///< null if nothing is missing
  std::unique_ptr<verbs::Verbs> left_;
  std::unique_ptr<verbs::Verbs> right_;
  std::unique_ptr<cm::RdmaCmManager> left_manager_;
  std::unique_ptr<cm::RdmaCmManager> right_manager_;
  const bool shares_receives_;
  std::uint32_t carries_ = 0;
};

DriverParam over(const char* name, verbs::Interface interface, std::uint32_t shared_receives = 0,
                 bool windows = true) {
  return {name, [=] { return std::make_unique<VerbsPair>(interface, shared_receives, windows); }};
}

const DriverParam kNewest = over("newest", verbs::Interface::Newest);
const DriverParam kExtended = over("extended", verbs::Interface::Extended);

const DriverParam kSharing = over("sharing", verbs::Interface::Newest, kShared);

/// The device as if it had no memory windows.
const DriverParam kRegions = over("regions", verbs::Interface::Newest, 0, false);

INSTANTIATE_TEST_SUITE_P(Verbs, DriverTest, testing::Values(kNewest, kExtended, kSharing), driver_name);
INSTANTIATE_TEST_SUITE_P(Verbs, ConnectionTest, testing::Values(kNewest), driver_name);
INSTANTIATE_TEST_SUITE_P(Verbs, Refusal, testing::Values(kNewest, kExtended, kRegions), driver_name);

class SharedReceives : public DriverTest {
 protected:
  /// Sends a message of `bytes` from a to b. The content depends on `seed`.
  void send(std::uint64_t wr_id, std::uint32_t bytes, std::uint32_t seed) {
    fill(a, at(wr_id), bytes, seed);
    ASSERT_TRUE(a.post(SendOpcode::Send, wr_id, {a.sge(at(wr_id), bytes)}));
  }
  void receive(std::uint64_t wr_id) { ASSERT_TRUE(b.receive(wr_id, b.sge(at(wr_id), kMessageBytes))); }
  static std::size_t at(std::uint64_t wr_id) { return wr_id * kMessageBytes; }
  static constexpr std::uint32_t kMessageBytes = 4096;
};
INSTANTIATE_TEST_SUITE_P(Verbs, SharedReceives, testing::Values(kSharing), driver_name);

TEST_P(SharedReceives, more_messages_than_there_are_of_them_wait_and_arrive_in_order) {
  constexpr std::uint64_t kMessages = 3 * kShared;
  for (std::uint64_t i = 0; i < kMessages; ++i) receive(i);
  for (std::uint64_t i = 0; i < kMessages; ++i)
    send(i, static_cast<std::uint32_t>(1 + i * 41), static_cast<std::uint32_t>(i));
  ASSERT_TRUE(until([&] { return b.completions.size() == kMessages; }));
  for (std::uint64_t i = 0; i < kMessages; ++i) {
    EXPECT_EQ(b.completions[i].wr_id, i);
    EXPECT_EQ(b.completions[i].status, WcStatus::Success);
    EXPECT_EQ(b.completions[i].byte_len, 1 + i * 41);
    EXPECT_TRUE(same(a, at(i), b, at(i), 1 + i * 41)) << i;
  }
}

TEST_P(SharedReceives, a_peer_that_sends_more_than_it_may_ends_its_own_queue_pair_only) {
  receive(1);
  for (const std::uint64_t wr_id : {1, 2, 3}) send(wr_id, 64, 7);
  EXPECT_EQ(status_of(b, 1), WcStatus::Success);
  EXPECT_TRUE(until([&] { return b.qp->state() == QueuePair::State::Error; }));
  // The owner is notified by the next work request that it posts.
  receive(4);
  EXPECT_EQ(status_of(b, 4), WcStatus::WrFlushError);
  EXPECT_EQ(dynamic_cast<verbs::Verbs&>(pair_->right()).statistics().receive_overruns, 1u);

  connect();
  receive(5);
  send(5, 64, 8);
  EXPECT_EQ(status_of(b, 5), WcStatus::Success);
}

TEST_P(SharedReceives, a_message_longer_than_the_receive_it_is_for_is_not_written) {
  std::memset(b.memory.bytes.data(), 0x33, 256);
  ASSERT_TRUE(b.receive(1, b.sge(0, 63)));
  send(2, 64, 9);
  EXPECT_EQ(status_of(b, 1), WcStatus::LocalLengthError);
  EXPECT_EQ(b.qp->state(), QueuePair::State::Error);
  for (std::size_t i = 0; i < 256; ++i) ASSERT_EQ(b.memory.bytes[i], std::byte{0x33});
}

TEST_P(SharedReceives, a_receive_outside_of_regions_is_a_local_protection_error) {
  std::byte outside[64]{};
  ASSERT_TRUE(b.receive(1, {outside, 64, b.memory.lkey}));
  send(2, 64, 10);
  EXPECT_EQ(status_of(b, 1), WcStatus::LocalProtectionError);
  EXPECT_EQ(outside[0], std::byte{0});
}

TEST_P(SharedReceives, none_is_lost_with_queue_pairs_that_end_with_messages_in_them) {
  for (std::uint32_t round = 0; round < 3 * kShared; ++round) {
    for (const std::uint64_t wr_id : {1, 2, 3, 4}) receive(wr_id);
    for (const std::uint64_t wr_id : {1, 2, 3, 4}) send(wr_id, 64, round);
    // Some messages have arrived and were not polled, some are still on the wire.
    if (round % 2 == 0) {
      ASSERT_EQ(status_of(a, 1), WcStatus::Success);
    }
    connect();
  }
  for (std::uint64_t i = 0; i < kShared; ++i) receive(i);
  for (std::uint64_t i = 0; i < kShared; ++i) send(i, 64, 11);
  // All messages arrive without a Receive being reposted in between.
  ASSERT_TRUE(until([&] { return a.completions.size() == kShared; }));
  EXPECT_TRUE(until([&] { return b.completions.size() == kShared; }));
}

TEST(VerbsDevice, more_shared_receives_than_the_device_has_are_refused_with_a_sentence) {
  try {
    verbs::DeviceConfig config = config_of_subject();
    config.shared_receives = 1u << 30;
    verbs::open(config);
    FAIL();
  } catch (const SetupError& error) {
    EXPECT_NE(std::string(error.what()).find("Lower shared_receives in [device]"), std::string::npos)
        << error.what();
  }
}

TEST(VerbsDevice, a_wait_ends_when_a_completion_comes) {
  const auto device = verbs::open(config_of_subject());
  if (!device->wakes()) GTEST_SKIP() << "the device has no completion channel";
  device->wait(0);  // while nothing can complete
  const auto qp = device->create_queue_pair({});
  const MemoryRegion memory = device->allocate_memory(4096);
  const RecvWr wr{1, {memory.bytes.data(), 64, memory.lkey}};
  WorkCompletion completion;
  device->wait(0);  // requests an event for the next completion
  ASSERT_EQ(device->poll({&completion, 1}), 0u);
  device->wait(0);
  EXPECT_EQ(device->statistics().wakeups, 0u);
  ASSERT_EQ(qp->post_recv({&wr, 1}), 1u);
  qp->to_error();
  const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (device->statistics().wakeups == 0 && std::chrono::steady_clock::now() < give_up)
    device->wait(500'000'000);
  EXPECT_EQ(device->statistics().wakeups, 1u);
  EXPECT_EQ(device->poll({&completion, 1}), 1u);
  EXPECT_EQ(completion.status, WcStatus::WrFlushError);
}

TEST(VerbsDevice, uses_the_interface_that_was_asked_for) {
  for (const bool extended : {false, true}) {
    verbs::DeviceConfig config = config_of_subject();
    config.interface = extended ? verbs::Interface::Extended : verbs::Interface::Classic;
    const auto device = verbs::open(config);
    const auto qp = device->create_queue_pair({});
    if (extended && !device->has_extended_posting()) GTEST_SKIP() << "the provider has no extended posting";
    EXPECT_EQ(device->has_extended_posting(), extended);
    EXPECT_EQ(device->has_extended_polling(), extended);
  }
}

TEST(VerbsDevice, says_which_devices_there_are_when_the_configured_one_is_not) {
  try {
    verbs::open({.device = "nosuch0"});
    FAIL();
  } catch (const SetupError& error) {
    EXPECT_NE(std::string(error.what()).find("There is no RDMA device 'nosuch0'"), std::string::npos)
        << error.what();
    const auto there = verbs::open(config_of_subject());
    EXPECT_NE(std::string(error.what()).find(there->device_name() + " port "), std::string::npos)
        << error.what();
  }
}

TEST(VerbsDevice, more_queue_pairs_than_there_is_room_for_are_refused_and_counted) {
  verbs::DeviceConfig config = config_of_subject();
  config.max_queue_pairs = 2;
  const auto device = verbs::open(config);
  std::vector<Owned<QueuePair>> made;
  EXPECT_THROW(
      {
        while (made.size() < 1000) made.push_back(device->create_queue_pair({}));
      },
      SetupError);
  EXPECT_GE(made.size(), 2u);
  EXPECT_EQ(device->statistics().queue_pairs_refused, 1u);
  made.pop_back();
  EXPECT_NO_THROW(made.push_back(device->create_queue_pair({})));
}

TEST(VerbsDevice, completion_queues_have_room_for_all_that_can_be_outstanding) {
  // The queue pairs fill more than one completion queue, so that the device needs several.
  verbs::DeviceConfig config = config_of_subject();
  config.max_queue_pairs = 20;
  const auto device = verbs::open(config);
  const MemoryRegion memory = device->allocate_memory(4096);
  std::vector<Owned<QueuePair>> made;
  constexpr std::size_t kDepth = 1024;
  for (int i = 0; i < 20; ++i) {
    made.push_back(device->create_queue_pair(
        {.send_depth = std::uint32_t{kDepth}, .recv_depth = std::uint32_t{kDepth}}));
    std::vector<RecvWr> wrs(kDepth, RecvWr{1, {memory.bytes.data(), 64, memory.lkey}});
    ASSERT_EQ(made.back()->post_recv(wrs), kDepth);
  }
  for (const auto& qp : made) qp->to_error();
  std::size_t flushed = 0;
  const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  for (int turns = 0; flushed < 20 * kDepth && std::chrono::steady_clock::now() < give_up; ++turns) {
    WorkCompletion completions[64];
    flushed += device->poll(completions);
    if (turns % 1000 == 0) device->handle_events();  // some providers flush with an event
  }
  EXPECT_EQ(flushed, 20 * kDepth);
  device->handle_events();
  EXPECT_EQ(device->statistics().completion_queue_overruns, 0u);
}

}  // namespace
}  // namespace sluice::rdma::conformance
