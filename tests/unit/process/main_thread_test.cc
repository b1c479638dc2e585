// SPDX-License-Identifier: Apache-2.0
//
// What the main thread does besides the reactors: heartbeat, channels kept for a control plane that
// has ended.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>

#include "dataplane/process/heartbeat.h"
#include "dataplane/process/kept_connections.h"
#include "tests/unit/process/process_lab.h"

namespace sluice::process {
namespace {

// --- Heartbeat

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
  turn(layout.reactors[1], "commands");  // not a turn of the reactor
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

// --- Kept connections

class RecordedProbe final : public PeerProbe {
 public:
  void probe(std::uint32_t, std::uint32_t queue_pair) override { probed.push_back(queue_pair); }
  std::vector<std::uint32_t> probed;
};

class KeptConnectionsTest : public testing::Test {
 protected:
  static constexpr std::uint64_t kProbeInterval = 5'000'000'000;

  KeptConnectionsTest() {
    EXPECT_EQ(::pipe2(pipe_, O_CLOEXEC | O_NONBLOCK), 0);
    segment_.layout().control_plane.pid = static_cast<std::uint32_t>(::getpid());
    publish(1, pipe_[1]);
    kept_.poll(now_ns_);
    ::close(pipe_[1]);
  }
  ~KeptConnectionsTest() override { ::close(pipe_[0]); }

  void publish(std::uint32_t token, int descriptor) {
    segment_.layout().kept_channel = segment::kept_channel(token, descriptor);
  }
  /// Writes a connection that uses the channel into the table.
  void show_connection(std::uint32_t token, segment::ConnectionState state) {
    segment::ConnectionInfo info;
    info.state = state;
    info.queue_pair = 77;
    const segment::KeptConnection kept{token};
    std::memcpy(info.cm_state.data(), &kept, sizeof kept);
    segment_.area().connections[0].write(info);
  }
  /// The reader of a pipe sees its end when the last descriptor of the writing end is closed.
  bool is_held() {
    char byte;
    return ::read(pipe_[0], &byte, 1) != 0;
  }

  MemorySegment segment_;
  RecordedProbe probe_;
  KeptConnections kept_{segment_.layout(), probe_};
  std::uint64_t now_ns_ = 2 * kProbeInterval;
  int pipe_[2];
};

TEST_F(KeptConnectionsTest, a_published_channel_is_held_open) {
  EXPECT_TRUE(is_held());
  kept_.poll(now_ns_ + kProbeInterval);
  EXPECT_TRUE(is_held());
  EXPECT_TRUE(probe_.probed.empty());  // not probed while its control plane is alive
}

TEST_F(KeptConnectionsTest, an_orphaned_channel_is_held_while_a_connection_needs_it) {
  show_connection(1, segment::ConnectionState::Open);
  publish(2, pipe_[0]);
  kept_.poll(now_ns_ + 1);
  EXPECT_TRUE(is_held());
  show_connection(1, segment::ConnectionState::Closing);
  kept_.poll(now_ns_ + 2);
  EXPECT_TRUE(is_held());
  show_connection(1, segment::ConnectionState::Unused);
  kept_.poll(now_ns_ + 3);
  EXPECT_FALSE(is_held());
}

TEST_F(KeptConnectionsTest, peers_of_an_orphaned_channel_are_probed_from_time_to_time) {
  show_connection(1, segment::ConnectionState::Open);
  publish(2, pipe_[0]);
  kept_.poll(now_ns_ + 1);
  EXPECT_TRUE(probe_.probed.empty());
  kept_.poll(now_ns_ + kProbeInterval);
  EXPECT_EQ(probe_.probed, std::vector<std::uint32_t>{77});
  show_connection(3, segment::ConnectionState::Open);
  kept_.poll(now_ns_ + 2 * kProbeInterval);
  EXPECT_EQ(probe_.probed.size(), 1u);
}

}  // namespace
}  // namespace sluice::process
