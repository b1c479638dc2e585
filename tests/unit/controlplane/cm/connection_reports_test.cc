// SPDX-License-Identifier: Apache-2.0
//
// The journal's events about connections: refusals with their reasons, starts and ends. The order of the
// reactor's event and of the table's change does not matter.
#include "controlplane/cm/connection_monitor.h"

#include "controlplane/events/sinks.h"
#include "dataplane/rpcrdma/link/config.h"
#include "tests/unit/controlplane/cm/keeper_lab.h"

namespace sluice {
namespace {

class Reports : public Requests {
 protected:
  /// Returns the log lines of the events with this name, from "event=" on.
  std::vector<std::string> events(const std::string& name) {
    std::vector<std::string> found;
    for (const events::Event& event : journal_.read(1, 256).events) {
      const std::string line = events::to_log_line(event);
      if (event.kind->name == name) found.push_back(line.substr(line.find("event=")));
    }
    return found;
  }
  std::uint64_t count(policy::Refusal why) { return keeper_->refusals()[static_cast<std::size_t>(why)]; }
  void connect(std::uint32_t number) {
    segment_.publish(number, lab::client(7), 0, 1);
    look_everywhere(now_ns_);
  }
  void disconnect(std::uint32_t number) {
    segment_.publish(number, lab::client(7), 0, 1, segment::ConnectionState::Unused);
    look_everywhere(now_ns_);
  }
  void say_why(std::uint32_t incarnation, rpcrdma::CloseReason reason) {
    ASSERT_TRUE(area().events.push({.type = segment::EventType::ConnectionDown,
                                    .connection = 3,
                                    .incarnation = incarnation,
                                    .reason = static_cast<std::uint32_t>(reason),
                                    .peer = {}}));
    keeper_->poll(now_ns_);
  }
  std::uint64_t now_ns_ = lab::kSecondNs;
};

TEST_F(Reports, a_refused_client_is_named_with_the_limit) {
  start("[admission]\nmax_requests_per_second = 100\nmax_requests_per_second_per_client = 1\n");
  ask(lab::client(12), now_ns_);
  ask(lab::client(12), now_ns_);
  keeper_->set_draining(true);
  ask(lab::client(13), now_ns_);
  EXPECT_EQ(events("connection_refused"),
            (std::vector<std::string>{
                "event=connection_refused peer=192.0.2.12 reason=too_fast_of_client detail=\"\"",
                "event=connection_refused peer=192.0.2.13 reason=draining detail=\"\""}));
}

TEST_F(Reports, a_path_mtu_above_that_of_the_port_is_refused_before_admission_and_both_are_named) {
  start("");
  area().info.write({.path_mtu = 1024});
  ask(lab::client(12), now_ns_);
  EXPECT_EQ(rejected(), cm::RejectReason::InvalidPathMtu);
  EXPECT_EQ(events("connection_refused"),
            (std::vector<std::string>{"event=connection_refused peer=192.0.2.12 reason=invalid_path_mtu "
                                      "detail=\"path MTU: 4096 bytes requested, 1024 bytes accepted\""}));
  EXPECT_EQ(keeper_->admission().count(policy::Verdict::Admit), 0u);
  EXPECT_EQ(count(policy::Refusal::InvalidPathMtu), 1u);
}

TEST_F(Reports, what_the_data_plane_cannot_make_is_refused_with_its_reason) {
  start("");
  for (const auto status : {segment::CommandStatus::NoRoom, segment::CommandStatus::Failed}) {
    ask(lab::client(12), now_ns_);
    const auto command = establish();
    ASSERT_TRUE(command);
    tell({.type = segment::EventType::CommandDone,
          .id = command->id,
          .status = status,
          .cm_id = command->cm_id,
          .peer = {}},
         now_ns_);
    EXPECT_EQ(rejected(), cm::RejectReason::NoResources);
  }
  ask(lab::client(12), now_ns_);
  keeper_->on_data_plane_changed(now_ns_);
  EXPECT_EQ(events("connection_refused"),
            (std::vector<std::string>{
                "event=connection_refused peer=192.0.2.12 reason=no_room_in_data_plane detail=\"\"",
                "event=connection_refused peer=192.0.2.12 reason=failed_in_data_plane detail=\"\"",
                "event=connection_refused peer=192.0.2.12 reason=data_plane_replaced detail=\"\""}));
  EXPECT_EQ(count(policy::Refusal::NoRoomInDataPlane), 1u);
  EXPECT_EQ(count(policy::Refusal::FailedInDataPlane), 1u);
  EXPECT_EQ(count(policy::Refusal::DataPlaneReplaced), 1u);
}

TEST_F(Reports, a_request_that_nobody_makes_or_confirms_is_refused_once) {
  start("");
  ask(lab::client(12), now_ns_);
  const auto late = establish();
  ASSERT_TRUE(late);
  for (int i = 0; i < 2; ++i) keeper_->poll(now_ns_ += 11 * lab::kSecondNs);
  tell({.type = segment::EventType::CommandDone,
        .id = late->id,
        .status = segment::CommandStatus::Failed,
        .cm_id = late->cm_id,
        .peer = {}},
       now_ns_);
  ask(lab::client(13), now_ns_);
  EXPECT_TRUE(make(3, lab::client(13), now_ns_));
  for (int i = 0; i < 60; ++i) keeper_->poll(now_ns_ += lab::kSecondNs);
  EXPECT_EQ(events("connection_refused"),
            (std::vector<std::string>{
                "event=connection_refused peer=192.0.2.12 reason=not_made_in_time detail=\"\"",
                "event=connection_refused peer=192.0.2.13 reason=not_confirmed detail=\"\""}));
}

TEST_F(Reports, the_reason_may_come_after_the_connection_is_gone) {
  start("");
  connect(3);
  ASSERT_EQ(events("connection_up").size(), 1u);
  EXPECT_EQ(events("connection_up")[0],
            "event=connection_up reactor=0 connection=3 peer=192.0.2.7 outgoing=false");
  const std::uint32_t incarnation = segment_.incarnation(3);
  disconnect(3);
  EXPECT_TRUE(events("connection_down").empty());
  say_why(incarnation, rpcrdma::CloseReason::Silent);
  ASSERT_EQ(events("connection_down").size(), 1u);
  EXPECT_NE(events("connection_down")[0].find("reason=silent was_up=true"), std::string::npos)
      << events("connection_down")[0];
  now_ns_ += 10 * lab::kSecondNs;
  keeper_->poll(now_ns_);
  EXPECT_EQ(events("connection_down").size(), 1u);
}

TEST_F(Reports, the_failed_work_request_is_named_with_the_devices_own_error) {
  start("");
  connect(3);
  const std::uint32_t incarnation = segment_.incarnation(3);
  disconnect(3);
  ASSERT_TRUE(area().events.push({.type = segment::EventType::ConnectionDown,
                                  .connection = 3,
                                  .incarnation = incarnation,
                                  .reason = static_cast<std::uint32_t>(rpcrdma::CloseReason::TransportError),
                                  .work_status = static_cast<std::uint32_t>(rdma::WcStatus::RetryExceeded),
                                  .vendor_error = 0x81,
                                  .peer = {}}));
  keeper_->poll(now_ns_);
  ASSERT_EQ(events("connection_down").size(), 1u);
  EXPECT_NE(events("connection_down")[0].find("work_status=\"retries exceeded\" vendor_error=129"),
            std::string::npos)
      << events("connection_down")[0];
}

TEST_F(Reports, any_status_of_a_work_request_is_valid_input) {
  start("");
  connect(3);
  const std::uint32_t incarnation = segment_.incarnation(3);
  ASSERT_TRUE(area().events.push({.type = segment::EventType::ConnectionDown,
                                  .connection = 3,
                                  .incarnation = incarnation,
                                  .work_status = 0xFFFFFFFF,
                                  .vendor_error = 0xFFFFFFFF,
                                  .peer = {}}));
  keeper_->poll(now_ns_);
  disconnect(3);
  ASSERT_EQ(events("connection_down").size(), 1u);
  EXPECT_NE(events("connection_down")[0].find("work_status=unknown vendor_error=4294967295"),
            std::string::npos)
      << events("connection_down")[0];
}

TEST_F(Reports, the_reason_may_come_before) {
  start("");
  connect(3);
  const std::uint32_t incarnation = segment_.incarnation(3);
  segment_.publish(3, lab::client(7), 0, 1, segment::ConnectionState::Unused);
  say_why(incarnation, rpcrdma::CloseReason::PeerClosed);
  ASSERT_EQ(events("connection_down").size(), 1u);
  EXPECT_NE(events("connection_down")[0].find("reason=peer_closed"), std::string::npos);
}

TEST_F(Reports, without_a_reason_it_is_told_a_little_later) {
  start("");
  connect(3);
  disconnect(3);
  now_ns_ += cm::kReasonWaitNs - 1;
  keeper_->poll(now_ns_);
  EXPECT_TRUE(events("connection_down").empty());
  now_ns_ += 1;
  keeper_->poll(now_ns_);
  ASSERT_EQ(events("connection_down").size(), 1u);
  EXPECT_NE(events("connection_down")[0].find("reason=unknown"), std::string::npos);
}

TEST_F(Reports, connections_that_are_taken_over_are_no_news) {
  start("");
  connect(3);
  take_over();
  look_everywhere(now_ns_);
  EXPECT_EQ(events("connection_up").size(), 1u);
}

TEST_F(Reports, any_reason_and_any_incarnation_are_valid_input) {
  start("");
  connect(3);
  const std::uint32_t incarnation = segment_.incarnation(3);
  for (std::uint32_t i = 0; i < 10'000; ++i) say_why(incarnation + 1 + i, rpcrdma::CloseReason::None);
  say_why(incarnation, static_cast<rpcrdma::CloseReason>(200));
  disconnect(3);
  ASSERT_EQ(events("connection_down").size(), 1u);
  EXPECT_NE(events("connection_down")[0].find("reason=unknown"), std::string::npos);
}

}  // namespace
}  // namespace sluice
