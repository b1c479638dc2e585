// SPDX-License-Identifier: Apache-2.0
//
// The connections of one upstream on one reactor. The class selects the connection of each call.
//
// NFS version 4 and RPCSEC_GSS use a dedicated connection per client, because the server binds state,
// callbacks and security contexts to the connection. All other calls use a few shared connections. The short
// calls of a client are batched on one shared connection, and long calls alternate between all of them. Long
// COMPOUNDs in a session of NFS 4.1 use the shared connections too. Only the owning reactor may call; only
// the constructor allocates.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "dataplane/base/invariant.h"
#include "dataplane/base/owned.h"
#include "dataplane/gateway/tcp_upstream/upstream_connection.h"

namespace sluice::tcp_upstream {

class UpstreamConnections {
 public:
  /// Setup. `shared` outlives this object.
  explicit UpstreamConnections(UpstreamShared& shared)
      : shared_(shared),
        shared_room_(shared.config.shared_room()),
        own_(shared.config.max_clients),
        long_messages_(shared.config.max_clients) {
    const std::uint32_t total = shared.config.all_connections();
    free_.reserve(total);
    for (std::uint32_t i = 0; i < total; ++i) {
      all_.push_back(make_owned<UpstreamConnection>(shared, work));
      if (i >= shared_room_) free_.push_back(all_.back().get());
    }
  }

  /// Returns the connection for a call, or null if the client needs a dedicated connection and none is free
  /// now.
  UpstreamConnection* connection_for(const ForwardedCall& forwarded) noexcept {
    service::Client& client = *forwarded.call->client();
    const std::uint32_t number = client.number();
    SLUICE_INVARIANT_DEBUG(number < own_.size(), table_index);
    if (!forwarded.own_connection) {
      const std::uint32_t turn = forwarded.has_long_message() ? long_messages_[number] : 0;
      return all_[(number + turn) % shared_.config.connections].get();
    }
    UpstreamConnection*& own = own_[number];
    SLUICE_INVARIANT_DEBUG(own == nullptr || own->client() == &client, table_index);
    if (own != nullptr || free_.empty()) return own;
    own = free_.back();
    free_.pop_back();
    own->assign(client);
    return own;
  }
  /// Counts an admitted call on the connection that connection_for() has returned.
  void note_started(const ForwardedCall& forwarded) noexcept {
    if (!forwarded.own_connection && forwarded.has_long_message())
      ++long_messages_[forwarded.call->client()->number()];
  }
  bool any_free() const noexcept { return !free_.empty(); }
  void client_gone(std::uint16_t client) noexcept {
    if (!SLUICE_INVARIANT(client < own_.size(), table_index)) return;
    long_messages_[client] = 0;
    if (UpstreamConnection* const own = std::exchange(own_[client], nullptr)) {
      ++draining_;
      own->detach();
    }
  }
  /// Makes a closed dedicated connection available to another client.
  void recycle(UpstreamConnection& connection) noexcept {
    connection.reuse();
    static_cast<void>(SLUICE_INVARIANT(draining_ > 0 && connection.calls().empty(), pool_balance));
    free_.push_back(&connection);
    --draining_;
  }

  std::span<const Owned<UpstreamConnection>> all() const noexcept { return all_; }
  /// Returns all shared connections, also those beyond the number that the settings allow.
  std::span<const Owned<UpstreamConnection>> shared_ones() const noexcept {
    return all().first(shared_room_);
  }
  /// Returns whether the connection with this index is shared and gets no more calls.
  bool is_surplus(std::uint32_t index) const noexcept {
    return index >= shared_.config.connections && index < shared_room_;
  }
  /// Returns whether all shared connections and all dedicated connections of disconnected clients are closed,
  /// so that the upstream can be replaced.
  bool retired() const noexcept {
    for (const Owned<UpstreamConnection>& each : shared_ones())
      if (!each->retired()) return false;
    return draining_ == 0;
  }

  ConnectionWork work;

 private:
  UpstreamShared& shared_;
  const std::uint32_t shared_room_;             ///< number of shared connections that were allocated
  std::vector<Owned<UpstreamConnection>> all_;  ///< shared connections, followed by the dedicated ones
  std::vector<UpstreamConnection*> own_;        ///< dedicated connections, indexed by client number
  std::vector<UpstreamConnection*> free_;       ///< dedicated connections without a client
  std::vector<std::uint32_t> long_messages_;    ///< long calls on shared connections, by client number
  std::uint32_t draining_ = 0;                  ///< dedicated connections of disconnected clients
};

}  // namespace sluice::tcp_upstream
