// SPDX-License-Identifier: Apache-2.0
//
// RPC-over-RDMA on one device for one thread: a reactor's, or a client's. Owns the connections and what they
// share.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "dataplane/base/object_array.h"
#include "dataplane/base/paced_round.h"
#include "dataplane/base/stage_times.h"
#include "dataplane/rpcrdma/connection.h"

namespace sluice::rpcrdma {

struct EngineConfig {
  std::uint32_t max_connections = 64;
  ConnectionCapacity capacity;
  std::uint32_t call_buffers = 16;
  std::uint32_t call_buffer_bytes = (1u << 20) + (64u << 10);  ///< longest assembled call
  std::uint32_t reply_buffers = 16;
  std::uint32_t reply_buffer_bytes = 128u << 10;  ///< longest reply without eligible items
  std::uint32_t assembly_buffers = 8;             ///< version 2: continued messages that come in at once
  /// Of the buffers for short ones of all these, of which each connection has its share; zero: none.
  std::uint32_t small_buffer_bytes = 0;
  std::uint32_t lent_call_buffers = kLentSmall;  ///< of the short ones for assembled calls
  std::uint32_t callers = 0;                     ///< connections that may be called back at a time
};

/// Calls in the reverse direction that one connection may have waiting, and outstanding if the peer grants
/// as many.
inline constexpr std::uint32_t kCallBacksAtOnce = 8;
inline constexpr std::uint32_t kCallBackBytes = 4096;  ///< of the longest

/// Small assembly buffers of each connection: the answer to host authentication is made while the other
/// side's is still held.
inline constexpr std::uint32_t kGuaranteedAssembly = 2;

/// Work completions taken from the device in one turn.
inline constexpr std::size_t kCompletionsPerTurn = 64;

class Engine {
 public:
  /// Setup: allocates and registers everything there will ever be. Throws SetupError, also if a pool is too
  /// small for any call.
  Engine(rdma::Device& device, const EngineConfig& config);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  rdma::Device& device() noexcept { return device_; }
  const EngineConfig& config() const noexcept { return config_; }
  /// Setup. The service has to outlive the engine.
  void add_service(service::Service& service, std::uint32_t port = 0) {
    responders_.services.add(service, port);
  }
  /// Of those that were added; lives as long as the engine.
  service::ServicePorts& service_ports() noexcept { return responders_.services; }
  const std::vector<service::Service*>& services() const noexcept { return responders_.services.all(); }
  /// For requesters, which share memory and counters with the connections that they are attached to.
  RequesterContext requester_context() noexcept { return RequesterContext(links_); }

  // --- Measurement
  /// Setup, when all services are there: calls are counted and timed in `table` from here on.
  void measure(segment::CallTable& table, Clock clock) {
    responders_.services.describe(table);
    responders_.measurement.times.measure(table, clock);
    stages_.measure(clock);
  }
  /// Those of the loop that this engine is polled in.
  StageTimes& stages() noexcept { return stages_; }
  /// Setup: calls of connections that are traced are noted in `trace`, which has to outlive the engine.
  void set_trace(segment::TraceRing& trace) noexcept { responders_.measurement.trace = &trace; }
  /// Setup: where calls are noted that take long. The ring has to outlive the engine.
  void set_slow_calls(segment::SlowCallRing& ring, Clock wall_clock) noexcept {
    responders_.measurement.slow_calls = &ring;
    responders_.measurement.wall_clock = wall_clock;
  }
  /// Any thread, after set_slow_calls(): how long; zero: none is noted.
  void set_slow_call_ns(std::uint64_t ns) noexcept {
    responders_.measurement.slow_ns.store(ns != 0 ? ns : CallMeasurement::kNever, std::memory_order_relaxed);
  }
  Counters& counters(std::uint32_t client_class = 0) noexcept { return links_.counters.of(client_class); }
  /// Classes below this one have had a connection.
  std::uint32_t classes_seen() const noexcept { return links_.counters.seen(); }
  /// Call slots of all connections, by CallSlot::State.
  std::uint32_t slots_in_state(std::size_t state) const noexcept {
    return responders_.measurement.slots_in_state[state];
  }

  // --- Memory: what is out of buffers, and who waits
  SharedMemory& call_memory() noexcept { return responders_.memory.calls; }
  SharedMemory& reply_memory() noexcept { return responders_.memory.replies; }
  SharedMemory& assembly_memory() noexcept { return links_.assembly; }
  bool calls_await_memory() const noexcept { return responders_.memory.calls.awaited(); }
  bool replies_await_memory() const noexcept { return responders_.memory.replies.awaited(); }
  bool messages_await_assembly() const noexcept { return links_.assembly.awaited(); }
  // For tests; linear in connections.
  bool all_closed() const noexcept;
  /// Of an engine whose connections are all_closed(): every buffer, slot and lent requester is back.
  bool memory_balanced() const noexcept;

  /// A connection that may be opened, or null when all are in use: refuse the peer, and count. It is the next
  /// one until it is opened.
  Connection* free_connection() noexcept { return free_.front(); }
  Connection& connection(std::uint16_t number) noexcept { return connections_[number]; }
  std::uint32_t connection_count() const noexcept { return static_cast<std::uint32_t>(connections_.size()); }
  rdma::QueuePairLimits queue_pair_limits() const noexcept;

  /// One turn: RX completions, waiting calls, TX. `now_ns` is monotonic. Returns the work completions
  /// handled.
  std::size_t poll(std::uint64_t now_ns) noexcept;
  /// Whether the last poll() did anything: handled completions, moved data, or handed work requests to the device.
  bool worked() const noexcept { return worked_; }

  /// Connections that have become Closed since the last call, one at a time; null when there are none.
  Connection* take_closed() noexcept;

 private:
  void handle(std::span<const rdma::WorkCompletion> completions) noexcept;
  void handle_sampled(std::span<const rdma::WorkCompletion> completions) noexcept;
  void tick(std::uint32_t connections) noexcept;
  void end_turn() noexcept;

  rdma::Device& device_;
  const EngineConfig config_;
  LinkContext links_;
  ResponderContext responders_;
  ReverseCallers callers_;
  ObjectArray<Connection> connections_;
  ConnectionQueue free_;
  ConnectionQueue closed_;  ///< that take_closed() has not given yet
  StageTimes stages_;
  bool worked_ = false;
  static constexpr std::uint64_t kTickNs = 1'000'000;
  PacedRound ticks_{kTickNs};
  std::size_t next_ticked_ = 0;
  alignas(kCacheLine) std::array<rdma::WorkCompletion, kCompletionsPerTurn> completions_;
};

}  // namespace sluice::rpcrdma
