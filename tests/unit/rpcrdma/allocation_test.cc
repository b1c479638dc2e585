// SPDX-License-Identifier: Apache-2.0
//
// The message path allocates no memory after its start. Two engines over loopback exchange NULL calls, Read
// chunks, Write chunks, Long Calls and Reply chunks. This is a separate program because it replaces the
// allocation functions.
#include <gtest/gtest.h>

#include "dataplane/rpcrdma/engine.h"
#include "dataplane/rpcrdma/requester/requester.h"
#include "pmd/loopback/loopback.h"
#include "tests/unit/base/allocation_counter.h"

namespace sluice::rpcrdma {
namespace {

constexpr std::uint32_t kProgram = 0x20000077;
constexpr service::ProcedureBinding kProcedures[] = {{0, 0}, {1, 0}, {0, 1}};

/// Procedure 0 is NULL, 1 takes an opaque, 2 returns 4096 bytes.
class Program final : public service::Service {
 public:
  explicit Program(rdma::Device& device) : memory_(device.allocate_memory(8192)) {}
  const service::Binding& binding() const noexcept override { return binding_; }
  service::Placement place(service::Call& call) noexcept override {
    call.add_sink_piece({memory_.bytes.data(), call.placed_bytes(), memory_.lkey});
    return service::Placement::Sink;
  }
  service::Execution execute(service::Call& call) noexcept override {
    if (call.header().procedure == 2) {
      call.results().u32(4096);
      call.add_result_piece({memory_.bytes.data(), 4096, memory_.lkey});
      call.add_result_item(4096);
    }
    call.complete(rpc::AcceptStat::Success);
    return service::Execution::Started;
  }

 private:
  service::Binding binding_{.program = kProgram, .version = 1, .procedures = kProcedures};
  rdma::MemoryRegion memory_;
};

TEST(MessagePath, V1_021_nothing_is_allocated_after_start) {
  const auto fabric = rdma::loopback::Fabric::in_process({.links = 2});
  const auto server_device = rdma::loopback::make_device(fabric, {.name = "server"});
  const auto client_device = rdma::loopback::make_device(fabric, {.name = "client"});
  EngineConfig config;
  config.max_connections = 1;
  Engine server(*server_device, config);
  Program program(*server_device);
  server.add_service(program);
  config.capacity.requests = 32;
  Engine client(*client_device, config);
  Requester requester(client.requester_context(), *client_device, {.requests = 64, .credits_requested = 32});

  auto& server_cm = *server_device->connection_manager();
  auto& client_cm = *client_device->connection_manager();
  server_cm.listen(1);
  auto qp = client_device->create_queue_pair(client.queue_pair_limits());
  auto& client_qp = *qp;
  Connection* connection = client.free_connection();
  connection->open(std::move(qp), {.credit_grant = 0, .credits_requested = 32, .active = true}, {},
                   &requester);
  ASSERT_TRUE(client_cm.connect(client_qp, 1, {}));
  for (int i = 0; i < 100 && !requester.connected(); ++i) {
    rdma::CmEvent event;
    if (server_cm.poll_events({&event, 1}) == 1 && event.type == rdma::CmEventType::ConnectRequest) {
      auto server_qp = server_device->create_queue_pair(server.queue_pair_limits());
      auto& accepted = *server_qp;
      server.free_connection()->open(std::move(server_qp), {}, event.peer_address, nullptr);
      server_cm.accept(event.id, accepted, {});
    }
    if (client_cm.poll_events({&event, 1}) == 1 && event.type == rdma::CmEventType::Established)
      connection->established();
  }
  ASSERT_TRUE(requester.connected());

  const rdma::MemoryRegion memory = client_device->allocate_memory(8192);
  std::byte payloads[3][44];
  for (std::uint32_t p = 0; p < 3; ++p) {
    xdr::Writer writer(payloads[p]);
    rpc::encode_call(writer,
                     {.program = kProgram, .version = 1, .procedure = p, .credential = {}, .verifier = {}});
    writer.u32(4096);
  }
  struct Tally {
    std::uint64_t ok = 0;
    std::uint64_t other = 0;
  } tally;
  const rdma::Sge piece{memory.bytes.data(), 4096, memory.lkey};
  const ReadItem read{Position{44}, {&piece, 1}};
  const WriteItem write{{&piece, 1}};
  std::uint64_t submitted = 0;
  const auto run = [&](std::uint64_t calls) {
    const std::uint64_t target = submitted + calls;
    while (tally.ok + tally.other < target) {
      while (submitted < target && requester.free_requests() > 0) {
        const std::uint64_t shape = submitted % 5;
        const std::size_t procedure = shape == 1 ? 1 : shape == 2 || shape == 3 ? 2 : 0;
        Request request{.payload = std::span(payloads[procedure]).first(procedure == 1 ? 44u : 40u),
                        .max_reply_bytes = shape == 3 ? 5000u : 64u,
                        .as_long_call = shape == 4,
                        .completion =
                            [](void* context, const Reply& reply) noexcept {
                              auto& t = *static_cast<Tally*>(context);
                              ++(reply.status() == CallStatus::Ok ? t.ok : t.other);
                            },
                        .context = &tally};
        if (shape == 1) request.reads = {&read, 1};
        if (shape == 2) request.writes = {&write, 1};
        if (!requester.submit(request)) break;
        ++submitted;
      }
      client.poll(1);
      server.poll(1);
    }
  };
  run(1000);
  const std::uint64_t before = service::test::allocations();
  run(20000);
  EXPECT_EQ(service::test::allocations() - before, 0u);
  EXPECT_EQ(tally.ok, 21000u);
  EXPECT_GT(server.counters().rdma_reads, 0u);
  EXPECT_GT(server.counters().rdma_writes, 0u);
}

}  // namespace
}  // namespace sluice::rpcrdma
