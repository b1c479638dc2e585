// SPDX-License-Identifier: Apache-2.0
//
// The record of one call: its outcome and its bytes.
#include <gtest/gtest.h>

#include "tests/conformance/raw_call.h"

namespace sluice::conformance {
namespace {

std::uint64_t ticks_ns = 0;
std::uint64_t ticking_clock() noexcept {
  return ticks_ns += 1000;
}

class CallRecords : public ::testing::Test {
 protected:
  CallRecords() {
    lab.engine->measure(*table, &ticking_clock);
    lab.engine->set_trace(*trace);
    lab.connection->responder().set_traced(true);
  }
  /// Returns the record of `call`, which must be the only one since the last call of this function.
  segment::TraceRecord record_of(const RawCall& call, const Bytes& payload) {
    const std::uint64_t before = trace->written.load();
    lab.call(call.with(payload));
    lab.settle();
    EXPECT_EQ(trace->written.load(), before + 1);
    const auto record = trace->records[before % segment::TraceRing::kRecords].read();
    EXPECT_TRUE(record);
    return record.value_or(segment::TraceRecord{});
  }
  std::unique_ptr<segment::CallTable> table = std::make_unique<segment::CallTable>();
  std::unique_ptr<segment::TraceRing> trace = std::make_unique<segment::TraceRing>();
  ServerLab lab;
};

constexpr std::uint32_t kRecordedXid = 0x77;

TEST_F(CallRecords, how_it_ended) {
  const RawCall call{.xid = kRecordedXid};
  EXPECT_EQ(record_of(call, test_call(kRecordedXid, 0)).status, segment::CallStatus::success);
  EXPECT_EQ(record_of(call, test_call(kRecordedXid, 99)).status, segment::CallStatus::proc_unavail);
  EXPECT_EQ(record_of(call, test_call(kRecordedXid, TestService::kName)).status,
            segment::CallStatus::garbage_args);
  EXPECT_EQ(record_of(call, rpc_call(kRecordedXid, kTestProgram, 7, 0)).status,
            segment::CallStatus::prog_mismatch);
  EXPECT_EQ(record_of(call, rpc_call(kRecordedXid, 4711, 7, 0)).status, segment::CallStatus::prog_unavail);
  EXPECT_EQ(record_of(call, test_call(kRecordedXid, TestService::kList, {500000})).status,
            segment::CallStatus::system_err);
  EXPECT_EQ(record_of(call, test_call(kRecordedXid, TestService::kList, {5000})).status,
            segment::CallStatus::rdma_error);
  Bytes other_rpc = test_call(kRecordedXid, 0);
  xdr::store_u32(other_rpc.data() + 8, 3);
  EXPECT_EQ(record_of(call, other_rpc).status, segment::CallStatus::rpc_mismatch);
  Bytes credential = words({kRecordedXid, 0, 2, kTestProgram, 1, 0, 0, 404});
  credential.resize(credential.size() + 404);
  append(credential, words({0, 0}));
  EXPECT_EQ(record_of(call, credential).status, segment::CallStatus::auth_error);
}

/// The client consumes two of three replies, so only the third is flushed when the client disconnects.
TEST_F(CallRecords, a_flushed_reply_is_not_served) {
  lab.options.raw_receives = 2;
  lab.reconnect();
  lab.connection->responder().set_traced(true);
  for (std::uint32_t xid = 1; xid <= 3; ++xid)
    lab.peer->send(RawCall{.xid = xid}.with(test_call(xid, TestService::kLater)));
  lab.settle();
  ASSERT_EQ(lab.service->held(), 3u);
  lab.service->complete_later();
  lab.turn();
  lab.peer->poll();
  ASSERT_EQ(lab.peer->inbox.size(), 2u);
  lab.peer->owned_qp.reset();
  lab.settle();
  ASSERT_EQ(lab.connection->state(), rpcrdma::Connection::State::Closed);
  EXPECT_EQ(lab.connection->responder().served(), 2u);
  EXPECT_EQ(trace->written.load(), 2u);
}

TEST_F(CallRecords, whose_it_was_and_its_bytes) {
  const auto memory = lab.peer->expose(4096, rdma::kRemoteRead | rdma::kRemoteWrite);
  const RawCall sink{.xid = kRecordedXid, .reads = {{44, part(memory.segment, 0, 3000)}}};
  auto record = record_of(sink, test_call(kRecordedXid, TestService::kSink, {3000, 5}));
  EXPECT_EQ(record.connection, lab.connection->number());
  EXPECT_EQ(record.xid, kRecordedXid);
  EXPECT_EQ(record.program, kTestProgram);
  EXPECT_EQ(record.version, 1u);
  EXPECT_EQ(record.procedure, TestService::kSink);
  EXPECT_EQ(record.call_bytes, 4u + 3000 + 4);
  EXPECT_EQ(record.reply_bytes, 24u + 12);
  lab.service->use_sink = true;
  record = record_of(sink, test_call(kRecordedXid, TestService::kSink, {3000}));
  EXPECT_EQ(record.call_bytes, 4u + 3000);
  record = record_of(RawCall{.xid = kRecordedXid}, test_call(kRecordedXid, TestService::kSource, {600}));
  EXPECT_EQ(record.call_bytes, 4u);
  EXPECT_EQ(record.reply_bytes, 24u + 12 + 600);
  const RawCall source{.xid = kRecordedXid, .writes = {{memory.segment}}};
  record = record_of(source, test_call(kRecordedXid, TestService::kSource, {1500}));
  EXPECT_EQ(record.reply_bytes, 24u + 12 + 1500);
  // The states add up to the whole time, except for the first clock reading.
  std::uint64_t sum = 0;
  for (const std::uint64_t ns : record.state_ns) sum += ns;
  EXPECT_GT(sum, 0u);
  EXPECT_LE(sum, record.total_ns);
  EXPECT_EQ(record.state_ns[static_cast<std::size_t>(rpcrdma::CallSlot::State::Free)], 0u);
  EXPECT_EQ(record.state_ns[static_cast<std::size_t>(rpcrdma::CallSlot::State::Pulling)], 0u);
}

}  // namespace
}  // namespace sluice::conformance
