// SPDX-License-Identifier: Apache-2.0
//
// Signed XIDs and XIDs that the gateway chooses, on one connection to the upstream.
#include "tests/conformance/raw_call.h"
#include "tests/unit/gateway/tcp_upstream/forward_lab.h"

namespace sluice::tcp_upstream_test {
namespace {

using Counter = segment::UpstreamCounter;

/// Returns a call of RPCSEC_GSS (RFC 2203): version 1, DATA, sequence number, no protection.
Bytes signed_call(std::uint32_t xid) {
  Bytes call = words({xid, 0, 2, ulb::kNfsProgram, 3, 0, 6, 20, 1, 0, 77, 1, 0});
  append(call, words({6, 4, 0}));
  return call;
}
Bytes compound(std::uint32_t xid) {
  Bytes call = call_of(ulb::kNfsProgram, 4, ulb::kNfs4Compound, words({0, 1, 0}));
  xdr::store_u32(call.data(), xid);
  return call;
}

/// A client whose XIDs the test chooses. The upstream does not answer by itself.
struct Xids : testing::Test {
  Xids() : peer(lab.add_raw_peer()) {}
  ~Xids() override { peer->owned_qp.reset(); }

  void send(const Bytes& call) { peer->send(conformance::RawCall{.xid = word_at(call, 0)}.with(call)); }
  bool has_come(std::size_t calls) {
    return bool{lab.until([&] { return lab.upstream.calls.size() >= calls; })};
  }
  /// Returns RPC replies, without their transport headers, in order of arrival.
  std::vector<Bytes> replies() const {
    std::vector<Bytes> result;
    for (const auto& received : peer->inbox)
      result.emplace_back(received.bytes.begin() + 28, received.bytes.end());
    return result;
  }
  bool replied(std::size_t count) {
    return bool{lab.until([&] { return peer->inbox.size() >= count; })};
  }
  void answer(const FakeUpstream::Call& call, std::uint32_t word) {
    lab.upstream.send(call.connection, record(success(call.xid(), words({word}))));
  }

  ForwardLab lab;
  std::unique_ptr<conformance::RawPeer> peer;
};

TEST_F(Xids, V1_175_signed_calls_are_found_by_their_own_xids) {
  const std::uint32_t xids[] = {0x10007, 0x20007, 0x3, 0xffffffff};
  for (const std::uint32_t xid : xids) send(signed_call(xid));
  ASSERT_TRUE(has_come(4));
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(lab.upstream.calls[i].xid(), xids[i]);
  std::size_t expected = 0;
  for (const std::size_t i : {2u, 0u, 3u, 1u}) {
    answer(lab.upstream.calls[i], static_cast<std::uint32_t>(i));
    ASSERT_TRUE(replied(++expected));
    EXPECT_EQ(replies().back(), success(xids[i], words({static_cast<std::uint32_t>(i)})));
  }
  EXPECT_EQ(lab.count(Counter::duplicate_xids), 0u);
  EXPECT_EQ(lab.count(Counter::unmatched_replies), 0u);
}

TEST_F(Xids, V1_175_a_signed_call_whose_xid_is_outstanding_ends_the_connection) {
  send(signed_call(0x10007));
  ASSERT_TRUE(has_come(1));
  answer(lab.upstream.calls[0], 5);
  ASSERT_TRUE(replied(1));
  EXPECT_EQ(replies()[0], success(0x10007, words({5})));
  // The XID may be used again after the call has been answered.
  send(signed_call(0x10007));
  ASSERT_TRUE(has_come(2));
  EXPECT_EQ(lab.count(Counter::duplicate_xids), 0u);
  send(signed_call(0x10007));
  ASSERT_TRUE(lab.until([&] { return !lab.ends.empty(); }));
  EXPECT_EQ(lab.ends[0], rpcrdma::CloseReason::Unanswerable);
  EXPECT_EQ(lab.count(Counter::duplicate_xids), 1u);
  EXPECT_EQ(lab.upstream.calls.size(), 2u);
  EXPECT_EQ(peer->inbox.size(), 1u);
}

TEST_F(Xids, V1_175_a_signed_call_that_lost_its_connection_is_the_clients_to_repeat) {
  send(signed_call(0x10007));
  ASSERT_TRUE(has_come(1));
  lab.upstream.close(lab.upstream.calls[0].connection);
  ASSERT_TRUE(lab.until([&] { return !lab.ends.empty(); }));
  EXPECT_EQ(lab.ends[0], rpcrdma::CloseReason::Unanswerable);
  EXPECT_EQ(lab.count(Counter::unrepeatable), 1u);
  lab.turns();
  EXPECT_EQ(lab.upstream.calls.size(), 1u) << "a server drops a signature that it has seen";
  EXPECT_EQ(lab.count(Counter::resent), 0u);
  EXPECT_TRUE(peer->inbox.empty());
}

TEST_F(Xids, V1_175_a_signed_call_that_was_never_sent_waits_for_the_connection) {
  lab.upstream.shut();
  send(signed_call(0x10007));
  ASSERT_TRUE(lab.until([&] { return lab.count(Counter::connect_failures) > 0; }));
  lab.upstream.reopen();
  ASSERT_TRUE(lab.until([&] {
    lab.pass(1'000'000);
    return lab.upstream.calls.size() == 1;
  }));
  answer(lab.upstream.calls[0], 5);
  ASSERT_TRUE(replied(1));
  EXPECT_TRUE(lab.ends.empty());
}

TEST_F(Xids, an_xid_that_is_signed_is_not_given_to_another_call) {
  send(compound(1));
  ASSERT_TRUE(has_come(1));
  const std::uint32_t first = lab.upstream.calls[0].xid();
  answer(lab.upstream.calls[0], 0);
  ASSERT_TRUE(replied(1));
  send(signed_call(first + 1));
  ASSERT_TRUE(has_come(2));
  EXPECT_EQ(lab.upstream.calls[1].xid(), first + 1);
  EXPECT_EQ(lab.upstream.calls[1].connection, lab.upstream.calls[0].connection);
  send(compound(2));
  ASSERT_TRUE(has_come(3));
  EXPECT_EQ(lab.upstream.calls[2].xid(), first + 2);
  answer(lab.upstream.calls[2], 22);
  ASSERT_TRUE(replied(2));
  EXPECT_EQ(replies()[1], success(2, words({22})));
  answer(lab.upstream.calls[1], 11);
  ASSERT_TRUE(replied(3));
  EXPECT_EQ(replies()[2], success(first + 1, words({11})));
}

TEST_F(Xids, V1_175_a_reply_on_another_clients_connection_is_nobodys) {
  LabClient& other = lab.add_client();
  other.submit({.payload = compound(0), .max_reply_bytes = 64});
  ASSERT_TRUE(has_come(1));
  send(signed_call(0x10007));
  ASSERT_TRUE(has_come(2));
  const std::size_t foreign = lab.upstream.calls[0].connection;
  ASSERT_NE(lab.upstream.calls[1].connection, foreign) << "each client has its own";
  lab.upstream.send(foreign, record(success(0x10007, words({66}))));
  ASSERT_TRUE(lab.until([&] { return lab.count(Counter::unmatched_replies) == 1; }));
  lab.turns(20);
  EXPECT_TRUE(peer->inbox.empty());
  answer(lab.upstream.calls[1], 7);
  ASSERT_TRUE(replied(1));
  EXPECT_EQ(replies()[0], success(0x10007, words({7})));
}

}  // namespace
}  // namespace sluice::tcp_upstream_test
