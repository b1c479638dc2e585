// SPDX-License-Identifier: Apache-2.0
//
// Runs both planes against each other, one store at a time in random order. Either plane is suspended or
// killed between any two stores, and its successor has only the segment. At the end the state of both planes
// must be the same.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include "dataplane/segment/segment.h"
#include "tests/unit/model/fiber.h"
#include "tests/unit/model/sides.h"

namespace sluice {

namespace model {
namespace {

World* stores_of = nullptr;
constexpr std::uint32_t kStoresPerStep = 4;  ///< on average

}  // namespace
}  // namespace model

/// Between any two stores the other plane may run, or this plane may be killed.
void on_store_point() noexcept {
  model::World& world = *model::stores_of;
  if (!world.settling && model::one_in(world.random, model::kStoresPerStep)) model::Fiber::yield();
}

namespace model {
namespace {

constexpr std::uint32_t kRuns = 2000;
constexpr std::uint32_t kStepsPerRun = 1500;
constexpr std::uint32_t kTurnsToSettle = 400;

/// A segment that is zeroed for each run.
class Memory {
 public:
  segment::Layout& zeroed() {
    segment_ = segment::Segment::in_memory();
    return segment_->layout();
  }

 private:
  Owned<segment::Segment> segment_;
};

/// One plane and its successors.
template <typename Side>
class Lives {
 public:
  explicit Lives(World& world, void (*live)(Side&)) : world_(world), live_(live) { begin(); }
  void step() {
    if (paused_ > 0) {
      --paused_;
      return;
    }
    fiber_.resume();
  }
  void kill() { begin(); }
  void pause() { paused_ = static_cast<std::uint32_t>(world_.random() % 300); }
  void go_on() { paused_ = 0; }
  Side& side() { return *side_; }

 private:
  void begin() {
    side_ = std::make_unique<Side>(world_);
    fiber_.start([this] { live_(*side_); });
    paused_ = 0;
  }

  World& world_;
  void (*const live_)(Side&);
  std::unique_ptr<Side> side_;
  Fiber fiber_;
  std::uint32_t paused_ = 0;
};

void live(ModelReactor& reactor) {
  for (reactor.start();; Fiber::yield()) reactor.turn();
}
void live(ModelControlPlane& control) {
  for (control.take_over();; Fiber::yield()) control.turn();
}

void check_connection(World& world, ModelReactor& reactor, ModelControlPlane& control, std::uint32_t number) {
  const ModelReactor::Connection& connection = reactor.connection(number);
  const auto info = world.area().connections[number].read();
  ASSERT_TRUE(info);
  EXPECT_EQ(info->state != segment::ConnectionState::Unused, connection.open);
  EXPECT_EQ(control.watch().seen(0, number).incarnation, connection.open ? connection.incarnation : 0);
  if (!connection.open) return;
  const std::uint32_t incarnation = connection.incarnation;
  EXPECT_EQ(info->incarnation, incarnation);
  EXPECT_TRUE(control.made().count(incarnation)) << "the control plane does not know it";
  const segment::DesiredStateWriter wanted(world.area().wanted);
  const segment::DesiredState course = wanted.course(number, incarnation);
  EXPECT_FALSE(wanted.is_behind(number, incarnation, connection.followed));
  EXPECT_EQ(world.area().use[number].followed_course.load(), connection.followed.course);
  EXPECT_EQ(course.end, segment::End::No);
  EXPECT_EQ(course.established, connection.established);
  EXPECT_EQ(course.draining, connection.draining);
  EXPECT_EQ(course.admitted, !connection.host.empty());
  EXPECT_EQ(course.parameters, connection.parameters.has_value());
  const Ghost& ghost = world.ghosts[incarnation];
  EXPECT_FALSE(ghost.ended) << "its end was lost";
  EXPECT_EQ(connection.grant, ghost.grant.value_or(connection.grant)) << "a grant was lost";
  EXPECT_TRUE(connection.established || !ghost.established);
}

struct Totals {
  std::uint64_t connections = 0;
  std::uint64_t kills = 0;
};

void run(Memory& memory, std::uint32_t seed, Totals& totals) {
  SCOPED_TRACE("seed " + std::to_string(seed));
  World world(memory.zeroed(), seed);
  stores_of = &world;
  Lives<ModelReactor> reactor(world, &live);
  Lives<ModelControlPlane> control(world, &live);
  for (std::uint32_t i = 0; i < kStepsPerRun; ++i) {
    one_in(world.random, 2) ? reactor.step() : control.step();
    if (one_in(world.random, 400)) reactor.kill(), ++totals.kills;
    if (one_in(world.random, 300)) control.kill(), ++totals.kills;
    if (one_in(world.random, 200)) reactor.pause();
    if (one_in(world.random, 200)) control.pause();
  }
  world.settling = true;
  reactor.go_on(), control.go_on();
  // Both planes run complete iterations from here on, after each has finished its current one.
  for (std::uint32_t i = 0; i < kTurnsToSettle; ++i) reactor.step(), control.step();
  EXPECT_TRUE(reactor.side().idle());
  EXPECT_EQ(control.side().waiting(), 0u);
  EXPECT_EQ(world.area().commands.size(), 0u);
  std::uint32_t open = 0;
  for (std::uint32_t number = 0; number < kPlaces; ++number) {
    open += reactor.side().connection(number).open ? 1 : 0;
    check_connection(world, reactor.side(), control.side(), number);
  }
  EXPECT_EQ(control.side().made().size(), open);
  EXPECT_EQ(control.side().unmade(), 0u);
  EXPECT_EQ(control.side().held(), 0u);
  EXPECT_EQ(control.side().admission().connections(), open) << "admission does not count what is open";
  totals.connections += world.area().incarnations;
}

TEST(Planes, agree_on_every_connection_wherever_either_was_stopped_or_killed) {
  Memory memory;
  Totals totals;
  for (std::uint32_t seed = 1; seed <= kRuns && !HasFailure(); ++seed) run(memory, seed, totals);
  EXPECT_GT(totals.connections, kRuns) << "the model does nothing";
  EXPECT_GT(totals.kills, kRuns);
}

}  // namespace
}  // namespace model
}  // namespace sluice
