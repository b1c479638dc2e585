// SPDX-License-Identifier: Apache-2.0
//
// Views of connections and of their credits, on a segment that the test fills.
#include "controlplane/admin/views/connections.h"

#include <gtest/gtest.h>

#include "controlplane/admin/registry.h"
#include "controlplane/admin/views/status.h"
#include "controlplane/policy/admission.h"
#include "tests/unit/controlplane/lab.h"

namespace sluice::admin {
namespace {

class Connections : public ::testing::Test {
 protected:
  Connections() {
    segment.publish(2, lab::client(10), 0, 7);
    segment.publish(5, lab::client(77), 1, 3);
    segment.layout().reactors[0].use[5].busy = 2;
    segment.layout().reactors[0].use[5].client_class = 1;
  }
  segment::Layout& layout() { return segment.layout(); }
  Json listed(const std::string& peer, const std::string& client_class) {
    Pace pace;
    return connections(layout(), config, connection_filter(config, peer, client_class), 0, kMaxPageRows, pace)
        .rows;
  }
  Json properties() {
    Pace pace;
    return connection_properties(layout(), config.block, 0, kMaxPageRows, pace).rows;
  }

  lab::TestSegment segment{"views"};
  config::Config config = lab::configuration(
      "[[client_class]]\nname = \"few\"\nclients = [\"192.0.2.77/32\"]\nmax_credits = 3\n");
};

TEST_F(Connections, the_list_takes_a_filter_by_peer_and_class) {
  EXPECT_EQ(listed("", "").size(), 2u);
  const Json of_class = listed("", "few");
  ASSERT_EQ(of_class.size(), 1u);
  EXPECT_EQ(of_class[0]["connection"], 5);
  EXPECT_EQ(of_class[0]["credits"], 3);
  EXPECT_EQ(of_class[0]["busy"], 2);
  const Json of_peer = listed("192.0.2.10", "");
  ASSERT_EQ(of_peer.size(), 1u);
  EXPECT_EQ(of_peer[0]["class"], "default");
  EXPECT_TRUE(listed("192.0.2.10", "few").empty());
  EXPECT_EQ(listed("::ffff:192.0.2.10", "").size(), 1u);
}

TEST_F(Connections, a_peer_is_found_by_each_spelling_of_its_address_and_with_or_without_its_interface) {
  PeerAddress on_link = *parse_address("fe80::a:0:1%lo");
  segment.publish(6, on_link, 0, 3);
  EXPECT_EQ(listed("fe80:0:0::A:0:1", "").size(), 1u);
  EXPECT_EQ(listed("fe80::a:0:1%lo", "").size(), 1u);
  on_link.zone = 0;
  segment.publish(6, on_link, 0, 3);
  EXPECT_TRUE(listed("fe80::a:0:1%lo", "").empty());
}

TEST_F(Connections, a_filter_that_can_match_nothing_is_an_error) {
  EXPECT_THROW(listed("192.0.2", ""), MethodError);
  EXPECT_THROW(listed("", "fwe"), MethodError);
}

TEST_F(Connections, one_that_does_not_exist_is_an_error) {
  EXPECT_EQ(show_connection(layout(), config, 0, 5)["cm_id"], 1005);
  EXPECT_THROW(show_connection(layout(), config, 0, 4), MethodError);
  EXPECT_THROW(show_connection(layout(), config, 99, 5), MethodError);
  EXPECT_THROW(show_connection(layout(), config, 0, 0xffffffff), MethodError);
}

TEST_F(Connections, one_shows_what_is_wanted_of_it_what_it_holds_and_what_its_class_was_refused) {
  layout().reactors[0].use[5].held_bytes = 4096;
  layout().reactors[0].use[5].oldest_state = 5;
  layout().reactors[0].use[5].oldest_ns = 2 * lab::kSecondNs;
  for (std::size_t i = 0; i < segment::kTransportCounterCount; ++i)
    if (segment::kTransportCounters[i].name == "bad_fragment")
      layout().reactors[0].transport_counters[1][i] = 3;
  segment::DesiredStateWriter wanted(layout().reactors[0].wanted);
  wanted.grant(5, segment.incarnation(5), {.credits = 9});
  wanted.drain(5, segment.incarnation(5), true);
  auto info = *layout().reactors[0].connections[5].read();
  Json shown = show_connection(layout(), config, 0, 5);
  EXPECT_EQ(shown["held_bytes"], 4096);
  EXPECT_EQ(shown["oldest_call"], (Json{{"age_s", 2.0}, {"state", "executing"}}));
  EXPECT_TRUE(show_connection(layout(), config, 0, 2)["oldest_call"].is_null());
  EXPECT_EQ(shown["credits_wanted"], 9);
  EXPECT_EQ(shown["draining"], true);
  EXPECT_EQ(shown["ending"], false);
  EXPECT_EQ(shown["counters_of_class"], (Json{{"bad_fragment", 3}}));
  EXPECT_EQ(show_connection(layout(), config, 0, 2)["counters_of_class"], Json::object());
  // The desired state of the slot's previous connection does not apply to the new one.
  info.incarnation += 1;
  layout().reactors[0].connections[5].write(info);
  shown = show_connection(layout(), config, 0, 5);
  EXPECT_EQ(shown["credits_wanted"], 0);
  EXPECT_EQ(shown["draining"], false);
}

TEST_F(Connections, only_version_2_has_transport_properties) {
  EXPECT_TRUE(properties().empty());
  auto info = *layout().reactors[0].connections[2].read();
  info.version = 2;
  info.own_properties.max_send_bytes = 8192;
  layout().reactors[0].connections[2].write(info);
  const Json list = properties();
  ASSERT_EQ(list.size(), 1u);
  EXPECT_EQ(list[0]["ours"]["max_send_bytes"], 8192);
  EXPECT_TRUE(list[0]["client"].is_null());
}

TEST_F(Connections, one_that_has_authenticated_itself_shows_its_host) {
  auto info = *layout().reactors[0].connections[2].read();
  info.version = 2;
  layout().reactors[0].connections[2].write(info);
  EXPECT_FALSE(show_connection(layout(), config, 0, 2).contains("host"));
  info.host = HostName("a.b");
  layout().reactors[0].connections[2].write(info);
  EXPECT_EQ(show_connection(layout(), config, 0, 2)["host"], "a.b");
}

TEST_F(Connections, credits_add_up_by_class_and_by_reactor) {
  const policy::CreditController keeper(layout(), config.credit_settings());
  CreditSums sums(layout(), config, keeper, lab::kSecondNs);
  Pace pace;
  ASSERT_TRUE(sums.add(pace));
  const Json shown = sums.result();
  ASSERT_EQ(shown["reactors"].size(), 1u);
  EXPECT_EQ(shown["reactors"][0]["connections"], 2);
  EXPECT_EQ(shown["reactors"][0]["granted"], 10);
  ASSERT_EQ(shown["classes"].size(), 2u);
  EXPECT_EQ(shown["classes"][0]["granted"], 7);
  EXPECT_EQ(shown["classes"][1]["class"], "few");
  EXPECT_EQ(shown["classes"][1]["granted"], 3);
  EXPECT_EQ(shown["classes"][1]["used"], 2);
}

TEST_F(Connections, the_status_counts_what_reactors_count) {
  segment::ReactorInfo info{};
  info.connections = 2;
  layout().reactors[0].info.write(info);
  policy::Admission admission({.max_connections = 4});
  admission.set_draining(true);
  const std::vector<std::string> pending = {"transport.credits"};
  const std::vector<std::string> pending_control = {"mount.port"};
  const Json shown = status(
      layout(), config,
      {.admission = admission, .in_force = true, .pending = pending, .pending_control = pending_control});
  EXPECT_EQ(shown["connections"], 2);
  EXPECT_EQ(shown["draining"], true);
  EXPECT_EQ(shown["data_plane"]["alive"], false);
  EXPECT_EQ(shown["configuration"]["in_force"], true);
  EXPECT_EQ(shown["configuration"]["pending"], Json(pending));
  EXPECT_EQ(shown["configuration"]["pending_control"], Json(pending_control));
}

}  // namespace
}  // namespace sluice::admin
