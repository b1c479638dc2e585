// SPDX-License-Identifier: Apache-2.0
//
// Lends the connections to the server to clients that have calls. A client keeps its connection when it has
// none, for the server's own calls, until another client waits for one: then the one that has been idle for
// longest is taken, and where all are in use, one gives way after the other. Only the owning reactor may call;
// no allocation after construction.
#pragma once

#include <cstdint>
#include <vector>

#include "dataplane/base/fixed_stack.h"
#include "dataplane/base/intrusive_queue.h"
#include "dataplane/base/owned.h"
#include "dataplane/gateway/rdma_server/server_connection.h"
#include "dataplane/gateway/rdma_server/server_user.h"

namespace sluice::rdma_server {

/// A client keeps its connection for at least this long, and while all are in use one gives way in each.
inline constexpr std::uint64_t kTurnNs = 1'000'000'000;

class ServerConnections {
 public:
  /// Setup.
  ServerConnections(ServerSide& side, rpcrdma::Engine& engine, std::uint32_t count);

  /// Null: the client is in the queue, and gets one by ServerUser::on_lent().
  ServerConnection* take(ServerUser& client) noexcept;
  /// The client does not want one any more.
  void forget(ServerUser& client) noexcept;
  /// Of a client without calls.
  void give_back(ServerConnection& connection) noexcept;

  // From the connections.
  void on_busy(ServerConnection& connection) noexcept { idle_.remove(connection); }
  void on_idle(ServerConnection& connection) noexcept { idle_.push_back(connection); }

  /// The server is elsewhere from now on, where those that are lent next go.
  void move() noexcept;
  void tick(std::uint64_t now_ns) noexcept;
  std::uint32_t connected() const noexcept;
  /// Of those with calls, how many are not connected.
  std::uint32_t connecting() const noexcept;
  std::uint32_t outstanding() const noexcept;

 private:
  ServerConnection& lend_to(ServerUser& client) noexcept;
  void collect_returned() noexcept;
  void return_moving() noexcept;
  void take_idle(std::uint64_t now_ns) noexcept;
  void ask_to_yield(std::uint64_t now_ns) noexcept;
  void stop_yielding() noexcept;

  ServerSide& side_;
  std::vector<Owned<ServerConnection>> connections_;
  FixedStack<ServerConnection*> free_;
  IntrusiveQueue<ServerUser, &ServerUser::wanted_link> wanted_;
  std::uint32_t wanted_count_ = 0;
  std::uint32_t returned_count_ = 0;                                     ///< on their way to free_
  IntrusiveQueue<ServerConnection, &ServerConnection::idle_link> idle_;  ///< since longest in front
  bool yielding_ = false;                                                ///< some connection yields
  std::uint64_t asked_ns_ = 0;
};

}  // namespace sluice::rdma_server
