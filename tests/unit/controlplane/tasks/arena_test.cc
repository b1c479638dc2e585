// SPDX-License-Identifier: Apache-2.0
#include "controlplane/tasks/arena.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <atomic>
#include <future>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "tests/unit/base/counted_invariants.h"

namespace sluice::tasks {
namespace {

constexpr std::uint32_t kPatienceMs = 60'000;  // limit for expected events, far longer than they take

/// Delivers results until `done`, as a loop does. A result that never comes ends the test by its timeout.
template <typename Condition>
void deliver_until(Arena& arena, const Condition& done) {
  while (!done()) {
    pollfd wake{arena.descriptor(), POLLIN, 0};
    ::poll(&wake, 1, -1);
    arena.deliver();
  }
}

/// Work that blocks until the test opens the gate, like a lookup at a slow name server.
class Gate {
 public:
  Arena::Work work(std::string& order, const std::string& name) {
    return [state = state_, &order, name] {
      ++state->inside;
      state->open.get_future().wait();
      return Arena::Done([&order, name] { order += name; });
    };
  }
  void open() { state_->open.set_value(); }
  void wait_until_inside() const {
    while (state_->inside == 0) std::this_thread::yield();
  }

 private:
  struct State {
    std::promise<void> open;
    std::atomic<int> inside{0};
  };
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

TEST(TaskArena, work_runs_elsewhere_and_its_result_comes_to_the_loop) {
  Arena arena({.threads = 1, .queued = 1});
  const auto loop = std::this_thread::get_id();
  std::thread::id worked;
  std::thread::id delivered;
  ASSERT_TRUE(arena.start([&] {
    const auto here = std::this_thread::get_id();
    return Arena::Done([&worked, &delivered, here] {
      worked = here;
      delivered = std::this_thread::get_id();
    });
  }));
  EXPECT_EQ(arena.outstanding(), 1u);
  deliver_until(arena, [&] { return delivered != std::thread::id(); });
  EXPECT_EQ(delivered, loop);
  EXPECT_NE(worked, loop);
  EXPECT_EQ(arena.outstanding(), 0u);
}

TEST(TaskArena, an_arena_belongs_to_the_thread_of_its_loop) {
  Arena arena({.threads = 1, .queued = 1});
  bool delivered = false;
  ASSERT_TRUE(arena.start([&delivered] { return Arena::Done([&delivered] { delivered = true; }); }));
  std::thread([&arena] {
    const CountedInvariants counted;
    arena.deliver();
    EXPECT_EQ(counted.failed(Invariant::object_owner), 1u);
    EXPECT_TRUE(arena.start([] { return Arena::Done(); }));
    EXPECT_EQ(counted.failed(Invariant::object_owner), 2u);
  }).join();
  const CountedInvariants counted;
  deliver_until(arena, [&] { return delivered && arena.outstanding() == 0; });
  EXPECT_EQ(counted.failed(Invariant::object_owner), 0u);
}

TEST(TaskArena, nothing_waits_for_slow_work_while_a_thread_is_left) {
  Arena arena({.threads = 2, .queued = 4});
  Gate gate;
  std::string order;
  ASSERT_TRUE(arena.start(gate.work(order, "slow ")));
  gate.wait_until_inside();
  ASSERT_TRUE(arena.start([&order] { return Arena::Done([&order] { order += "quick "; }); }));
  deliver_until(arena, [&] { return !order.empty(); });
  EXPECT_EQ(order, "quick ");
  gate.open();
  deliver_until(arena, [&] { return arena.outstanding() == 0; });
  EXPECT_EQ(order, "quick slow ");
}

TEST(TaskArena, as_many_run_as_there_are_threads_whatever_the_processors) {
  constexpr std::uint32_t kThreads = kMaxThreads;
  Arena arena({.threads = kThreads, .queued = 0});
  struct Meeting {
    std::atomic<std::uint32_t> inside{0};
  };
  const auto meeting = std::make_shared<Meeting>();
  for (std::uint32_t i = 0; i < kThreads; ++i)
    ASSERT_TRUE(arena.start([meeting] {
      ++meeting->inside;
      while (meeting->inside < kThreads) std::this_thread::yield();  // until all threads have arrived
      return Arena::Done();
    }));
  deliver_until(arena, [&] { return arena.outstanding() == 0; });
  EXPECT_EQ(meeting->inside, kThreads);
}

TEST(TaskArena, a_full_arena_is_a_queue_then_a_refusal_and_both_are_counted) {
  Arena arena({.threads = 1, .queued = 2});
  Gate gate;
  std::string order;
  ASSERT_TRUE(arena.start(gate.work(order, "1")));
  for (const char* name : {"2", "3"})
    ASSERT_TRUE(arena.start([&order, name] { return Arena::Done([&order, name] { order += name; }); }));
  EXPECT_FALSE(arena.start([] { return Arena::Done(); }));
  EXPECT_EQ(arena.statistics().started, 3u);
  EXPECT_EQ(arena.statistics().delayed, 2u);
  EXPECT_EQ(arena.statistics().refused, 1u);
  gate.open();
  deliver_until(arena, [&] { return arena.outstanding() == 0; });
  EXPECT_EQ(order, "123") << "in their order";
  EXPECT_TRUE(arena.start([] { return Arena::Done(); })) << "there is room again";
}

TEST(TaskArena, what_work_throws_is_thrown_on_the_loop) {
  Arena arena({.threads = 1, .queued = 1});
  ASSERT_TRUE(arena.start([]() -> Arena::Done { throw std::runtime_error("from the work"); }));
  std::string what;
  while (what.empty()) {
    pollfd wake{arena.descriptor(), POLLIN, 0};
    ::poll(&wake, 1, -1);
    try {
      arena.deliver();
    } catch (const std::runtime_error& error) {
      what = error.what();
    }
  }
  EXPECT_EQ(what, "from the work");
  EXPECT_EQ(arena.outstanding(), 0u);
}

/// A destructor that waits for the blocked work would hang.
TEST(TaskArena, the_end_leaves_work_that_is_held_up_to_itself_and_drops_what_waits) {
  auto open = std::make_shared<std::promise<void>>();
  auto ended = std::make_shared<std::promise<void>>();
  auto inside = std::make_shared<std::promise<void>>();
  auto waiting = std::make_shared<int>(0);
  bool delivered = false;
  {
    Arena arena({.threads = 1, .queued = 1, .end_ms = 0});
    ASSERT_TRUE(arena.start([open, ended, inside, &delivered] {
      inside->set_value();
      open->get_future().wait();
      ended->set_value();
      return Arena::Done([&delivered] { delivered = true; });
    }));
    inside->get_future().wait();
    ASSERT_TRUE(arena.start([waiting] {
      ++*waiting;
      return Arena::Done();
    }));
  }
  EXPECT_EQ(waiting.use_count(), 1) << "what waited is gone";
  open->set_value();
  ended->get_future().wait();
  EXPECT_FALSE(delivered);
  EXPECT_EQ(*waiting, 0);
}

TEST(TaskArena, the_end_waits_for_work_that_ends) {
  auto finished = std::make_shared<std::atomic<bool>>(false);
  auto inside = std::make_shared<std::promise<void>>();
  {
    Arena arena({.threads = 1, .queued = 1, .end_ms = kPatienceMs});
    ASSERT_TRUE(arena.start([finished, inside] {
      inside->set_value();
      for (int i = 0; i < 100; ++i) std::this_thread::yield();
      *finished = true;
      return Arena::Done();
    }));
    inside->get_future().wait();
  }
  EXPECT_TRUE(*finished);
}

TEST(TaskArena, the_arenas_of_a_process_share_its_threads) {
  Arena first({.threads = kMaxThreads - 1, .queued = 1});
  EXPECT_THROW(Arena({.threads = 2, .queued = 1}), std::logic_error);
  Arena second({.threads = 1, .queued = 1});
}

}  // namespace
}  // namespace sluice::tasks
