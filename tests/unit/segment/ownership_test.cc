// SPDX-License-Identifier: Apache-2.0
//
// Ownership of a segment by one control plane and one data plane. The planes are killed, suspended, resumed,
// started concurrently, and run in other PID namespaces. Another open file takes the place of another
// process.
#include "dataplane/segment/ownership.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "dataplane/base/file_descriptor.h"
#include "dataplane/base/setup_error.h"

namespace sluice::segment {
namespace {

constexpr const char* kStopIt = "Stop it first";

class Owners : public testing::Test {
 protected:
  ~Owners() override { Segment::remove(name_); }

  template <typename Action>
  static std::string refusal(Action action) {
    try {
      action();
    } catch (const SetupError& error) {
      return error.what();
    }
    return {};
  }
  std::unique_ptr<ControlOwnership> started() {
    auto owner = std::make_unique<ControlOwnership>(name_);
    owner->take();
    start_heartbeat(owner->layout().control_plane, monotonic_ns(), wall_ns());
    return owner;
  }
  std::string refusal_of_another() {
    return refusal([&] { ControlOwnership another(name_); });
  }
  /// Starts a process that runs `action`. It exits without cleanup when the test kills it.
  template <typename Action>
  pid_t process(Action action) {
    int ready[2];
    EXPECT_EQ(::pipe(ready), 0);
    const pid_t child = ::fork();
    if (child == 0) {
      action([&] { EXPECT_EQ(::write(ready[1], "r", 1), 1); });
      ::_exit(0);
    }
    char byte;
    EXPECT_EQ(::read(ready[0], &byte, 1), 1);
    ::close(ready[0]);
    ::close(ready[1]);
    return child;
  }
  bool exists() const { return std::filesystem::exists(path_of(name_, Part::Control)); }

  const std::string name_ = "sluice-owners-test-" + std::to_string(::getpid());
};

/// Heartbeat of a control plane that is not suspended.
class Beating {
 public:
  explicit Beating(Layout& layout)
      : thread_([this, &layout] {
          while (!stop_) {
            beat(layout.control_plane, monotonic_ns());
            std::this_thread::sleep_for(std::chrono::milliseconds(2));
          }
        }) {}
  ~Beating() {
    stop_ = true;
    thread_.join();
  }

 private:
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

TEST_F(Owners, one_that_beats_is_left_alone) {
  const auto first = started();
  const Beating beating(first->layout());
  const std::string said = refusal_of_another();
  EXPECT_NE(said.find(kStopIt), std::string::npos) << said;
  EXPECT_NE(said.find("(process " + std::to_string(::getpid()) + ")"), std::string::npos) << said;
  EXPECT_TRUE(first->enter());
}

TEST_F(Owners, nothing_is_seen_of_one_before_it_takes) {
  { const ControlOwnership refused(name_); }
  EXPECT_FALSE(exists());
  const auto first = std::make_unique<ControlOwnership>(name_);
  EXPECT_FALSE(exists());
  EXPECT_FALSE(first->enter());
  first->take();
  EXPECT_TRUE(exists());
  EXPECT_TRUE(first->enter());
}

TEST_F(Owners, a_start_that_is_given_up_leaves_the_segment_as_it_was) {
  started().reset();
  const auto onlooker = Segment::attach(name_);
  const auto bytes = [&] {
    return std::string(reinterpret_cast<const char*>(&onlooker->control_part()), sizeof(ControlPart));
  };
  const std::string before = bytes();
  {
    const ControlOwnership refused(name_);
    EXPECT_NE(refusal_of_another().find(kStopIt), std::string::npos);  // neither has completed its start
  }
  EXPECT_TRUE(bytes() == before);
  EXPECT_EQ(started()->epoch(), 2u);
}

TEST_F(Owners, a_reader_that_locks_the_file_keeps_the_next_one_from_starting) {
  started().reset();
  auto reader = PartFile::open(name_, Part::Control, PartFile::Access::Read);
  ASSERT_TRUE(reader && file_lock::take_shared(reader->descriptor(), control_plane_lock(2)));
  EXPECT_NE(refusal_of_another().find("owns segment '" + name_ + "'"), std::string::npos);
  reader.reset();
  EXPECT_EQ(started()->epoch(), 2u);
}

TEST_F(Owners, one_that_ended_shows_it_and_has_a_successor_at_once) {
  started().reset();
  const auto onlooker = Segment::attach(name_);
  EXPECT_EQ(onlooker->layout().control_plane.pid, 0u);
  const auto second = started();
  EXPECT_EQ(second->epoch(), 2u);
  EXPECT_EQ(second->stopped_predecessor(), 0u);
  EXPECT_EQ(epoch_of(onlooker->layout().control_plane.owner), 2u);
}

/// The heartbeat and the process id do not matter, because a zombie keeps its id and an unrelated process may
/// have the same one.
TEST_F(Owners, one_that_was_killed_in_the_middle_of_its_work_has_a_successor_at_once) {
  const pid_t child = process([&](auto ready) {
    const auto killed = started();
    beat(killed->layout().control_plane, monotonic_ns() + 60'000'000'000);
    auto turn = killed->enter();
    ready();
    ::_exit(0);
  });
  siginfo_t unused;
  ::waitid(P_PID, static_cast<id_t>(child), &unused, WEXITED | WNOWAIT);
  const auto second = started();
  EXPECT_EQ(second->stopped_predecessor(), 0u);
  EXPECT_TRUE(second->enter());
  EXPECT_EQ(second->layout().control_plane.owner, std::uint64_t{2} << 32);
  ::waitpid(child, nullptr, 0);
}

TEST_F(Owners, one_that_was_stopped_gets_no_turn_after_its_successor_and_clears_nothing) {
  auto first = started();
  const auto second = started();
  EXPECT_EQ(second->stopped_predecessor(), 1u);
  EXPECT_FALSE(first->enter());
  EXPECT_TRUE(second->enter());
  first.reset();
  EXPECT_EQ(second->layout().control_plane.pid, static_cast<std::uint32_t>(::getpid()));
  EXPECT_TRUE(second->enter());
}

TEST_F(Owners, one_that_was_stopped_in_the_middle_of_its_work_is_not_taken_over) {
  const auto first = started();
  {
    const auto turn = first->enter();
    const std::string said = refusal_of_another();
    EXPECT_NE(said.find("in the middle of a write"), std::string::npos) << said;
    EXPECT_NE(said.find("kill -KILL " + std::to_string(::getpid())), std::string::npos) << said;
  }
  EXPECT_TRUE(first->enter());
}

TEST_F(Owners, one_that_comes_back_before_its_successor_takes_stays) {
  const auto first = started();
  ControlOwnership second(name_);
  beat(first->layout().control_plane, monotonic_ns());
  EXPECT_NE(refusal([&] { second.take(); }).find(kStopIt), std::string::npos);
  EXPECT_TRUE(first->enter());
  EXPECT_FALSE(second.enter());
}

TEST_F(Owners, one_that_writes_when_its_successor_takes_stays_until_it_has_written) {
  const auto first = started();
  ControlOwnership second(name_);
  {
    const auto turn = first->enter();
    EXPECT_NE(refusal([&] { second.take(); }).find(kStopIt), std::string::npos);
    EXPECT_FALSE(second.enter());
  }
  EXPECT_EQ(refusal([&] { second.take(); }), "");
  EXPECT_FALSE(first->enter());
  EXPECT_TRUE(second.enter());
}

/// The first control plane is resumed at any moment while the second one takes over.
TEST_F(Owners, two_never_have_a_turn_at_the_same_time) {
  const auto first = started();
  ControlOwnership second(name_);
  std::atomic<int> inside{0};
  std::atomic<int> overlaps{0};
  std::atomic<int> turns{0};
  std::thread continued([&] {
    while (const auto turn = first->enter()) {
      ++turns;
      if (++inside != 1) ++overlaps;
      std::this_thread::yield();
      --inside;
    }
  });
  while (turns == 0) std::this_thread::yield();
  while (!refusal([&] { second.take(); }).empty()) std::this_thread::yield();
  for (int i = 0; i < 1000; ++i) {
    const auto turn = second.enter();
    ASSERT_TRUE(turn);
    if (++inside != 1) ++overlaps;
    --inside;
  }
  continued.join();
  EXPECT_EQ(overlaps, 0);
}

TEST_F(Owners, of_two_that_make_the_segment_together_one_is_refused) {
  ControlOwnership one(name_);
  ControlOwnership other(name_);
  one.take();
  EXPECT_NE(refusal([&] { other.take(); }).find(kStopIt), std::string::npos);
  EXPECT_TRUE(one.enter());
  EXPECT_FALSE(other.enter());
  EXPECT_EQ(epoch_of(Segment::attach(name_)->layout().control_plane.owner), 1u);
}

/// The process id is 1, which identifies nothing here.
TEST_F(Owners, one_in_another_pid_namespace_is_left_alone) {
  const pid_t outer = ::fork();
  if (outer == 0) {
    if (::unshare(CLONE_NEWPID) != 0) ::_exit(77);
    const pid_t inner = ::fork();
    if (inner == 0) {
      const auto first = started();
      const Beating beating(first->layout());
      ::pause();
    }
    ::pause();
  }
  int status = 0;
  while (!exists()) {
    if (::waitpid(outer, &status, WNOHANG) == outer) GTEST_SKIP() << "PID namespaces are not permitted here";
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  const auto onlooker = Segment::attach(name_);
  while (onlooker->layout().control_plane.beats < 3)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_EQ(onlooker->layout().control_plane.pid, 1u);
  EXPECT_NE(refusal_of_another().find(kStopIt), std::string::npos);
  // Killing the first process of a PID namespace kills the namespace.
  const std::string children =
      "/proc/" + std::to_string(outer) + "/task/" + std::to_string(outer) + "/children";
  std::ifstream file(children);
  pid_t inner = 0;
  file >> inner;
  ::kill(inner, SIGKILL);
  EXPECT_EQ(refusal([&] { started(); }), "");
  ::kill(outer, SIGKILL);
  ::waitpid(outer, nullptr, 0);
}

TEST_F(Owners, one_data_plane_has_a_segment_until_it_ends) {
  const auto control = started();
  Segment& onlooker = control->segment();
  EXPECT_FALSE(onlooker.data_plane_runs());
  const auto segment = Segment::attach(name_);
  {
    const DataPlaneOwnership first(*segment);
    start_heartbeat(segment->layout().data_plane, monotonic_ns(), wall_ns());
    EXPECT_EQ(onlooker.refresh(Part::Data), Segment::Found::Appeared);
    EXPECT_TRUE(onlooker.data_plane_runs());
    const auto again = Segment::attach(name_);
    const auto another = [&] { const DataPlaneOwnership second(*again); };
    EXPECT_NE(refusal(another).find(kStopIt), std::string::npos);
    beat(segment->layout().data_plane, monotonic_ns() - kHeartbeatTimeoutNs - 1);
    EXPECT_NE(refusal(another).find("its heartbeat has stopped"), std::string::npos) << refusal(another);
  }
  EXPECT_FALSE(onlooker.data_plane_runs());
}

TEST_F(Owners, a_data_plane_waits_for_one_that_is_about_to_end) {
  const auto control = started();
  const auto segment = Segment::attach(name_);
  auto first = std::make_unique<DataPlaneOwnership>(*segment);
  const auto again = Segment::attach(name_);
  std::thread end([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    first.reset();
  });
  EXPECT_EQ(refusal([&] { const DataPlaneOwnership second(*again); }), "");
  end.join();
}

TEST_F(Owners, a_data_plane_that_was_killed_has_a_successor_at_once) {
  const auto control = started();
  const pid_t child = process([&](auto ready) {
    const auto segment = Segment::attach(name_);
    const DataPlaneOwnership killed(*segment);
    start_heartbeat(segment->layout().data_plane, monotonic_ns(), wall_ns());
    ready();
    ::pause();
  });
  EXPECT_EQ(control->segment().refresh(Part::Data), Segment::Found::Appeared);
  EXPECT_TRUE(control->segment().data_plane_runs());
  ::kill(child, SIGKILL);
  siginfo_t unused;
  ::waitid(P_PID, static_cast<id_t>(child), &unused, WEXITED | WNOWAIT);
  EXPECT_FALSE(control->segment().data_plane_runs());
  const auto segment = Segment::attach(name_);
  EXPECT_EQ(refusal([&] {
              const DataPlaneOwnership second(*segment);
              EXPECT_FALSE(alive(segment->layout().data_plane, monotonic_ns()))
                  << "the heart of the one before";
            }),
            "");
  ::waitpid(child, nullptr, 0);
}

}  // namespace
}  // namespace sluice::segment
