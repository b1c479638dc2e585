// SPDX-License-Identifier: Apache-2.0
//
// A lane that works while captures begin and end. tests/driver tests what a capture of a port contains.
#include "pmd/softroce/capture.h"

#include <gtest/gtest.h>
#include <rte_mbuf.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "tests/unit/base/counted_invariants.h"

namespace sluice::rdma::softroce {
namespace {

TEST(Capture, a_lane_may_be_anywhere_when_its_memory_is_given_back) {
  PortConfig port;
  port.lanes = 2;
  Capture capture(port);
  std::atomic<bool> end{false};
  std::atomic<std::uint64_t> turns{0};
  std::vector<std::byte> data(1500, std::byte{7});
  std::thread lane([&] {
    rte_mbuf frame{};
    frame.buf_addr = data.data();
    frame.data_len = static_cast<std::uint16_t>(data.size());
    frame.pkt_len = frame.data_len;
    const std::vector<rte_mbuf*> burst(500, &frame);  // the lane is inside add() most of the time
    for (; !end; ++turns) capture.add(1, burst, Way::Out);
  });
  const auto wait_for_turns = [&turns](std::uint64_t count) {
    for (const std::uint64_t from = turns; turns < from + count;) std::this_thread::yield();
  };
  std::uint64_t taken = 0;
  for (int i = 0; i < 20; ++i) {
    capture.start({}, kMaxSnapBytes);
    wait_for_turns(kCaptureDepth / 500 + 2);  // the ring is full, so the lane drops frames
    capture.stop();
    const std::uint64_t dropped = capture.dropped();
    wait_for_turns(2);
    EXPECT_EQ(capture.dropped(), dropped) << "it was inside when stop() returned";
    for (const CapturedFrame* frame; (frame = capture.next()) != nullptr; capture.pop(), ++taken)
      EXPECT_EQ(frame->bytes()[frame->kept_bytes - 1], std::byte{7});
    capture.release();
  }
  end = true;
  lane.join();
  EXPECT_EQ(taken, 20 * kCaptureDepth);
}

TEST(FrameRing, a_full_one_takes_no_more_and_goes_on_behind_its_end) {
  FrameRing ring;
  ring.allocate(100);
  std::uint32_t written = 0;
  std::uint32_t read = 0;
  for (int round = 0; round < 3; ++round) {
    for (CapturedFrame* frame; (frame = ring.claim()) != nullptr; ring.publish())
      frame->wire_bytes = written++;
    EXPECT_EQ(written - read, kCaptureDepth);
    for (std::uint32_t i = 0; i < kCaptureDepth / 2 + 1; ++i) {
      ASSERT_EQ(ring.front()->wire_bytes, read++);
      ring.pop();
    }
  }
  for (; ring.front() != nullptr; ring.pop()) {
    ASSERT_EQ(ring.front()->wire_bytes, read++);
  }
  EXPECT_EQ(read, written);
  ring.release();
  EXPECT_EQ(ring.claim(), nullptr);
  EXPECT_EQ(ring.front(), nullptr);
}

TEST(Capture, one_that_is_started_twice_is_a_failed_invariant) {
  const CountedInvariants counted;
  Capture capture{PortConfig{}};
  capture.start({}, kMaxSnapBytes);
  EXPECT_EQ(counted.failed(Invariant::queue_pair_state), 0u);
  capture.start({}, kMaxSnapBytes);
  EXPECT_EQ(counted.failed(Invariant::queue_pair_state), 1u);
  capture.stop();
  capture.release();
}

}  // namespace
}  // namespace sluice::rdma::softroce
