// SPDX-License-Identifier: Apache-2.0
//
// Content of the status page, on a segment and a journal that the test fills.
#include "controlplane/page/status.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>

#include "controlplane/events/kinds.h"
#include "tests/unit/controlplane/lab.h"

namespace sluice::page {
namespace {

/// A name that would break out of its text if it were not escaped.
const std::string kNasty = "a\"b\\c\nd<script>alert(1)</script>\xe2\x82\xac&\xff";
const std::string kNastyShown = "a\"b\\c\nd<script>alert(1)</script>\xe2\x82\xac&\xef\xbf\xbd";

class StatusTest : public ::testing::Test {
 protected:
  StatusTest() {
    auto block = std::make_unique<segment::ConfigBlock>(config.block);
    segment.layout().config.write(*block);
  }
  Json look() { return Json::parse(status.render()); }

  config::Config config = lab::configuration(
      "[[upstream]]\nname = \"nas\"\naddress = \"192.0.2.9\"\nprograms = [\"nfs4\"]\n[[export]]\npath = "
      "\"/e\"\n");
  lab::TestSegment segment{"page"};
  events::Journal journal{[](const events::Event&) {}, [] { return time += lab::kSecondNs; }};
  Status status{segment.layout(), journal};
  static inline std::uint64_t time = lab::kSecondNs;
};

TEST_F(StatusTest, it_has_reactors_clients_exports_upstreams_and_events) {
  segment::Layout& layout = segment.layout();
  layout.reactors[0].info.write({.state = segment::ReactorState::Running, .connections = 3});
  segment::ExportInfo info{};
  info.in_use = 1;
  std::strcpy(info.path, "/e");
  layout.exports[0].write(info);
  auto clients = std::make_unique<segment::ClientTable>();
  clients->clients[0] = {
      .peer = lab::client(7),
      .in_use = 1,
      .served = {.calls = 5, .time_ns = 2'000'000'000, .received_bytes = 30, .sent_bytes = 40}};
  clients->others = {.calls = 9, .time_ns = 1};
  layout.clients.write(*clients);
  journal.add(events::DrainBegun{.connections = 4});
  const Json shown = look();
  EXPECT_EQ(shown["reactors"][0]["state"], "running");
  EXPECT_EQ(shown["connections"], 3);
  EXPECT_EQ(shown["exports"][0]["path"], "/e");
  EXPECT_EQ(shown["upstreams"][0]["name"], "nas");
  EXPECT_EQ(
      shown["clients"][0],
      (Json{{"client", "192.0.2.7"}, {"calls", 5}, {"time_s", 2.0}, {"bytes_in", 30}, {"bytes_out", 40}}));
  EXPECT_EQ(shown["clients"][1]["client"], "others");
  EXPECT_EQ(shown["events"][0]["event"], "drain_begun");
}

TEST_F(StatusTest, names_stay_texts_whatever_bytes_they_have) {
  segment::ExportInfo info{};
  info.in_use = 1;
  std::strcpy(info.path, kNasty.c_str());
  segment.layout().exports[0].write(info);
  journal.add(events::MountDenied{.peer = "192.0.2.7", .path = kNasty});
  const Json shown = look();
  EXPECT_EQ(shown["exports"][0]["path"], kNastyShown);
  EXPECT_TRUE(shown["events"][0]["fields"]["path"].is_string());
}

TEST_F(StatusTest, a_plane_that_was_is_told_from_one_that_never_was_and_one_that_is) {
  segment::Heartbeat& beat = segment.layout().data_plane;
  EXPECT_FALSE(look()["data_plane"]["started"].get<bool>());
  beat.owner = std::uint64_t{1} << 32;
  segment::start_heartbeat(beat, segment::monotonic_ns(), segment::wall_ns());
  EXPECT_TRUE(look()["data_plane"]["alive"].get<bool>());
  segment::beat(beat, segment::monotonic_ns() - 2 * segment::kHeartbeatTimeoutNs);
  const Json shown = look()["data_plane"];
  EXPECT_FALSE(shown["alive"].get<bool>());
  EXPECT_TRUE(shown["started"].get<bool>());
  EXPECT_GE(shown["heartbeat_age_s"].get<double>(), 6.0);
}

TEST_F(StatusTest, of_many_events_the_last_are_shown_and_none_twice) {
  for (std::uint64_t i = 1; i <= 1000; ++i) journal.add(events::DrainBegun{.connections = i});
  for (int again = 0; again < 2; ++again) {
    const Json events = look()["events"];
    ASSERT_EQ(events.size(), kEventsShown);
    for (std::size_t i = 0; i < kEventsShown; ++i)
      EXPECT_EQ(events[i]["fields"]["connections"], 1000 - kEventsShown + 1 + i);
  }
  journal.add(events::DrainEnded{});
  EXPECT_EQ(look()["events"].back()["event"], "drain_ended");
  EXPECT_EQ(look()["events"].size(), kEventsShown);
}

TEST_F(StatusTest, a_hundred_thousand_clients_make_it_no_longer) {
  auto clients = std::make_unique<segment::ClientTable>();
  for (std::uint8_t i = 0; i < segment::kClientsShown; ++i)
    clients->clients[i] = {.peer = lab::client(i), .in_use = 1, .served = {.calls = 1}};
  segment.layout().clients.write(*clients);
  for (int i = 0; i < 100'000; ++i)
    journal.add(events::ConnectionUp{.peer = "192.0.2." + std::to_string(i % 250)});
  const std::string text = status.render();
  EXPECT_EQ(Json::parse(text)["clients"].size(), segment::kClientsShown);
  EXPECT_LT(text.size(), 64u << 10);
}

TEST_F(StatusTest, what_a_hostile_data_plane_writes_is_shown_or_left_out) {
  segment::Layout& layout = segment.layout();
  std::memset(static_cast<void*>(&layout.exports), 0xff, sizeof layout.exports);
  std::memset(static_cast<void*>(&layout.reactors[0].counters), 0xff, sizeof layout.reactors[0].counters);
  layout.reactors[0].info.write({.state = static_cast<segment::ReactorState>(99), .connections = ~0u});
  EXPECT_EQ(look()["reactors"][0]["state"], "?");
}

}  // namespace
}  // namespace sluice::page
