// SPDX-License-Identifier: Apache-2.0
//
// One client that behaves and whose calls are forwarded, among clients that hold as many resources of the
// gateway as they can. Its calls are answered while the clock is stopped, so none of them has waited for the
// end of another client.
#include <algorithm>
#include <string>

#include "tests/conformance/raw_call.h"
#include "tests/unit/gateway/tcp_upstream/forward_lab.h"

namespace sluice::tcp_upstream_test {
namespace {

using conformance::RawCall;
using conformance::RawPeer;

constexpr std::uint64_t kSecond = 1'000'000'000;
constexpr std::uint32_t kHostile = 6;
constexpr std::uint32_t kCredits = 16;
constexpr std::uint32_t kLong = 40'000;  ///< bytes of a reply that is received into a long buffer
constexpr std::uint32_t kShort = 3000;   ///< bytes of a reply whose data is copied into a short buffer
constexpr tcp_upstream::Route kHungProgram{0x20000124, 1};
constexpr std::uint32_t kProgram = 0x20000123;
constexpr std::uint32_t kListProcedure = 8;    ///< the reply has as many bytes as its argument says
constexpr std::uint32_t kSilentProcedure = 9;  ///< never answered, although the upstream answers others

/// One kind of call, sent with the given XID.
struct Attack {
  const char* name;
  Bytes (*call)(RawPeer&, std::uint32_t xid);
  bool receives = true;
  bool ends = false;  ///< the peer does not receive its replies, so its connection is ended
};

Bytes with_xid(Bytes call, std::uint32_t xid) {
  xdr::store_u32(call.data(), xid);
  return call;
}
Bytes read_call(std::uint32_t bytes) {
  Bytes arguments = opaque(pattern(32, 5));
  append(arguments, words({0, 0, bytes}));
  return nfs3(ulb::kNfs3Read, arguments);
}
rpcrdma::Segment room(RawPeer& peer, std::uint32_t bytes) {
  return peer.expose(bytes, rdma::kRemoteWrite).segment;
}
Bytes read_of(RawPeer& peer, std::uint32_t xid, std::uint32_t bytes) {
  return RawCall{.xid = xid, .writes = {{room(peer, bytes)}}}.with(with_xid(read_call(bytes), xid));
}
Bytes list_of(RawPeer& peer, std::uint32_t xid, tcp_upstream::Route route, std::uint32_t procedure) {
  return RawCall{.xid = xid, .reply = std::vector{room(peer, kLong + 1000)}}.with(
      with_xid(call_of(route.program, route.version, procedure, words({kLong})), xid));
}

constexpr Attack kAttacks[] = {
    {.name = "calls_to_a_hung_upstream",
     .call =
         [](RawPeer&, std::uint32_t xid) {
           return RawCall{.xid = xid}.with(with_xid(call_of(kHungProgram.program, 1, 7, words({1})), xid));
         }},
    {.name = "long_replies_of_a_hung_upstream",
     .call = [](RawPeer& peer,
                std::uint32_t xid) { return list_of(peer, xid, kHungProgram, kListProcedure); }},
    {.name = "calls_that_the_same_upstream_keeps",
     .call =
         [](RawPeer&, std::uint32_t xid) {
           return RawCall{.xid = xid}.with(with_xid(call_of(kProgram, 1, kSilentProcedure, words({1})), xid));
         }},
    {.name = "long_replies_that_the_same_upstream_keeps",
     .call =
         [](RawPeer& peer, std::uint32_t xid) {
           return list_of(peer, xid, {kProgram, 1}, kSilentProcedure);
         }},
    {.name = "long_reads_without_receives",
     .call = [](RawPeer& peer, std::uint32_t xid) { return read_of(peer, xid, kLong); },
     .receives = false,
     .ends = true},
    {.name = "short_reads_without_receives",
     .call = [](RawPeer& peer, std::uint32_t xid) { return read_of(peer, xid, kShort); },
     .receives = false,
     .ends = true},
    {.name = "lists_without_receives",
     .call =
         [](RawPeer& peer, std::uint32_t xid) {
           return list_of(peer, xid, {kProgram, 1}, kListProcedure);
         },
     .receives = false,
     .ends = true},
};

Bytes answer(const FakeUpstream::Call& call) {
  const std::uint32_t procedure = word_at(call.message, 5);
  if (word_at(call.message, 3) == ulb::kNfsProgram && procedure == ulb::kNfs3Read) {
    const std::uint32_t bytes = word_at(call.message, 10 + 9 + 2);
    Bytes results = words({0, 0, bytes, 1});
    append(results, opaque(pattern(bytes, 3)));
    return success(call.xid(), results);
  }
  if (word_at(call.message, 3) == ulb::kNfsProgram) return success(call.xid(), words({0}));
  if (procedure == kSilentProcedure) return {};
  if (procedure == kListProcedure) return success(call.xid(), pattern(word_at(call.message, 10), 4));
  return success(call.xid(), words({word_at(call.message, 10)}));
}

class ForwardIsolation : public testing::TestWithParam<std::size_t> {
 protected:
  ForwardIsolation() : victim(lab.add_client()) {
    lab.upstream.answer = &answer;
    serve_victim();
  }
  ~ForwardIsolation() override { leave(); }

  const Attack& attack() const { return kAttacks[GetParam()]; }
  /// Fills the gateway: each hostile peer sends as many calls as it has credits.
  void attack_all() {
    for (std::uint32_t i = 0; i < kHostile; ++i)
      hostile.push_back(lab.add_raw_peer(attack().receives ? 64 : 0));
    for (std::uint32_t call = 0; call < kCredits; ++call)
      for (std::uint32_t i = 0; i < kHostile; ++i)
        hostile[i]->send(attack().call(*hostile[i], 0x5000'0000 + i * 1000 + call));
    lab.turns(1000);
  }
  void leave() {
    for (const auto& peer : hostile) peer->owned_qp.reset();
  }
  /// Makes one call of each kind and checks its results.
  void serve_victim() {
    victim.region_used = 0;
    const Outcome plain =
        lab.call(victim, {.payload = call_of(kProgram, 1, 7, words({5})), .max_reply_bytes = 64});
    ASSERT_EQ(plain.status, CallStatus::Ok);
    EXPECT_EQ(word_at(plain.message, 6), 5u);
    for (const std::uint32_t bytes : {kShort, kLong, 1u << 20}) {
      const auto into = victim.memory(bytes);
      std::fill(into.begin(), into.end(), std::byte{0});
      const rdma::Sge piece = victim.piece(into);
      const rpcrdma::WriteItem item{.pieces = {&piece, 1}};
      const Outcome read = lab.call(
          victim, {.payload = read_call(bytes), .writes = {&item, 1}, .max_reply_bytes = 200}, {bytes});
      ASSERT_EQ(read.status, CallStatus::Ok) << bytes;
      EXPECT_TRUE(conformance::has_pattern(into, 3)) << bytes;
    }
    const Outcome list = lab.call(victim, {.payload = call_of(kProgram, 1, kListProcedure, words({kLong})),
                                           .max_reply_bytes = kLong + 1000});
    ASSERT_EQ(list.status, CallStatus::Ok);
    EXPECT_TRUE(conformance::has_pattern(std::span(list.message).subspan(kResultsAt), 4));
    const LongWrite write(victim, 1u << 20);
    const Outcome written = lab.call(victim, write.request());
    ASSERT_EQ(written.status, CallStatus::Ok);
    EXPECT_EQ(word_at(written.message, 6), 0u);
  }
  bool everything_is_back() const {
    for (const segment::UpstreamArea* area : {lab.area.get(), lab.hung_area.get()})
      for (const segment::PoolUse& pool : area->pools)
        if (pool.held != 0 || pool.waiting != 0) return false;
    return lab.engine->call_memory().available() == lab.engine->call_memory().buffers() &&
           lab.engine->reply_memory().available() == lab.engine->reply_memory().buffers();
  }

  // Each of the eight connections is guaranteed some of the long buffers, short buffers and XIDs.
  ForwardLab lab{{.credits = kCredits,
                  .record_buffers = 16,
                  .item_buffers = 16,
                  .reply_buffers = 16,
                  .shared_connections = 1,
                  .progress_timeout_ns = 30 * kSecond,
                  .hung_routes = {kHungProgram}}};
  LabClient& victim;
  std::vector<std::unique_ptr<RawPeer>> hostile;
};

TEST_P(ForwardIsolation, the_others_are_served) {
  lab.stop_clock();
  attack_all();
  for (int round = 0; round < 5 && !HasFailure(); ++round) serve_victim();
}

TEST_P(ForwardIsolation, who_holds_something_is_ended_and_everything_comes_back) {
  attack_all();
  for (int i = 0; i < 40 && !HasFailure(); ++i) {
    lab.pass(2 * kSecond);
    lab.turns(50);
    serve_victim();
  }
  const std::vector ended(attack().ends ? kHostile : 0, rpcrdma::CloseReason::NoProgress);
  EXPECT_EQ(lab.ends, ended);
  leave();
  EXPECT_TRUE(lab.until([&] {
    lab.pass(tcp_upstream::kCreditIntervalNs);
    return everything_is_back();
  }));
  serve_victim();
}

INSTANTIATE_TEST_SUITE_P(, ForwardIsolation, testing::Range(std::size_t{0}, std::size(kAttacks)),
                         [](const auto& attack) { return std::string(kAttacks[attack.param].name); });

}  // namespace
}  // namespace sluice::tcp_upstream_test
