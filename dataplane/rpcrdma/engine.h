// SPDX-License-Identifier: Apache-2.0
//
// RPC-over-RDMA on one device for one thread: a reactor's, or a client's. Owns the connections and what they
// share.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "dataplane/rpcrdma/connection.h"

namespace sluice::rpcrdma {

struct EngineConfig {
  std::uint32_t max_connections = 64;
  ConnectionCapacity capacity;
  std::uint32_t call_buffers = 8;
  std::uint32_t call_buffer_bytes = (1u << 20) + (64u << 10);  ///< longest assembled call
  std::uint32_t reply_buffers = 16;
  std::uint32_t reply_buffer_bytes = 128u << 10;  ///< longest reply without eligible items
  std::uint32_t assembly_buffers = 8;             ///< version 2: continued messages that come in at once
  std::uint32_t callers = 0;                      ///< connections that may be called back at a time
};

/// Calls in the reverse direction that one connection may have waiting, and outstanding if the peer grants
/// as many.
inline constexpr std::uint32_t kCallBacksAtOnce = 8;
inline constexpr std::uint32_t kCallBackBytes = 4096;  ///< of the longest

/// Work completions taken from the device in one turn.
inline constexpr std::size_t kCompletionsPerTurn = 64;

class Engine {
 public:
  /// Setup: allocates and registers everything there will ever be.
  Engine(rdma::Device& device, const EngineConfig& config);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  rdma::Device& device() noexcept { return device_; }
  Shared& shared() noexcept { return shared_; }
  Counters& counters(std::uint32_t client_class = 0) noexcept { return shared_.counters[client_class]; }
  const EngineConfig& config() const noexcept { return config_; }
  /// Setup. The service has to outlive the engine.
  void add_service(service::Service& service) { shared_.services.add(service); }
  /// Setup, when all services are there: calls are counted and timed in `table` from here on.
  void measure(segment::CallTable& table, Clock clock) {
    shared_.services.describe(table);
    shared_.call_times.measure(table, clock);
  }

  /// A connection that may be opened, or null when all are in use: refuse the peer, and count.
  Connection* free_connection() noexcept;
  Connection& connection(std::uint16_t number) noexcept { return *connections_[number]; }
  std::uint32_t connection_count() const noexcept { return static_cast<std::uint32_t>(connections_.size()); }
  rdma::QueuePairLimits queue_pair_limits() const noexcept;

  /// One turn: RX completions, waiting calls, TX. `now_ns` is monotonic. Returns the work completions
  /// handled.
  std::size_t poll(std::uint64_t now_ns) noexcept;

  /// Connections that have become Closed since the last call, one at a time; null when there are none.
  Connection* take_closed() noexcept;

 private:
  void resume_memory_waiters() noexcept;
  void tick(std::uint64_t now_ns) noexcept;
  void end_turn() noexcept;

  rdma::Device& device_;
  const EngineConfig config_;
  Shared shared_;
  std::vector<std::unique_ptr<Requester>> callers_;
  std::vector<std::unique_ptr<Connection>> connections_;
  std::vector<Connection*> draining_;
  std::size_t draining_count_ = 0;
  std::vector<Connection*> closed_;
  std::size_t closed_count_ = 0;
  std::uint64_t next_tick_ns_ = 0;
  std::size_t next_ticked_ = 0;
  std::array<rdma::WorkCompletion, kCompletionsPerTurn> completions_;
};

}  // namespace sluice::rpcrdma
