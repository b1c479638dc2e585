// SPDX-License-Identifier: Apache-2.0
//
// RPC-over-RDMA on one device for one thread, which is a reactor or a client. The engine owns the connections
// and their shared resources.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "dataplane/base/cache_line.h"
#include "dataplane/base/clock.h"
#include "dataplane/base/thread_owner.h"
#include "dataplane/rpcrdma/connection.h"

namespace sluice::rpcrdma {

struct EngineConfig {
  std::uint32_t max_connections = 64;
  ConnectionCapacity capacity;
  std::uint32_t call_buffers = 16;
  std::uint32_t call_buffer_bytes = (1u << 20) + (64u << 10);  ///< longest assembled call
  std::uint32_t reply_buffers = 16;
  std::uint32_t reply_buffer_bytes = 128u << 10;  ///< longest reply without eligible items
  std::uint32_t assembly_buffers = 8;             ///< version 2: continued messages received concurrently
  /// Size of the small buffers of these three pools, of which each connection is guaranteed a share. Zero: no
  /// small buffers.
  std::uint32_t small_buffer_bytes = 0;
  std::uint32_t lent_call_buffers = kLentSmall;  ///< small call buffers beyond the guaranteed ones
  /// Connections that can have calls in the reverse direction concurrently.
  std::uint32_t callers = 0;
};

/// Calls in the reverse direction that one connection may have queued, or outstanding if the peer grants as
/// many credits.
inline constexpr std::uint32_t kCallBacksAtOnce = 8;
inline constexpr std::uint32_t kCallBackBytes = 4096;  ///< longest call in the reverse direction

/// Small assembly buffers guaranteed to each connection. Two are required because the answer to host
/// authentication is built while the peer's message is still held.
inline constexpr std::uint32_t kGuaranteedAssembly = 2;

/// Work completions polled from the device per loop iteration.
inline constexpr std::size_t kCompletionsPerTurn = 64;

class Engine {
 public:
  /// Allocates and registers all memory at setup. Throws SetupError, also if a pool is too small for a single
  /// call.
  Engine(rdma::Device& device, const EngineConfig& config);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  rdma::Device& device() noexcept { return device_; }
  const EngineConfig& config() const noexcept { return config_; }
  /// Registers a service at setup. The service must outlive the engine.
  void add_service(service::Service& service, std::uint32_t port = 0) {
    responders_.services.add(service, port);
  }
  /// Counts calls by procedure for a program that may be served later. Called at setup, before measure().
  void add_later(const service::Binding& binding) { responders_.services.add_later(binding); }
  /// Returns the registry for services that change while calls are served. It lives as long as the engine.
  service::ServiceRegistry& registry() noexcept { return responders_.services; }
  const std::vector<service::Service*>& services() const noexcept { return responders_.services.all(); }
  /// Returns the context for requesters, which share memory and counters with the connections they are
  /// attached to.
  RequesterContext requester_context() noexcept { return RequesterContext(links_); }

  // --- Measurement
  /// Counts and times calls in `table` from now on. Called at setup, after all services have been added.
  void measure(segment::CallTable& table, Clock clock) {
    responders_.services.describe(table);
    responders_.measurement.times.measure(table, clock);
    stages_.measure(clock);
  }
  /// Returns the stage times of the event loop that polls this engine.
  StageTimes& stages() noexcept { return stages_; }
  /// Sets the ring that records calls of traced connections. Called at setup; `trace` must outlive the
  /// engine.
  void set_trace(segment::TraceRing& trace) noexcept { responders_.measurement.trace = &trace; }
  /// Sets the ring that records slow calls. Called at setup; the ring must outlive the engine.
  void set_slow_calls(segment::SlowCallRing& ring, Clock wall_clock) noexcept {
    responders_.measurement.slow_calls = &ring;
    responders_.measurement.wall_clock = wall_clock;
  }
  /// Sets the duration from which a call is slow; zero records no calls. Called from any thread, after
  /// set_slow_calls().
  void set_slow_call_ns(std::uint64_t ns) noexcept {
    responders_.measurement.slow_ns.store(ns != 0 ? ns : CallMeasurement::kNever, std::memory_order_relaxed);
  }
  Counters& counters(std::uint32_t client_class = 0) noexcept { return links_.counters.of(client_class); }
  /// Returns one more than the highest client class that has had a connection.
  std::uint32_t classes_seen() const noexcept { return links_.counters.seen(); }
  /// Returns the number of call slots in `state`, a CallSlot::State, over all connections.
  std::uint32_t slots_in_state(std::size_t state) const noexcept {
    return responders_.measurement.slots_in_state[state];
  }

  // --- Memory: pools, and whether anything waits for them
  SharedMemory& call_memory() noexcept { return responders_.memory.calls; }
  SharedMemory& reply_memory() noexcept { return responders_.memory.replies; }
  SharedMemory& assembly_memory() noexcept { return links_.assembly; }
  bool calls_await_memory() const noexcept { return responders_.memory.calls.awaited(); }
  bool replies_await_memory() const noexcept { return responders_.memory.replies.awaited(); }
  bool messages_await_assembly() const noexcept { return links_.assembly.awaited(); }
  // Test support. Linear in the number of connections.
  bool all_closed() const noexcept;
  /// Returns true if all buffers, slots and reverse callers have been returned. Requires all_closed().
  bool memory_balanced() const noexcept;

  /// Returns a connection that may be opened, or null if all are in use; the caller then rejects the peer and
  /// counts it. Returns the same connection until it is opened.
  Connection* free_connection() noexcept { return free_.front(); }
  Connection& connection(std::uint16_t number) noexcept { return connections_[number]; }
  std::uint32_t connection_count() const noexcept { return static_cast<std::uint32_t>(connections_.size()); }
  rdma::QueuePairLimits queue_pair_limits() const noexcept;

  /// Lets another thread become the owner of the engine and its device, with its next poll(). Requires that
  /// no thread calls.
  void pass_on() noexcept;
  /// Runs one loop iteration: RX completions, waiting calls, TX. `now_ns` is monotonic. Returns the number of
  /// work completions handled.
  std::size_t poll(std::uint64_t now_ns) noexcept;
  /// Returns true if the last poll() handled completions, moved data, or handed work requests to the device.
  bool worked() const noexcept { return worked_; }

  /// Returns the next connection that has become Closed since the last call, or null if there is none.
  Connection* take_closed() noexcept;

 private:
  /// Dispatches completions. The connection number in the work request identifier is enough to find the
  /// connection.
  [[gnu::always_inline]] void handle(std::span<const rdma::WorkCompletion> completions) noexcept {
    const auto connections = connections_.base();
    for (const rdma::WorkCompletion& completion : completions)
      connections[WrId::decode(completion.wr_id).connection].on_completion(completion);
  }
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
  ConnectionQueue closed_;  ///< closed, not yet returned by take_closed()
  StageTimes stages_;
  bool worked_ = false;
  static constexpr std::uint64_t kTickNs = 1'000'000;
  PacedRound ticks_{kTickNs};
  std::size_t next_ticked_ = 0;
  ThreadOwner owner_;  ///< thread that polls
  alignas(kCacheLine) std::array<rdma::WorkCompletion, kCompletionsPerTurn> completions_;
};

}  // namespace sluice::rpcrdma
