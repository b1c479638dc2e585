// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/reactor/reactor_lab.h"

namespace sluice::reactor {
namespace {

using segment::CommandStatus;
using segment::CommandType;

class CommandsTest : public testing::Test {
 protected:
  static constexpr std::uint32_t kCmId = 41;

  segment::Command command(CommandType type) const {
    return {.type = type, .cm_id = kCmId, .connection = connection_.number()};
  }
  FakeDevice device_;
  Parts parts_{device_};
  rpcrdma::Connection& connection_ = parts_.establish(kCmId);
};

TEST_F(CommandsTest, an_empty_ring_is_no_work) {
  EXPECT_FALSE(parts_.commands.poll());
  EXPECT_FALSE(parts_.segment.event());
}

TEST_F(CommandsTest, a_pass_takes_a_bounded_number) {
  for (std::size_t i = 0; i < kCommandsPerPass + 1; ++i)
    ASSERT_TRUE(parts_.segment.area().commands.push(command(CommandType::ConnectFailed)));
  EXPECT_TRUE(parts_.commands.poll());
  EXPECT_EQ(parts_.segment.area().commands.size(), 1u);
}

TEST_F(CommandsTest, connections_are_made_one_at_a_time_and_what_is_behind_one_waits_with_it) {
  segment::Command establish = command(CommandType::Accept);
  for (const std::uint32_t cm_id : {51u, 52u}) {
    establish.cm_id = cm_id;
    ASSERT_TRUE(parts_.segment.area().commands.push(establish));
  }
  ASSERT_TRUE(parts_.segment.area().commands.push(command(CommandType::Reject)));
  pass_time(SetupPace::kIntervalNs);
  const std::uint64_t delayed = parts_.counters.connections_delayed;
  EXPECT_TRUE(parts_.commands.poll());
  EXPECT_NE(parts_.connections.find(rdma::CmId{51}), nullptr);
  pass_time(SetupPace::kIntervalNs - 1);
  EXPECT_TRUE(parts_.commands.poll()) << "one that waits is work";
  EXPECT_EQ(parts_.connections.find(rdma::CmId{52}), nullptr);
  EXPECT_EQ(parts_.segment.area().commands.size(), 1u);
  EXPECT_EQ(parts_.counters.connections_delayed, delayed + 1);
  pass_time(1);
  EXPECT_TRUE(parts_.commands.poll());
  EXPECT_NE(parts_.connections.find(rdma::CmId{52}), nullptr);
  EXPECT_EQ(parts_.segment.area().commands.size(), 0u);
  EXPECT_FALSE(parts_.commands.poll());
}

TEST_F(CommandsTest, what_makes_no_connection_does_not_wait) {
  pass_time(SetupPace::kIntervalNs);
  segment::Command establish = command(CommandType::Accept);
  establish.cm_id = 51;
  ASSERT_TRUE(parts_.segment.area().commands.push(establish));
  ASSERT_TRUE(parts_.segment.area().commands.push(command(CommandType::Reject)));
  EXPECT_TRUE(parts_.commands.poll());
  EXPECT_EQ(parts_.segment.area().commands.size(), 0u);
  EXPECT_EQ(parts_.counters.connections_delayed, 0u);
}

class SlowDevice : public CommandsTest {
 protected:
  SlowDevice() { pass_time(SetupPace::kMostNs); }
  void push(CommandType type, std::uint32_t id) {
    segment::Command pushed = command(type);
    pushed.id = pushed.cm_id = id;
    ASSERT_TRUE(parts_.segment.area().commands.push(pushed));
  }
};

TEST_F(SlowDevice, an_answer_comes_when_the_device_has_connected_and_what_is_behind_waits) {
  device_.connects_later = true;
  push(CommandType::Accept, 51);
  push(CommandType::Reject, 52);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(parts_.commands.poll()) << "one that waits is work";
  EXPECT_TRUE(parts_.segment.events().empty());
  EXPECT_EQ(parts_.segment.area().commands.size(), 1u);
  device_.queue_pairs.back()->finish_connect();
  EXPECT_TRUE(parts_.commands.poll());
  const auto answers = parts_.segment.events();
  ASSERT_EQ(answers.size(), 2u);
  EXPECT_EQ(answers[0].id, 51u);
  EXPECT_EQ(answers[0].status, CommandStatus::Done);
  EXPECT_EQ(answers[0].queue_pair, static_cast<std::uint32_t>(device_.queue_pairs.back()->number()));
  EXPECT_EQ(answers[1].id, 52u);
}

TEST_F(SlowDevice, a_connection_that_the_device_refuses_later_fails_and_ends) {
  device_.connects_later = true;
  push(CommandType::Accept, 51);
  EXPECT_TRUE(parts_.commands.poll());
  device_.queue_pairs.back()->to_error();
  EXPECT_TRUE(parts_.commands.poll());
  const auto answer = parts_.segment.event();
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->status, CommandStatus::Failed);
  EXPECT_EQ(parts_.connections.find(rdma::CmId{51}), nullptr);
}

TEST_F(SlowDevice, one_that_ends_while_the_device_connects_it_fails) {
  device_.connects_later = true;
  push(CommandType::Accept, 51);
  EXPECT_TRUE(parts_.commands.poll());
  parts_.connections.find(rdma::CmId{51})->close(rpcrdma::CloseReason::LocalClose);
  EXPECT_TRUE(parts_.commands.poll());
  const auto answer = parts_.segment.event();
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->status, CommandStatus::Failed);
}

TEST_F(SlowDevice, a_connection_waits_for_a_queue_pair_that_is_being_made) {
  device_.has_one_ready = false;
  push(CommandType::Accept, 51);
  const std::uint64_t delayed = parts_.counters.connections_delayed;
  EXPECT_TRUE(parts_.commands.poll());
  EXPECT_TRUE(parts_.commands.poll());
  EXPECT_EQ(parts_.connections.find(rdma::CmId{51}), nullptr);
  EXPECT_EQ(parts_.counters.connections_delayed, delayed + 1);
  device_.has_one_ready = true;
  EXPECT_TRUE(parts_.commands.poll());
  EXPECT_NE(parts_.connections.find(rdma::CmId{51}), nullptr);
}

TEST(SetupPace, a_device_that_needs_long_leaves_more_time_for_calls) {
  SetupPace pace;
  EXPECT_TRUE(pace.due(0));
  pace.made(1000, 101'000);
  constexpr std::uint64_t kNext = 101'000 + SetupPace::kRest * 100'000;
  EXPECT_FALSE(pace.due(kNext - 1));
  EXPECT_TRUE(pace.due(kNext));
  pace.made(0, 1'000'000'000);
  EXPECT_TRUE(pace.due(1'000'000'000 + SetupPace::kMostNs)) << "but not for ever";
}

TEST_F(CommandsTest, the_answer_names_command_and_connection_and_both_outcomes_are_counted) {
  const std::uint64_t done = parts_.counters.commands;
  segment::Command establish = command(CommandType::Accept);
  establish.cm_id = kCmId + 1;
  const segment::Event answer = parts_.run(establish);
  EXPECT_EQ(answer.status, CommandStatus::Done);
  EXPECT_EQ(answer.cm_id, kCmId + 1);
  EXPECT_NE(answer.connection, connection_.number());
  EXPECT_EQ(answer.incarnation,
            parts_.segment.entry(static_cast<std::uint16_t>(answer.connection)).incarnation);
  EXPECT_EQ(parts_.counters.commands, done + 1);
  EXPECT_EQ(parts_.status_of(command(CommandType::Reject)), CommandStatus::UnknownConnection);
  EXPECT_EQ(parts_.counters.commands_refused, 1u);
}

TEST_F(CommandsTest, a_command_without_id_gets_no_answer) {
  ASSERT_TRUE(parts_.segment.area().commands.push(command(CommandType::ConnectFailed)));
  EXPECT_TRUE(parts_.commands.poll());
  EXPECT_FALSE(parts_.segment.event());
}

TEST_F(CommandsTest, an_answer_that_finds_no_room_waits_and_with_it_further_commands) {
  auto& events = parts_.segment.area().events;
  while (events.push({})) {
  }
  auto& commands = parts_.segment.area().commands;
  for (const std::uint32_t id : {21u, 22u}) {
    segment::Command reject = command(CommandType::Reject);
    reject.id = id;
    ASSERT_TRUE(commands.push(reject));
  }
  EXPECT_TRUE(parts_.commands.poll());
  EXPECT_FALSE(parts_.commands.poll()) << "waiting is no work";
  EXPECT_EQ(commands.size(), 1u);
  EXPECT_EQ(parts_.counters.answers_delayed, 1u);
  parts_.segment.events();
  EXPECT_TRUE(parts_.commands.poll());
  const auto answers = parts_.segment.events();
  ASSERT_EQ(answers.size(), 2u);
  EXPECT_EQ(answers[0].id, 21u);
  EXPECT_EQ(answers[1].id, 22u);
}

TEST_F(CommandsTest, shutdown_is_asked_for_by_its_command_alone) {
  parts_.run(command(CommandType::ConnectFailed));
  EXPECT_FALSE(parts_.commands.shutdown_requested());
  EXPECT_EQ(parts_.status_of(command(CommandType::Shutdown)), CommandStatus::Done);
  EXPECT_TRUE(parts_.commands.shutdown_requested());
}

TEST_F(CommandsTest, a_command_type_that_is_none_changes_nothing) {
  EXPECT_EQ(parts_.status_of(command(static_cast<CommandType>(999))), CommandStatus::UnknownConnection);
  EXPECT_TRUE(connection_.is_open());
}

}  // namespace
}  // namespace sluice::reactor
