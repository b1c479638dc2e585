// SPDX-License-Identifier: Apache-2.0
//
// Regions that the verbs driver registers for one call, over every model of a provider without memory
// windows: what they give access to, and when the access ends.
#include "tests/driver/verbs_regions_fixture.h"

#include <algorithm>
#include <cerrno>

#include "dataplane/base/setup_error.h"

namespace sluice::rdma::conformance {
namespace {

constexpr std::uint32_t kBytes = 4096;
constexpr QueuePairLimits kLimits{.send_depth = 64, .recv_depth = 8};

class Regions : public WindowLess {
 protected:
  void SetUp() override {
    domain_ = client_->allocate_domain();
    memory_ = client_->allocate_memory(4 * kBytes);
    remote_ = server_->allocate_memory(4 * kBytes);
    own_ = make(domain_);
    peer_ = server_->create_queue_pair(kLimits);
    connect(*own_, *peer_);
    until([&] { return is_connected(*own_) && is_connected(*peer_); });
  }
  void TearDown() override { own_.reset(), peer_.reset(); }

  static bool is_connected(const QueuePair& qp) { return qp.state() == QueuePair::State::ReadyToSend; }
  Owned<QueuePair> make(ProtectionDomain domain) {
    QueuePairLimits limits = kLimits;
    limits.domain = domain;
    return client_->create_queue_pair(limits);
  }
  template <typename Condition>
  void until(const Condition& condition) {
    const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (!condition() && std::chrono::steady_clock::now() < give_up) turn();
    ASSERT_TRUE(condition());
  }
  void turn() {
    WorkCompletion some[16];
    const std::size_t at_client = client_->poll(some);
    of_client_.insert(of_client_.end(), some, some + at_client);
    const std::size_t at_server = server_->poll(some);
    of_server_.insert(of_server_.end(), some, some + at_server);
    client_->handle_events();
    server_->handle_events();
  }
  static const WorkCompletion* find(const std::vector<WorkCompletion>& completions, std::uint64_t wr_id) {
    const auto found = std::find_if(completions.begin(), completions.end(),
                                    [&](const auto& completion) { return completion.wr_id == wr_id; });
    return found != completions.end() ? &*found : nullptr;
  }
  const WorkCompletion* result(std::uint64_t wr_id) {
    until([&] { return find(of_client_, wr_id) != nullptr; });
    return find(of_client_, wr_id);
  }
  Rkey expose(MemoryWindow window, AccessFlags access = kRemoteRead | kRemoteWrite) {
    EXPECT_TRUE(own_->register_region(window, memory_.bytes.first(kBytes), memory_.lkey, access, ++wr_id_));
    const WorkCompletion* const done = result(wr_id_);
    EXPECT_TRUE(done != nullptr && done->status == WcStatus::Success);
    EXPECT_EQ(done->opcode, WcOpcode::RegisterRegion);
    return done->rkey;
  }
  /// Returns the status with which the peer's RDMA Write of `bytes` completes.
  WcStatus write(QueuePair& from, Rkey rkey, std::uint32_t bytes) {
    const Sge piece{remote_.bytes.data(), bytes, remote_.lkey};
    const SendWr wr{.wr_id = ++wr_id_,
                    .sges = {&piece, 1},
                    .remote_address = reinterpret_cast<std::uintptr_t>(memory_.bytes.data()),
                    .rkey = rkey,
                    .opcode = SendOpcode::RdmaWrite};
    EXPECT_EQ(from.post_send({&wr, 1}), 1u);
    until([&] { return find(of_server_, wr_id_) != nullptr; });
    const WorkCompletion* const done = find(of_server_, wr_id_);
    return done != nullptr ? done->status : WcStatus::RetryExceeded;
  }
  std::size_t regions() { return stub_.regions_at(memory_.bytes.data()); }

  ProtectionDomain domain_;
  MemoryRegion memory_;
  MemoryRegion remote_;
  Owned<QueuePair> own_;
  Owned<QueuePair> peer_;
  std::vector<WorkCompletion> of_client_;
  std::vector<WorkCompletion> of_server_;
  std::uint64_t wr_id_ = 0;
};

INSTANTIATE_TEST_SUITE_P(, Regions, testing::ValuesIn(window_less_providers()), name_of_provider);

TEST_P(Regions, V1_138_a_region_gives_access_until_it_is_deregistered) {
  const std::size_t before = regions();
  const MemoryWindow window = client_->allocate_window();
  const Rkey rkey = expose(window);
  std::fill_n(remote_.bytes.begin(), kBytes, std::byte{0x5A});
  EXPECT_EQ(write(*peer_, rkey, kBytes), WcStatus::Success);
  EXPECT_EQ(memory_.bytes[kBytes - 1], std::byte{0x5A});
  ASSERT_TRUE(own_->deregister_region(window, ++wr_id_, kSignaled));
  EXPECT_EQ(result(wr_id_)->status, WcStatus::Success);
  EXPECT_EQ(result(wr_id_)->opcode, WcOpcode::LocalInvalidate);
  EXPECT_EQ(regions(), before);
  EXPECT_EQ(write(*peer_, rkey, kBytes), WcStatus::RemoteAccessError);
}

TEST_P(Regions, V1_147_a_region_has_the_bounds_and_the_rights_of_its_segment) {
  const Rkey readable = expose(client_->allocate_window(), kRemoteRead);
  EXPECT_EQ(write(*peer_, readable, kBytes), WcStatus::RemoteAccessError);
  TearDown();
  SetUp();
  EXPECT_EQ(write(*peer_, expose(client_->allocate_window()), kBytes + 1), WcStatus::RemoteAccessError);
}

TEST_P(Regions, V1_138_a_region_gives_no_access_through_another_domain) {
  auto foreign = make(client_->allocate_domain());
  auto foreign_peer = server_->create_queue_pair(kLimits);
  connect(*foreign, *foreign_peer);
  until([&] { return is_connected(*foreign) && is_connected(*foreign_peer); });
  const Rkey rkey = expose(client_->allocate_window());
  EXPECT_EQ(write(*foreign_peer, rkey, kBytes), WcStatus::RemoteAccessError);
  EXPECT_EQ(write(*peer_, rkey, kBytes), WcStatus::Success);
}

TEST_P(Regions, V1_143_the_end_of_a_queue_pair_ends_its_regions_before_it_is_gone) {
  const std::size_t before = regions();
  expose(client_->allocate_window());
  expose(client_->allocate_window());
  EXPECT_EQ(regions(), before + 2);
  own_.reset();
  EXPECT_EQ(regions(), before);
}

TEST_P(Regions, V1_143_a_queue_pair_in_error_has_no_regions_and_a_registration_under_way_is_flushed) {
  const std::size_t before = regions();
  const MemoryWindow registered = client_->allocate_window();
  expose(registered);
  stub_.hold_registrations(true);
  const MemoryWindow window = client_->allocate_window();
  ASSERT_TRUE(
      own_->register_region(window, memory_.bytes.first(kBytes), memory_.lkey, kRemoteWrite, ++wr_id_));
  const std::uint64_t under_way = wr_id_;
  own_->to_error();
  EXPECT_FALSE(own_->deregister_region(registered, ++wr_id_, kSignaled));
  EXPECT_FALSE(own_->register_region(registered, memory_.bytes, memory_.lkey, kRemoteRead, ++wr_id_));
  stub_.hold_registrations(false);
  EXPECT_EQ(result(under_way)->status, WcStatus::WrFlushError);
  until([&] { return regions() == before; });
}

TEST_P(Regions, a_refused_registration_ends_the_queue_pair_with_a_sentence) {
  const std::size_t before = regions();
  const MemoryWindow window = client_->allocate_window();
  stub_.refuse_memory(ENOMEM);
  ASSERT_TRUE(
      own_->register_region(window, memory_.bytes.first(kBytes), memory_.lkey, kRemoteWrite, ++wr_id_));
  EXPECT_EQ(result(wr_id_)->status, WcStatus::BindError);
  stub_.refuse_memory(0);
  EXPECT_EQ(own_->state(), QueuePair::State::Error);
  EXPECT_EQ(client_->statistics().call_regions_refused, 1u);
  std::string text;
  while (client_->take_notice(text) != kNoNotice && text.find("refused to register") == std::string::npos) {
  }
  EXPECT_NE(text.find("LimitMEMLOCK"), std::string::npos) << text;
  EXPECT_EQ(regions(), before);
}

TEST_P(Regions, are_registered_off_the_reactor_and_a_used_one_is_not_registered_again) {
  const MemoryWindow window = client_->allocate_window();
  stub_.watch_this_thread();
  expose(window);
  EXPECT_FALSE(own_->register_region(window, memory_.bytes, memory_.lkey, kRemoteRead, ++wr_id_));
  ASSERT_TRUE(own_->deregister_region(window, ++wr_id_, kSignaled));
  EXPECT_FALSE(own_->deregister_region(window, wr_id_, kSignaled));
  result(wr_id_);
  stub_.watch_no_thread();
  for (const char* const function : {"ibv_reg_mr", "ibv_reg_mr_iova2", "ibv_dereg_mr"})
    EXPECT_EQ(std::count(stub_.noted().begin(), stub_.noted().end(), function), 0) << function;
}

TEST_P(Regions, memory_outside_of_the_table_is_not_registered) {
  std::byte foreign[64];
  const MemoryWindow window = client_->allocate_window();
  EXPECT_FALSE(own_->register_region(window, foreign, memory_.lkey, kRemoteRead, 1));
  EXPECT_FALSE(own_->register_region(window, memory_.bytes.first(0), memory_.lkey, kRemoteRead, 1));
  EXPECT_FALSE(own_->register_region({window.number + 1}, memory_.bytes, memory_.lkey, kRemoteRead, 1));
}

TEST_P(Regions, memory_and_domains_return_with_the_device) {
  const MemoryWindow window = client_->allocate_window();
  expose(window);
  stub_.raise(IBV_EVENT_DEVICE_FATAL);
  until([&] {
    return client_->statistics().device_returned == 1 && server_->statistics().device_returned == 1;
  });
  TearDown();
  of_client_.clear();
  own_ = make(domain_);
  peer_ = server_->create_queue_pair(kLimits);
  connect(*own_, *peer_);
  until([&] { return is_connected(*own_) && is_connected(*peer_); });
  EXPECT_EQ(write(*peer_, expose(window), kBytes), WcStatus::Success);
}

TEST_P(Regions, are_refused_by_default_with_the_choices) {
  EXPECT_EQ(server_->limits().max_call_regions, 0u);
  EXPECT_EQ(server_->allocate_domain(), ProtectionDomain{});
  try {
    server_->allocate_window();
    ADD_FAILURE() << "the provider has no windows";
  } catch (const SetupError& error) {
    const std::string said = error.what();
    for (const char* const part : {"window_less", "\"regions\"", "\"pool\"", "security.md"})
      EXPECT_NE(said.find(part), std::string::npos) << said;
  }
}

TEST(WindowsSwitchedOff, leave_a_device_without_windows) {
  const auto device =
      verbs::open({.device = {}, .max_queue_pairs = 2, .windows = false, .call_regions = true});
  EXPECT_EQ(device->limits().max_windows, 0u);
  EXPECT_GT(device->limits().max_call_regions, 0u);
  std::string text;
  EXPECT_NE(device->take_notice(text), kNoNotice);
  EXPECT_NE(text.find("memory windows are not used"), std::string::npos) << text;
  const auto with = verbs::open({.device = {}, .max_queue_pairs = 2, .call_regions = true});
  EXPECT_GT(with->limits().max_windows, 0u);
  EXPECT_EQ(with->limits().max_call_regions, 0u);
}

TEST(SharedReceives, are_of_one_domain) {
  VerbsStub::get().select(kFullProvider);
  const auto device = verbs::open(
      {.device = {}, .max_queue_pairs = 2, .shared_receives = 8, .windows = false, .call_regions = true});
  EXPECT_THROW(device->allocate_domain(), SetupError);
}

}  // namespace
}  // namespace sluice::rdma::conformance
