// SPDX-License-Identifier: Apache-2.0
//
// Receives of version 1 are posted before a message can arrive, and reposted after every kind of message that
// is dropped or refused. A connection that lost one Receive for each would stop.
#include <gtest/gtest.h>

#include "tests/conformance/raw_server.h"

namespace sluice::conformance {
namespace {

/// Larger than the number of Receives.
constexpr std::uint32_t kMessages = 120;

LabOptions few_receives() {
  LabOptions options;
  options.connection.credit_grant = 4;
  options.connection.credits_requested = 4;
  options.engine.capacity.call_slots = 4;
  options.engine.capacity.requests = 64;
  return options;
}

TEST(Receives, V1_047_all_of_them_are_posted_before_the_peer_can_send) {
  for (const std::uint32_t credits : {1u, 62u, 64u}) {
    LabOptions options;
    options.connection.credit_grant = credits;
    ServerLab lab(options);
    lab.log.clear();
    rpcrdma::Connection* const connection = lab.engine->free_connection();
    ASSERT_NE(connection, nullptr);
    connection->open(lab.device->create_queue_pair(lab.engine->queue_pair_limits()), options.connection, {},
                     nullptr);
    EXPECT_EQ(lab.log.count(OpKind::PostReceive), credits + rpcrdma::kSpareReceives);
    connection->close(rpcrdma::CloseReason::LocalClose);
    lab.settle();
    EXPECT_EQ(connection->state(), rpcrdma::Connection::State::Closed);
  }
}

TEST(Receives, V1_026_V1_052_V1_058_a_server_posts_one_again_for_each_message_that_it_drops_or_refuses) {
  const std::uint32_t xid = 7;

  struct Kind {
    const char* what;
    Bytes message;
  };
  const Kind kinds[] = {
      {"fragment", words({xid, 1})},
      {"error without a code", words({xid, 1, 32, 4})},
      {"error", words({xid, 1, 32, 4, 2})},
      {"RDMA_DONE", plain_header(xid, 32, 3)},
      {"reply", ClientLab::success(xid, 32)},
      {"version", words({xid, 9, 32, 0, 0, 0, 0})},
      {"procedure", plain_header(xid, 32, 9)},
      {"RDMA_MSGP", words({xid, 1, 32, 2, 0, 0, 0, 0, 0})},
      {"lists", words({xid, 1, 32, 0, 2, 0, 0})},
      {"no payload", plain_header(xid, 32)},
      {"RDMA_NOMSG without a chunk to read",
       RawCall{.xid = xid, .proc = 1, .reply = std::vector<rpcrdma::Segment>{}}.header()},
      {"XIDs that differ", RawCall{.xid = xid}.with(test_call(xid + 1, 0))},
  };
  for (const Kind& kind : kinds) {
    ServerLab lab(few_receives());
    for (std::uint32_t i = 0; i < kMessages; ++i) {
      lab.peer->send(kind.message);
      if (i % 2 == 1) lab.settle();
    }
    EXPECT_TRUE(lab.alive()) << kind.what;
    EXPECT_FALSE(lab.peer->failed) << kind.what;
    EXPECT_EQ(lab.log.count(OpKind::PostReceive),
              lab.log.count(OpKind::ReceiveDone) + 4 + 4 + rpcrdma::kSpareReceives)
        << kind.what;
  }
}

/// The message arrives while one call is outstanding. The call is answered afterwards.
TEST(Receives, V1_026_V1_052_a_client_posts_one_again_for_each_message_that_it_drops) {
  struct Kind {
    const char* what;
    Bytes (*message)(std::uint32_t outstanding);
  };
  const Kind kinds[] = {
      {"fragment",
       [](std::uint32_t) {
         return words({1, 1});
       }},
      {"error without a code",
       [](std::uint32_t xid) {
         return words({xid, 1, 32, 4});
       }},
      {"error with an unknown XID",
       [](std::uint32_t xid) {
         return words({xid + 1, 1, 32, 4, 2});
       }},
      {"RDMA_DONE", [](std::uint32_t xid) { return plain_header(xid, 32, 3); }},
      {"RDMA_MSGP",
       [](std::uint32_t xid) {
         return words({xid, 1, 32, 2, 0, 0, 0, 0, 0});
       }},
      {"reply with an unknown XID", [](std::uint32_t xid) { return ClientLab::success(xid + 1, 4); }},
      {"call that is not served",
       [](std::uint32_t xid) { return RawCall{.xid = xid}.with(test_call(xid, 0)); }},
      {"faulty lists of a call that is not served",
       [](std::uint32_t xid) {
         return words({xid + 1, 1, 32, 0, 2, 0, 0});
       }},
  };
  for (const Kind& kind : kinds) {
    LabOptions options = few_receives();
    options.connection.credit_grant = 0;
    ClientLab lab(options);
    const std::uint32_t xid = lab.submit_null().value_or(0);
    lab.settle();
    for (std::uint32_t i = 0; i < kMessages; ++i) {
      lab.peer->send(kind.message(xid));
      lab.settle();
    }
    ASSERT_TRUE(lab.finished.empty()) << kind.what;
    lab.peer->send(ClientLab::success(xid, 4));
    lab.settle();
    ASSERT_EQ(lab.finished.size(), 1u) << kind.what;
    EXPECT_EQ(lab.finished[0].status, rpcrdma::CallStatus::Ok);
    EXPECT_FALSE(lab.peer->failed) << kind.what;
  }
}

/// Calls that end by a reply and in every other way.
TEST(Receives, V1_036_V1_052_a_client_posts_one_again_for_each_call_that_ends) {
  struct Kind {
    const char* what;
    Bytes (*message)(std::uint32_t xid);
    rpcrdma::CallStatus status;
  };
  const Kind kinds[] = {
      {"reply", [](std::uint32_t xid) { return ClientLab::success(xid, 4); }, rpcrdma::CallStatus::Ok},
      {"error",
       [](std::uint32_t xid) {
         return words({xid, 1, 4, 4, 2});
       },
       rpcrdma::CallStatus::ChunkError},
      {"lists",
       [](std::uint32_t xid) {
         return words({xid, 1, 4, 0, 2, 0, 0});
       },
       rpcrdma::CallStatus::UnusableReply},
      {"no payload", [](std::uint32_t xid) { return plain_header(xid, 4); },
       rpcrdma::CallStatus::UnusableReply},
      {"XID", [](std::uint32_t xid) { return RawCall{.xid = xid}.with(accepted(xid + 1)); },
       rpcrdma::CallStatus::UnusableReply},
  };
  for (const Kind& kind : kinds) {
    ClientLab lab(few_receives());
    for (std::uint32_t i = 0; i < kMessages; ++i) {
      const std::uint32_t xid = lab.submit_null().value_or(0);
      lab.settle();
      lab.peer->send(kind.message(xid));
      lab.settle();
      ASSERT_EQ(lab.finished.size(), i + 1) << kind.what;
      EXPECT_EQ(lab.finished.back().status, kind.status) << kind.what;
    }
    EXPECT_FALSE(lab.peer->failed) << kind.what;
  }
}

}  // namespace
}  // namespace sluice::conformance
