// SPDX-License-Identifier: Apache-2.0
//
// Version 1 at the responder: every counter that some traffic changes.
#include <gtest/gtest.h>

#include "tests/conformance/counted.h"
#include "tests/conformance/raw_call.h"

namespace sluice::conformance {
namespace {

using Segments = std::vector<rpcrdma::Segment>;

constexpr std::uint32_t kXid = 0x51;
constexpr std::uint32_t kLenient = kTestProgram + 1;

/// Traffic on a new connection, and the counters that it changes. A call without chunks has 68 bytes plus its
/// arguments, a reply 52 plus its results.
struct ServerCase {
  const char* what;
  void (*run)(ServerLab& lab);
  Counted expected;
};

void expect_server_counts(std::initializer_list<ServerCase> cases, const LabOptions& options = {}) {
  for (const ServerCase& some : cases) {
    ServerLab lab(options);
    expect_counted(lab, some);
  }
}

/// Returns the counters of a message of `bytes` that is refused with ERR_CHUNK.
Counted refused(std::uint64_t bytes, const char* counter) {
  return {{"messages_received", 1},
          {"calls_received", 1},
          {"inline_bytes_received", bytes},
          {"err_chunk_sent", 1},
          {counter, 1}};
}
/// Returns the counters of a message that is dropped.
Counted dropped(std::uint64_t bytes, const char* counter) {
  return {{"messages_received", 1}, {"inline_bytes_received", bytes}, {counter, 1}};
}
Counted answered(std::uint64_t bytes, std::uint64_t reply_bytes, const Counted& more = {}) {
  Counted all{{"messages_received", 1},
              {"calls_received", 1},
              {"inline_bytes_received", bytes},
              {"replies_sent", 1},
              {"inline_bytes_sent", reply_bytes}};
  all.insert(more.begin(), more.end());
  return all;
}

TEST(CountersServer, calls_with_and_without_chunks) {
  expect_server_counts({
      {"nothing", [](ServerLab&) {}, {}},
      {"no chunks", [](ServerLab& lab) { lab.call(RawCall{.xid = kXid}.with(test_call(kXid, 0))); },
       answered(68, 52)},
      {"a Read chunk that is assembled",
       [](ServerLab& lab) {
         const auto memory = lab.peer->expose(3000, rdma::kRemoteRead);
         lab.call(RawCall{.xid = kXid, .reads = {{44, memory.segment}}}.with(
             test_call(kXid, TestService::kSink, {3000, 7})));
       },
       answered(100, 64, {{"rdma_reads", 1}, {"rdma_read_bytes", 3000}})},
      {"a Read chunk of two segments and an empty one",
       [](ServerLab& lab) {
         const auto memory = lab.peer->expose(3000, rdma::kRemoteRead);
         lab.call(RawCall{.xid = kXid,
                          .reads = {{44, part(memory.segment, 0, 1000)},
                                    {44, part(memory.segment, 1000, 0)},
                                    {44, part(memory.segment, 2000, 1000)}}}
                      .with(test_call(kXid, TestService::kSink, {2000, 7})));
       },
       answered(148, 64, {{"rdma_reads", 2}, {"rdma_read_bytes", 2000}})},
      {"a Read chunk into the service's memory",
       [](ServerLab& lab) {
         lab.service->use_sink = true;
         const auto memory = lab.peer->expose(3000, rdma::kRemoteRead);
         lab.call(RawCall{.xid = kXid, .reads = {{44, memory.segment}}}.with(
             test_call(kXid, TestService::kSink, {3000})));
       },
       answered(96, 64, {{"rdma_reads", 1}, {"rdma_read_bytes", 3000}})},
      {"a Long Call",
       [](ServerLab& lab) {
         const auto memory = lab.peer->expose(40, rdma::kRemoteRead);
         const Bytes rpc = test_call(kXid, 0);
         std::copy(rpc.begin(), rpc.end(), memory.bytes.begin());
         lab.call(RawCall{.xid = kXid, .proc = 1, .reads = {{0, memory.segment}}}.header());
       },
       answered(52, 52, {{"rdma_reads", 1}, {"rdma_read_bytes", 40}})},
      {"a Write chunk",
       [](ServerLab& lab) {
         const auto memory = lab.peer->expose(4096, rdma::kRemoteWrite);
         lab.call(RawCall{.xid = kXid, .writes = {{memory.segment}}}.with(
             test_call(kXid, TestService::kSource, {1500})));
       },
       answered(96, 88, {{"rdma_writes", 1}, {"rdma_write_bytes", 1500}})},
      {"two Write chunks, one of two segments",
       [](ServerLab& lab) {
         const auto memory = lab.peer->expose(8192, rdma::kRemoteWrite);
         const RawCall call{.xid = kXid,
                            .writes = {{part(memory.segment, 0, 100), part(memory.segment, 200, 100)},
                                       {part(memory.segment, 4096, 100)}}};
         lab.call(call.with(test_call(kXid, TestService::kPair, {150, 70})));
       },
       answered(140, 132, {{"rdma_writes", 3}, {"rdma_write_bytes", 220}})},
      {"a Reply chunk",
       [](ServerLab& lab) {
         const auto memory = lab.peer->expose(4096, rdma::kRemoteWrite);
         lab.call(RawCall{.xid = kXid, .reply = Segments{memory.segment}}.with(
             test_call(kXid, TestService::kList, {2000})));
       },
       answered(92, 48, {{"rdma_writes", 1}, {"rdma_write_bytes", 2028}})},
      {"a Write chunk and a Reply chunk",
       [](ServerLab& lab) {
         const auto memory = lab.peer->expose(8192, rdma::kRemoteWrite);
         lab.call(RawCall{.xid = kXid,
                          .writes = {{part(memory.segment, 0, 1024)}},
                          .reply = Segments{part(memory.segment, 4096, 1024)}}
                      .with(test_call(kXid, TestService::kSource, {1000})));
       },
       answered(116, 72, {{"rdma_writes", 2}, {"rdma_write_bytes", 1036}})},
  });
}

TEST(CountersServer, chunks_of_items_that_are_ignored_are_not_read) {
  expect_server_counts({
      {"in a call",
       [](ServerLab& lab) {
         const auto memory = lab.peer->expose(64, rdma::kRemoteRead);
         const Bytes reply = lab.call(RawCall{.xid = kXid, .reads = {{44, memory.segment}}}.with(
             test_call(kXid, TestService::kName, {4, 0x41424344}, kLenient)));
         EXPECT_EQ(word_at(reply, 13), 4u);
       },
       answered(100, 56, {{"not_eligible", 1}})},
      {"behind one that is read",
       [](ServerLab& lab) {
         const auto memory = lab.peer->expose(128, rdma::kRemoteRead);
         fill_pattern(memory.bytes, 4);
         Bytes rpc = test_call(kXid, TestService::kSink, {64}, kLenient);
         const auto first = static_cast<std::uint32_t>(rpc.size());
         append(rpc, words({7}));
         lab.call(RawCall{
             .xid = kXid,
             .reads = {{first, part(memory.segment, 0, 64)}, {first + 68, part(memory.segment, 64, 64)}}}
                      .with(rpc));
         EXPECT_TRUE(has_pattern(lab.lenient->last_data, 4));
       },
       answered(124, 64, {{"not_eligible", 1}, {"rdma_reads", 1}, {"rdma_read_bytes", 64}})},
  });
}

TEST(CountersServer, V1_026_headers_that_are_dropped_or_refused) {
  expect_server_counts({
      {"fragment",
       [](ServerLab& lab) {
         lab.exchange(words({kXid, 1, 32}));
       },
       dropped(12, "bad_fragment")},
      {"RDMA_ERROR without a code",
       [](ServerLab& lab) {
         lab.exchange(words({kXid, 1, 32, 4}));
       },
       dropped(16, "bad_error_message")},
      {"RDMA_ERROR to a peer without outstanding calls",
       [](ServerLab& lab) {
         lab.exchange(words({kXid, 1, 32, 4, 2}));
       },
       {{"messages_received", 1}, {"inline_bytes_received", 20}}},
      {"RDMA_DONE", [](ServerLab& lab) { lab.exchange(plain_header(kXid, 32, 3)); },
       dropped(28, "done_dropped")},
      {"a reply", [](ServerLab& lab) { lab.exchange(ClientLab::success(kXid, 3)); },
       dropped(52, "unknown_xid")},
      {"version",
       [](ServerLab& lab) {
         lab.exchange(words({kXid, 9, 32, 0, 0, 0, 0}));
       },
       {{"messages_received", 1},
        {"inline_bytes_received", 28},
        {"calls_received", 1},
        {"err_vers_sent", 1},
        {"bad_version", 1}}},
      {"procedure", [](ServerLab& lab) { lab.exchange(plain_header(kXid, 32, 9)); },
       refused(28, "bad_procedure")},
      {"RDMA_MSGP",
       [](ServerLab& lab) {
         lab.exchange(words({kXid, 1, 32, 2, 0, 0, 0, 0, 0, 0}));
       },
       refused(40, "msgp_refused")},
      {"chunk lists",
       [](ServerLab& lab) {
         lab.exchange(words({kXid, 1, 32, 0, 2, 0, 0}));
       },
       refused(28, "bad_chunk_lists")},
      {"no payload", [](ServerLab& lab) { lab.exchange(plain_header(kXid, 32)); }, refused(28, "no_payload")},
      {"one word of payload",
       [](ServerLab& lab) {
         Bytes message = plain_header(kXid, 32);
         append(message, words({kXid}));
         lab.exchange(message);
       },
       refused(32, "no_payload")},
      {"neither call nor reply",
       [](ServerLab& lab) {
         Bytes message = plain_header(kXid, 32);
         append(message, words({kXid, 2}));
         lab.exchange(message);
       },
       refused(36, "no_payload")},
      {"a call that ends behind msg_type",
       [](ServerLab& lab) {
         Bytes message = plain_header(kXid, 32);
         append(message, words({kXid, 0}));
         lab.exchange(message);
       },
       refused(36, "no_payload")},
      {"XIDs that differ",
       [](ServerLab& lab) { lab.exchange(RawCall{.xid = kXid}.with(test_call(kXid + 1, 0))); },
       refused(68, "xid_mismatch")},
  });
}

TEST(CountersServer, chunks_that_are_refused) {
  expect_server_counts({
      {"misaligned",
       [](ServerLab& lab) {
         const auto memory = lab.peer->expose(8, rdma::kRemoteRead);
         lab.exchange(RawCall{.xid = kXid, .reads = {{46, memory.segment}}}.with(
             test_call(kXid, TestService::kSink, {8})));
       },
       refused(96, "misaligned_position")},
      {"position zero in RDMA_MSG",
       [](ServerLab& lab) {
         const auto memory = lab.peer->expose(8, rdma::kRemoteRead);
         lab.exchange(RawCall{.xid = kXid, .reads = {{0, memory.segment}}}.with(test_call(kXid, 0)));
       },
       refused(92, "position_zero_in_msg")},
      {"none in RDMA_NOMSG", [](ServerLab& lab) { lab.exchange(RawCall{.xid = kXid, .proc = 1}.header()); },
       refused(28, "no_position_zero")},
      {"beyond the message",
       [](ServerLab& lab) {
         const auto memory = lab.peer->expose(8, rdma::kRemoteRead);
         lab.exchange(RawCall{.xid = kXid, .reads = {{400, memory.segment}}}.with(
             test_call(kXid, TestService::kSink, {8})));
       },
       refused(96, "bad_position")},
      {"too long",
       [](ServerLab& lab) {
         const rpcrdma::Segment huge{rdma::Rkey{1}, 0x7fffffff, 0};
         lab.exchange(RawCall{.xid = kXid, .proc = 1, .reads = {{0, huge}}}.header());
       },
       refused(52, "call_too_long")},
      {"not eligible",
       [](ServerLab& lab) {
         const auto memory = lab.peer->expose(8, rdma::kRemoteRead);
         lab.exchange(RawCall{.xid = kXid, .reads = {{44, memory.segment}}}.with(
             test_call(kXid, TestService::kName, {8})));
       },
       refused(96, "not_eligible")},
      {"a Write list without an eligible result",
       [](ServerLab& lab) {
         const auto memory = lab.peer->expose(8, rdma::kRemoteWrite);
         lab.exchange(RawCall{.xid = kXid, .writes = {{memory.segment}}}.with(test_call(kXid, 0)));
       },
       refused(92, "not_eligible")},
      {"a Write chunk that is too small",
       [](ServerLab& lab) {
         const auto memory = lab.peer->expose(8, rdma::kRemoteWrite);
         lab.exchange(RawCall{.xid = kXid, .writes = {{memory.segment}}}.with(
             test_call(kXid, TestService::kSource, {9})));
       },
       refused(96, "write_chunk_too_small")},
      {"a reply larger than all that the client offers",
       [](ServerLab& lab) {
         lab.exchange(RawCall{.xid = kXid}.with(test_call(kXid, TestService::kList, {2000})));
       },
       refused(72, "reply_too_large")},
  });
}

TEST(CountersServer, calls_that_rpc_refuses) {
  expect_server_counts({
      {"RPC version",
       [](ServerLab& lab) {
         Bytes rpc = test_call(kXid, 0);
         xdr::store_u32(rpc.data() + 8, 3);
         lab.call(RawCall{.xid = kXid}.with(rpc));
       },
       answered(68, 52, {{"rpc_mismatch", 1}})},
      {"credential",
       [](ServerLab& lab) {
         Bytes rpc = words({kXid, 0, 2, kTestProgram, 1, 0, 0, 404});
         rpc.resize(rpc.size() + 404);
         append(rpc, words({0, 0}));
         lab.call(RawCall{.xid = kXid}.with(rpc));
       },
       answered(472, 48, {{"rpc_bad_auth", 1}})},
      {"program",
       [](ServerLab& lab) { lab.call(RawCall{.xid = kXid}.with(test_call(kXid, 0, {}, kLenient + 1))); },
       answered(68, 52, {{"program_unavailable", 1}})},
      {"version of the program",
       [](ServerLab& lab) { lab.call(RawCall{.xid = kXid}.with(rpc_call(kXid, kTestProgram, 2, 0))); },
       answered(68, 60, {{"program_unavailable", 1}})},
      {"procedure", [](ServerLab& lab) { lab.call(RawCall{.xid = kXid}.with(test_call(kXid, 99))); },
       answered(68, 52)},
  });
}

TEST(CountersServer, V1_039_connections_and_how_they_end) {
  expect_server_counts({
      {"by the peer",
       [](ServerLab& lab) { lab.reconnect(); },
       {{"connections_opened", 1}, {"connections_closed", 1}}},
      {"by us",
       [](ServerLab& lab) {
         lab.connection->close(rpcrdma::CloseReason::LocalClose);
         lab.connection->close(rpcrdma::CloseReason::TransportError);  // the connection has ended
         lab.settle();
       },
       {{"connections_closed", 1}}},
      {"by memory that is not exposed, and the call comes again",
       [](ServerLab& lab) {
         const rpcrdma::Segment nowhere{rdma::Rkey{0x12345678}, 64, 0x1000};
         const Bytes message =
             RawCall{.xid = kXid, .reads = {{44, nowhere}}}.with(test_call(kXid, TestService::kSink, {64}));
         lab.exchange(message);
         lab.reconnect();
         lab.exchange(message);
       },
       {{"messages_received", 2},
        {"calls_received", 2},
        {"inline_bytes_received", 192},
        {"rdma_reads", 1},
        {"rdma_read_bytes", 64},
        {"connections_closed", 1},
        {"connection_errors", 1},
        {"connections_opened", 1},
        {"failed_transfer_refused", 1},
        {"err_chunk_sent", 1}}},
  });
}

TEST(CountersServer, calls_that_wait) {
  LabOptions options;
  options.engine.call_buffers = 1;
  options.engine.reply_buffers = 1;
  options.engine.capacity.call_slots = 2;
  options.connection.credit_grant = 2;
  const auto long_call = [](ServerLab& lab, std::uint32_t xid) {
    const Bytes rpc = test_call(xid, TestService::kLater);
    const auto memory = lab.peer->expose(rpc.size(), rdma::kRemoteRead);
    std::copy(rpc.begin(), rpc.end(), memory.bytes.begin());
    lab.peer->send(RawCall{.xid = xid, .proc = 1, .reads = {{0, memory.segment}}}.header());
  };
  static const auto send_long_call = long_call;
  expect_server_counts(
      {
          {"for call memory",
           [](ServerLab& lab) {
             send_long_call(lab, 1);
             send_long_call(lab, 2);
             lab.settle();
           },
           {{"messages_received", 2},
            {"calls_received", 2},
            {"inline_bytes_received", 104},
            {"rdma_reads", 1},
            {"rdma_read_bytes", 40},
            {"waits_call_memory", 1}}},
          {"for more reply memory than there is in all",
           [](ServerLab& lab) {
             const Bytes reply =
                 lab.call(RawCall{.xid = kXid}.with(test_call(kXid, TestService::kList, {500000})));
             EXPECT_EQ(accept_stat(reply), 5u);
           },
           answered(72, 52)},
          {"for a call slot, beyond the credits",
           [](ServerLab& lab) {
             for (std::uint32_t xid = 1; xid <= 3; ++xid)
               lab.peer->send(RawCall{.xid = xid}.with(test_call(xid, TestService::kLater)));
             lab.settle();
           },
           {{"messages_received", 3},
            {"calls_received", 2},
            {"inline_bytes_received", 204},
            {"credit_overruns", 1},
            {"waits_call_slot", 1}}},
      },
      options);
}

}  // namespace
}  // namespace sluice::conformance
