// SPDX-License-Identifier: Apache-2.0
#include "dataplane/reactor/reactor.h"

#include <functional>
#include <thread>

#include "tests/unit/base/counted_invariants.h"
#include "tests/unit/reactor/reactor_lab.h"

namespace sluice::reactor {
namespace {

std::uint64_t now_ns;
std::uint64_t clock() noexcept {
  return now_ns;
}

/// Counts its polls, and reports work for the first `work` of them.
class CountingPoller final : public service::Poller {
 public:
  bool poll(std::uint64_t) noexcept override {
    ++polls;
    return work > 0 && work-- > 0;
  }
  std::uint32_t polls = 0;
  std::uint32_t work = 0;
};

/// Records the times of its passes and calls `on_pass`, which stops the loop in some tests.
class CountingTask final : public ControlTask {
 public:
  void on_control_pass(std::uint64_t now) noexcept override {
    times.push_back(now);
    if (on_pass) on_pass();
  }
  std::vector<std::uint64_t> times;
  std::function<void()> on_pass;
};

class ReactorTest : public testing::Test {
 protected:
  ReactorTest() {
    now_ns = 1'000'000'000;
    reactor_.add_control_task(task_);
  }
  void turns(std::uint32_t count) {
    for (std::uint32_t i = 0; i < count; ++i) reactor_.poll_once();
  }
  void push(const segment::Command& command) { ASSERT_TRUE(segment_.area().commands.push(command)); }
  std::uint64_t counter(std::string_view name) {
    for (std::size_t i = 0; i < segment::kReactorCounterCount; ++i)
      if (segment::kReactorCounters[i].name == name) return segment_.area().counters[i].load();
    return ~0ull;
  }

  FakeDevice device_;
  rpcrdma::Engine engine_{device_, lab_engine()};
  MemorySegment segment_;
  Reactor reactor_{lab_config(), engine_, segment_.layout(), &clock};
  CountingTask task_;
};

TEST_F(ReactorTest, the_thread_that_runs_it_owns_it_with_its_engine) {
  turns(1);
  task_.on_pass = [this] { reactor_.stop(); };
  std::thread([this] {
    const CountedInvariants counted;
    reactor_.run();
    EXPECT_EQ(counted.failed(Invariant::object_owner), 0u);
  }).join();
  const CountedInvariants counted;
  engine_.poll(now_ns);
  EXPECT_EQ(counted.failed(Invariant::object_owner), kAbortOnInvariant ? 1u : 0u);
}

TEST_F(ReactorTest, a_control_pass_comes_first_and_then_every_so_many_turns) {
  turns(1);
  EXPECT_EQ(task_.times.size(), 1u);
  turns(kTurnsPerControlPass);
  EXPECT_EQ(task_.times.size(), 1u);
  now_ns += 5;
  turns(1);
  ASSERT_EQ(task_.times.size(), 2u);
  EXPECT_EQ(task_.times[1], now_ns);
}

TEST_F(ReactorTest, turns_count_as_busy_by_what_they_found) {
  CountingPoller poller;
  reactor_.add_poller(poller);
  poller.work = 3;
  turns(kTurnsPerControlPass + 2);
  EXPECT_EQ(poller.polls, kTurnsPerControlPass + 2);
  reactor_.stop();
  reactor_.run();
  EXPECT_EQ(counter("polls_busy"), 3u);
  EXPECT_EQ(counter("polls_idle"), kTurnsPerControlPass - 1);
}

/// A poller whose busy and idle polls take fixed times on the clock of the test.
class SlowPoller final : public service::Poller {
 public:
  bool poll(std::uint64_t) noexcept override {
    const bool busy = polls++ % 4 != 0;
    now_ns += busy ? kBusyNs : kIdleNs;
    (busy ? busy_ns : idle_ns) += busy ? kBusyNs : kIdleNs;
    return busy;
  }
  static constexpr std::uint64_t kBusyNs = 900, kIdleNs = 100;
  std::uint64_t polls = 0, busy_ns = 0, idle_ns = 0;
};

TEST_F(ReactorTest, time_of_turns_is_told_apart_by_what_they_found) {
  SlowPoller poller;
  reactor_.add_poller(poller);
  std::uint64_t passes_ns = 0;
  SlowPoller at_publication;
  task_.on_pass = [&] {
    at_publication = poller;
    if (task_.times.size() == 20) reactor_.stop();
    if (reactor_.stopped()) return;
    now_ns += 5'000;
    passes_ns += 5'000;
  };
  reactor_.run();
  // Excludes the last pass, which published before its tasks ran. The iteration that it belongs to was busy
  // or idle.
  EXPECT_EQ(counter("upstreams_ns"), at_publication.busy_ns);
  EXPECT_EQ(counter("idle_ns"), at_publication.idle_ns);
  EXPECT_EQ(counter("control_ns"), passes_ns);
  EXPECT_EQ(counter("device_ns") + counter("calls_ns") + counter("services_ns"), 0u);
}

TEST_F(ReactorTest, without_an_idle_turn_there_is_no_idle_time) {
  now_ns += 1;
  CountingPoller poller;
  poller.work = 1000 * kTurnsPerControlPass;
  reactor_.add_poller(poller);
  task_.on_pass = [&] {
    if (task_.times.size() == 20) reactor_.stop();
  };
  reactor_.run();
  EXPECT_EQ(counter("idle_ns"), 0u);
}

/// Work of a device without a completion counts as work, and the reactor does not sleep.
TEST_F(ReactorTest, a_device_that_moves_data_is_not_idle) {
  device_.on_poll = [&](bool& moved) {
    now_ns += 400;
    moved = true;
  };
  task_.on_pass = [&] {
    if (task_.times.size() == 3) reactor_.stop();
  };
  reactor_.run();
  EXPECT_EQ(counter("device_ns"), (2 * (kTurnsPerControlPass + 1) + 1) * 400u);
  EXPECT_EQ(counter("idle_ns"), 0u);
  EXPECT_EQ(counter("polls_idle"), 0u);
}

TEST_F(ReactorTest, a_device_that_finds_nothing_is_idle) {
  device_.on_poll = [&](bool& moved) {
    now_ns += 400;
    moved = false;
  };
  task_.on_pass = [&] {
    if (task_.times.size() == 3) reactor_.stop();
  };
  reactor_.run();
  EXPECT_EQ(counter("idle_ns"), (2 * (kTurnsPerControlPass + 1) + 1) * 400u);
  EXPECT_EQ(counter("device_ns"), 0u);
}

TEST_F(ReactorTest, sleep_between_turns_is_idle_time) {
  constexpr std::uint64_t kSleptNs = 5'000'000, kWorkNs = 3'000;
  ReactorConfig config = lab_config();
  config.idle = segment::IdlePolicy::Backoff;
  Reactor sleepy(config, engine_, segment_.layout(), []() noexcept { return now_ns += 100; });
  CountingPoller poller;
  sleepy.add_poller(poller);
  device_.on_wait = [&] {
    now_ns += kSleptNs;
    poller.work = 1;
  };
  CountingTask task;
  task.on_pass = [&] {
    now_ns += kWorkNs;
    if (task.times.size() == 50) sleepy.stop();
  };
  sleepy.add_control_task(task);
  sleepy.run();
  ASSERT_FALSE(device_.waits.empty());
  EXPECT_LE(counter("upstreams_ns"), device_.waits.size() * 200);
  EXPECT_GE(counter("idle_ns"), device_.waits.size() * kSleptNs);
}

TEST_F(ReactorTest, a_shutdown_ends_the_loop_and_is_shown) {
  push({.type = segment::CommandType::Shutdown, .id = 7});
  reactor_.run();
  EXPECT_TRUE(reactor_.stopped());
  const auto done = segment_.event();
  ASSERT_TRUE(done && done->type == segment::EventType::CommandDone);
  EXPECT_EQ(done->id, 7u);
  EXPECT_EQ(segment_.area().info.read()->state, segment::ReactorState::Stopped);
  EXPECT_EQ(task_.times.size(), 2u);
}

TEST_F(ReactorTest, a_control_plane_that_takes_over_is_counted) {
  turns(1);
  EXPECT_EQ(counter("control_plane_changes"), 0u);
  segment_.layout().control_plane.pid = 4711;  // may equal the predecessor's process id
  segment_.layout().control_plane.owner = std::uint64_t{1}
                                          << 32;  // before it has read its predecessor's events
  turns(2 * kTurnsPerControlPass + 2);
  EXPECT_EQ(counter("control_plane_changes"), 0u);
  segment_.layout().reading_epoch = 1;
  turns(2 * kTurnsPerControlPass + 2);
  EXPECT_EQ(counter("control_plane_changes"), 1u);
}

TEST_F(ReactorTest, datagrams_pass_where_the_control_plane_manages_connections) {
  device_.received.push_back({});
  turns(1);
  EXPECT_EQ(segment_.area().punt_up.size(), 1u);
}

TEST_F(ReactorTest, a_connection_has_the_services_of_the_port_that_it_came_to) {
  push({.type = segment::CommandType::Accept, .id = 1, .cm_id = 5, .services_at = 20050, .credits = 4});
  turns(1);
  ASSERT_EQ(segment_.event()->status, segment::CommandStatus::Done);
  EXPECT_EQ(engine_.connection(0).config().services_at, 20050u);
}

TEST_F(ReactorTest, a_drained_connection_ends_and_is_reported) {
  push({.type = segment::CommandType::Accept, .id = 1, .cm_id = 5, .credits = 4});
  turns(1);
  ASSERT_EQ(segment_.event()->status, segment::CommandStatus::Done);
  segment::DesiredStateWriter(segment_.area().wanted).drain(0, 1, true);
  turns(3 * kTurnsPerControlPass);
  const auto down = segment_.event();
  ASSERT_TRUE(down && down->type == segment::EventType::ConnectionDown);
  EXPECT_EQ(down->reason, static_cast<std::uint32_t>(rpcrdma::CloseReason::LocalClose));
}

TEST_F(ReactorTest, what_is_wanted_is_found_within_some_passes_though_its_hint_was_lost) {
  push({.type = segment::CommandType::Accept, .id = 1, .cm_id = 5, .credits = 4, .first_grant = 4});
  turns(1);
  auto& wanted = segment_.area().wanted;
  segment::DesiredStateWriter(wanted).grant(0, 1, {.credits = 2});
  std::uint32_t hint = 0;
  while (wanted.hints.pop(hint)) {
  }
  constexpr std::uint32_t kPasses = (kConnections + kConnectionsPerPass - 1) / kConnectionsPerPass;
  turns((kPasses + 1) * (kTurnsPerControlPass + 1));
  EXPECT_EQ(segment_.area().use[0].granted.load(), 2u);
  EXPECT_EQ(segment_.area().use[0].followed_grant.load(), wanted.words[0].grant.load());
  EXPECT_EQ(counter("wants_found"), 1u);
}

TEST_F(ReactorTest, credits_are_restored_while_the_control_planes_heart_does_not_beat) {
  push({.type = segment::CommandType::Accept, .id = 1, .cm_id = 5, .credits = 4, .first_grant = 1});
  turns(1);
  segment::DesiredStateWriter(segment_.area().wanted).grant(0, 1, {.credits = 2});
  constexpr std::uint32_t kPasses = (kConnections + kConnectionsPerPass - 1) / kConnectionsPerPass;
  const auto granted = [&] {
    turns((kPasses + 1) * (kTurnsPerControlPass + 1));
    return segment_.area().use[0].granted.load();
  };
  EXPECT_EQ(granted(), 2u);
  for (int i = 0; i < 3; ++i) {
    now_ns += segment::kHeartbeatTimeoutNs;
    ++segment_.layout().control_plane.beats;
    EXPECT_EQ(granted(), 2u) << "it beats";
  }
  now_ns += segment::kHeartbeatTimeoutNs;
  EXPECT_EQ(granted(), 4u);
  ++segment_.layout().control_plane.beats;
  EXPECT_EQ(granted(), 2u);
}

TEST_F(ReactorTest, a_peer_that_is_heard_is_up_without_a_word_of_the_control_plane) {
  push({.type = segment::CommandType::Accept, .cm_id = 5, .credits = 4});
  turns(1);
  device_.queue_pairs[0]->heard = true;
  turns(kTurnsPerControlPass + 1);
  const auto up = segment_.event();
  ASSERT_TRUE(up && up->type == segment::EventType::ConnectionUp);
}

TEST_F(ReactorTest, a_reactor_that_sleeps_runs_its_control_pass_in_time) {
  ReactorConfig config = lab_config();
  config.idle = segment::IdlePolicy::Backoff;
  Reactor sleepy(config, engine_, segment_.layout(), []() noexcept { return now_ns += 400'000; });
  CountingTask task;
  std::uint32_t passes = 0;
  task.on_pass = [&] {
    if (++passes == 4) sleepy.stop();
  };
  sleepy.add_control_task(task);
  sleepy.run();
  // A reactor that does not run a control pass after a sleep has passes 256 iterations apart.
  EXPECT_LT(task.times[3] - task.times[2], kTurnsPerControlPass * 400'000ull);
  EXPECT_FALSE(device_.waits.empty());
}

}  // namespace
}  // namespace sluice::reactor
