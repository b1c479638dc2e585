// SPDX-License-Identifier: Apache-2.0
//
// Version 1 at the responder: the results that a service may return, denied calls, and the effect of internal
// errors.
#include <gtest/gtest.h>

#include <functional>

#include "tests/conformance/raw_call.h"
#include "tests/conformance/second_peer.h"
#include "tests/unit/base/counted_invariants.h"

namespace sluice::conformance {
namespace {

constexpr std::uint32_t kResultsProgram = 0x20000150;
constexpr std::uint32_t kBlock = 64;
constexpr std::uint32_t kMsgDenied = 1;
constexpr std::uint32_t kAuthError = 1;

constexpr service::ProcedureBinding kProcedures[] = {{.eligible_arguments = 1, .eligible_results = 1}};

/// A service that executes the functions of the test.
class ScriptedService final : public service::Service {
 public:
  explicit ScriptedService(rdma::Device& device) : blocks(device.allocate_memory(8 * kBlock)) {
    fill_pattern(blocks.bytes, 3);
  }
  const service::Binding& binding() const noexcept override { return binding_; }
  service::Placement place(service::Call& call) noexcept override {
    return on_place ? on_place(call) : service::Placement::Assemble;
  }
  service::Execution execute(service::Call& call) noexcept override { return on_execute(call); }
  void release(service::Call&) noexcept override { ++releases; }

  rdma::MemoryRegion blocks;
  std::function<service::Placement(service::Call&)> on_place;
  std::function<service::Execution(service::Call&)> on_execute;
  int releases = 0;

 private:
  service::Binding binding_{.program = kResultsProgram, .version = 1, .procedures = kProcedures};
};

struct ScriptedLab {
  explicit ScriptedLab(const LabOptions& options = {}) : lab(options), service(*lab.device) {
    lab.engine->add_service(service);
  }
  Bytes call(const RawCall& call) { return lab.call(call.with(test_call(call.xid, 0, {}, kResultsProgram))); }

  ServerLab lab;
  ScriptedService service;
};

// --- Results

/// A service reads whole blocks from its store. Only the item's bytes of the pieces that it names are
/// results.
TEST(WriteChunks, V1_094_V1_101_of_the_pieces_of_a_result_only_its_bytes_are_sent) {
  for (const std::uint32_t bytes : {1u, kBlock - 1, kBlock, kBlock + 1, 2 * kBlock, 2 * kBlock + 1}) {
    ScriptedLab some;
    some.service.on_execute = [&](service::Call& call) {
      call.results().u32(bytes);
      // The service uses every other block, so that the pieces are not adjacent.
      for (std::uint32_t i = 0; i < 4; ++i)
        call.add_result_piece({some.service.blocks.bytes.data() + 2 * i * kBlock, kBlock,  //
                               some.service.blocks.lkey});
      call.add_result_item(bytes);
      call.complete(rpc::AcceptStat::Success);
      return service::Execution::Started;
    };
    Bytes expected;
    for (std::uint32_t i = 0; i < bytes; ++i)
      expected.push_back(pattern_byte(3, i / kBlock * 2 * kBlock + i % kBlock));

    const auto memory = some.lab.peer->expose(256, rdma::kRemoteWrite);
    some.lab.log.clear();
    const Bytes placed = some.call({.writes = {{memory.segment}}});
    EXPECT_EQ(word_at(placed, 8), bytes);
    EXPECT_TRUE(std::equal(expected.begin(), expected.end(), memory.bytes.begin()));
    EXPECT_EQ(memory.bytes[bytes], std::byte{0}) << "nothing behind it is touched";

    const Bytes in_reply = some.call({});
    ASSERT_EQ(in_reply.size(), 28u + 24 + 4 + xdr::padded(bytes));
    EXPECT_EQ(word_at(in_reply, 13), bytes);
    EXPECT_TRUE(std::equal(expected.begin(), expected.end(), in_reply.begin() + 56));
    for (const Op& op : some.lab.log.ops()) EXPECT_EQ(op.empty_pieces, 0u);
  }
}

/// The RPC header takes 24 bytes of each buffer.
TEST(WriteChunks, results_may_be_as_long_as_the_room_that_was_asked_for) {
  constexpr std::size_t kBuffer = 12000;
  for (const std::size_t bytes : {kBuffer - 24, kBuffer - 23}) {
    LabOptions options;
    options.engine.reply_buffer_bytes = kBuffer;
    ScriptedLab some(options);
    const auto memory = some.lab.peer->expose(kBuffer, rdma::kRemoteWrite);
    std::size_t room = 0;
    some.service.on_execute = [&](service::Call& call) {
      if (!call.require_results(bytes)) return service::Execution::NeedsMemory;
      room = call.results().remaining();
      call.complete(rpc::AcceptStat::Success);
      return service::Execution::Started;
    };
    some.call({.reply = std::vector{memory.segment}});
    EXPECT_EQ(room, bytes == kBuffer - 24 ? bytes : 0u);
    EXPECT_EQ(some.service.releases, 1);
  }
}

/// Connections have a share of the small buffers, of which there are many more.
TEST(WriteChunks, results_that_fit_a_small_buffer_with_their_header_are_put_there) {
  constexpr std::size_t kSmall = 4096;
  for (const std::size_t bytes : {kSmall - 24, kSmall - 23}) {
    LabOptions options;
    options.engine.small_buffer_bytes = kSmall;
    options.engine.capacity.reply_buffer_bytes = 1024;
    ScriptedLab some(options);
    const auto memory = some.lab.peer->expose(2 * kSmall, rdma::kRemoteWrite);
    std::size_t room = 0;
    some.service.on_execute = [&](service::Call& call) {
      if (!call.require_results(bytes)) return service::Execution::NeedsMemory;
      room = call.results().remaining();
      call.complete(rpc::AcceptStat::Success);
      return service::Execution::Started;
    };
    some.call({.reply = std::vector{memory.segment}});
    EXPECT_GE(room, bytes);
    EXPECT_EQ(room == kSmall - 24, bytes == kSmall - 24) << "the other needs a large one";
  }
}

// --- Denied calls

TEST(Framing, a_call_that_its_service_denies_is_told_why) {
  ScriptedLab some;
  some.service.on_execute = [](service::Call& call) {
    call.results().u32(7);
    call.deny(rpc::AuthStat::TooWeak);
    return service::Execution::Started;
  };
  const Bytes denied = some.call({});
  ASSERT_EQ(denied.size(), 28u + 20);
  EXPECT_EQ(word_at(denied, 9), kMsgDenied);
  EXPECT_EQ(word_at(denied, 10), kAuthError);
  EXPECT_EQ(word_at(denied, 11), static_cast<std::uint32_t>(rpc::AuthStat::TooWeak));
  some.service.on_execute = [](service::Call& call) {
    call.complete(rpc::AcceptStat::Success);
    return service::Execution::Started;
  };
  EXPECT_EQ(accept_stat(some.call({})), 0u) << "the next call in its slot is another";
}

TEST(Framing, credentials_and_verifiers_that_are_too_long_are_told_apart) {
  constexpr std::size_t kCredentialBytes = 28;
  constexpr std::size_t kVerifierBytes = 36;
  for (const auto& [at, stat] : {std::pair{kCredentialBytes, 1u}, std::pair{kVerifierBytes, 3u}}) {
    ServerLab lab;
    const RawCall call;
    Bytes rpc = test_call(call.xid, 0);
    xdr::store_u32(rpc.data() + at, 401);
    const Bytes denied = lab.call(call.with(rpc));
    ASSERT_EQ(denied.size(), 28u + 20);
    EXPECT_EQ(word_at(denied, 9), kMsgDenied);
    EXPECT_EQ(word_at(denied, 10), kAuthError);
    EXPECT_EQ(word_at(denied, 11), stat);  // AUTH_BADCRED, AUTH_BADVERF
    EXPECT_TRUE(lab.service->executed.empty());
  }
}

TEST(Framing, a_call_that_is_refused_in_the_slot_of_one_that_was_served_is_not_its_services) {
  ServerLab lab;
  ASSERT_TRUE(lab.alive(1));
  EXPECT_EQ(lab.service->releases, 1u);
  const RawCall call{.xid = 2};
  EXPECT_EQ(accept_stat(lab.call(call.with(rpc_call(2, 77, 1, 0)))), 1u);
  EXPECT_EQ(lab.service->releases, 1u);
}

// --- Internal errors

/// A call that waits for memory is placed twice by mistake. Only its connection ends.
TEST(OwnErrors, a_call_in_a_state_that_cannot_follow_is_counted_and_ends_its_connection) {
  LabOptions options;
  options.engine.call_buffers = 1;
  ScriptedLab some(options);
  ServerLab& lab = some.lab;
  SecondClient second(lab);
  rpcrdma::SharedMemory::Account other;
  std::byte* const taken = lab.engine->call_memory().acquire(other, 1);
  ASSERT_NE(taken, nullptr);
  service::Call* placed = nullptr;
  some.service.on_place = [&](service::Call& call) {
    placed = &call;
    return service::Placement::Later;
  };
  const auto memory = lab.peer->expose(64, rdma::kRemoteRead);
  const RawCall call{.reads = {{44, memory.segment}}};
  lab.exchange(call.with(test_call(call.xid, 0, {64}, kResultsProgram)));
  ASSERT_NE(placed, nullptr);
  const CountedInvariants invariants;
  placed->placed(service::Placement::Assemble);
  EXPECT_TRUE(lab.connection->is_open());
  EXPECT_EQ(invariants.failed(Invariant::call_slot_state), 0u);
  placed->placed(service::Placement::Assemble);
  EXPECT_EQ(invariants.failed(Invariant::call_slot_state), 1u);
  EXPECT_EQ(lab.connection->close_reason(), rpcrdma::CloseReason::InternalError);
  EXPECT_EQ(some.service.releases, 1);
  lab.engine->call_memory().release(taken);
  lab.settle();
  EXPECT_EQ(lab.connection->state(), rpcrdma::Connection::State::Closed);
  EXPECT_EQ(lab.engine->call_memory().available(), 1u);
  second.send(RawCall{.xid = 9}.with(test_call(9, 0)));
  second.turns();
  EXPECT_EQ(second.peer().inbox.size(), 1u);
}

}  // namespace
}  // namespace sluice::conformance
