// SPDX-License-Identifier: Apache-2.0
//
// A gateway's side towards one RPC-over-RDMA server: the connections, which are assigned to clients that have
// calls, and the memory for calls and replies. Each client has its own connection, because servers bind
// state, callbacks and XIDs to the connection. XIDs are preserved for the server's duplicate request cache
// and for RPCSEC_GSS, which signs them.
//
// Calls carry Read chunks for eligible arguments (RFC 8267), Write chunks for the data that they request,
// and, if the reply may be long, a Reply chunk or, in version 2, continued messages.
//
// Callable only on the owning reactor; the constructor is for setup.
//
// Calls are sent with Read chunks for eligible arguments (RFC 8267), with Write chunks for the data that they
// request, and, where the reply may be long, with a Reply chunk or, in version 2, as continued messages.
//
// Only the owning reactor may call; the constructor is setup.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "dataplane/base/clock.h"
#include "dataplane/base/fixed_containers.h"
#include "dataplane/base/last_value.h"
#include "dataplane/gateway/rdma_server/dialer.h"
#include "dataplane/gateway/rdma_server/server_connections.h"
#include "dataplane/rpcrdma/engine.h"
#include "dataplane/service/api/binding.h"
#include "dataplane/tcp/record_stream.h"
#include "dataplane/ulb/nfs4_comparisons.h"
#include "pmd/buffer_pool.h"

namespace sluice::rdma_server {

struct ServerSideConfig {
  std::uint32_t connections = 16;  ///< connections to the server
  std::uint32_t calls = 64;        ///< outstanding calls per connection; a power of two
  std::uint32_t inline_bytes = 4096;
  std::uint32_t record_buffers = 32;
  std::uint32_t item_buffers = 256;
  std::uint32_t max_io_bytes = tcp::kMaxDataBytes;  ///< maximum data bytes of one READ or WRITE
  /// Longest segment in the pool of each connection, on a device without memory windows; zero: no pool.
  std::uint32_t pool_segment_bytes = 0;
  std::uint64_t call_timeout_ns =
      0;  ///< a call without a reply for this long disconnects its client; zero: never
  service::Withheld withheld{};

  /// Returns the size of the longest message, and of each of `record_buffers`.
  std::uint32_t record_bytes() const noexcept { return tcp::record_bytes(max_io_bytes); }
  /// Returns the limits for data and messages that the gateway carries to the server.
  service::CarriedSizes carried() const noexcept {
    return {.data_bytes = max_io_bytes, .message_bytes = record_bytes()};
  }
};

/// Counters of this side. Another component owns them; this side is their only writer.
struct ServerCounters {
  using Counter = std::atomic<std::uint64_t>;
  Counter& calls;                ///< calls submitted
  Counter& probes;               ///< NULL calls sent to a silent server
  Counter& resets;               ///< connections replaced because of silence
  Counter& retransmissions;      ///< retransmission timers that expired
  Counter& dials;                ///< connections started
  Counter& dials_failed;         ///< connections not started because resources or the server's address were
                                 ///< missing
  Counter& disconnects;          ///< connections that ended or failed while assigned
  Counter& taken;                ///< connections taken from idle clients for waiting ones
  Counter& unknown_operations;   ///< calls ended at an operation that the gateway does not know
  LastValue& unknown_operation;  ///< number of the last such operation
};

class ServerSide {
 public:
  /// Setup only. The references outlive this object.
  ServerSide(rpcrdma::Engine& engine, Dialer& dialer, const ServerSideConfig& config,
             const ServerCounters& counters, Clock clock);
  ServerSide(const ServerSide&) = delete;
  ServerSide& operator=(const ServerSide&) = delete;

  /// Sets the counters, which outlive their use.
  void set_counters(const ServerCounters& counters) noexcept { counters_.emplace(counters); }
  /// Forgets the server, because another one replaces it. Requires that no connection is in use.
  void forget_server() noexcept {
    server_.reset();
    compared_.forget();
  }
  /// Sets the server's address. No connection is made before the first call.
  void set_server(const Server& server) noexcept {
    server_ = server;
    compared_.forget();
    connections_.move();
  }
  /// Changes the settings that a reload can change. At least one connection remains, and at most
  /// ServerSideConfig::connections are used.
  void apply(std::uint32_t connections, std::uint64_t call_timeout_ns,
             const service::Withheld& withheld) noexcept {
    connections_.set_limit(connections);
    config_.call_timeout_ns = call_timeout_ns;
    config_.withheld = withheld;
    compared_.withhold(withheld);
  }

  // Called by the clients of the gateway.
  ServerConnections& connections() noexcept { return connections_; }
  const ServerSideConfig& config() const noexcept { return config_; }
  ulb::ComparedAttributes& compared() noexcept { return compared_; }
  /// Returns scratch memory for assembling a message of the maximum size.
  std::span<std::byte> scratch() noexcept { return {scratch_.data(), scratch_.size()}; }
  /// Returns a buffer of the smallest size that fits. Its address is null if no buffer is free.
  PoolBuffer acquire_buffer(std::size_t bytes) noexcept;
  void release_buffer(PoolBuffer& buffer) noexcept;
  std::size_t bytes_of(const PoolBuffer& buffer) const noexcept {
    return (buffer.is_record ? records_ : items_).buffer_bytes();
  }
  rdma::Lkey record_lkey() const noexcept { return records_.lkey(); }
  rdma::Lkey lkey(const PoolBuffer& buffer) const noexcept {
    return (buffer.is_record ? records_ : items_).lkey();
  }
  std::uint64_t now_ns() const noexcept { return clock_(); }
  /// Returns true once after each release of a resource that a waiting client may need.
  bool take_released() noexcept { return std::exchange(released_, false); }
  /// Counts a call that was ended at an operation with this number, which the gateway does not know.
  void note_unknown_operation(std::uint32_t number) noexcept {
    count(counters().unknown_operations);
    counters().unknown_operation.note(number);
  }

  void tick(std::uint64_t now_ns) noexcept { connections_.tick(now_ns); }

  // Called by the connections.
  rpcrdma::Connection* dial(ServerConnection& connection, rpcrdma::Requester& requester) noexcept;
  void hang_up(rpcrdma::Connection& connection, rpcrdma::CloseReason reason) noexcept {
    dialer_.hang_up(connection, reason);
  }
  /// Unbinds the connection from `server`. No effect if the connection is bound to another server connection
  /// by now.
  void unbind(const rpcrdma::Connection& connection, const ServerConnection& server) noexcept {
    ServerConnection*& owner = by_connection_[connection.number()];
    if (owner == &server) owner = nullptr;
  }
  /// Returns the protection domain of the connections to the server.
  rdma::ProtectionDomain domain() const noexcept { return domain_; }
  const ServerCounters& counters() const noexcept { return *counters_; }
  static void count(std::atomic<std::uint64_t>& counter) noexcept {
    counter.store(counter.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }
  void note_release() noexcept { released_ = true; }

 private:
  /// Receives the server's calls of any program and forwards them to the client that the connection is
  /// assigned to (RFC 8167).
  class Callee final : public service::Service {
   public:
    explicit Callee(ServerSide& side) : side_(side) {}
    const service::Binding& binding() const noexcept override { return binding_; }
    service::Execution execute(service::Call& call) noexcept override;
    void client_gone(service::Client& client) noexcept override;

   private:
    ServerSide& side_;
    const service::Binding binding_{.unusable = service::UnusableChunks::Ignore, .name = "callback"};
  };

  ServerUser* user_of(const service::Client& connection) const noexcept;

  ServerSideConfig config_;  ///< changed by apply()
  ulb::ComparedAttributes compared_{config_.carried(), config_.withheld};
  Dialer& dialer_;
  std::optional<ServerCounters> counters_;  ///< always has a value
  const Clock clock_;
  std::optional<Server> server_;
  const rdma::ProtectionDomain domain_;
  Callee callee_{*this};
  rdma::BufferPool records_;
  rdma::BufferPool items_;
  FixedArray<std::byte> scratch_;
  ServerConnections connections_;
  std::vector<ServerConnection*> by_connection_;  ///< by number of the engine's connection; null: none
  bool released_ = false;
};

}  // namespace sluice::rdma_server
