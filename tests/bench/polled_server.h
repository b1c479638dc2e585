// SPDX-License-Identifier: Apache-2.0
//
// A server over the loopback driver that its caller polls. One thread.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <utility>

#include "cli/bench/client.h"
#include "dataplane/service/api/null.h"
#include "pmd/loopback/loopback.h"

namespace sluice::bench {

struct PolledServerConfig {
  const char* name = "server";
  std::uint16_t port = 20049;
  std::uint16_t connections = 2;
  std::uint32_t call_slots = 128;  ///< per connection
};

class PolledServer {
 public:
  PolledServer(std::shared_ptr<rdma::loopback::Fabric> fabric, const PolledServerConfig& config)
      : config_(config),
        device_(rdma::loopback::make_device(std::move(fabric), {.name = config.name})),
        engine_(*device_, engine_config(config)) {
    engine_.add_service(null_);
  }

  rdma::loopback::Loopback& device() noexcept { return *device_; }
  /// Returns the engine, for additional services before start().
  rpcrdma::Engine& engine() noexcept { return engine_; }
  /// Starts listening. Measures calls and stages with `clock`, like the data plane.
  void start(Clock clock) {
    engine_.measure(*calls_, clock);
    device_->connection_manager()->listen(config_.port);
  }

  void poll() noexcept { engine_.poll(now_ns_); }
  /// Lets another thread poll from now on.
  void pass_on() noexcept { engine_.pass_on(); }
  /// Accepts pending connections.
  void poll_cm() {
    now_ns_ = now_ns();
    std::array<rdma::CmEvent, 4> events;
    const std::size_t count = device_->connection_manager()->poll_events(events);
    for (const auto& event : std::span(events).first(count))
      if (event.type == rdma::CmEventType::ConnectRequest) accept(event);
  }
  std::uint64_t time_ns() const noexcept { return now_ns_; }

 private:
  static rpcrdma::EngineConfig engine_config(const PolledServerConfig& of) {
    rpcrdma::EngineConfig config;
    config.max_connections = of.connections;
    config.capacity.call_slots = of.call_slots;
    return config;
  }
  void accept(const rdma::CmEvent& event) {
    auto qp = device_->create_queue_pair(engine_.queue_pair_limits());
    auto& queue_pair = *qp;
    engine_.free_connection()->open(
        std::move(qp),
        {.send_inline_bytes = 4096, .credit_grant = config_.call_slots, .max_version = rpcrdma::v2::kVersion},
        event.peer_address, nullptr);
    device_->connection_manager()->accept(
        event.id, queue_pair, rpcrdma::encode_private_data({.send_bytes = 4096, .receive_bytes = 4096}));
  }

  const PolledServerConfig config_;
  std::unique_ptr<segment::CallTable> calls_ = std::make_unique<segment::CallTable>();
  std::unique_ptr<rdma::loopback::Loopback> device_;
  rpcrdma::Engine engine_;
  service::NullService null_;
  std::uint64_t now_ns_ = now_ns();
};

/// Connects a client to servers that this thread polls. The client's constructor waits for its connections,
/// so another thread polls the servers until it returns. Then `pass_on` lets this thread poll them.
template <typename PollServers, typename PassOn>
std::unique_ptr<Client> connect_to(rdma::Device& device, const ClientConfig& config,
                                   const PollServers& poll_servers, const PassOn& pass_on) {
  std::atomic<bool> connected{false};
  std::thread servers([&] {
    while (!connected) {
      poll_servers();
      std::this_thread::yield();  // lets the client's thread run where threads are serialized (a tracer)
    }
  });
  auto client = std::make_unique<Client>(device, *device.connection_manager(), config);
  connected = true;
  servers.join();
  pass_on();
  return client;
}

}  // namespace sluice::bench
