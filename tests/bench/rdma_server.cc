// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/rdma_server.h"

#include "tests/bench/rate.h"
#include "tests/bench/worker.h"

namespace sluice::bench {
namespace {

constexpr std::uint32_t kCredits = 128;

rpcrdma::EngineConfig engine_config() {
  rpcrdma::EngineConfig config;
  config.max_connections = 4;
  config.capacity.call_slots = kCredits;
  config.capacity.requests = rpcrdma::kCallBacksAtOnce;
  return config;
}

}  // namespace

RdmaServer::RdmaServer(std::shared_ptr<rdma::loopback::Fabric> fabric, const ForwardedShape& shape)
    : device_(rdma::loopback::make_device(std::move(fabric), {.name = "server"})),
      engine_(*device_, engine_config()),
      reads_(*device_, shape.data_bytes) {
  engine_.add_service(reads_);
  device_->connection_manager()->listen(kRdmaServerPort);
  thread_ = std::thread([this] { run(); });
}

RdmaServer::~RdmaServer() {
  stop_ = true;
  thread_.join();
}

/// Returns status, no attributes, count, end of file, data.
service::Execution RdmaServer::Reads::execute(service::Call& call) noexcept {
  const auto bytes = static_cast<std::uint32_t>(data_.bytes.size());
  call.results().words(0, 0, bytes, 1, bytes);
  call.add_result_piece({const_cast<std::byte*>(data_.bytes.data()), bytes, data_.lkey});
  call.add_result_item(bytes);
  call.complete(rpc::AcceptStat::Success);
  return service::Execution::Started;
}

void RdmaServer::run() {
  pin(kUpstreamCpu);
  for (std::uint64_t turn = 0; !stop_.load(std::memory_order_relaxed); ++turn) {
    if (turn % 64 == 0) accept();
    engine_.poll(now_ns());
  }
}

void RdmaServer::accept() {
  rdma::ConnectionManager& cm = *device_->connection_manager();
  rdma::CmEvent events[4];
  for (const rdma::CmEvent& event : std::span(events, cm.poll_events(events))) {
    if (event.type != rdma::CmEventType::ConnectRequest) continue;
    rpcrdma::Connection& accepted = *engine_.free_connection();
    accepted.open(device_->create_queue_pair(engine_.queue_pair_limits()),
                  {.send_inline_bytes = 4096, .credit_grant = kCredits}, event.peer_address, nullptr);
    cm.accept(event.id, accepted.queue_pair(), {});
    accepted.established();
  }
}

}  // namespace sluice::bench
