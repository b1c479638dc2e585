// SPDX-License-Identifier: Apache-2.0
//
// Version 1 at the requester: every counter that some traffic changes.
#include <gtest/gtest.h>

#include "tests/conformance/counted.h"
#include "tests/conformance/raw_server.h"

namespace sluice::conformance {
namespace {

/// Makes one NULL call and answers it: 68 bytes and 52.
struct Case {
  const char* what;
  void (*run)(ClientLab& lab);
  Counted expected;
};

void expect_counts(std::initializer_list<Case> cases, const LabOptions& options = {}) {
  for (const Case& some : cases) {
    ClientLab lab(options);
    expect_counted(lab, some);
  }
}

std::uint32_t call(ClientLab& lab) {
  const auto xid = lab.submit_null();
  lab.settle();
  return xid.value_or(0);
}
void answer(ClientLab& lab, std::span<const std::byte> message) {
  lab.peer->send(message);
  lab.settle();
}
/// Makes one call, and delivers one message while the call is outstanding.
Counted came(std::uint64_t bytes, const Counted& more) {
  Counted all{{"calls_sent", 1},
              {"inline_bytes_sent", 68},
              {"messages_received", 1},
              {"inline_bytes_received", bytes}};
  all.insert(more.begin(), more.end());
  return all;
}

TEST(CountersClient, calls_and_replies) {
  expect_counts({
      {"nothing", [](ClientLab&) {}, {}},
      {"a call", [](ClientLab& lab) { call(lab); }, {{"calls_sent", 1}, {"inline_bytes_sent", 68}}},
      {"and its reply", [](ClientLab& lab) { answer(lab, ClientLab::success(call(lab), 4)); },
       came(52, {{"replies_received", 1}})},
      {"with chunks",
       [](ClientLab& lab) {
         OfferedCall offered;
         const std::uint32_t xid = submit_offered(lab, offered);
         answer(lab, RawCall{.xid = xid, .credits = 4}.with(accepted(xid)));
       },
       {{"calls_sent", 1},
        {"inline_bytes_sent", 28 + 2 * 40 + 20 + 40},
        {"messages_received", 1},
        {"inline_bytes_received", 52},
        {"replies_received", 1}}},
      {"a Long Call",
       [](ClientLab& lab) {
         lab.submit({.payload = null_call(), .max_reply_bytes = 64, .as_long_call = true});
         lab.settle();
       },
       {{"calls_sent", 1}, {"inline_bytes_sent", 52}}},
      {"calls that wait for a credit, asked twice",
       [](ClientLab& lab) {
         for (int i = 0; i < 3; ++i) lab.submit_null();
         lab.settle();
       },
       {{"calls_sent", 1}, {"inline_bytes_sent", 68}, {"waits_credit", 2}}},
  });
}

TEST(CountersClient, V1_026_V1_036_what_comes_instead_of_a_reply) {
  expect_counts({
      {"ERR_CHUNK",
       [](ClientLab& lab) {
         answer(lab, words({call(lab), 1, 4, 4, 2}));
       },
       came(20, {{"errors_received", 1}})},
      {"ERR_VERS",
       [](ClientLab& lab) {
         answer(lab, words({call(lab), 1, 4, 4, 1, 1, 1}));
       },
       came(28, {{"errors_received", 1}})},
      {"an error with an unknown XID",
       [](ClientLab& lab) {
         answer(lab, words({call(lab) + 1, 1, 4, 4, 2}));
       },
       came(20, {{"unknown_xid", 1}})},
      {"an error with an unknown code",
       [](ClientLab& lab) {
         answer(lab, words({call(lab), 1, 4, 4, 9}));
       },
       came(20, {{"bad_error_message", 1}})},
      {"a reply with an unknown XID",
       [](ClientLab& lab) { answer(lab, ClientLab::success(call(lab) + 1, 4)); },
       came(52, {{"unknown_xid", 1}})},
      {"a reply whose two XIDs differ",
       [](ClientLab& lab) {
         const std::uint32_t xid = call(lab);
         answer(lab, RawCall{.xid = xid}.with(accepted(xid + 1)));
       },
       came(52, {{"replies_received", 1}, {"unusable_reply", 1}})},
      {"chunk lists that do not decode",
       [](ClientLab& lab) {
         answer(lab, words({call(lab), 1, 4, 0, 2, 0, 0}));
       },
       came(28, {{"bad_chunk_lists", 1}, {"unusable_reply", 1}})},
      {"another version",
       [](ClientLab& lab) {
         answer(lab, words({call(lab), 7, 4, 0, 0, 0, 0}));
       },
       came(28, {{"bad_version", 1}, {"unusable_reply", 1}})},
      {"an unknown procedure", [](ClientLab& lab) { answer(lab, plain_header(call(lab), 4, 9)); },
       came(28, {{"bad_procedure", 1}, {"unusable_reply", 1}})},
      {"no payload", [](ClientLab& lab) { answer(lab, plain_header(call(lab), 4)); },
       came(28, {{"no_payload", 1}, {"unusable_reply", 1}})},
      {"neither call nor reply",
       [](ClientLab& lab) {
         const std::uint32_t xid = call(lab);
         answer(lab, RawCall{.xid = xid}.with(words({xid, 5})));
       },
       came(36, {{"no_payload", 1}, {"unusable_reply", 1}})},
      {"RDMA_DONE", [](ClientLab& lab) { answer(lab, plain_header(call(lab), 4, 3)); },
       came(28, {{"done_dropped", 1}})},
      {"RDMA_MSGP",
       [](ClientLab& lab) {
         answer(lab, words({call(lab), 1, 4, 2, 0, 0, 0, 0, 0}));
       },
       came(36, {{"msgp_refused", 1}})},
      {"a fragment",
       [](ClientLab& lab) {
         answer(lab, words({call(lab), 1}));
       },
       came(8, {{"bad_fragment", 1}})},
      {"a call against the flow",
       [](ClientLab& lab) {
         const std::uint32_t xid = call(lab);
         answer(lab, RawCall{.xid = xid}.with(test_call(xid, 0)));
       },
       // The call is served, because the lab's client grants credits for reverse calls.
       {{"calls_sent", 1},
        {"messages_received", 1},
        {"inline_bytes_received", 68},
        {"calls_received", 1},
        {"replies_sent", 1},
        {"inline_bytes_sent", 68 + 52}}},
      {"one with chunks",
       [](ClientLab& lab) {
         const std::uint32_t xid = call(lab);
         const auto memory = lab.peer->expose(8, rdma::kRemoteWrite);
         answer(lab, RawCall{.xid = xid, .writes = {{memory.segment}}}.with(test_call(xid, 0)));
       },
       came(92, {{"calls_received", 1}, {"reverse_chunks_refused", 1}, {"err_chunk_sent", 1}})},
      {"a long one",
       [](ClientLab& lab) {
         const std::uint32_t xid = call(lab) + 1;
         const auto memory = lab.peer->expose(40, rdma::kRemoteRead);
         answer(lab, RawCall{.xid = xid, .proc = 1, .reads = {{0, memory.segment}}}.header());
       },
       came(52, {{"calls_received", 1}, {"reverse_chunks_refused", 1}, {"err_chunk_sent", 1}})},
  });
}

TEST(CountersClient, V1_171_calls_that_are_not_served) {
  LabOptions options;
  options.connection.credit_grant = 0;
  expect_counts({{"a call against the flow",
                  [](ClientLab& lab) {
                    const std::uint32_t xid = call(lab);
                    answer(lab, RawCall{.xid = xid}.with(test_call(xid, 0)));
                  },
                  came(68, {{"direction_not_served", 1}})}},
                options);
}

TEST(CountersClient, memory_and_connections) {
  LabOptions options;
  options.requester.windows = 2;
  expect_counts(
      {
          {"a call that waits for windows",
           [](ClientLab& lab) {
             answer(lab, ClientLab::success(call(lab), 8));
             OfferedCall offered;  // five segments
             submit_offered(lab, offered);
             const CallerMemory memory = caller_memory(lab, 4096);
             const rdma::Sge pieces[] = {memory.piece(0, 64), memory.piece(128, 64)};
             const rpcrdma::WriteItem item{pieces};
             for (int i = 0; i < 2; ++i)
               lab.submit({.payload = null_call(), .writes = {&item, 1}, .max_reply_bytes = 64});
             lab.engine->poll(lab.now_ns += 1000);
           },
           // The first call can never be sent, the second is outstanding, and the third is tried twice: by
           // submit() and by the engine's poll.
           {{"calls_sent", 2},
            {"inline_bytes_sent", 68 + 108},
            {"messages_received", 1},
            {"inline_bytes_received", 52},
            {"replies_received", 1},
            {"waits_reply_memory", 2}}},
          {"a lost connection",
           [](ClientLab& lab) {
             call(lab);
             lab.disconnect();
             lab.connect();
           },
           {{"calls_sent", 2},
            {"inline_bytes_sent", 136},
            {"connections_opened", 1},
            {"connections_closed", 1}}},
          {"memory that the driver does not expose",
           [](ClientLab& lab) {
             const CallerMemory memory = caller_memory(lab, 4096);
             rdma::Sge piece = memory.piece(0, 64);
             piece.lkey = static_cast<rdma::Lkey>(~0u);
             const rpcrdma::WriteItem item{{&piece, 1}};
             lab.submit({.payload = null_call(), .writes = {&item, 1}, .max_reply_bytes = 64});
             lab.settle();
           },
           {{"connections_closed", 1}, {"connection_errors", 1}}},
      },
      options);
}

TEST(CountersClient, V1_143_memory_that_cannot_be_fenced) {
  expect_counts({{"one call",
                  [](ClientLab& lab) {
                    call(lab);
                    lab.connection->on_completion({.wr_id = lab.log.all(OpKind::PostSend).back().wr_id,
                                                   .status = rdma::WcStatus::BindError,
                                                   .opcode = rdma::WcOpcode::Send});
                  },
                  {{"calls_sent", 1},
                   {"inline_bytes_sent", 68},
                   {"invalidation_errors", 1},
                   {"connections_closed", 1},
                   {"connection_errors", 1}}}});
}

}  // namespace
}  // namespace sluice::conformance
