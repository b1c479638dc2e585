// SPDX-License-Identifier: Apache-2.0
//
// Clients of the reverse gateway do not receive attributes of a server that would lead them past the gateway,
// unless configured.
#include "tests/unit/gateway/tcp_clients/reverse_gateway_lab.h"

namespace sluice::tcp_clients_test {
namespace {

constexpr service::Withheld kNothing{.pnfs = false, .referrals = false};
constexpr std::uint32_t kXid = 7;
constexpr std::uint32_t kExchangeId = 42;
constexpr std::uint32_t kLayoutTypes = 1u << (62 - 32), kLocations = 1u << 24, kSupported = 1;
constexpr std::uint32_t kRoles = 0x70000, kNonPnfs = 0x10000, kPnfsServer = 0x20000;

Bytes compound(const Bytes& arguments) {
  Bytes call = call_of(ulb::kNfsProgram, 4, ulb::kNfs4Compound, arguments);
  xdr::store_u32(call.data(), kXid);
  return call;
}
Bytes get_attr_call(std::uint32_t first, std::uint32_t second) {
  return compound(words({0, 1, 1, kGetAttr, 2, first, second}));
}
Bytes get_attr_reply(std::uint32_t first, std::uint32_t second) {
  return words({0, 0, 1, kGetAttr, 0, 1, kSupported, 12, 2, first, second});
}
Bytes exchange_id_call() {
  return compound(words({0, 1, 1, kExchangeId, 1, 2, 0, 0, 0, 0}));
}
Bytes exchange_id_reply(std::uint32_t flags) {
  return words({0, 0, 1, kExchangeId, 0, 0, 7, 1, flags, 0, 0, 0, 0, 0, 0});
}

/// The gateway that plays the server withholds nothing.
struct ReverseGatewayWithheld : testing::Test {
  explicit ReverseGatewayWithheld(const service::Withheld& withheld = {})
      : lab({.withheld = withheld}, {.record_buffers = kRecordBuffers, .withheld = kNothing}) {}

  /// The call that the upstream receives, without its XID, and the reply that the client receives.
  struct Seen {
    Bytes asked, told;
  };
  Seen seen(const Bytes& call, const Bytes& results) {
    Seen both;
    lab.forward.upstream.answer = [&](const auto& forwarded) {
      both.asked = without_xid(forwarded.message);
      return success(forwarded.xid(), results);
    };
    both.told = lab.call(client, call);
    return both;
  }

  ReverseGatewayLab lab;
  TcpPeer& client = lab.side.add_peer();
};

struct ReverseGatewayPasses : ReverseGatewayWithheld {
  ReverseGatewayPasses() : ReverseGatewayWithheld(kNothing) {}
};

TEST_F(ReverseGatewayWithheld, unless_configured_clients_stay) {
  const Seen attributes = seen(get_attr_call(kLocations | kSupported, kLayoutTypes | 2),
                               get_attr_reply(kLocations | 9, kLayoutTypes | 6));
  EXPECT_EQ(attributes.asked, without_xid(get_attr_call(kSupported, 2)));
  EXPECT_EQ(attributes.told, success(kXid, get_attr_reply(9, 6)));
  const Seen roles = seen(exchange_id_call(), exchange_id_reply(kPnfsServer | 3));
  EXPECT_EQ(roles.asked, without_xid(exchange_id_call()));
  EXPECT_EQ(roles.told, success(kXid, exchange_id_reply(kNonPnfs | 3)));
}

TEST_F(ReverseGatewayWithheld, an_unknown_operation_ends_the_compound) {
  constexpr std::uint32_t kPutRootFh = 24, kUnknown = 4711;
  const Seen refused = seen(compound(words({0, 1, 3, kPutRootFh, kUnknown, 1, 2, kPutRootFh})),
                            words({10044, 0, 2, kPutRootFh, 0, ulb::kNfs4Illegal, 10044}));
  EXPECT_EQ(refused.asked, without_xid(compound(words({0, 1, 2, kPutRootFh, ulb::kNfs4Illegal}))));
  EXPECT_EQ(refused.told, success(kXid, words({10044, 0, 2, kPutRootFh, 0, ulb::kNfs4Illegal, 10044})));
  EXPECT_EQ(lab.side.count(segment::ReverseCounter::unknown_operations), 1u);
}

/// Returns a VERIFY of FATTR4_SUPPORTED_ATTRS.
Bytes verify_call(std::uint32_t first, std::uint32_t second) {
  constexpr std::uint32_t kVerify = 37, kSuppattrExclcreat = 1u << 11;
  return compound(words({0, 1, 1, kVerify, 1, kSupported, 16, 3, first, second, kSuppattrExclcreat}));
}

TEST_F(ReverseGatewayWithheld, clients_compare_what_they_were_shown) {
  constexpr std::uint32_t kSuppattrExclcreat = 1u << 11;
  seen(get_attr_call(kSupported, 0), words({0, 0, 1, kGetAttr, 0, 1, kSupported, 16, 3, kLocations | 9,
                                            kLayoutTypes | 6, kSuppattrExclcreat}));
  const Bytes restored = without_xid(verify_call(kLocations | 9, kLayoutTypes | 6));
  const Bytes results = words({0, 0, 1, 37, 0});
  EXPECT_EQ(seen(verify_call(9, 6), results).asked, restored);
  EXPECT_EQ(seen(verify_call(9, 6), results).asked, restored);
}

TEST_F(ReverseGatewayPasses, what_clients_may_know_comes_as_it_is) {
  const Bytes call = get_attr_call(kLocations | kSupported, kLayoutTypes | 2);
  const Bytes results = get_attr_reply(kLocations | 9, kLayoutTypes | 6);
  const Seen attributes = seen(call, results);
  EXPECT_EQ(attributes.asked, without_xid(call));
  EXPECT_EQ(attributes.told, success(kXid, results));
  EXPECT_EQ(seen(exchange_id_call(), exchange_id_reply(kRoles)).told,
            success(kXid, exchange_id_reply(kRoles)));
}

TEST_F(ReverseGatewayWithheld, results_of_other_calls_are_not_looked_at) {
  const Bytes results = exchange_id_reply(kPnfsServer | 3);
  EXPECT_EQ(seen(get_attr_call(2, 0), results).told, success(kXid, results));
  EXPECT_EQ(seen(exchange_id_call(), results).told, success(kXid, exchange_id_reply(kNonPnfs | 3)));
  EXPECT_EQ(seen(get_attr_call(2, 0), results).told, success(kXid, results))
      << "though the call before it was";
}

TEST_F(ReverseGatewayWithheld, behind_placed_data_too) {
  constexpr std::uint32_t kCount = 9000;
  const Bytes call = compound(words({0, 1, 2, kRead, 1, 2, 3, 4, 0, 0, kCount, kGetAttr, 1, kSupported}));
  const auto results = [](std::uint32_t supported) {
    Bytes bytes = words({0, 0, 2, kRead, 0, 1, kCount});
    append(bytes, pattern(kCount, 3));
    append(bytes, words({kGetAttr, 0, 1, kSupported, 8, 1, supported}));
    return bytes;
  };
  EXPECT_EQ(seen(call, results(kLocations | 9)).told, success(kXid, results(9)));
  EXPECT_EQ(lab.side.count(Counter::placed_replies), 1u);
}

TEST_F(ReverseGatewayWithheld, errors_come_as_they_are) {
  // PROG_MISMATCH, followed by data that looks like results.
  Bytes error = words({1, 0, 0, 0, 2});
  append(error, exchange_id_reply(kPnfsServer | 3));
  lab.forward.upstream.answer = [&](const auto& call) {
    Bytes reply = words({call.xid()});
    append(reply, error);
    return reply;
  };
  EXPECT_EQ(without_xid(lab.call(client, exchange_id_call())), error);
}

/// RPCSEC_GSS without protection of arguments and results, with integrity and with privacy (RFC 2203).
TEST_F(ReverseGatewayWithheld, V1_176_what_has_a_checksum_is_not_changed) {
  enum : std::uint32_t { kNone = 1, kIntegrity = 2, kPrivacy = 3 };
  const auto results = [](std::uint32_t supported) {
    return words({0, 0, 1, kGetAttr, 0, 1, kSupported, 8, 1, supported});
  };
  for (const std::uint32_t service : {kNone, kIntegrity, kPrivacy}) {
    Bytes call = words({kXid, 0, 2, ulb::kNfsProgram, 4, ulb::kNfs4Compound, 6});
    Bytes credential = words({1, 0, 77, service});
    append(credential, tcp_upstream_test::opaque(pattern(8, 1)));
    append(call, tcp_upstream_test::opaque(credential));
    append(call, words({6}));
    append(call, tcp_upstream_test::opaque(pattern(28, 2)));
    append(call, words({0, 1, 1, kGetAttr, 1, kLocations | kSupported}));
    const Seen both = seen(call, results(kLocations));
    const Bytes asked = {both.asked.end() - 4, both.asked.end()};
    EXPECT_EQ(asked, words({service == kNone ? kSupported : kLocations | kSupported})) << service;
    EXPECT_EQ(both.told, success(kXid, results(service == kNone ? 0 : kLocations))) << service;
  }
}

}  // namespace
}  // namespace sluice::tcp_clients_test
