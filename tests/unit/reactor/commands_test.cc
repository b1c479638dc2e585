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
  rpcrdma::CloseReason reason_after(std::uint32_t reason) {
    segment::Command close = command(CommandType::Close);
    close.reason = reason;
    EXPECT_EQ(parts_.status_of(close), CommandStatus::Done);
    EXPECT_FALSE(connection_.is_open());
    return connection_.close_reason();
  }
  segment::ConnectionUse& use() { return parts_.segment.area().use[connection_.number()]; }

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
    ASSERT_TRUE(parts_.segment.area().commands.push(command(CommandType::Trace)));
  EXPECT_TRUE(parts_.commands.poll());
  EXPECT_EQ(parts_.segment.area().commands.size(), 1u);
}

TEST_F(CommandsTest, connections_are_made_one_at_a_time_and_what_is_behind_one_waits_with_it) {
  segment::Command establish = command(CommandType::Establish);
  for (const std::uint32_t cm_id : {51u, 52u}) {
    establish.cm_id = cm_id;
    ASSERT_TRUE(parts_.segment.area().commands.push(establish));
  }
  ASSERT_TRUE(parts_.segment.area().commands.push(command(CommandType::Close)));
  pass_time(SetupPace::kIntervalNs);
  const std::uint64_t delayed = parts_.counters.connections_delayed;
  EXPECT_TRUE(parts_.commands.poll());
  EXPECT_NE(parts_.connections.find(rdma::CmId{51}), nullptr);
  pass_time(SetupPace::kIntervalNs - 1);
  EXPECT_TRUE(parts_.commands.poll()) << "one that waits is work";
  EXPECT_EQ(parts_.connections.find(rdma::CmId{52}), nullptr);
  EXPECT_TRUE(connection_.is_open());
  EXPECT_EQ(parts_.counters.connections_delayed, delayed + 1);
  pass_time(1);
  EXPECT_TRUE(parts_.commands.poll());
  EXPECT_NE(parts_.connections.find(rdma::CmId{52}), nullptr);
  EXPECT_FALSE(connection_.is_open());
  EXPECT_FALSE(parts_.commands.poll());
}

TEST_F(CommandsTest, what_makes_no_connection_does_not_wait) {
  pass_time(SetupPace::kIntervalNs);
  segment::Command establish = command(CommandType::Establish);
  establish.cm_id = 51;
  ASSERT_TRUE(parts_.segment.area().commands.push(establish));
  ASSERT_TRUE(parts_.segment.area().commands.push(command(CommandType::Close)));
  EXPECT_TRUE(parts_.commands.poll());
  EXPECT_FALSE(connection_.is_open());
  EXPECT_EQ(parts_.counters.connections_delayed, 0u);
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
  segment::Command trace = command(CommandType::Trace);
  const segment::Event answer = parts_.run(trace);
  EXPECT_EQ(answer.status, CommandStatus::Done);
  EXPECT_EQ(answer.cm_id, kCmId);
  EXPECT_EQ(answer.connection, connection_.number());
  EXPECT_EQ(parts_.counters.commands, done + 1);
  trace.cm_id = kCmId + 1;
  EXPECT_EQ(parts_.status_of(trace), CommandStatus::UnknownConnection);
  EXPECT_EQ(parts_.counters.commands_refused, 1u);
}

TEST_F(CommandsTest, a_command_without_id_gets_no_answer) {
  ASSERT_TRUE(parts_.segment.area().commands.push(command(CommandType::Trace)));
  EXPECT_TRUE(parts_.commands.poll());
  EXPECT_FALSE(parts_.segment.event());
}

TEST_F(CommandsTest, a_number_that_is_no_connection_is_refused) {
  segment::Command close = command(CommandType::Close);
  close.connection = kConnections;
  EXPECT_EQ(parts_.status_of(close), CommandStatus::UnknownConnection);
  close.connection = ~std::uint32_t{0};
  EXPECT_EQ(parts_.status_of(close), CommandStatus::UnknownConnection);
}

TEST_F(CommandsTest, a_closed_connection_is_known_no_more) {
  EXPECT_EQ(parts_.status_of(command(CommandType::Close)), CommandStatus::Done);
  EXPECT_EQ(parts_.status_of(command(CommandType::Close)), CommandStatus::UnknownConnection);
}

TEST_F(CommandsTest, close_gives_its_reason) {
  EXPECT_EQ(reason_after(static_cast<std::uint32_t>(rpcrdma::CloseReason::NotAuthenticated)),
            rpcrdma::CloseReason::NotAuthenticated);
}

TEST_F(CommandsTest, close_without_a_reason_is_local) {
  EXPECT_EQ(reason_after(0), rpcrdma::CloseReason::LocalClose);
}

TEST_F(CommandsTest, close_for_an_unknown_reason_is_local) {
  EXPECT_EQ(reason_after(static_cast<std::uint32_t>(rpcrdma::CloseReason::NoCommonVersion) + 1),
            rpcrdma::CloseReason::LocalClose);
}

TEST_F(CommandsTest, set_credits_changes_the_grant_and_shows_it) {
  segment::Command credits = command(CommandType::SetCredits);
  credits.first_grant = 3;
  EXPECT_EQ(parts_.status_of(credits), CommandStatus::Done);
  EXPECT_EQ(static_cast<std::uint32_t>(connection_.responder().grant()), 3u);
  EXPECT_EQ(use().granted.load(), 3u);
}

TEST_F(CommandsTest, set_credits_with_another_class_moves_the_connection_there) {
  segment::Command credits = command(CommandType::SetCredits);
  credits.first_grant = 5;
  credits.client_class = 2;
  EXPECT_EQ(parts_.status_of(credits), CommandStatus::Done);
  EXPECT_EQ(connection_.client_class(), 2u);
  EXPECT_EQ(parts_.segment.entry(connection_.number()).client_class, 2u);
}

TEST_F(CommandsTest, a_draining_connection_keeps_its_single_credit) {
  EXPECT_EQ(parts_.status_of(command(CommandType::Drain)), CommandStatus::Done);
  EXPECT_TRUE(parts_.connections.record(connection_).draining);
  EXPECT_EQ(static_cast<std::uint32_t>(connection_.responder().grant()), 1u);
  segment::Command credits = command(CommandType::SetCredits);
  credits.first_grant = 6;
  EXPECT_EQ(parts_.status_of(credits), CommandStatus::Done);
  EXPECT_EQ(static_cast<std::uint32_t>(connection_.responder().grant()), 1u);
}

TEST_F(CommandsTest, established_and_ended_are_known_by_cm_id_alone) {
  segment::Command up = command(CommandType::Established);
  up.connection = 3;
  EXPECT_EQ(parts_.status_of(up), CommandStatus::Done);
  EXPECT_TRUE(parts_.connections.record(connection_).established);
  EXPECT_EQ(parts_.segment.entry(connection_.number()).state, segment::ConnectionState::Open);
  up.cm_id = kCmId + 1;
  EXPECT_EQ(parts_.status_of(up), CommandStatus::UnknownConnection);
  EXPECT_EQ(parts_.status_of(command(CommandType::Ended)), CommandStatus::Done);
  EXPECT_EQ(connection_.close_reason(), rpcrdma::CloseReason::PeerClosed);
}

TEST_F(CommandsTest, abandon_ends_the_connection_of_a_dead_process) {
  EXPECT_EQ(parts_.status_of(command(CommandType::Abandon)), CommandStatus::Done);
  EXPECT_EQ(connection_.close_reason(), rpcrdma::CloseReason::PeerClosed);
  EXPECT_EQ(parts_.status_of(command(CommandType::Abandon)), CommandStatus::Done);
}

TEST_F(CommandsTest, shutdown_is_asked_for_by_its_command_alone) {
  parts_.run(command(CommandType::Trace));
  EXPECT_FALSE(parts_.commands.shutdown_requested());
  EXPECT_EQ(parts_.status_of(command(CommandType::Shutdown)), CommandStatus::Done);
  EXPECT_TRUE(parts_.commands.shutdown_requested());
}

TEST_F(CommandsTest, a_command_type_that_is_none_changes_nothing) {
  EXPECT_EQ(parts_.status_of(command(static_cast<CommandType>(999))), CommandStatus::Done);
  EXPECT_TRUE(connection_.is_open());
}

TEST_F(CommandsTest, admit_shows_the_host_and_moves_the_connection_to_its_class) {
  segment::Command admit = command(CommandType::Admit);
  admit.host = HostName("host");
  admit.client_class = 2;
  EXPECT_EQ(parts_.status_of(admit), CommandStatus::Done);
  EXPECT_EQ(connection_.client_class(), 2u);
  EXPECT_EQ(parts_.segment.entry(connection_.number()).client_class, 2u);
  EXPECT_EQ(connection_.peer_host().view(), "host");
  EXPECT_EQ(parts_.segment.entry(connection_.number()).host.view(), "host");
  EXPECT_EQ(use().client_class.load(), 2u);
  admit.client_class = segment::kKeepClass;
  EXPECT_EQ(parts_.status_of(admit), CommandStatus::Done);
  EXPECT_EQ(connection_.client_class(), 2u);
}

TEST_F(CommandsTest, admit_ends_the_holding_of_calls) {
  ReactorConfig config = lab_config();
  config.version2.hold_calls = true;
  FakeDevice device;
  Parts holding(device, config);
  rpcrdma::Connection& held = holding.establish(kCmId);
  ASSERT_TRUE(held.holds_calls());
  EXPECT_EQ(holding.status_of({.type = CommandType::Admit, .cm_id = kCmId, .connection = held.number()}),
            CommandStatus::Done);
  EXPECT_FALSE(held.holds_calls());
}

TEST_F(CommandsTest, set_parameters_is_what_the_connection_works_with) {
  segment::Command set = command(CommandType::SetParameters);
  set.parameters = {.send_bytes = 2048, .max_segment_bytes = 65536, .max_segments = 7, .reverse = 0};
  EXPECT_EQ(parts_.status_of(set), CommandStatus::Done);
  EXPECT_EQ(connection_.agreement().send_bytes, 2048u);
  EXPECT_EQ(connection_.agreement().max_segment_bytes, 65536u);
  EXPECT_EQ(connection_.agreement().max_segments, 7u);
}

}  // namespace
}  // namespace sluice::reactor
