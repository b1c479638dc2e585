// SPDX-License-Identifier: Apache-2.0
//
// The message path allocates no memory after its start. Two engines over loopback exchange NULL calls, Read
// chunks, Write chunks, Long Calls and Reply chunks. This is a separate program because it replaces the
// allocation functions.
#include <gtest/gtest.h>

#include "pmd/loopback/loopback.h"
#include "tests/examples/echo_service/echo_pair.h"
#include "tests/unit/base/allocation_counter.h"

namespace sluice::rpcrdma {
namespace {

constexpr std::uint32_t kDataBytes = 4096;
/// Shapes of calls, in rotation.
enum Shape : std::uint64_t { kShort, kByChunks, kWithReplyChunk, kInline, kLong, kShapes };

TEST(MessagePath, V1_021_nothing_is_allocated_after_start) {
  const auto fabric = rdma::loopback::Fabric::in_process({.links = 2});
  const auto server_device = rdma::loopback::make_device(fabric, {.name = "server"});
  const auto client_device = rdma::loopback::make_device(fabric, {.name = "client"});
  examples::EchoPair pair(*client_device, *server_device);
  Requester& requester = pair.requester;
  ASSERT_TRUE(requester.connected());

  const rdma::MemoryRegion memory = client_device->allocate_memory(2 * kDataBytes);
  std::byte null_call[rpc::kMinCallBytes];
  std::byte echo_call[rpc::kMinCallBytes + xdr::kUnit];  // its data is a Read chunk
  std::byte inline_call[rpc::kMinCallBytes + 2 * xdr::kUnit];
  for (const std::span<std::byte> call : {std::span<std::byte>(null_call), std::span<std::byte>(echo_call),
                                          std::span<std::byte>(inline_call)}) {
    xdr::Writer writer(call);
    const bool null = call.size() == sizeof null_call;
    rpc::encode_call(writer, {.program = examples::kEchoProgram,
                              .version = examples::kEchoVersion,
                              .procedure = null ? examples::kNullProcedure : examples::kEchoProcedure,
                              .credential = {},
                              .verifier = {}});
    if (!null) writer.u32(call.size() == sizeof echo_call ? kDataBytes : xdr::kUnit);
  }
  struct Tally {
    std::uint64_t ok = 0;
    std::uint64_t other = 0;
  } tally;
  const rdma::Sge from{memory.bytes.data(), kDataBytes, memory.lkey};
  const rdma::Sge to{memory.bytes.data() + kDataBytes, kDataBytes, memory.lkey};
  const ReadItem read{static_cast<Position>(sizeof echo_call), {&from, 1}};
  const WriteItem write{{&to, 1}};
  std::uint64_t submitted = 0;
  const auto run = [&](std::uint64_t calls) {
    const std::uint64_t target = submitted + calls;
    while (tally.ok + tally.other < target) {
      while (submitted < target && requester.free_requests() > 0) {
        const std::uint64_t shape = submitted % kShapes;
        std::span<const std::byte> payload = null_call;
        if (shape == kByChunks || shape == kWithReplyChunk) payload = echo_call;
        if (shape == kInline) payload = inline_call;
        Request request{.payload = payload,
                        .max_reply_bytes = payload.data() == echo_call ? 5000u : 64u,
                        .as_long_call = shape == kLong,
                        .completion =
                            [](void* context, const Reply& reply) noexcept {
                              auto& t = *static_cast<Tally*>(context);
                              ++(reply.status() == CallStatus::Ok ? t.ok : t.other);
                            },
                        .context = &tally};
        if (shape == kByChunks || shape == kWithReplyChunk) request.reads = {&read, 1};
        if (shape == kByChunks) request.writes = {&write, 1};
        if (!requester.submit(request)) break;
        ++submitted;
      }
      pair.poll();
    }
  };
  run(1000);
  const std::uint64_t before = service::test::allocations();
  run(20000);
  EXPECT_EQ(service::test::allocations() - before, 0u);
  EXPECT_EQ(tally.ok, 21000u);
  EXPECT_GT(pair.server.counters().rdma_reads, 0u);
  EXPECT_GT(pair.server.counters().rdma_writes, 0u);
}

}  // namespace
}  // namespace sluice::rpcrdma
