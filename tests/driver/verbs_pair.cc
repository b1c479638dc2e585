// SPDX-License-Identifier: Apache-2.0
//
// The driver suite over an RDMA device of the kernel's, by both interfaces of libibverbs. Without such a
// device there is nothing to judge: tests/interop/verbs_test.py runs it in a guest that has rxe.
#include <cstdlib>

#include "pmd/verbs/verbs.h"
#include "tests/driver/driver_fixture.h"

namespace sluice::rdma::conformance {
namespace {

class VerbsPair final : public DriverPair {
 public:
  explicit VerbsPair(verbs::Interface interface)
      : left_(verbs::open({.device = {}, .max_queue_pairs = 16, .interface = interface})),
        right_(verbs::open({.device = {}, .max_queue_pairs = 16, .interface = interface})) {}
  verbs::Verbs& left() override { return *left_; }
  verbs::Verbs& right() override { return *right_; }
  void carry() override {
    if (++turns_ % kTurnsPerLook != 0) return;
    left_->look();
    right_->look();
  }
  // Of Linux 6.1's rxe: it answers an operation error, and knows no bounds but the region's.
  WcStatus refusal_of_too_long() override { return WcStatus::RemoteOperationError; }
  bool holds_window_bounds() override { return false; }

 private:
  static constexpr std::uint32_t kTurnsPerLook = 1000;
  std::unique_ptr<verbs::Verbs> left_;
  std::unique_ptr<verbs::Verbs> right_;
  std::uint32_t turns_ = 0;
};

DriverParam over(const char* name, verbs::Interface interface) {
  return {name, [=] { return std::make_unique<VerbsPair>(interface); }};
}

const DriverParam kNewest = over("newest", verbs::Interface::Newest);
const DriverParam kExtended = over("extended", verbs::Interface::Extended);

INSTANTIATE_TEST_SUITE_P(Verbs, DriverTest, testing::Values(kNewest, kExtended), driver_name);
INSTANTIATE_TEST_SUITE_P(Verbs, Refusal, testing::Values(kNewest, kExtended), driver_name);

TEST(VerbsDevice, uses_the_interface_that_was_asked_for) {
  for (const bool extended : {false, true}) {
    const auto device = verbs::open(
        {.device = {}, .interface = extended ? verbs::Interface::Extended : verbs::Interface::Classic});
    const auto qp = device->create_queue_pair({});
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
    EXPECT_NE(std::string(error.what()).find("rxe0 port 1"), std::string::npos) << error.what();
  }
}

TEST(VerbsDevice, more_queue_pairs_than_there_is_room_for_are_refused_and_counted) {
  const auto device = verbs::open({.device = {}, .max_queue_pairs = 2});
  std::vector<std::unique_ptr<QueuePair>> made;
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
  // More than the device puts into one completion queue, so that there have to be several.
  const auto device = verbs::open({.device = {}, .max_queue_pairs = 20});
  const MemoryRegion memory = device->allocate_memory(4096);
  std::vector<std::unique_ptr<QueuePair>> made;
  constexpr std::size_t kDepth = 1024;
  for (int i = 0; i < 20; ++i) {
    made.push_back(device->create_queue_pair(
        {.send_depth = std::uint32_t{kDepth}, .recv_depth = std::uint32_t{kDepth}}));
    std::vector<RecvWr> wrs(kDepth, RecvWr{1, {memory.bytes.data(), 64, memory.lkey}});
    ASSERT_EQ(made.back()->post_recv(wrs), kDepth);
  }
  for (const auto& qp : made) qp->to_error();
  std::size_t flushed = 0;
  for (int turns = 0; turns < 100'000 && flushed < 20 * kDepth; ++turns) {
    WorkCompletion completions[64];
    flushed += device->poll(completions);
  }
  EXPECT_EQ(flushed, 20 * kDepth);
  device->look();
  EXPECT_EQ(device->statistics().completion_queue_overruns, 0u);
}

}  // namespace
}  // namespace sluice::rdma::conformance
