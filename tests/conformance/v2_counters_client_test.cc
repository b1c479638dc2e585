// SPDX-License-Identifier: Apache-2.0
//
// Version 2 at the requester: every counter that some traffic changes.
#include <gtest/gtest.h>

#include "tests/conformance/v2_counted.h"

namespace sluice::conformance::v2 {
namespace {

TEST(V2Counters, the_beginning_of_a_connection) {
  Server server;
  EXPECT_EQ(counted(*server.engine), (Counted{{"connections_opened", 1}}));
  server.hello();
  EXPECT_EQ(counted(*server.engine),
            received(1, 24, {{"connections_opened", 1}, {"properties_received", 1}, {"properties_sent", 1}}));
  Client client;
  EXPECT_EQ(counted(*client.engine), (Counted{{"connections_opened", 1}, {"properties_sent", 1}}));
  client.confirm();
  EXPECT_EQ(counted(*client.engine),
            received(1, 36, {{"connections_opened", 1}, {"properties_sent", 1}, {"grants_received", 1}}));
  const rpcrdma::Counters before = client.engine->counters();
  client.disconnect();
  client.connect();
  EXPECT_EQ(counted(*client.engine, before),
            (Counted{{"connections_closed", 1}, {"connections_opened", 1}, {"properties_sent", 1}}));
}

TEST(V2Counters, V2_040_a_grant_that_keeps_the_connection_alive) {
  LabOptions options = Client::defaults();
  options.connection.version2.keep_alive_ns = 1'000'000'000;
  expect_counts({{"silence", [](Client& lab) { lab.pass(1'100'000'000); }, {{"grants_sent", 1}}}}, options);
}

TEST(V2Counters, calls_and_replies_at_the_requester) {
  expect_counts({
      {"a call and its reply",
       [](Client& lab) {
         const auto xid = lab.submit_null();
         lab.settle();
         lab.answer(success(*xid));
       },
       received(1, kPlainReply,
                {{"calls_sent", 1}, {"inline_bytes_sent", kPlainCall}, {"replies_received", 1}})},
      {"a call in two parts",
       [](Client& lab) {
         const Bytes payload = name_call(5000);
         lab.submit({.payload = payload, .max_reply_bytes = 64});
         lab.settle();
       },
       {{"calls_sent", 1}, {"parts_sent", 1}, {"inline_bytes_sent", 2 * 36 + 5000}}},
      {"a long call",
       [](Client& lab) {
         lab.submit({.payload = test_call(0, 0), .max_reply_bytes = 64, .as_long_call = true});
         lab.settle();
       },
       {{"calls_sent", 1}, {"inline_bytes_sent", 36 + 24}}},
      {"a reply in two parts",
       [](Client& lab) {
         const auto xid = lab.submit_null();
         lab.settle();
         lab.peer->send(Header{.xid = *xid, .flags = kResponse | kMore}.with(words({*xid, 1, 0})));
         lab.answer(Header{.xid = *xid, .flags = kResponse}.with(words({0, 0, 0})));
       },
       received(2, 72 + 24,
                {{"calls_sent", 1},
                 {"inline_bytes_sent", kPlainCall},
                 {"parts_received", 2},
                 {"replies_received", 1}})},
      {"an error",
       [](Client& lab) {
         const auto xid = lab.submit_null();
         lab.settle();
         lab.answer(error(*xid, 10));
       },
       received(1, 24, {{"calls_sent", 1}, {"inline_bytes_sent", kPlainCall}, {"errors_received", 1}})},
      {"an error with an unknown XID", [](Client& lab) { lab.answer(error(kXid, 10)); },
       received(1, 24, {{"unknown_xid", 1}})},
      {"an error that asks for another form of the call",
       [](Client& lab) {
         const rdma::MemoryRegion memory = lab.device->allocate_memory(64);
         const rdma::Sge piece{memory.bytes.data(), 64, memory.lkey};
         const rpcrdma::ReadItem item{rpcrdma::Position{44}, {&piece, 1}};
         const Bytes payload = test_call(0, TestService::kSink, {64});
         const auto xid = lab.submit({.payload = payload, .reads = {&item, 1}, .max_reply_bytes = 64});
         lab.settle();
         lab.answer(error(*xid, 5, {0}));
       },
       received(1, 28,
                {{"calls_sent", 2},
                 {"calls_replanned", 1},
                 // The call is replanned as a Long Call, with its argument in the position-zero chunk.
                 {"inline_bytes_sent", (kPlainCall + 4 + 24) + (36 + 24)},
                 {"errors_received", 1}})},
      {"a reply that contradicts its call",
       [](Client& lab) {
         const auto xid = lab.submit_null();
         lab.settle();
         const auto memory = lab.peer->expose(8, rdma::kRemoteWrite);
         lab.answer(Header{.xid = *xid, .flags = kResponse, .writes = {{memory.segment}}}.with(
             words({*xid, 1, 0, 0, 0, 0})));
       },
       received(1, kPlainReply + 24,
                {{"calls_sent", 1},
                 {"inline_bytes_sent", kPlainCall},
                 {"replies_received", 1},
                 {"unusable_reply", 1}})},
      {"a faulty reply",
       [](Client& lab) {
         const auto xid = lab.submit_null();
         lab.settle();
         lab.answer(Header{.xid = *xid, .flags = kResponse | 4}.with(words({*xid, 1, 0, 0, 0, 0})));
       },
       received(1, kPlainReply,
                {{"calls_sent", 1},
                 {"inline_bytes_sent", kPlainCall},
                 {"bad_flags", 1},
                 {"faulty_responses", 1},
                 {"unusable_reply", 1}})},
      {"a reply that invalidates a handle that was not offered for it",
       [](Client& lab) {
         const auto xid = lab.submit_null();
         const rdma::MemoryRegion memory = lab.device->allocate_memory(64);
         const rdma::Sge piece{memory.bytes.data(), 64, memory.lkey};
         const rpcrdma::WriteItem item{.pieces = {&piece, 1}};
         lab.submit({.payload = test_call(0, TestService::kSource, {64}),
                     .writes = {&item, 1},
                     .max_reply_bytes = 64});
         lab.settle();
         lab.peer->send(success(*xid), static_cast<rdma::Rkey>(word_at(lab.sent().at(1), 5)));
         lab.settle();
       },
       received(1, kPlainReply,
                {{"calls_sent", 2},
                 {"inline_bytes_sent", 2 * kPlainCall + 24 + 4},
                 {"invalidation_errors", 1},
                 {"connections_closed", 1},
                 {"connection_errors", 1}})},
  });
}

TEST(V2Counters, V2_014_going_back_to_version_1) {
  Client lab;
  const rpcrdma::Counters before = lab.engine->counters();
  lab.answer(words({word_at(lab.sent().at(0), 0), 2, 32, 4, 1, 1, 1}));
  EXPECT_EQ(counted(*lab.engine, before), received(1, 28, {{"fallbacks", 1}}));
}

TEST(V2Counters, V2_015_no_answer) {
  Client lab;
  const rpcrdma::Counters before = lab.engine->counters();
  lab.pass(6'000'000'000);
  EXPECT_EQ(counted(*lab.engine, before), (Counted{{"connections_closed", 1}, {"connection_errors", 1}}));
}

TEST(V2Counters, calls_against_the_flow) {
  LabOptions options = Client::defaults();
  options.connection.credit_grant = 0;
  const auto message = [](Client& lab) { lab.answer(null_call(kXid)); };
  expect_counts({{"at level none", message, refused(kPlainCall, "direction_not_served")}}, options);
  options.connection.credit_grant = 8;
  options.connection.version2.parameters.reverse = rpcrdma::v2::ReverseSupport::Inline;
  expect_counts(
      {
          {"at level inline", message, answered(kPlainCall, kPlainReply)},
          {"with chunks",
           [](Client& lab) {
             const auto memory = lab.peer->expose(8, rdma::kRemoteWrite);
             lab.answer(Header{.xid = kXid, .writes = {{memory.segment}}}.with(
                 test_call(kXid, TestService::kSource, {8})));
           },
           refused(kPlainCall + 24 + 4, "reverse_chunks_refused")},
      },
      options);
}

}  // namespace
}  // namespace sluice::conformance::v2
