// SPDX-License-Identifier: Apache-2.0
//
// A server over the loopback driver that its caller polls. One thread.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "cli/bench/client.h"
#include "dataplane/service/api/null.h"
#include "pmd/loopback/loopback.h"

namespace sluice::bench {

struct PolledServerConfig {
  std::string name = "server";
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
  /// Polls a server, for ClientOfThread.
  static void poll_all_of(void* server) {
    static_cast<PolledServer*>(server)->poll_cm();
    static_cast<PolledServer*>(server)->poll();
  }

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

/// A client of servers that the same thread polls. Its constructor connects, for which it polls the servers
/// whenever it polls connection management.
class ClientOfThread {
 public:
  using PollServers = void (*)(void* context);

  /// `poll_servers` polls the servers and accepts their connections.
  ClientOfThread(std::shared_ptr<rdma::loopback::Fabric> fabric, const ClientConfig& config,
                 PollServers poll_servers, void* context)
      : device_(rdma::loopback::make_device(std::move(fabric), {.name = "client"})),
        manager_(*device_->connection_manager(), poll_servers, context),
        client_(*device_, manager_, config) {
    manager_.leave_servers();
  }

  rdma::Device& device() { return *device_; }
  Client& client() { return client_; }

 private:
  class Manager final : public rdma::ConnectionManager {
   public:
    Manager(rdma::ConnectionManager& real, PollServers poll_servers, void* context)
        : real_(real), poll_servers_(poll_servers), context_(context) {}
    /// Stops polling the servers.
    void leave_servers() noexcept { poll_servers_ = nullptr; }

    void listen(std::uint16_t port) override { real_.listen(port); }
    std::optional<rdma::CmId> connect(rdma::QueuePair& qp, std::uint16_t port,
                                      std::span<const std::byte> private_data) noexcept override {
      return real_.connect(qp, port, private_data);
    }
    bool accept(rdma::CmId id, rdma::QueuePair& qp,
                std::span<const std::byte> private_data) noexcept override {
      return real_.accept(id, qp, private_data);
    }
    void reject(rdma::CmId id, std::span<const std::byte> private_data) noexcept override {
      real_.reject(id, private_data);
    }
    void disconnect(rdma::CmId id) noexcept override { real_.disconnect(id); }
    std::size_t poll_events(std::span<rdma::CmEvent> events) noexcept override {
      if (poll_servers_ != nullptr) poll_servers_(context_);
      return real_.poll_events(events);
    }

   private:
    rdma::ConnectionManager& real_;
    PollServers poll_servers_;
    void* context_;
  };

  std::unique_ptr<rdma::loopback::Loopback> device_;
  Manager manager_;
  Client client_;
};

}  // namespace sluice::bench
