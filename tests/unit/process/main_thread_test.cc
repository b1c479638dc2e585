// SPDX-License-Identifier: Apache-2.0
//
// Duties of the main thread besides the reactors.
#include <gtest/gtest.h>
#include <unistd.h>

#include "dataplane/process/data_plane.h"
#include "tests/unit/process/process_lab.h"

namespace sluice::process {
namespace {

void turn(segment::ReactorArea& area, std::string_view counter) {
  for (std::size_t i = 0; i < segment::kReactorCounterCount; ++i)
    if (segment::kReactorCounters[i].name == counter) ++area.counters[i];
}

TEST(Heartbeat, beats_only_while_every_reactor_turns) {
  MemorySegment segment;
  segment::Layout& layout = segment.layout();
  ProcessHeartbeat heartbeat(layout, 2);
  EXPECT_EQ(layout.data_plane.pid.load(), static_cast<std::uint32_t>(::getpid()));
  EXPECT_EQ(segment::epoch_of(layout.data_plane.owner), 1u);
  const std::uint64_t beats = layout.data_plane.beats.load();
  EXPECT_FALSE(heartbeat.beat());
  turn(layout.reactors[0], "polls_busy");
  EXPECT_FALSE(heartbeat.beat());
  turn(layout.reactors[0], "polls_idle");
  turn(layout.reactors[1], "commands");  // not an iteration of the reactor
  EXPECT_FALSE(heartbeat.beat());
  EXPECT_EQ(layout.data_plane.beats.load(), beats);
  turn(layout.reactors[0], "polls_idle");
  turn(layout.reactors[1], "polls_busy");
  EXPECT_TRUE(heartbeat.beat());
  EXPECT_EQ(layout.data_plane.beats.load(), beats + 1);
  EXPECT_FALSE(heartbeat.beat());
}

TEST(Heartbeat, its_end_is_shown) {
  MemorySegment segment;
  { ProcessHeartbeat heartbeat(segment.layout(), 1); }
  EXPECT_EQ(segment.layout().data_plane.pid.load(), 0u);
}

}  // namespace
}  // namespace sluice::process
