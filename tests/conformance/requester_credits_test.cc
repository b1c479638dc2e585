// SPDX-License-Identifier: Apache-2.0
//
// Requirement rows at the requester, against a raw server: credits, Receives, errors and stray messages.
#include <gtest/gtest.h>

#include "tests/conformance/raw_server.h"
#include "tests/golden/v1_vectors.h"

#include <algorithm>

namespace sluice::conformance {
namespace {

using rpcrdma::CallStatus;

TEST(RequesterCredits, V1_040_V1_046_one_call_until_the_first_reply) {
  ClientLab lab;
  for (int i = 0; i < 50; ++i) ASSERT_TRUE(lab.submit_null());
  lab.settle();
  ASSERT_EQ(lab.peer->inbox.size(), 1u);
  EXPECT_EQ(word_at(got(lab, 0), 2), 32u);
  lab.peer->send(ClientLab::success(xid_of(got(lab, 0)), 8));
  lab.settle();
  EXPECT_EQ(lab.peer->inbox.size(), 1u + 8u);
  for (const auto& call : lab.peer->inbox) EXPECT_EQ(word_at(call.bytes, 2), 32u);
}

TEST(RequesterCredits, V1_043_V1_044_V1_049_the_latest_grant_limits_what_is_outstanding) {
  ClientLab lab;
  for (int i = 0; i < 60; ++i) lab.submit_null();
  lab.settle();
  std::size_t answered = 0;
  const auto answer = [&](std::uint32_t grant) {
    lab.peer->send(ClientLab::success(xid_of(got(lab, answered++)), grant));
    lab.settle();
  };
  answer(0xFFFFFFFF);
  EXPECT_EQ(lab.requester->outstanding(), 32u);  // limited to the requested credits
  answer(2);
  EXPECT_EQ(lab.requester->outstanding(), 31u);
  while (lab.requester->outstanding() > 2) answer(2);
  const std::size_t sent = lab.peer->inbox.size();
  EXPECT_EQ(sent, answered + 2);
  answer(8);
  EXPECT_EQ(lab.requester->outstanding(), 8u);
}

TEST(RequesterCredits, V1_045_the_reply_that_came_last_counts_whatever_call_it_answers) {
  struct Case {
    std::size_t first, second;  // index of the call that each reply answers
    std::uint32_t grants[2];
  };
  for (const Case& order : {Case{4, 1, {9, 2}}, Case{1, 4, {9, 2}}, Case{4, 1, {2, 9}}, Case{1, 4, {2, 9}}}) {
    ClientLab lab;
    for (int i = 0; i < 30; ++i) lab.submit_null();
    lab.settle();
    lab.peer->send(ClientLab::success(xid_of(got(lab, 0)), 4));
    lab.settle();
    ASSERT_EQ(lab.peer->inbox.size(), 1u + 4);
    lab.peer->send(ClientLab::success(xid_of(got(lab, order.first)), order.grants[0]));
    lab.peer->send(ClientLab::success(xid_of(got(lab, order.second)), order.grants[1]));
    lab.settle();
    EXPECT_EQ(static_cast<std::uint32_t>(lab.requester->granted()), order.grants[1]);
    EXPECT_EQ(lab.requester->outstanding(), order.grants[1] == 9 ? 9u : 8u);
    // Another call is sent only below the limit.
    const std::size_t sent = lab.peer->inbox.size();
    lab.peer->send(ClientLab::success(xid_of(got(lab, 2)), order.grants[1]));
    lab.settle();
    EXPECT_EQ(lab.peer->inbox.size(), sent + (order.grants[1] == 9 ? 1 : 0));
  }
}

/// Checks by the log that whenever a call is sent, at least as many Receives are posted as calls are
/// outstanding.
TEST(RequesterCredits, V1_053_F_17_every_outstanding_call_has_a_receive) {
  for (const bool with_chunks : {false, true}) {
    LabOptions options;
    options.connection.credit_grant = 0;  // no Receives for calls of the peer
    ClientLab lab(options);
    const CallerMemory memory = caller_memory(lab, 4096);
    const rdma::Sge piece = memory.piece(0, 64);
    const rpcrdma::WriteItem item{{&piece, 1}};
    for (int i = 0; i < 120; ++i)
      lab.submit({.payload = null_call(),
                  .writes = {&item, with_chunks ? std::size_t{1} : 0},
                  .max_reply_bytes = 64});
    lab.settle();
    for (std::size_t answered = 0; lab.finished.size() < 120 && answered < lab.peer->inbox.size();) {
      for (; answered < lab.peer->inbox.size(); ++answered)
        lab.peer->send(ClientLab::success(xid_of(got(lab, answered)), 32));
      lab.settle();
    }
    ASSERT_EQ(lab.finished.size(), 120u);
    int posted = 0;
    int outstanding = 0;
    int most = 0;
    for (const Op& op : lab.log.ops()) {
      if (op.kind == OpKind::PostReceive) ++posted;
      if (op.kind == OpKind::ReceiveDone) --posted, --outstanding;
      if (op.kind != OpKind::PostSend) continue;
      most = std::max(most, ++outstanding);
      ASSERT_GE(posted, outstanding);
    }
    EXPECT_EQ(most, 32);
  }
}

TEST(RequesterCredits, V1_055_A_13_a_zero_grant_never_stops_the_only_call) {
  ClientLab lab;
  for (int i = 0; i < 6; ++i) lab.submit_null();
  lab.settle();
  lab.peer->send(ClientLab::success(xid_of(got(lab, 0)), 3));
  lab.settle();
  ASSERT_EQ(lab.peer->inbox.size(), 4u);
  for (std::size_t i = 1; i < 4; ++i) {
    lab.peer->send(ClientLab::success(xid_of(got(lab, i)), 0));
    lab.settle();
  }
  ASSERT_EQ(lab.peer->inbox.size(), 5u);  // the only call sent
  EXPECT_EQ(lab.requester->outstanding(), 1u);
}

TEST(RequesterCredits, V1_030_V1_174_errors_end_their_call_and_leave_the_limit_alone) {
  ClientLab lab;
  for (int i = 0; i < 4; ++i) lab.submit_null();
  lab.settle();
  const auto err_chunk = [](std::uint32_t xid) { return words({xid, 1, 1000, 4, 2}); };
  lab.peer->send(err_chunk(0x00BADBAD));  // an unknown XID
  lab.settle();
  EXPECT_EQ(lab.peer->inbox.size(), 1u);
  lab.peer->send(err_chunk(xid_of(got(lab, 0))));
  lab.settle();
  ASSERT_EQ(lab.finished.size(), 1u);
  EXPECT_EQ(lab.finished[0].status, CallStatus::ChunkError);
  EXPECT_EQ(lab.peer->inbox.size(), 2u);  // still one credit
  EXPECT_EQ(static_cast<std::uint32_t>(lab.requester->granted()), 1u);
}

TEST(RequesterCredits, V1_030_whatever_answers_a_call_that_was_given_up_gives_its_credit_back) {
  using Answer = Bytes (*)(std::uint32_t);
  const Answer answers[] = {
      [](std::uint32_t xid) { return ClientLab::success(xid, 1); },
      [](std::uint32_t xid) {
        return words({xid, 1, 1, 4, 2});
      },
      [](std::uint32_t xid) {
        return words({xid, 1, 1, 4, 1, 1, 1});
      },
      [](std::uint32_t xid) {
        return RawCall{.xid = xid, .credits = 1, .proc = 1, .reply = std::vector<rpcrdma::Segment>{}}
            .header();
      },
  };
  for (const Answer& answer : answers) {
    ClientLab lab;
    const auto given_up = lab.submit_null();
    lab.settle();
    const auto next = lab.submit_null();
    EXPECT_TRUE(lab.requester->cancel(rpc::Xid{*given_up}));
    lab.settle();
    ASSERT_EQ(lab.peer->inbox.size(), 1u);  // the responder may still execute the first
    lab.peer->send(answer(*given_up));
    lab.settle();
    ASSERT_EQ(lab.peer->inbox.size(), 2u);
    EXPECT_EQ(xid_of(got(lab, 1)), *next);
    EXPECT_EQ(lab.engine->counters().unknown_xid, 1u);
    lab.peer->send(ClientLab::success(*next, 1));
    lab.settle();
    ASSERT_EQ(lab.finished.size(), 2u);
    EXPECT_EQ(lab.finished[1].status, CallStatus::Ok);
  }
}

TEST(RequesterErrors, V1_027_V1_029_permanent_errors_reach_the_caller_once_and_nothing_is_sent_again) {
  ClientLab lab;
  lab.submit_null();
  lab.settle();
  lab.peer->send(words({xid_of(got(lab, 0)), 2, 16, 4, 1, 2, 2}));
  lab.settle();
  ASSERT_EQ(lab.finished.size(), 1u);
  EXPECT_EQ(lab.finished[0].status, CallStatus::VersionError);
  EXPECT_EQ(lab.finished[0].supported.low, 2u);
  EXPECT_EQ(lab.peer->inbox.size(), 1u);
}

TEST(RequesterErrors, V1_025_an_error_of_any_version_completes_the_call) {
  ClientLab lab;
  for (const std::uint32_t version : {1u, 2u, 7u}) {
    lab.finished.clear();
    lab.peer->inbox.clear();
    lab.submit_null();
    lab.settle();
    lab.peer->send(words({xid_of(got(lab, 0)), version, 16, 4, 1, 1, 1}));
    lab.settle();
    ASSERT_EQ(lab.finished.size(), 1u);
    EXPECT_EQ(lab.finished[0].status, CallStatus::VersionError);
  }
}

TEST(RequesterErrors, V1_028_V1_133_strays_change_nothing_and_are_not_answered) {
  ClientLab lab;
  lab.submit_null();
  lab.settle();
  const std::uint32_t xid = xid_of(got(lab, 0));
  for (const Bytes& stray : {bytes_of(golden::kN15), bytes_of(golden::kN16), bytes_of(golden::kN17),
                             bytes_of(golden::kE7), bytes_of(golden::kE9), bytes_of(golden::kE8),
                             bytes_of(golden::kN1), ClientLab::success(0x00ABCDEF, 1000)})
    lab.peer->send(stray);
  lab.settle();
  EXPECT_EQ(lab.peer->inbox.size(), 1u);
  EXPECT_TRUE(lab.finished.empty());
  lab.peer->send(ClientLab::success(xid, 4));
  lab.peer->send(ClientLab::success(xid, 4));  // a duplicate
  lab.settle();
  EXPECT_EQ(lab.finished.size(), 1u);
  EXPECT_EQ(lab.finished[0].status, CallStatus::Ok);
}

TEST(RequesterErrors, V1_155_a_late_duplicate_does_not_end_the_next_call_of_its_slot) {
  LabOptions options;
  options.requester.requests = 1;
  ClientLab lab(options);
  const auto balance = [&lab] {
    return lab.log.count(OpKind::PostReceive) - lab.log.count(OpKind::ReceiveDone);
  };
  const std::size_t receives = balance();
  const auto retired = lab.submit_null();
  lab.settle();
  lab.peer->send(ClientLab::success(*retired, 4));
  lab.settle();
  ASSERT_EQ(lab.finished.size(), 1u);
  const auto next = lab.submit_null();  // in the only slot
  lab.settle();
  ASSERT_NE(next, retired);
  for (const Bytes& late :
       {ClientLab::success(*retired, 4), words({*retired, 1, 4, 4, 2}), ClientLab::success(*next + 1, 4)})
    lab.peer->send(late);
  lab.settle();
  EXPECT_EQ(lab.finished.size(), 1u);
  EXPECT_EQ(lab.requester->outstanding(), 1u);
  EXPECT_EQ(lab.engine->counters().unknown_xid, 3u);
  EXPECT_EQ(balance(), receives);
  lab.peer->send(ClientLab::success(*next, 4));
  lab.settle();
  ASSERT_EQ(lab.finished.size(), 2u);
  EXPECT_EQ(lab.finished[1].status, CallStatus::Ok);
}

TEST(RequesterErrors, V1_027_a_call_that_may_be_repeated_ends_with_ERR_CHUNK_too) {
  ClientLab lab;
  const auto xid = lab.submit({.payload = null_call(), .max_reply_bytes = 64, .repeatable = true});
  lab.settle();
  lab.peer->send(words({*xid, 1, 8, 4, 2}));
  lab.settle();
  ASSERT_EQ(lab.finished.size(), 1u);
  EXPECT_EQ(lab.finished[0].status, CallStatus::ChunkError);
  EXPECT_EQ(lab.peer->inbox.size(), 1u);
}

TEST(RequesterCredits, V1_056_the_spare_credit_is_for_an_urgent_call_which_goes_before_those_that_wait) {
  LabOptions options;
  options.requester.spare_credit = true;
  ClientLab lab(options);
  lab.submit_null();  // the only credit is not kept in reserve
  lab.settle();
  ASSERT_EQ(lab.peer->inbox.size(), 1u);
  const std::uint32_t first = xid_of(got(lab, 0));
  lab.peer->send(RawCall{.xid = first, .credits = 3}.with(accepted(first)));
  lab.settle();
  for (int i = 0; i < 4; ++i) lab.submit_null();
  lab.settle();
  EXPECT_EQ(lab.peer->inbox.size(), 3u);  // two of three credits
  const auto urgent = lab.submit({.payload = null_call(), .max_reply_bytes = 64, .urgent = true});
  lab.settle();
  ASSERT_EQ(lab.peer->inbox.size(), 4u);
  EXPECT_EQ(xid_of(got(lab, 3)), *urgent);
}

TEST(RequesterCredits, a_call_that_a_completion_makes_goes_behind_those_that_wait) {
  ClientLab lab;
  lab.submit_null();
  lab.settle();
  const auto second = lab.submit_null();  // waits for the initial credit
  std::optional<std::uint32_t> third;
  lab.on_reply = [&](const rpcrdma::Reply&) {
    if (!third) third = lab.submit_null();
  };
  lab.settle();
  ASSERT_EQ(lab.peer->inbox.size(), 1u);
  lab.peer->send(ClientLab::success(xid_of(got(lab, 0)), 2));
  lab.settle();
  ASSERT_EQ(lab.peer->inbox.size(), 3u);
  EXPECT_EQ(xid_of(got(lab, 1)), *second);
  EXPECT_EQ(xid_of(got(lab, 2)), *third);
}

}  // namespace
}  // namespace sluice::conformance
