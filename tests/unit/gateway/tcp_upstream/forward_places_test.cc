// SPDX-License-Identifier: Apache-2.0
//
// A reload assigns the slot of an upstream to another one. The former upstream answers its calls, or their
// clients are disconnected, and the new one inherits no state.
#include <algorithm>

#include "tests/conformance/raw_call.h"
#include "tests/unit/gateway/tcp_upstream/forward_lab.h"
#include "tests/unit/ulb/nfs3_messages.h"

namespace sluice::tcp_upstream_test {
namespace {

using Counter = segment::UpstreamCounter;
using test3::handle;

constexpr std::uint32_t kStayingTag = 0x11112222, kFormerTag = 0xEEEEDDDD, kNewTag = 0x33334444;
constexpr std::uint32_t kStaleStatus = 70;

struct ForwardPlaces : testing::Test {
  static ForwardOptions options() {
    const std::vector<tcp_upstream::Route> routes = {{ulb::kNfsProgram, 3}};
    return {.record_buffers = 8,
            .one_host = true,
            .hung_routes = routes,
            .tag = kStayingTag,
            .hung_tag = kFormerTag,
            .routes = routes};
  }
  ForwardPlaces() : lab(options()), client(add_client()) {
    lab.beside = [this] { newcomer.poll(); };
    for (FakeUpstream* const each : {&lab.upstream, &newcomer}) each->answer = answer;
  }

  /// Adds a client with all its credits, which a first reply grants.
  LabClient& add_client() {
    LabClient& added = lab.add_client();
    lab.call(added, {.payload = nfs3(ulb::kNfs3Null), .max_reply_bytes = 400});
    return added;
  }
  static Bytes answer(const FakeUpstream::Call& asked) {
    const std::uint32_t procedure = word_at(asked.message, 5);
    return success(asked.xid(), test3::results(procedure, handle(28, 3), 5));
  }
  static Bytes asking(std::uint32_t procedure, std::uint32_t tag) {
    return nfs3(procedure, test3::arguments(procedure, handle(28, 1, tag), {}));
  }
  static Bytes results_of(const Outcome& outcome) {
    return {outcome.message.begin() + kResultsAt, outcome.message.end()};
  }
  std::size_t submit(LabClient& from, std::uint32_t procedure, std::uint32_t tag) {
    return from.submit({.payload = asking(procedure, tag), .max_reply_bytes = 400});
  }
  std::uint32_t status(LabClient& from, std::uint32_t tag) {
    const Outcome outcome =
        lab.call(from, {.payload = asking(ulb::kNfs3GetAttr, tag), .max_reply_bytes = 400});
    return word_at(results_of(outcome), 0);
  }
  void offer() {
    place().offer(settings_of(false));
    lab.turn();
  }
  gateway::UpstreamSlot& place() { return lab.slots->slot(1); }
  /// Returns the settings of the former upstream or of the newcomer.
  gateway::UpstreamSettings settings_of(bool former) const {
    gateway::UpstreamSettings settings{.name = former ? kName : kNewcomer,
                                       .port = former ? lab.hung->port() : newcomer.port(),
                                       .handle_tag = former ? kFormerTag : kNewTag};
    settings.set_programs(lab.options.hung_routes);
    return settings;
  }
  bool settled() { return place().settled(); }

  ForwardLab lab;
  FakeUpstream newcomer;
  LabClient& client;
};

TEST_F(ForwardPlaces, one_without_calls_gives_its_place_at_once) {
  lab.hung->answer = answer;
  EXPECT_EQ(status(client, kFormerTag), 0u);
  EXPECT_EQ(status(client, kNewTag), kStaleStatus);
  EXPECT_EQ(lab.hung_count(Counter::calls), 1u);
  offer();
  ASSERT_TRUE(lab.until([&] { return settled(); }));
  EXPECT_EQ(lab.hung_count(Counter::calls), 0u) << "it is another's";
  EXPECT_EQ(lab.hung_area->upstream_ns.count(), 0u);
  EXPECT_EQ(status(client, kNewTag), 0u);
  EXPECT_EQ(status(client, kFormerTag), kStaleStatus);
  EXPECT_EQ(status(client, kStayingTag), 0u);
  EXPECT_EQ(newcomer.calls.size(), 1u);
  EXPECT_EQ(lab.hung->calls.size(), 1u);
  EXPECT_FALSE(lab.hung->open(0));
  EXPECT_TRUE(lab.ends.empty()) << "no client is disconnected";
}

TEST_F(ForwardPlaces, calls_that_the_former_one_has_are_answered_by_it_with_its_handles) {
  const std::size_t made = submit(client, ulb::kNfs3MkDir, kFormerTag);
  ASSERT_TRUE(lab.until([&] { return lab.hung->calls.size() == 1; }));
  offer();
  EXPECT_EQ(status(client, kFormerTag), kStaleStatus) << "it gets no further ones";
  lab.pass(gateway::kLeaveNs / 2);
  lab.turns();
  EXPECT_FALSE(settled());
  EXPECT_EQ(status(client, kNewTag), kStaleStatus) << "which is not there yet";
  lab.hung->send(0, record(answer(lab.hung->calls[0])));
  ASSERT_TRUE(lab.until([&] { return settled() && client.finished[made].has_value(); }));
  EXPECT_EQ(results_of(*client.finished[made]),
            test3::results(ulb::kNfs3MkDir, handle(28, 3, kFormerTag), 5 ^ kFormerTag));
  EXPECT_EQ(status(client, kNewTag), 0u);
  EXPECT_TRUE(lab.ends.empty());
}

TEST_F(ForwardPlaces, clients_of_calls_that_are_not_answered_in_time_are_disconnected_and_nobody_else) {
  LabClient& other = add_client();
  for (const std::uint32_t procedure : {ulb::kNfs3MkDir, ulb::kNfs3GetAttr})
    submit(client, procedure, kFormerTag);
  ASSERT_TRUE(lab.until([&] { return !lab.hung->calls.empty(); }));
  offer();
  lab.pass(gateway::kLeaveNs);
  ASSERT_TRUE(lab.until([&] { return settled() && lab.ends.size() == 1; }));
  EXPECT_EQ(status(other, kNewTag), 0u);
  ASSERT_TRUE(lab.until([&] { return client.connection->state() == rpcrdma::Connection::State::Closed; }));
  lab.reconnect(client);
  EXPECT_EQ(status(client, kNewTag), 0u) << "nothing of its former calls holds it up";
  EXPECT_EQ(status(client, kFormerTag), kStaleStatus);
  EXPECT_EQ(lab.ends.size(), 1u);
}

TEST_F(ForwardPlaces, a_former_one_that_cannot_be_reached_or_takes_no_bytes_leaves_as_well) {
  lab.hung->reads = false;
  for (int i = 0; i < 6; ++i) {
    LongWrite write(client, 1u << 19);
    std::fill_n(write.call.begin() + kArgumentsAt + 4, 4, std::byte{0});
    xdr::store_u32(write.call.data() + kArgumentsAt + 4, kFormerTag);
    write.item.pieces = {&write.piece, 1};
    client.submit(write.request());
  }
  lab.turns(2000);
  lab.hung->shut();
  LabClient& other = add_client();
  submit(other, ulb::kNfs3GetAttr, kFormerTag);
  lab.turns();
  offer();
  lab.pass(gateway::kLeaveNs);
  ASSERT_TRUE(lab.until([&] { return settled() && lab.ends.size() == 2; }));
  LabClient& third = add_client();
  for (int i = 0; i < 20; ++i) EXPECT_EQ(status(third, kNewTag), 0u);
}

TEST_F(ForwardPlaces, what_a_client_left_at_the_former_one_is_forgotten_with_it) {
  submit(client, ulb::kNfs3MkDir, kFormerTag);
  ASSERT_TRUE(lab.until([&] { return lab.hung->calls.size() == 1; }));
  lab.disconnect(client);
  ASSERT_TRUE(lab.until([&] { return lab.ends.size() == 1; }));
  EXPECT_EQ(lab.hung_count(Counter::orphans), 1u);
  offer();
  lab.turns();
  EXPECT_FALSE(settled()) << "it may be executed, and its client asks again";
  lab.pass(gateway::kLeaveNs);
  ASSERT_TRUE(lab.until([&] { return settled(); }));
  lab.reconnect(client);
  EXPECT_EQ(status(client, kNewTag), 0u);
}

/// The calls are identical except for the handle's tag, but are for different servers.
TEST_F(ForwardPlaces, a_reply_of_the_former_one_answers_no_call_to_the_newcomer) {
  lab.hung->answer = answer;
  for (const std::uint32_t tag : {kFormerTag, kNewTag}) {
    Bytes mkdir = asking(ulb::kNfs3MkDir, tag);
    xdr::store_u32(mkdir.data(), 7);
    const auto peer = lab.add_raw_peer();
    peer->send(conformance::RawCall{.xid = 7}.with(mkdir));
    ASSERT_TRUE(lab.until([&] { return peer->inbox.size() == 1; }));
    const auto& reply = peer->inbox[0].bytes;
    EXPECT_EQ(Bytes(reply.begin() + 28 + kResultsAt, reply.end()),
              test3::results(ulb::kNfs3MkDir, handle(28, 3, tag), 5 ^ tag));
    const std::size_t before = lab.ends.size();
    peer->owned_qp->to_error();
    ASSERT_TRUE(lab.until([&] { return lab.ends.size() == before + 1; }));
    std::erase(lab.raw_peers, peer.get());
    peer->owned_qp.reset();
    if (tag == kNewTag) break;
    offer();
    ASSERT_TRUE(lab.until([&] { return settled(); }));
  }
  EXPECT_EQ(newcomer.calls.size(), 1u);
  EXPECT_EQ(lab.hung_count(Counter::replayed), 0u);
}

TEST_F(ForwardPlaces, calls_to_the_newcomer_outlast_its_connections) {
  offer();
  ASSERT_TRUE(lab.until([&] { return settled(); }));
  newcomer.answer = nullptr;
  const std::size_t asked = submit(client, ulb::kNfs3GetAttr, kNewTag);
  ASSERT_TRUE(lab.until([&] { return newcomer.calls.size() == 1; }));
  newcomer.answer = answer;
  newcomer.close(newcomer.calls[0].connection);
  EXPECT_TRUE(lab.until([&] {
    lab.pass(tcp_upstream::kTickNs);
    return client.finished[asked].has_value();
  }));
}

/// A call that has ended every connection gets a separate connection when its client repeats it.
TEST_F(ForwardPlaces, connections_of_single_clients_leave_as_well) {
  bool closes = true;
  lab.hung->answer = [&](const auto& asked) {
    if (word_at(asked.message, 5) != ulb::kNfs3ReadLink) return answer(asked);
    if (closes) lab.hung->close(asked.connection);
    return Bytes{};
  };
  add_client();                     // uses the other connection
  LabClient& other = add_client();  // its replies show that the upstream is alive
  submit(client, ulb::kNfs3ReadLink, kFormerTag);
  ASSERT_TRUE(lab.until([&] {
    lab.pass(tcp_upstream::kTickNs);
    if (other.finished.back()) submit(other, ulb::kNfs3GetAttr, kFormerTag);
    return !lab.ends.empty();
  }));
  closes = false;
  ASSERT_TRUE(lab.until([&] { return client.connection->state() == rpcrdma::Connection::State::Closed; }));
  lab.reconnect(client);
  lab.hung->calls.clear();
  submit(client, ulb::kNfs3ReadLink, kFormerTag);
  ASSERT_TRUE(lab.until([&] { return !lab.hung->calls.empty(); }));
  const std::size_t own = lab.hung->calls.back().connection;
  EXPECT_EQ(status(other, kFormerTag), 0u);
  EXPECT_NE(lab.hung->calls.back().connection, own);
  for (const bool back : {false, true}) {
    place().offer(settings_of(back));
    lab.turn();
    lab.pass(gateway::kLeaveNs);
    ASSERT_TRUE(lab.until([&] { return settled(); })) << back;
    EXPECT_FALSE(lab.hung->open(own));
    EXPECT_EQ(status(other, back ? kFormerTag : kNewTag), 0u);
  }
}

TEST_F(ForwardPlaces, a_place_changes_hands_again_and_again) {
  lab.hung->answer = answer;
  for (int i = 0; i < 50; ++i) {
    const bool back = i % 2 != 0;
    place().offer(settings_of(back));
    ASSERT_TRUE(lab.until([&] { return settled(); }));
    EXPECT_EQ(status(client, back ? kFormerTag : kNewTag), 0u);
    EXPECT_EQ(status(client, back ? kNewTag : kFormerTag), kStaleStatus);
  }
  EXPECT_EQ(newcomer.calls.size(), 25u);
  EXPECT_EQ(lab.hung->calls.size(), 25u);
}

}  // namespace
}  // namespace sluice::tcp_upstream_test
