// SPDX-License-Identifier: Apache-2.0
#include "controlplane/configuration.h"

#include <gtest/gtest.h>

namespace sluice::controlplane {
namespace {

using Step = StartMonitor::Step;

constexpr std::uint64_t kSecondNs = 1'000'000'000;

class StartWatchTest : public testing::Test {
 protected:
  void ask(std::uint64_t number) { segment_->layout().start_asked = number; }
  std::uint64_t answer() const { return segment_->layout().start_answered; }

  const Owned<segment::Segment> segment_ = segment::Segment::in_memory();
  StartMonitor watch_{segment_->layout()};
};

TEST_F(StartWatchTest, a_data_plane_is_answered_once) {
  EXPECT_EQ(watch_.poll(1), Step::Nothing);
  ask(7);
  EXPECT_EQ(watch_.poll(2), Step::Answer);
  watch_.answered();
  EXPECT_EQ(answer(), 7u);
  EXPECT_EQ(watch_.poll(3), Step::Nothing);
  watch_.answered();  // a publication that answers no new start
  EXPECT_EQ(watch_.starts_answered(), 1u);
}

TEST_F(StartWatchTest, the_answer_is_for_the_one_that_was_seen) {
  ask(7);
  EXPECT_EQ(watch_.poll(1), Step::Answer);
  ask(8);  // the first is killed, and another one starts
  watch_.answered();
  EXPECT_EQ(answer(), 7u);
  EXPECT_EQ(watch_.poll(2), Step::Answer);
}

TEST_F(StartWatchTest, changed_keys_are_read_again_before_the_control_plane_begins_anew) {
  watch_.set_changed(true);
  EXPECT_EQ(watch_.poll(1), Step::Nothing);
  ask(7);
  EXPECT_EQ(watch_.poll(2), Step::Read);
  EXPECT_EQ(watch_.poll(3), Step::Nothing);
  watch_.has_read(true);
  EXPECT_EQ(watch_.poll(4), Step::BeginAnew);
  EXPECT_EQ(answer(), 0u);
}

TEST_F(StartWatchTest, keys_that_are_as_before_again_need_nothing) {
  watch_.set_changed(true);
  ask(7);
  EXPECT_EQ(watch_.poll(1), Step::Read);
  watch_.set_changed(false);
  watch_.has_read(true);
  EXPECT_EQ(watch_.poll(2), Step::Answer);
}

TEST_F(StartWatchTest, files_that_cannot_be_read_are_in_no_data_planes_way) {
  watch_.set_changed(true);
  ask(7);
  EXPECT_EQ(watch_.poll(1), Step::Read);
  watch_.has_read(false);
  EXPECT_EQ(watch_.poll(2), Step::Answer);
  watch_.answered();
  ask(8);
  EXPECT_EQ(watch_.poll(3), Step::Read) << "the next one may find them whole";
}

TEST_F(StartWatchTest, a_disk_that_does_not_answer_is_waited_for_five_seconds) {
  watch_.set_changed(true);
  ask(7);
  EXPECT_EQ(watch_.poll(kSecondNs), Step::Read);
  EXPECT_EQ(watch_.poll(6 * kSecondNs), Step::Nothing);
  EXPECT_EQ(watch_.poll(6 * kSecondNs + 1), Step::Answer);
  watch_.answered();
  watch_.has_read(true);
  EXPECT_EQ(watch_.poll(7 * kSecondNs), Step::Nothing);
}

}  // namespace
}  // namespace sluice::controlplane
