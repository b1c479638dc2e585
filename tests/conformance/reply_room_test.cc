// SPDX-License-Identifier: Apache-2.0
//
// Memory for the reply of a non-idempotent call. It is reserved before the call is executed, or the call is
// refused (D2-47; V1-037, V1-038, V2-103).
#include <gtest/gtest.h>

#include "tests/conformance/raw_call.h"
#include "tests/conformance/v2_lab.h"

namespace sluice::conformance {
namespace {

constexpr std::uint32_t kProgram = 0x200000A1;
constexpr std::uint32_t kRoomXid = 0x77;
constexpr std::uint32_t kRpcAndCount = 24 + 4;
enum Procedure : std::uint32_t { kLook, kChange };

/// Both procedures: (uint32 bytes, opaque<> [eligible]) -> (opaque<> of that many bytes). CHANGE is not
/// idempotent.
class Ledger final : public service::Service {
 public:
  const service::Binding& binding() const noexcept override { return binding_; }
  service::Execution execute(service::Call& call) noexcept override {
    const std::uint32_t bytes = xdr::load_u32(call.arguments().data());
    if (!call.require_results(xdr::padded(bytes) + 4)) return service::Execution::NeedsMemory;
    ++executed;
    call.results().opaque(Bytes(bytes));
    call.complete(rpc::AcceptStat::Success);
    return service::Execution::Started;
  }
  std::uint32_t executed = 0;

 private:
  static std::uint64_t most(std::uint32_t, std::span<const std::byte> arguments) {
    xdr::Reader reader(arguments);
    return 4 + xdr::padded(reader.u32());
  }
  static constexpr service::ProcedureBinding kProcedures[] = {{1, 0},
                                                              {.eligible_arguments = 1, .idempotent = false}};
  service::Binding binding_{
      .program = kProgram, .version = 1, .procedures = kProcedures, .max_results_bytes = &most};
};

Bytes call_of(std::uint32_t procedure, std::uint32_t bytes) {
  Bytes call = rpc_call(kRoomXid, kProgram, 1, procedure);
  append(call, words({bytes, 0}));
  return call;
}

struct ReplyRoom : ::testing::Test {
  explicit ReplyRoom(const LabOptions& options = {}) : lab(options) { lab.engine->add_service(service); }
  std::vector<rpcrdma::Segment> room(std::uint32_t bytes) {
    return {lab.peer->expose(bytes, rdma::kRemoteWrite).segment};
  }
  Ledger service;
  ServerLab lab;
};

TEST_F(ReplyRoom, D2_47_V1_038_what_must_not_be_repeated_is_refused_before_it_is_executed) {
  const std::uint32_t longest = rpcrdma::kDefaultInlineBytes - 28 - kRpcAndCount;
  const RawCall call{.xid = kRoomXid};
  EXPECT_EQ(accept_stat(lab.call(call.with(call_of(kChange, longest)))), 0u);
  EXPECT_EQ(service.executed, 1u);
  EXPECT_TRUE(is_err_chunk(lab.call(call.with(call_of(kChange, longest + 4))), kRoomXid));
  EXPECT_EQ(service.executed, 1u);
  EXPECT_EQ(lab.engine->counters().reply_too_large, 1u);
  // An idempotent call is refused only after execution, because its reply may be shorter than the maximum.
  EXPECT_TRUE(is_err_chunk(lab.call(call.with(call_of(kLook, longest + 4))), kRoomXid));
  EXPECT_EQ(service.executed, 2u);
  EXPECT_EQ(lab.connection->responder().busy_slots(), 0u);
}

TEST_F(ReplyRoom, D2_47_V1_037_a_reply_chunk_has_to_hold_all_of_it) {
  const Bytes payload = call_of(kChange, 2000);
  const RawCall short_of_it{.xid = kRoomXid, .reply = room(kRpcAndCount + 2000 - 1)};
  EXPECT_TRUE(is_err_chunk(lab.call(short_of_it.with(payload)), kRoomXid));
  EXPECT_EQ(service.executed, 0u);
  const RawCall enough{.xid = kRoomXid, .reply = room(kRpcAndCount + 2000)};
  EXPECT_EQ(word_at(lab.call(enough.with(payload)), 3), 1u);
  EXPECT_EQ(service.executed, 1u);
}

TEST_F(ReplyRoom, D2_47_nothing_is_pulled_for_a_call_that_is_refused) {
  const auto memory = lab.peer->expose(64, rdma::kRemoteRead);
  Bytes payload = rpc_call(kRoomXid, kProgram, 1, kChange);
  append(payload, words({2000, 64}));
  const RawCall call{.xid = kRoomXid, .reads = {{48, memory.segment}}};
  EXPECT_TRUE(is_err_chunk(lab.call(call.with(payload)), kRoomXid));
  EXPECT_EQ(lab.engine->counters().rdma_reads, 0u);
  EXPECT_EQ(service.executed, 0u);
  EXPECT_TRUE(lab.alive());
}

/// The arguments of a long call, and so the size of its reply, are available only after the pull.
TEST_F(ReplyRoom, D2_47_a_long_call_is_refused_before_it_is_executed) {
  const Bytes payload = call_of(kChange, 2000);
  const auto memory = lab.peer->expose(payload.size(), rdma::kRemoteRead);
  std::copy(payload.begin(), payload.end(), memory.bytes.begin());
  const RawCall call{.xid = kRoomXid, .proc = 1, .reads = {{0, memory.segment}}};
  EXPECT_TRUE(is_err_chunk(lab.call(call.header()), kRoomXid));
  EXPECT_EQ(service.executed, 0u);
  EXPECT_EQ(lab.engine->call_memory().available(), lab.engine->call_memory().buffers());
}

TEST(V2ReplyRoom, D2_47_V2_103_what_must_not_be_repeated_is_refused_before_it_is_executed) {
  for (const bool continues : {false, true}) {
    LabOptions options = v2::Server::defaults();
    options.connection.version2.continue_replies = continues;
    Ledger service;
    v2::Server lab(options);
    lab.engine->add_service(service);
    lab.hello();
    const Bytes answer = lab.ask(v2::Header{.xid = kRoomXid}.with(call_of(kChange, 9000))).at(0);
    EXPECT_EQ(service.executed, continues ? 1u : 0u);
    if (continues) continue;
    EXPECT_TRUE(v2::is_error(answer, kRoomXid, 9));
    EXPECT_EQ(word_at(answer, 6), kRpcAndCount + 9000);
    EXPECT_EQ(lab.counters().reply_too_large, 1u);
    EXPECT_TRUE(lab.alive2());
  }
}

}  // namespace
}  // namespace sluice::conformance
