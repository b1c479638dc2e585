// SPDX-License-Identifier: Apache-2.0
//
// Version 2 at the responder: every counter that some traffic changes.
#include <gtest/gtest.h>

#include "tests/conformance/v2_counted.h"

namespace sluice::conformance::v2 {
namespace {

TEST(V2Counters, calls_at_the_responder) {
  expect_counts({
      {"no chunks", [](Server& lab) { lab.answer(null_call(kXid)); }, answered(kPlainCall, kPlainReply)},
      {"a Read chunk",
       [](Server& lab) {
         const auto memory = lab.peer->expose(3000, rdma::kRemoteRead);
         lab.answer(Header{.xid = kXid, .reads = {{44, memory.segment}}}.with(
             test_call(kXid, TestService::kSink, {3000, 7})));
       },
       answered(kPlainCall + 24 + 8, kPlainReply + 12, {{"rdma_reads", 1}, {"rdma_read_bytes", 3000}})},
      {"a Write chunk whose handle is to be invalidated",
       [](Server& lab) {
         const auto memory = lab.peer->expose(4096, rdma::kRemoteWrite);
         lab.answer(
             Header{.xid = kXid, .invalidate = handle(memory.segment), .writes = {{memory.segment}}}.with(
                 test_call(kXid, TestService::kSource, {1500})));
       },
       answered(kPlainCall + 24 + 4, kPlainReply + 24 + 12,
                {{"rdma_writes", 1}, {"rdma_write_bytes", 1500}, {"remote_invalidations", 1}})},
      {"another's handle",
       [](Server& lab) {
         const auto memory = lab.peer->expose(4096, rdma::kRemoteWrite);
         lab.answer(Header{.xid = kXid, .invalidate = 7, .writes = {{memory.segment}}}.with(
             test_call(kXid, TestService::kSource, {1500})));
       },
       answered(kPlainCall + 24 + 4, kPlainReply + 24 + 12,
                {{"rdma_writes", 1}, {"rdma_write_bytes", 1500}, {"unmatched_invalidate", 1}})},
      {"a Reply chunk",
       [](Server& lab) {
         const auto memory = lab.peer->expose(16384, rdma::kRemoteWrite);
         lab.answer(Header{.xid = kXid, .reply = {{memory.segment}}}.with(
             test_call(kXid, TestService::kList, {9000})));
       },
       answered(kPlainCall + 20 + 4, 36 + 20, {{"rdma_writes", 1}, {"rdma_write_bytes", 9028}})},
      {"a reply in three parts",
       [](Server& lab) {
         EXPECT_EQ(lab.ask(Header{.xid = kXid}.with(test_call(kXid, TestService::kList, {9000}))).size(), 3u);
       },
       answered(kPlainCall + 4, 3 * 36 + 9028, {{"parts_sent", 2}})},
      {"a call in two parts",
       [](Server& lab) {
         const Bytes payload = test_call(kXid, 0);
         lab.peer->send(Header{.xid = kXid, .flags = kMore}.with(std::span(payload).first(20)));
         lab.answer(Header{.xid = kXid}.with(std::span(payload).subspan(20)));
       },
       received(2, 2 * 36 + 40,
                {{"calls_received", 1},
                 {"parts_received", 2},
                 {"replies_sent", 1},
                 {"inline_bytes_sent", kPlainReply}})},
      {"a grant", [](Server& lab) { lab.ask(grant(3)); }, received(1, 36, {{"grants_received", 1}})},
      {"a grant with a limit of zero",
       [](Server& lab) { lab.ask(Header{.xid = 0, .credit = 3, .type = kNoMsg}.bytes()); },
       received(1, 36, {{"grants_received", 1}, {"zero_limits", 1}})},
      {"two grants of more than can be counted",
       [](Server& lab) {
         for (int i = 0; i < 2; ++i) lab.peer->send(grant(65535));
         lab.settle();
       },
       received(2, 72, {{"grants_received", 2}, {"grants_capped", 2}})},
  });
}

TEST(V2Counters, V2_041_V2_088_D2_18_D2_39_handles_where_nothing_is_invalidated) {
  expect_counts({
      {"in a grant",
       [](Server& lab) {
         lab.ask(Header{.xid = 0, .credit = 0x00400003, .type = kNoMsg, .invalidate = 7}.bytes());
       },
       received(1, 36, {{"grants_received", 1}, {"grants_with_handle", 1}})},
      {"in a part that another follows",
       [](Server& lab) {
         const Bytes payload = test_call(kXid, 0);
         lab.peer->send(
             Header{.xid = kXid, .flags = kMore, .invalidate = 7}.with(std::span(payload).first(20)));
         lab.answer(Header{.xid = kXid}.with(std::span(payload).subspan(20)));
       },
       received(2, 2 * 36 + 40,
                {{"calls_received", 1},
                 {"parts_received", 2},
                 {"parts_with_handle", 1},
                 {"replies_sent", 1},
                 {"inline_bytes_sent", kPlainReply}})},
      {"in a last part, which may have one",
       [](Server& lab) {
         const auto memory = lab.peer->expose(8, rdma::kRemoteWrite);
         const Bytes payload = test_call(kXid, TestService::kSource, {8});
         lab.peer->send(Header{.xid = kXid, .flags = kMore}.with(std::span(payload).first(20)));
         lab.answer(
             Header{.xid = kXid, .invalidate = handle(memory.segment), .writes = {{memory.segment}}}.with(
                 std::span(payload).subspan(20)));
       },
       received(2, 2 * 36 + 44 + 24,
                {{"calls_received", 1},
                 {"parts_received", 2},
                 {"replies_sent", 1},
                 {"inline_bytes_sent", kPlainReply + 24 + 12},
                 {"rdma_writes", 1},
                 {"rdma_write_bytes", 8},
                 {"remote_invalidations", 1}})},
  });
}

TEST(V2Counters, headers_that_the_responder_drops_or_refuses) {
  expect_counts({
      {"fragment",
       [](Server& lab) {
         lab.ask(words({kXid, 2, 1, 0}));
       },
       received(1, 16, {{"bad_fragment", 1}})},
      {"version",
       [](Server& lab) {
         lab.ask(words({kXid, 5, 1, 0, 0}));
       },
       received(1, 20, {{"calls_received", 1}, {"bad_version", 1}, {"err_vers_sent", 1}})},
      {"type", [](Server& lab) { lab.ask(Header{.xid = kXid, .type = 9}.bytes()); },
       refused(36, "bad_procedure")},
      {"flags", [](Server& lab) { lab.ask(Header{.xid = kXid, .flags = 4}.with(test_call(kXid, 0))); },
       refused(kPlainCall, "bad_flags")},
      {"MORE with chunks",
       [](Server& lab) {
         const auto memory = lab.peer->expose(8, rdma::kRemoteWrite);
         lab.ask(Header{.xid = kXid, .flags = kMore, .writes = {{memory.segment}}}.with(test_call(kXid, 0)));
       },
       refused(kPlainCall + 24, "bad_flags")},
      {"lists",
       [](Server& lab) {
         lab.ask(Header{.xid = kXid}.then({0, 2, 0, 0}));
       },
       refused(36, "bad_chunk_lists")},
      {"an error that does not decode",
       [](Server& lab) { lab.ask(Header{.xid = kXid, .type = kError, .flags = kResponse}.then({5})); },
       received(1, 24, {{"bad_error_message", 1}})},
      {"an error without the response flag",
       [](Server& lab) { lab.ask(Header{.xid = kXid, .type = kError}.then({2})); },
       received(1, 24, {{"bad_error_message", 1}})},
      {"an error to a peer without outstanding calls", [](Server& lab) { lab.ask(error(kXid, 2)); },
       received(1, 24, {{"unknown_xid", 1}})},
      {"a reply to a peer without outstanding calls", [](Server& lab) { lab.ask(success(kXid)); },
       received(1, kPlainReply, {{"unknown_xid", 1}})},
      {"a faulty response",
       [](Server& lab) {
         lab.ask(Header{.xid = kXid, .flags = kResponse}.then({0, 2, 0, 0}));
       },
       received(1, 36, {{"bad_chunk_lists", 1}, {"faulty_responses", 1}})},
      {"no payload", [](Server& lab) { lab.ask(Header{.xid = kXid}.with(words({kXid}))); },
       refused(40, "no_payload")},
      {"XIDs that differ", [](Server& lab) { lab.ask(Header{.xid = kXid}.with(test_call(kXid + 1, 0))); },
       refused(kPlainCall, "xid_mismatch")},
      {"a reply without the response flag",
       [](Server& lab) {
         lab.ask(Header{.xid = kXid}.with(words({kXid, 1, 0, 0, 0, 0})));
       },
       refused(kPlainReply, "direction_mismatch")},
      {"a reply in a long call",
       [](Server& lab) {
         const Bytes payload = words({kXid, 1, 0, 0, 0, 0});
         const auto memory = lab.peer->expose(payload.size(), rdma::kRemoteRead);
         std::copy(payload.begin(), payload.end(), memory.bytes.begin());
         lab.ask(Header{.xid = kXid, .type = kNoMsg, .reads = {{0, memory.segment}}}.bytes());
       },
       with(refused(60, "direction_mismatch"), {{"rdma_reads", 1}, {"rdma_read_bytes", 24}})},
      {"properties that do not decode",
       [](Server& lab) { lab.ask(Header{.xid = kXid, .type = kConnProp}.then({1})); },
       refused(24, "bad_properties")},
      {"properties without a body",
       [](Server& lab) { lab.ask(Header{.xid = kXid, .type = kConnProp}.prefix()); },
       refused(20, "bad_chunk_lists")},
      {"late properties", [](Server& lab) { lab.ask(Header{.xid = kXid, .type = kConnProp}.then({0})); },
       received(1, 24, {{"late_properties", 1}})},
  });
}

TEST(V2Counters, chunks_that_the_responder_refuses) {
  LabOptions options = Server::defaults();
  options.connection.version2.max_read_chunks = 1;
  options.connection.version2.max_write_chunks = 1;
  options.connection.version2.parameters.max_segments = 3;
  expect_counts(
      {
          {"positions in decreasing order",
           [](Server& lab) {
             const auto memory = lab.peer->expose(8, rdma::kRemoteRead);
             lab.ask(Header{.xid = kXid, .reads = {{60, memory.segment}, {44, memory.segment}}}.with(
                 test_call(kXid, TestService::kTwoSinks, {8, 7, 8})));
           },
           refused(kPlainCall + 48 + 12, "bad_position")},
          {"more Read chunks",
           [](Server& lab) {
             const auto memory = lab.peer->expose(8, rdma::kRemoteRead);
             lab.ask(Header{.xid = kXid, .reads = {{44, memory.segment}, {60, memory.segment}}}.with(
                 test_call(kXid, TestService::kTwoSinks, {8, 7, 8})));
           },
           refused(kPlainCall + 48 + 12, "too_many_chunks")},
          {"more Write chunks",
           [](Server& lab) {
             const auto memory = lab.peer->expose(8, rdma::kRemoteWrite);
             lab.ask(Header{.xid = kXid, .writes = {{memory.segment}, {memory.segment}}}.with(
                 test_call(kXid, TestService::kPair, {8, 8})));
           },
           refused(kPlainCall + 48 + 8, "too_many_chunks")},
          {"more segments",
           [](Server& lab) {
             const auto memory = lab.peer->expose(8, rdma::kRemoteWrite);
             const auto byte = part(memory.segment, 0, 1);
             lab.ask(Header{.xid = kXid, .writes = {{byte, byte, byte, byte}}}.with(
                 test_call(kXid, TestService::kSource, {4})));
           },
           refused(kPlainCall + 8 + 64 + 4, "too_many_segments")},
          {"segments that wrap around the address space",
           [](Server& lab) {
             const rpcrdma::Segment wraps{rdma::Rkey{1}, 2, ~std::uint64_t{0}};
             lab.ask(
                 Header{.xid = kXid, .writes = {{wraps}}}.with(test_call(kXid, TestService::kSource, {2})));
           },
           refused(kPlainCall + 24 + 4, "bad_chunk_lists")},
          {"a chunk of an ineligible argument",
           [](Server& lab) {
             const auto memory = lab.peer->expose(8, rdma::kRemoteRead);
             lab.ask(Header{.xid = kXid, .reads = {{44, memory.segment}}}.with(
                 test_call(kXid, TestService::kName, {8})));
           },
           refused(kPlainCall + 24 + 4, "not_eligible")},
          {"a chunk longer than its item",
           [](Server& lab) {
             const auto memory = lab.peer->expose(8, rdma::kRemoteRead);
             lab.ask(Header{.xid = kXid, .reads = {{44, memory.segment}}}.with(
                 test_call(kXid, TestService::kSink, {7, 5})));
           },
           with(refused(kPlainCall + 24 + 8, "count_mismatch"), {{"rdma_reads", 1}, {"rdma_read_bytes", 8}})},
          {"a chunk longer than its item at the end of the call",
           [](Server& lab) {
             const auto memory = lab.peer->expose(8, rdma::kRemoteRead);
             lab.ask(Header{.xid = kXid, .reads = {{44, memory.segment}}}.with(
                 test_call(kXid, TestService::kSink, {7})));
           },
           refused(kPlainCall + 24 + 4, "count_mismatch")},
          {"a Write chunk that is too small",
           [](Server& lab) {
             const auto memory = lab.peer->expose(8, rdma::kRemoteWrite);
             lab.ask(Header{.xid = kXid, .writes = {{memory.segment}}}.with(
                 test_call(kXid, TestService::kSource, {9})));
           },
           refused(kPlainCall + 24 + 4, "write_chunk_too_small")},
      },
      options);
  options.connection.version2.continue_replies = false;
  expect_counts(
      {{"a reply larger than all that the client offers",
        [](Server& lab) { lab.ask(Header{.xid = kXid}.with(test_call(kXid, TestService::kList, {9000}))); },
        refused(kPlainCall + 4, "reply_too_large")}},
      options);
}

/// Builds the first of two parts of a NULL call, 56 bytes, or of a reply.
Bytes first_part(std::uint32_t xid, std::uint32_t flags = kMore) {
  const Bytes payload = test_call(xid, 0);
  return Header{.xid = xid, .flags = flags}.with(std::span(payload).first(20));
}

TEST(V2Counters, V2_095_sequences_that_break) {
  expect_counts({
      {"broken by another message",
       [](Server& lab) {
         lab.peer->send(first_part(kXid));
         lab.ask(null_call(kXid + 1));
       },
       received(
           2, 56 + kPlainCall,
           {{"parts_received", 1}, {"broken_sequences", 1}, {"calls_received", 2}, {"v2_errors_sent", 2}})},
      {"broken, and then the rest of both",
       [](Server& lab) {
         lab.peer->send(first_part(kXid));
         lab.peer->send(first_part(kXid + 1));
         lab.peer->send(first_part(kXid));
         lab.ask(first_part(kXid + 1));
       },
       received(4, 4 * 56,
                {{"parts_received", 1},
                 {"broken_sequences", 1},
                 {"parts_dropped", 2},
                 {"calls_received", 2},
                 {"v2_errors_sent", 2}})},
      {"broken by a response",
       [](Server& lab) {
         lab.peer->send(first_part(kXid));
         lab.ask(success(kXid));
       },
       received(2, 56 + kPlainReply,
                {{"parts_received", 1},
                 {"broken_sequences", 1},
                 {"faulty_responses", 1},
                 {"calls_received", 1},
                 {"v2_errors_sent", 1}})},
      {"by silence",
       [](Server& lab) {
         lab.ask(first_part(kXid));
         lab.pass(6'000'000'000);
       },
       received(1, 56,
                {{"parts_received", 1},
                 {"broken_sequences", 1},
                 {"connections_closed", 1},
                 {"connection_errors", 1}})},
  });
  LabOptions options = Server::defaults();
  options.engine.call_buffer_bytes = 64;
  expect_counts(
      {{"broken by its length",
        [](Server& lab) {
          lab.ask(Header{.xid = kXid, .flags = kMore}.with(Bytes(64)));
          lab.ask(Header{.xid = kXid, .flags = kMore}.with(Bytes(4)));
        },
        received(
            2, 100 + 40,
            {{"parts_received", 1}, {"call_too_long", 1}, {"calls_received", 1}, {"v2_errors_sent", 1}})}},
      options);
}

TEST(V2Counters, V2_043_overruns_and_invalidations_that_cost_the_connection) {
  LabOptions options = Server::defaults();
  options.connection.credit_grant = 2;
  expect_counts({{"more than was granted",
                  [](Server& lab) {
                    for (std::uint32_t xid = 1; xid <= 3; ++xid)
                      lab.peer->send(Header{.xid = xid}.with(test_call(xid, TestService::kLater)));
                    lab.settle();
                  },
                  received(3, 3 * kPlainCall,
                           {{"calls_received", 2},
                            {"credit_overruns", 1},
                            {"connections_closed", 1},
                            {"connection_errors", 1}})}},
                options);
}

}  // namespace
}  // namespace sluice::conformance::v2
