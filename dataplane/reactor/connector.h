// SPDX-License-Identifier: Apache-2.0
//
// Connection management for a reactor's queue pairs. Either the driver manages connections itself and the
// control plane accepts or rejects requests (DriverConnector), or the control plane manages connections and
// the reactor is notified when an agreement is complete (PlaneConnector). Callers do not depend on which one
// is used.
//
// Called on the reactor's thread; never blocks. Every field of a command comes from another process and is
// validated.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "dataplane/base/owned.h"
#include "dataplane/reactor/config.h"
#include "dataplane/reactor/connection_table.h"
#include "dataplane/reactor/publisher.h"
#include "dataplane/segment/messages.h"
#include "dataplane/segment/segment.h"
#include "pmd/connection_manager.h"
#include "pmd/queue_pair.h"

namespace sluice::reactor {

class Connector {
 public:
  /// Receives actions of the peers of this reactor's connections.
  class Listener {
   public:
    /// Called when the peer has accepted, or has been informed that it was accepted. `private_data` is the
    /// peer's and valid during the function call only.
    virtual void on_established(rdma::CmId id, std::span<const std::byte> private_data) noexcept = 0;
    /// Called when the peer has refused or closed the connection.
    virtual void on_ended(rdma::CmId id) noexcept = 0;

   protected:
    ~Listener() = default;
  };

  virtual ~Connector() = default;

  /// Accepts connection requests at this port. Called at setup. Throws SetupError.
  virtual void listen(std::uint16_t port) = 0;

  /// Called in every control pass. Returns true if anything was received or sent.
  virtual bool poll(Listener& listener) noexcept = 0;
  /// Sends requests that the control plane must decide, or connections that it must establish, unless already
  /// sent. Requests that find no room in the ring are sent by a later call.
  virtual void announce() noexcept = 0;
  /// Called when another control plane has started: announce() sends everything again.
  virtual void forget_announcements() noexcept = 0;

  // Requests of clients, which the control plane answers by Accept or Reject.
  /// Takes the request that `answer` refers to. Returns false if there is none, or if it has been withdrawn.
  virtual bool take_request(const segment::Command& answer) noexcept = 0;
  /// Accepts the request that was taken with a queue pair in state Init whose Receives are posted. Returns
  /// false if the peer is disconnected or the attributes are invalid.
  virtual bool accept(const segment::Command& accept, rdma::QueuePair& queue_pair,
                      ConnectionRecord& record) noexcept = 0;
  /// Refuses the request that was taken, either for a Reject, which has private data for the peer, or for an
  /// Accept that cannot be executed.
  virtual void refuse(const segment::Command& answer) noexcept = 0;

  // Connections to servers.
  /// Begins to connect. Returns false if the device has no room for it.
  virtual bool connect(rdma::QueuePair& queue_pair, ConnectionRecord& record) noexcept = 0;

  /// Notifies the peer that this side has closed the connection.
  virtual void disconnect(const ConnectionRecord& record) noexcept = 0;
};

/// Creates the connector that `device` requires. Called at setup. All arguments must outlive it.
Owned<Connector> make_connector(const ReactorConfig& config, rdma::Device& device,
                                ConnectionTable& connections, segment::ReactorArea& area, EventSender& events,
                                Counters& counters);

}  // namespace sluice::reactor
