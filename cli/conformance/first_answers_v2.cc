// SPDX-License-Identifier: Apache-2.0
//
// First answers to a client of version 2: late, in parts, with properties unknown to the client, or of
// another version.
#include "cli/conformance/provoking.h"

namespace sluice::conformance {
namespace {

using v2::Header;

constexpr std::uint64_t kSilenceNs = 100'000'000;
constexpr std::uint32_t kCallsBehind = 20;
constexpr std::uint32_t kSmallReceive = 2048;
constexpr std::uint32_t kSmallSegment = 8192;
constexpr std::uint32_t kFewSegments = 4;

/// A call whose connection was closed, and the first message on the next connection.
struct Return {
  WaitingCall call;
  VisitRef visit{};
  ClientMessage first{};
};

/// Closes the connection of a call and handles the first message on the next one by `answer`.
Return next_connection(Stage& s, Responder::FirstAnswer answer) {
  Return back{s.await_call()};
  const auto keep = [&](Visit& visit, const ClientMessage& first) {
    if (back.visit != nullptr) return;  // only the first connection counts
    back.visit = VisitRef(visit);
    back.first = first;
    answer(visit, first);
  };
  s.responder.set_first_answer(keep);
  s.responder.hang_up(*back.call.visit);
  const auto in_version_1 = [&] {
    const auto& waiting = s.responder.waiting();
    return !waiting.empty() && waiting.front().visit != back.call.visit &&
           waiting.front().visit->talk.version == 1;
  };
  s.responder.wait(s.patience_ns(), [&] { return back.visit != nullptr || in_version_1(); });
  s.responder.clear_first_answer();
  if (back.visit == nullptr && in_version_1()) s.skip("The client begins with version 1.");
  s.expect(back.visit != nullptr, "another connection, which begins with version 2");
  return back;
}

/// Checks that the client retransmits the call on the new connection and continues there.
void expect_work(Stage& s, const Return& back) {
  s.expect_again(back.call);
  s.serve(kCallsBehind);
  s.expect(!back.visit->ended, "the new connection to stay");
  s.expect(back.visit->talk.errors == 0, "no ERROR of the client");
}

void refuse_version(Responder& responder, Visit& visit, const Bytes& form, std::uint32_t xid) {
  Bytes message = form;
  xdr::store_u32(message.data(), xid);
  responder.send_as_it_is(visit, message);
}

const Provocation kFirstAnswers[] = {
    {{"V2_008_the_first_answer_is_late", Level::Must, Needs::Nothing,
      "Version 2, 4.3.3: the client sends no second message before the first answer.", nullptr},
     [](Stage& s) {
       const Return back = next_connection(s, [](Visit&, const ClientMessage&) {});
       s.responder.wait(kSilenceNs, [&] { return back.visit->ended; });
       s.expect(back.visit->talk.messages == 1, "one message alone");
       s.responder.greet(*back.visit);
       s.responder.take_first(*back.visit, back.first);
       expect_work(s, back);
     }},
    {{"V2_010_V2_057_the_first_answer_is_a_grant_and_no_properties_come", Level::Must, Needs::Nothing,
      "Version 2, 4.3.3.1 and 6.4.4: a responder may keep the defaults.", nullptr},
     [](Stage& s) {
       const Return back = next_connection(s, [&s](Visit& visit, const ClientMessage& first) {
         s.responder.send(visit, Header{.xid = 0, .type = v2::kNoMsg}.bytes());
         s.responder.take_first(visit, first);
       });
       expect_work(s, back);
       s.expect(back.visit->talk.v2.longest() <= kDefaultThreshold, "no message beyond 4096 octets");
     }},
    {{"V2_052_V2_053_V2_056_V2_061_properties_come_in_any_order_and_with_unknown_ids", Level::Must,
      Needs::Nothing,
      "Version 2, 5.1 and 5.2: unknown ids are skipped; a property without data, or with an unknown level, "
      "has its default.",
      nullptr},
     [](Stage& s) {
       s.responder.set_announcement({{0x7FFF0001, Bytes(3, std::byte{0xAB})},
                                     {kReverseSupport, words({77})},
                                     {0, {}},
                                     {kSegmentCount, {}},
                                     {kReceiveSize, words({s.responder.receive_bytes()})},
                                     {0xFFFFFFFF, Bytes(61)},
                                     {kSendSize, {}}});
       expect_work(s, next_connection(s, [&s](Visit& visit, const ClientMessage& first) {
                     s.responder.greet(visit);
                     s.responder.take_first(visit, first);
                   }));
     }},
    {{"V2_047_V2_050_V2_051_small_sizes_are_kept_to", Level::Must, Needs::Nothing,
      "Version 2, 5.2: Receive Buffer Size, Maximum RDMA Segment Size and Count of the responder.", nullptr},
     [](Stage& s) {
       s.responder.set_announcement({{kReceiveSize, words({kSmallReceive})},
                                     {kSegmentSize, words({kSmallSegment})},
                                     {kSegmentCount, words({kFewSegments})}});
       const Return back = next_connection(s, [&s](Visit& visit, const ClientMessage& first) {
         s.responder.greet(visit);
         s.responder.take_first(visit, first);
       });
       s.expect_again(back.call);
       for (std::uint32_t i = 0; i < kCallsBehind; ++i) {
         const WaitingCall next = s.await_call();
         s.responder.serve(next);
         std::size_t segments = next.message.header.reads.size();
         for (const auto& chunk : next.message.header.writes) segments += chunk.size();
         s.expect(segments <= kFewSegments, "at most 4 segments in a header");
         s.expect(first_segment(next.message.header).length <= kSmallSegment,
                  "segments of at most 8192 octets");
       }
       s.expect(back.visit->talk.v2.longest() <= kSmallReceive, "no message of more than 2048 octets");
     }},
    {{"V2_065_sizes_that_cannot_be_are_borne", Level::Decision, Needs::Nothing,
      "D2-20: such sizes are raised to the client's minimum, and are not errors.", nullptr},
     [](Stage& s) {
       s.responder.set_announcement({{kSendSize, words({0})},
                                     {kReceiveSize, words({17})},
                                     {kSegmentSize, words({1})},
                                     {kSegmentCount, words({0})}});
       const Return back = next_connection(s, [&s](Visit& visit, const ClientMessage& first) {
         s.responder.greet(visit);
         s.responder.take_first(visit, first);
       });
       s.expect_again(back.call);
       s.serve(1);
       s.expect(!back.visit->ended && back.visit->talk.errors == 0,
                "the new connection to stay, and no ERROR");
     }},
    {{"V2_064_properties_come_in_parts", Level::Must, Needs::Nothing,
      "Version 2, 6.3.2.2 and C.5: the bodies are joined, and decoded once.", nullptr},
     [](Stage& s) {
       const Return back = next_connection(s, [&s](Visit& visit, const ClientMessage& first) {
         const Header part{.xid = 0x64, .type = v2::kConnProp, .flags = v2::kMore};
         s.responder.send(visit, part.then({1, kReceiveSize}));
         s.responder.send(visit, Header{.xid = 0x64, .type = v2::kConnProp}.then({4, kSmallReceive}));
         visit.talk.receive_bytes = kSmallReceive;
         s.responder.take_first(visit, first);
       });
       expect_work(s, back);
       s.expect(back.visit->talk.v2.longest() <= kSmallReceive, "no message of more than 2048 octets");
     }},
    {{"V2_009_the_first_answer_is_an_ERROR", Level::Decision, Needs::Nothing,
      "D2-16: the ERROR returns the initial credit, whatever its credit word says.", nullptr},
     [](Stage& s) {
       const Return back = next_connection(s, [&s](Visit& visit, const ClientMessage& first) {
         s.responder.send_as_it_is(
             visit,
             Header{.xid = first.header.xid, .credit = 0x00400040, .type = v2::kError, .flags = v2::kResponse}
                 .then({2}));
       });
       s.responder.wait(kSilenceNs, [&] { return back.visit->ended; });
       s.expect(back.visit->talk.messages <= 2, "one further message");
       expect_work(s, back);
     }},
    {{"V2_013_V2_014_ERR_VERS_leads_to_version_1", Level::Should, Needs::Nothing,
      "Version 2, 4.3.3.2: the client continues with a version of the range, on the same connection; D2-01: "
      "the ERROR may have seven words, as in version 1.",
      nullptr},
     [](Stage& s) {
       const Return back = next_connection(s, [&s](Visit& visit, const ClientMessage& first) {
         refuse_version(s.responder, visit, words({0, 2, 32, 4, 1, 1, 1}), first.header.xid);
       });
       s.expect_again(back.call);
       s.expect(back.visit->talk.version == 1, "version 1 on this connection");
       s.serve(kCallsBehind);
       s.expect(!back.visit->ended, "the connection to stay");
     }},
    {{"V2_015_a_connection_that_ends_behind_ERR_VERS_makes_the_next_one_version_1", Level::Should,
      Needs::Nothing, "Version 2, 4.3.3.2: the client begins new connections with version 1, for some time.",
      nullptr},
     [](Stage& s) {
       const Return back = next_connection(s, [&s](Visit& visit, const ClientMessage& first) {
         refuse_version(s.responder, visit, words({0, 2, 0x00200000, 4, 1, 1, 1, 1}), first.header.xid);
       });
       bool asks_again = false;
       const auto answer = [&](Visit& visit, const ClientMessage& first) {
         asks_again = true;
         s.responder.greet(visit);
         s.responder.take_first(visit, first);
       };
       s.responder.set_first_answer(answer);
       s.responder.settle(*back.visit);
       s.responder.hang_up(*back.visit);
       const WaitingCall again = s.await([&](const WaitingCall& c) { return c.visit != back.visit; },
                                         "a call on another connection");
       s.responder.serve(again);
       s.responder.clear_first_answer();
       s.expect(!asks_again && again.visit->talk.version == 1, "version 1 from the beginning");
       s.serve(1);
     }},
};

}  // namespace

std::span<const Provocation> first_answers_of_version_2() {
  return kFirstAnswers;
}

}  // namespace sluice::conformance
