// SPDX-License-Identifier: Apache-2.0
//
// Version 2: credits in both directions of the wire, at the server.
#include <set>

#include "cli/conformance/tests.h"
#include "cli/conformance/v2_calls.h"

namespace sluice::conformance {
namespace {

using v2::Header;

std::uint32_t limit_of(const Bytes& message) {
  return word_at(message, 2) >> 16;
}

Bytes grant(std::uint32_t credits) {
  return Header{.xid = 0, .credit = kNoCredits | credits, .type = v2::kNoMsg}.bytes();
}

/// A connection whose server has used its starting credit for its properties, and has no other.
void connect_without_credits(Trial& t) {
  t.connect();
  t.open_v2(properties(t.next_xid(), {}, 0));
}

const Test kTests[] = {
    {"V2_033_the_credit_word_has_new_credits_and_their_limit", Level::Must, Needs::Nothing,
     "Version 2, 4.3.1.1: what is new in the low half, the most that may be outstanding in the high half.",
     [](Trial& t) {
       t.connect_v2();
       for (int i = 0; i < 300; ++i) {
         t.expect_alive();
         t.expect(t.credits_v2() <= limit_of(t.heard().back()), "no more credits than the limit");
       }
       t.overheard();
       t.expect(t.credits_v2() >= 1 && t.credits_v2() <= limit_of(t.heard().back()),
                "no more credits than the limit");
     }},
    {"V2_037_the_limit_of_a_peer_may_change", Level::Must, Needs::Nothing,
     "Version 2, 4.3.1.1: it may be raised and reduced at any time; credits that were given stay.",
     [](Trial& t) {
       t.connect_v2();
       for (const std::uint32_t limit : {1u, 65535u, 2u, 300u, 1u}) {
         const std::uint32_t xid = t.next_xid();
         const Bytes answer = t.ask(Header{.xid = xid, .credit = limit << 16 | 1}.with(null_payload(xid)));
         t.expect(accept_stat_of(read_v2(answer).payload) == 0, "a NULL call succeeds");
       }
       for (int i = 0; i < 100; ++i) t.expect_alive();
     }},
    {"V2_038_each_credit_is_a_Receive", Level::Must, Needs::Nothing,
     "Version 2, 4.3.1.1: all that was granted may be sent at once.",
     [](Trial& t) {
       t.connect_v2();
       for (int round = 0; round < 5; ++round) {
         std::set<std::uint32_t> open;
         for (std::uint32_t left = std::min(t.credits_v2(), 128u); left > 0; --left) {
           const std::uint32_t xid = *open.insert(t.next_xid()).first;
           t.send(null_v2(xid));
         }
         while (!open.empty())
           t.expect(open.erase(word_at(t.answer(), 0)) == 1, "one reply to each of the calls");
       }
     }},
    {"V2_040_V2_035_a_server_without_credits_waits_for_a_grant", Level::Must, Needs::Nothing,
     "Version 2, 4.3.1.1 and 4.3.1.2: no reply without a credit; a NOMSG without chunks brings new ones.",
     [](Trial& t) {
       connect_without_credits(t);
       const std::uint32_t xid = t.next_xid();
       t.send(Header{.xid = xid, .credit = kNoCredits}.with(null_payload(xid)));
       t.expect(t.overheard() == 0, "no reply before there is a credit for it");
       t.send(grant(4));
       t.expect(word_at(t.answer(), 0) == xid, "the reply behind the grant");
       t.expect_alive();
     }},
    {"V2_042_the_reserve_is_for_one_grant", Level::Decision, Needs::Nothing,
     "D2-15: without credits one grant and nothing else may be sent; who is idle falls silent.",
     [](Trial& t) {
       connect_without_credits(t);
       for (int round = 0; round < 4; ++round) {  // what it grants is used up again
         while (t.credits_v2() > 1) t.send(grant(0));
         t.overheard();
       }
       t.expect(t.heard().size() <= 2, "no more than properties and a grant");
       t.expect(t.heard().size() < 2 || v2::is_grant(t.heard()[1]), "a grant as the second message");
       t.send(grant(100));
       t.overheard();
       const std::size_t before = t.heard().size();
       t.overheard();
       t.expect(t.heard().size() == before, "silence");
     }},
};

}  // namespace

std::span<const Test> tests_of_version_2_credits() {
  return kTests;
}

}  // namespace sluice::conformance
