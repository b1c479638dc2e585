// SPDX-License-Identifier: Apache-2.0
#include "tests/isolation/attacks.h"

#include <string>

#include "tests/conformance/raw_call.h"
#include "tests/conformance/v2_lab.h"

namespace sluice::isolation {

namespace {

using conformance::RawCall;
using conformance::test_call;
namespace v2 = conformance::v2;

constexpr std::uint32_t kCredits = SiteOptions{}.credits;
constexpr std::uint32_t kListBytes = 9000;  ///< bytes of results, which need memory of the server
constexpr std::uint32_t kMoreThanGranted = kCredits + 4;
constexpr std::uint64_t kTurnsOfAWord = 20;  ///< between the words of a message that trickles in
constexpr std::uint64_t kTurnsOfAVisit = 12;
constexpr std::uint64_t kTurnsAway = 10;
constexpr std::uint16_t kNoSuchHandle = 0x7777;

/// Reconnects each time that the server has ended the connection. True if connected.
bool here(Peer& peer) {
  if (peer.lost() && peer.turns > kTurnsAway) peer.connect();
  return peer.connected() && !peer.lost();
}

std::uint32_t xid_of(const Peer& peer) {
  return static_cast<std::uint32_t>(0x5000'0000 + peer.sent);
}

void send(Peer& peer, const Bytes& message) {
  peer.raw().send(message);
  ++peer.sent;
}

/// Sends the first message, which settles the version and lets the server send `credits` messages. True if
/// connected.
bool greets(Peer& peer, std::uint16_t credits) {
  if (!here(peer)) return false;
  if (peer.sent == 0)
    send(peer, v2::Header{.xid = 1, .credit = 0x00400000u | credits, .type = v2::kConnProp}.then({0}));
  return true;
}

/// Exposes memory under a handle that the server may write to. The contents are never checked.
rpcrdma::Segment room_for(Peer& peer, std::uint32_t bytes) {
  return peer.raw().expose(bytes, rdma::kRemoteWrite).segment;
}

// --- Calls whose replies are not received

void lists_without_receives(Peer& peer) {
  if (!here(peer) || peer.sent >= kCredits) return;
  const std::uint32_t xid = xid_of(peer);
  send(peer, RawCall{.xid = xid, .reply = std::vector{room_for(peer, kListBytes + 1024)}}.with(
                 test_call(xid, TestService::kList, {kListBytes})));
}

void nulls_without_receives(Peer& peer) {
  if (!here(peer) || peer.sent >= kCredits) return;
  const std::uint32_t xid = xid_of(peer);
  send(peer, RawCall{.xid = xid}.with(test_call(xid, TestService::kNull)));
}

void many_segments_without_receives(Peer& peer) {
  if (!here(peer) || peer.sent >= kCredits) return;
  constexpr std::uint32_t kSegments = 240;
  constexpr std::uint32_t kSegmentBytes = 64;
  const rpcrdma::Segment whole = room_for(peer, kSegments * kSegmentBytes);
  std::vector<rpcrdma::Segment> chunk;
  for (std::uint32_t i = 0; i < kSegments; ++i)
    chunk.push_back(conformance::part(whole, i * kSegmentBytes, kSegmentBytes));
  const std::uint32_t xid = xid_of(peer);
  send(peer, RawCall{.xid = xid, .writes = {chunk}}.with(
                 test_call(xid, TestService::kSource, {kSegments * kSegmentBytes})));
}

void lists_without_credits(Peer& peer) {
  if (!greets(peer, 1) || peer.sent > kCredits / 2) return;
  const std::uint32_t xid = xid_of(peer);
  send(peer, v2::Header{.xid = xid, .credit = 0x00400000}.with(test_call(xid, TestService::kList, {40'000})));
}

// --- Messages without an end

Bytes first_part(std::uint32_t xid, std::uint32_t bytes) {
  Bytes part = test_call(xid, TestService::kName, {1u << 20});
  part.resize(bytes);
  return v2::Header{.xid = xid, .credit = 0x00400010, .flags = v2::kMore}.with(part);
}

void a_word_at_a_time(Peer& peer) {
  if (!greets(peer, 16)) return;
  if (peer.sent == 1) return send(peer, first_part(7, 3000));
  if (peer.turns % kTurnsOfAWord == 0)
    send(peer, v2::Header{.xid = 7, .credit = 0x00400001, .flags = v2::kMore}.with(Bytes(4)));
}

void a_large_message_without_an_end(Peer& peer) {
  if (!greets(peer, 16) || peer.sent > 12) return;
  if (peer.sent == 1) return send(peer, first_part(7, 3000));
  send(peer, v2::Header{.xid = 7, .credit = 0x00400001, .flags = v2::kMore}.with(Bytes(3000)));
}

void properties_without_an_end(Peer& peer) {
  if (!here(peer) || peer.sent > 8) return;
  send(peer,
       v2::Header{.xid = 9, .credit = 0x00400010, .type = v2::kConnProp, .flags = v2::kMore}.then({1, 2, 3}));
}

// --- Calls that the service never completes

void calls_that_hang(Peer& peer) {
  if (!here(peer) || peer.sent >= kCredits) return;
  const std::uint32_t xid = xid_of(peer);
  send(peer, RawCall{.xid = xid}.with(test_call(xid, TestService::kLater)));
}

void calls_of_strangers(Peer& peer) {
  if (!greets(peer, 16) || peer.sent > kCredits / 2) return;
  const std::uint32_t xid = xid_of(peer);
  send(peer, v2::Header{.xid = xid}.with(test_call(xid, TestService::kNull)));
}

void long_calls_of_strangers(Peer& peer) {
  if (!greets(peer, 16) || peer.sent > 4) return;
  send(peer, first_part(xid_of(peer), 3000));
}

// --- Connections that open and close

void invalid_handles(Peer& peer) {
  if (!here(peer) || peer.sent >= 4) return;
  const std::uint32_t xid = xid_of(peer);
  const rpcrdma::Segment nowhere{rdma::Rkey{kNoSuchHandle}, 4096, 0x1000};
  send(peer, RawCall{.xid = xid, .reads = {{.position = 44, .segment = nowhere}}}.with(
                 test_call(xid, TestService::kSink, {4096})));
}

void comes_and_vanishes(Peer& peer) {
  if (!here(peer)) return;
  if (peer.sent < 3) return calls_that_hang(peer);
  if (peer.turns > kTurnsOfAVisit) peer.connect();
}

void reconnects(Peer& peer) {
  if (peer.turns > kTurnsOfAVisit) peer.connect();
}

// --- Floods

void garbage(Peer& peer) {
  if (!here(peer)) return;
  Bytes message(64);
  conformance::fill_pattern(message, static_cast<std::uint32_t>(peer.sent));
  send(peer, message);
}

void refused_calls(Peer& peer) {
  if (!here(peer) || peer.raw().inbox.size() + kCredits < peer.sent) return;
  const std::uint32_t xid = xid_of(peer);
  send(peer, RawCall{.xid = xid, .proc = 9}.header());
  if (peer.raw().inbox.size() > 1000) {
    peer.sent -= peer.raw().inbox.size();
    peer.raw().inbox.clear();
  }
}

void more_calls_than_granted(Peer& peer) {
  if (!greets(peer, 1)) return;
  for (std::uint32_t i = 0; i < kMoreThanGranted; ++i) calls_that_hang(peer);
}

void errors_for_nobody(Peer& peer) {
  if (!greets(peer, 16)) return;
  for (int i = 0; i < 4; ++i) send(peer, v2::error(xid_of(peer), 1));
}

/// Sends a continued reply whose payload takes a buffer.
void continued_replies_for_nobody(Peer& peer) {
  if (!greets(peer, 16)) return;
  const std::uint32_t xid = xid_of(peer);
  Bytes reply = conformance::words({xid, 1, 0, 0, 0, 0});
  reply.resize(3000);
  send(peer, v2::Header{.xid = xid, .credit = 0x00400010, .flags = v2::kResponse | v2::kMore}.with(reply));
  send(peer, v2::Header{.xid = xid, .credit = 0x00400010, .flags = v2::kResponse}.with(
                 std::span(reply).first(1000)));
}

void empty_grants(Peer& peer) {
  if (!greets(peer, 1)) return;
  if (peer.turns % 2 == 0) send(peer, v2::grant(0));
}

constexpr Attack kAttacks[] = {
    {.name = "lists_without_receives", .step = lists_without_receives, .receives = false, .ends = true},
    {.name = "nulls_without_receives", .step = nulls_without_receives, .receives = false, .ends = true},
    {.name = "many_segments_without_receives",
     .step = many_segments_without_receives,
     .receives = false,
     .ends = true},
    {.name = "lists_without_credits", .step = lists_without_credits, .ends = true},
    {.name = "a_word_at_a_time", .step = a_word_at_a_time, .ends = true},
    {.name = "a_large_message_without_an_end", .step = a_large_message_without_an_end, .ends = true},
    {.name = "properties_without_an_end",
     .step = properties_without_an_end,
     .ends = true,
     .hold_calls = true},
    {.name = "calls_that_hang", .step = calls_that_hang},
    {.name = "calls_of_strangers", .step = calls_of_strangers, .hold_calls = true},
    {.name = "long_calls_of_strangers", .step = long_calls_of_strangers, .ends = true, .hold_calls = true},
    {.name = "invalid_handles", .step = invalid_handles},
    {.name = "comes_and_vanishes", .step = comes_and_vanishes},
    {.name = "reconnects", .step = reconnects},
    {.name = "garbage", .step = garbage},
    {.name = "refused_calls", .step = refused_calls},
    {.name = "more_calls_than_granted", .step = more_calls_than_granted},
    {.name = "errors_for_nobody", .step = errors_for_nobody, .callers = true},
    {.name = "continued_replies_for_nobody", .step = continued_replies_for_nobody},
    {.name = "empty_grants", .step = empty_grants},
};

}  // namespace

std::span<const Attack> attacks() {
  return kAttacks;
}

Attackers::Attackers(Site& site, const Attack& attack) : attack_(attack) {
  constexpr std::uint32_t kReceives = 64;
  for (std::uint32_t i = 0; i + 1 < site.options().connections; ++i) {
    peers_.push_back(site.make_peer("hostile " + std::to_string(i), attack.receives ? kReceives : 0));
    peers_.back()->connect();
  }
}

void Attackers::turn() {
  for (const auto& peer : peers_) {
    attack_.step(*peer);
    peer->poll();
  }
}

}  // namespace sluice::isolation
