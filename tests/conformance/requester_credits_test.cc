// SPDX-License-Identifier: Apache-2.0
//
// Requirement rows at the requester, judged by a raw server: credits, Receives, errors and stray messages.
#include <gtest/gtest.h>

#include "tests/conformance/raw_server.h"
#include "tests/golden/v1_vectors.h"

namespace sluice::conformance {
namespace {

using rpcrdma::CallStatus;

TEST(RequesterCredits, V1_040_V1_046_V1_053_one_call_until_the_first_reply) {
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

TEST(RequesterCredits, V1_043_V1_044_V1_045_V1_049_the_latest_grant_limits_what_is_outstanding) {
  ClientLab lab;
  for (int i = 0; i < 60; ++i) lab.submit_null();
  lab.settle();
  std::size_t answered = 0;
  const auto answer = [&](std::uint32_t grant) {
    lab.peer->send(ClientLab::success(xid_of(got(lab, answered++)), grant));
    lab.settle();
  };
  answer(0xFFFFFFFF);
  EXPECT_EQ(lab.requester->outstanding(), 32u);  // clamped by what was asked for
  answer(2);
  EXPECT_EQ(lab.requester->outstanding(), 31u);
  while (lab.requester->outstanding() > 2) answer(2);
  const std::size_t sent = lab.peer->inbox.size();
  EXPECT_EQ(sent, answered + 2);
  answer(8);
  EXPECT_EQ(lab.requester->outstanding(), 8u);
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
  ASSERT_EQ(lab.peer->inbox.size(), 5u);  // alone
  EXPECT_EQ(lab.requester->outstanding(), 1u);
}

TEST(RequesterCredits, V1_030_V1_174_errors_end_their_call_and_leave_the_limit_alone) {
  ClientLab lab;
  for (int i = 0; i < 4; ++i) lab.submit_null();
  lab.settle();
  const auto err_chunk = [](std::uint32_t xid) { return words({xid, 1, 1000, 4, 2}); };
  lab.peer->send(err_chunk(0x00BADBAD));  // of nobody
  lab.settle();
  EXPECT_EQ(lab.peer->inbox.size(), 1u);
  lab.peer->send(err_chunk(xid_of(got(lab, 0))));
  lab.settle();
  ASSERT_EQ(lab.finished.size(), 1u);
  EXPECT_EQ(lab.finished[0].status, CallStatus::ChunkError);
  EXPECT_EQ(lab.peer->inbox.size(), 2u);  // one credit, still
  EXPECT_EQ(static_cast<std::uint32_t>(lab.requester->granted()), 1u);
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

TEST(RequesterErrors, V1_028_V1_133_V1_155_strays_change_nothing_and_are_not_answered) {
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

}  // namespace
}  // namespace sluice::conformance
