// SPDX-License-Identifier: Apache-2.0
//
// An agent that continues the connections of a predecessor.
#include "tests/unit/controlplane/cm/agent_lab.h"

namespace sluice::cm::agent_lab {
namespace {

TEST(CmAgent, a_successor_goes_on_with_what_its_predecessor_left) {
  World w;
  const auto [ours, theirs] = w.establish();
  const auto snapshot = w.server->agent.snapshot(theirs);
  ASSERT_TRUE(snapshot);
  w.server = std::make_unique<Side>(w, true, AgentConfig{.seed = 1234});
  w.server->agent.listen(kPort);
  EXPECT_TRUE(w.server->agent.restore(*snapshot));
  EXPECT_FALSE(w.server->agent.restore(*snapshot));
  EXPECT_TRUE(w.client->agent.disconnect(ours, w.now));
  w.run(5);
  EXPECT_EQ(w.server->reports.disconnected, std::vector<Id>{theirs});
  EXPECT_EQ(w.client->agent.state(ours), State::TimeWait);
}

/// Returns the snapshot of the server's side that the consumer stores, with the parameters of its queue pair.
Snapshot left_by(World& w, Id theirs, const OwnParameters& own) {
  Snapshot snapshot = w.server->agent.snapshot(theirs).value_or(Snapshot{});
  snapshot.local_qpn = own.qpn;
  snapshot.set_own(own);
  return snapshot;
}

TEST(CmAgent, a_successor_sends_the_reply_that_its_predecessor_may_have_sent) {
  const OwnParameters own{.qpn = 0x222,
                          .receive_psn = 0xBBBBBB,
                          .responder_resources = 3,
                          .initiator_depth = 4,
                          .rnr_retry = 5,
                          .private_data = {std::byte{8}, std::byte{9}}};
  for (const bool asked_again : {false, true}) {
    World w;
    const Id ours = w.connect();
    const auto request = w.last;
    w.run(5);
    const Id theirs = w.server->reports.requests[0].first;
    EXPECT_TRUE(w.server->agent.accept(theirs, own, w.now));
    const auto reply = w.last;
    const Snapshot snapshot = left_by(w, theirs, own);
    w.flying_.clear();  // the reply is lost
    w.server = std::make_unique<Side>(w, true, AgentConfig{.seed = 1234});
    w.server->agent.listen(kPort);
    EXPECT_TRUE(w.server->agent.restore(snapshot, {.confirmed = false, .private_data = own.private_data}));
    EXPECT_EQ(w.server->agent.state(theirs), State::ReplySent);
    w.last = {};
    if (asked_again)
      w.server->agent.on_mad({kServer, kClient, {}}, request, w.now);
    else
      w.server->agent.advance(w.now);
    EXPECT_EQ(w.last, reply) << asked_again;
    w.run(5);
    ASSERT_EQ(w.client->reports.replies.size(), 1u);
    EXPECT_TRUE(w.client->agent.ready(ours, w.now));
    w.run(5);
    EXPECT_EQ(w.server->agent.state(theirs), State::Established);
    EXPECT_EQ(w.server->reports.established, std::vector<Id>{theirs});
    EXPECT_TRUE(w.server->reports.requests.empty()) << "the request is known";
  }
}

TEST(CmAgent, a_successor_gives_up_a_peer_that_never_confirms) {
  World w;
  w.connect();
  w.run(5);
  const Id theirs = w.server->reports.requests[0].first;
  const OwnParameters own{.qpn = 0x222, .private_data = {}};
  EXPECT_TRUE(w.server->agent.accept(theirs, own, w.now));
  const Snapshot snapshot = left_by(w, theirs, own);
  w.faults = 100;
  w.server = std::make_unique<Side>(w, true, AgentConfig{.seed = 1234});
  EXPECT_TRUE(w.server->agent.restore(snapshot, {.confirmed = false, .private_data = {}}));
  w.run(20'000);
  EXPECT_EQ(w.server->reports.disconnected, std::vector<Id>{theirs});
  EXPECT_EQ(w.server->agent.connections(), 0u);
}

TEST(CmAgent, without_the_parameters_of_a_reply_a_connection_counts_as_established) {
  World w;
  const auto [ours, theirs] = w.establish();
  const auto snapshot = w.server->agent.snapshot(theirs);
  ASSERT_TRUE(snapshot);
  w.server = std::make_unique<Side>(w, true, AgentConfig{.seed = 1234});
  EXPECT_TRUE(w.server->agent.restore(*snapshot, {.confirmed = false, .private_data = {}}));
  EXPECT_EQ(w.server->agent.state(theirs), State::Established);
}

TEST(CmAgent, a_successor_of_the_active_side_answers_a_reply_that_comes_again) {
  World w;
  const Id ours = w.connect();
  w.run(5);
  w.accept();
  const auto reply = w.last;
  w.run(5);
  const auto snapshot = w.client->agent.snapshot(ours);
  ASSERT_TRUE(snapshot);
  EXPECT_TRUE(w.client->agent.ready(ours, w.now));
  const auto ready = w.last;
  w.flying_.clear();  // ready-to-use is lost
  w.client = std::make_unique<Side>(w, false, AgentConfig{.seed = 1234});
  EXPECT_TRUE(w.client->agent.restore(*snapshot, {.active = true, .private_data = {}}));
  w.client->agent.on_mad({kClient, kServer, {}}, reply, w.now);
  EXPECT_EQ(w.last, ready);
  w.run(5);
  EXPECT_EQ(w.server->agent.state(w.server->reports.requests[0].first), State::Established);
}

TEST(CmAgent, what_a_peer_has_asked_for_anew_is_not_taken_over) {
  World w;
  const auto [ours, theirs] = w.establish();
  const auto snapshot = w.server->agent.snapshot(theirs);
  ASSERT_TRUE(snapshot);
  w.server = std::make_unique<Side>(w, true, AgentConfig{.seed = 1234});
  w.server->agent.listen(kPort);
  ConnectRequest request{.local_id = 0x5555, .service_id = service_id(kPort), .qpn = 0x111, .path_mtu = 5};
  request.private_data.set(encode_ip_addressing({1, kClient, kServer}));
  w.inject(*w.server, {4711, request});
  EXPECT_EQ(w.server->reports.requests.size(), 1u);
  EXPECT_FALSE(w.server->agent.restore(*snapshot));
}

}  // namespace
}  // namespace sluice::cm::agent_lab
