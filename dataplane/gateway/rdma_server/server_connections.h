// SPDX-License-Identifier: Apache-2.0
//
// Assigns connections to the server to clients that have calls. A client without calls keeps its connection,
// for the server's own calls, until another client waits for one. Then the connection that has been idle
// longest is reassigned. If all connections are in use, they are drained one after another. Callable only on
// the owning reactor. Never allocates after construction.
#pragma once

#include <cstdint>
#include <vector>

#include "dataplane/base/fixed_containers.h"
#include "dataplane/base/intrusive_lists.h"
#include "dataplane/base/owned.h"
#include "dataplane/base/small_algorithms.h"
#include "dataplane/gateway/rdma_server/server_connection.h"
#include "dataplane/gateway/rdma_server/server_user.h"

namespace sluice::rdma_server {

/// Minimum time in nanoseconds that a client keeps its connection, and the interval at which one connection
/// is drained while all are in use.
inline constexpr std::uint64_t kTurnNs = 1'000'000'000;

class ServerConnections {
 public:
  /// Setup only.
  ServerConnections(ServerSide& side, rpcrdma::Engine& engine, std::uint32_t count);

  /// Sets the number of connections to use, which is raised to 1 or lowered to the number that was allocated.
  /// Surplus connections are drained one after another.
  void set_limit(std::uint32_t limit) noexcept {
    limit_ = smaller_of(larger_of(limit, 1u), static_cast<std::uint32_t>(connections_.size()));
  }
  /// Returns the number of connections that are assigned or not closed yet.
  std::uint32_t in_use() const noexcept {
    return static_cast<std::uint32_t>(connections_.size() - free_.size());
  }
  /// Returns a connection, or null after queueing the client, which then gets one through
  /// ServerUser::on_lent().
  ServerConnection* take(ServerUser& client) noexcept;
  /// Removes the client from the queue of waiting clients.
  void forget(ServerUser& client) noexcept;
  /// Returns the connection of a client without calls.
  void give_back(ServerConnection& connection) noexcept;

  // Called by the connections.
  void on_busy(ServerConnection& connection) noexcept { idle_.remove(connection); }
  void on_idle(ServerConnection& connection) noexcept { idle_.push_back(connection); }

  /// Drains all connections because the server's address has changed. Connections assigned from now on use
  /// the new address.
  void move() noexcept;
  void tick(std::uint64_t now_ns) noexcept;
  std::uint32_t connected() const noexcept;
  /// Returns the number of connections that have calls but are not connected.
  std::uint32_t connecting() const noexcept;
  std::uint32_t outstanding() const noexcept;

 private:
  bool may_assign() const noexcept { return !free_.empty() && in_use() < limit_; }
  /// Returns how many connections have to be returned, for waiting clients and because of the limit.
  std::uint32_t needed() const noexcept {
    return wanted_count_ + (in_use() > limit_ ? in_use() - limit_ : 0);
  }
  ServerConnection& assign(ServerUser& client) noexcept;
  void collect_returned() noexcept;
  void return_moving() noexcept;
  void take_idle(std::uint64_t now_ns) noexcept;
  void ask_to_yield(std::uint64_t now_ns) noexcept;
  void stop_yielding() noexcept;

  ServerSide& side_;
  std::uint32_t limit_;  ///< maximum number of connections in use
  std::vector<Owned<ServerConnection>> connections_;
  FixedStack<ServerConnection*> free_;
  IntrusiveQueue<ServerUser, &ServerUser::wanted_link> wanted_;
  std::uint32_t wanted_count_ = 0;
  std::uint32_t returned_count_ = 0;                                     ///< still closing
  IntrusiveQueue<ServerConnection, &ServerConnection::idle_link> idle_;  ///< longest idle at the front
  bool yielding_ = false;                                                ///< some connection yields
  std::uint64_t asked_ns_ = 0;
};

}  // namespace sluice::rdma_server
