// SPDX-License-Identifier: Apache-2.0
//
// Clients do not receive attributes of an upstream that would lead them past the gateway, unless configured.
#include "tests/unit/gateway/tcp_upstream/forward_lab.h"

namespace sluice::tcp_upstream_test {
namespace {

constexpr service::Withheld kNothing{.pnfs = false, .referrals = false};
constexpr std::uint32_t kGetAttrNumber = 9, kExchangeId = 42;
constexpr std::uint32_t kLayoutTypes = 1u << (62 - 32), kLocations = 1u << 24, kSupported = 1;

Bytes attributes_call(std::uint32_t first, std::uint32_t second) {
  return call_of(ulb::kNfsProgram, 4, ulb::kNfs4Compound, words({0, 1, 1, kGetAttrNumber, 2, first, second}));
}
Bytes supported_results(std::uint32_t first, std::uint32_t second) {
  return words({0, 0, 1, kGetAttrNumber, 0, 1, kSupported, 12, 2, first, second});
}
Bytes exchange_id_call() {
  return call_of(ulb::kNfsProgram, 4, ulb::kNfs4Compound, words({0, 1, 1, kExchangeId, 1, 2, 0, 0, 0, 0}));
}
Bytes exchange_id_results(std::uint32_t flags) {
  return words({0, 0, 1, kExchangeId, 0, 0, 7, 1, flags, 0, 0, 0, 0, 0, 0});
}

/// The call that the upstream receives, and the reply that the client receives, without their headers.
struct Exchange {
  Bytes asked, told;
};
Exchange exchange(ForwardLab& lab, LabClient& client, const Bytes& call, const Bytes& results) {
  Exchange both;
  lab.upstream.answer = [&](const auto& forwarded) {
    both.asked = {forwarded.message.begin() + 4, forwarded.message.end()};
    return success(forwarded.xid(), results);
  };
  const Outcome outcome = lab.call(client, {.payload = call, .max_reply_bytes = 2000});
  EXPECT_EQ(outcome.status, CallStatus::Ok);
  both.told = {outcome.message.begin() + kResultsAt, outcome.message.end()};
  return both;
}
Bytes behind_xid(const Bytes& call) {
  return {call.begin() + 4, call.end()};
}

TEST(ForwardWithheld, unless_configured_clients_stay) {
  ForwardLab lab;
  LabClient& client = lab.add_client();
  const Exchange attributes =
      exchange(lab, client, attributes_call(kLocations | kSupported, kLayoutTypes | 2),
               supported_results(kLocations | 9, kLayoutTypes | 6));
  EXPECT_EQ(attributes.asked, behind_xid(attributes_call(kSupported, 2)));
  EXPECT_EQ(attributes.told, supported_results(9, 6));
  const Exchange roles = exchange(lab, client, exchange_id_call(), exchange_id_results(0x20003));
  EXPECT_EQ(roles.asked, behind_xid(exchange_id_call()));
  EXPECT_EQ(roles.told, exchange_id_results(0x10003));
}

TEST(ForwardWithheld, what_clients_may_know_comes_as_it_is) {
  ForwardLab lab({.withheld = kNothing});
  LabClient& client = lab.add_client();
  const Bytes call = attributes_call(kLocations | kSupported, kLayoutTypes | 2);
  const Bytes results = supported_results(kLocations | 9, kLayoutTypes | 6);
  const Exchange attributes = exchange(lab, client, call, results);
  EXPECT_EQ(attributes.asked, behind_xid(call));
  EXPECT_EQ(attributes.told, results);
  EXPECT_EQ(exchange(lab, client, exchange_id_call(), exchange_id_results(0x20003)).told,
            exchange_id_results(0x20003));
}

TEST(ForwardWithheld, results_of_other_calls_are_not_looked_at) {
  ForwardLab lab;
  LabClient& client = lab.add_client();
  EXPECT_EQ(exchange(lab, client, attributes_call(2, 0), exchange_id_results(0x20003)).told,
            exchange_id_results(0x20003));
}

TEST(ForwardWithheld, errors_come_as_they_are) {
  ForwardLab lab;
  LabClient& client = lab.add_client();
  // PROG_MISMATCH, followed by data that looks like results.
  Bytes error = words({1, 0, 0, 0, 2});
  append(error, exchange_id_results(0x20003));
  lab.upstream.answer = [&](const auto& call) {
    Bytes reply = words({call.xid()});
    append(reply, error);
    return reply;
  };
  const Outcome outcome = lab.call(client, {.payload = exchange_id_call(), .max_reply_bytes = 2000});
  EXPECT_EQ(Bytes(outcome.message.begin() + 4, outcome.message.end()), error);
}

/// RPCSEC_GSS without protection of arguments and results, with integrity and with privacy (RFC 2203).
TEST(ForwardWithheld, V1_176_what_has_a_checksum_is_not_changed) {
  ForwardLab lab;
  LabClient& client = lab.add_client();
  enum : std::uint32_t { kNone = 1, kIntegrity = 2, kPrivacy = 3 };
  const Bytes arguments = words({0, 1, 1, kGetAttrNumber, 1, kLocations | kSupported});
  const Bytes results = words({0, 0, 1, kGetAttrNumber, 0, 1, kSupported, 8, 1, kLocations});
  for (const std::uint32_t service : {kNone, kIntegrity, kPrivacy}) {
    Bytes call = words({0, 0, 2, ulb::kNfsProgram, 4, ulb::kNfs4Compound, 6});
    Bytes credential = words({1, 0, 77, service});
    append(credential, opaque(pattern(8, 1)));
    append(call, opaque(credential));
    append(call, words({6}));
    append(call, opaque(pattern(28, 2)));
    append(call, arguments);
    const Exchange both = exchange(lab, client, call, results);
    const Bytes asked = {both.asked.end() - 4, both.asked.end()};
    EXPECT_EQ(asked, words({service == kNone ? kSupported : kLocations | kSupported})) << service;
    const Bytes told = {both.told.end() - 4, both.told.end()};
    EXPECT_EQ(told, words({service == kNone ? 0 : kLocations})) << service;
  }
}

}  // namespace
}  // namespace sluice::tcp_upstream_test
