// SPDX-License-Identifier: Apache-2.0
//
// How a reactor's queue pairs get their peers. Either the driver does connection management itself, and the control plane
// admits or refuses what has come (DriverConnector); or the control plane does it, and the reactor hears of a connection when
// all is agreed (PlaneConnector). Whoever opens and ends connections need not know which.
//
// The reactor's thread; nothing blocks. Every field of a command comes from another process: no value of it is trusted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "dataplane/base/owned.h"
#include "dataplane/reactor/config.h"
#include "dataplane/reactor/connection_table.h"
#include "dataplane/reactor/counters.h"
#include "dataplane/reactor/event_sender.h"
#include "dataplane/segment/messages.h"
#include "dataplane/segment/segment.h"
#include "pmd/connection_manager.h"
#include "pmd/queue_pair.h"

namespace sluice::reactor {

class Connector {
 public:
  /// What the peers of this reactor's connections do.
  class Listener {
   public:
    /// The peer has accepted, or knows that it was accepted. `private_data` is the peer's, and lives for the call.
    virtual void on_established(rdma::CmId id, std::span<const std::byte> private_data) noexcept = 0;
    /// It has refused or ended the connection.
    virtual void on_ended(rdma::CmId id) noexcept = 0;

   protected:
    ~Listener() = default;
  };

  virtual ~Connector() = default;

  /// Setup. Clients may ask for connections to this port. Throws SetupError.
  virtual void listen(std::uint16_t port) = 0;

  /// In every control pass. True when something came or went.
  virtual bool poll(Listener& listener) noexcept = 0;
  /// Tells the control plane what it has to decide, or to connect, and does not know yet. What finds no room in its ring is
  /// told by a later call.
  virtual void announce() noexcept = 0;
  /// Another control plane runs: it is told anew.
  virtual void forget_announcements() noexcept = 0;

  // Requests of clients, which the control plane answers by Accept or Reject.
  /// Takes the request that is answered. False: there is none, or it has been withdrawn.
  virtual bool take_request(const segment::Command& answer) noexcept = 0;
  /// Gives what was taken its queue pair, which is in Init and has its Receives posted. False: the peer has gone, or the
  /// attributes are invalid.
  virtual bool accept(const segment::Command& accept, rdma::QueuePair& queue_pair,
                      ConnectionRecord& record) noexcept = 0;
  /// Refuses what was taken: by a Reject, which has private data for the peer, or for an Accept that cannot be carried out.
  virtual void refuse(const segment::Command& answer) noexcept = 0;

  // Connections to servers.
  /// Begins. False: the device has no room for it.
  virtual bool connect(rdma::QueuePair& queue_pair, ConnectionRecord& record) noexcept = 0;

  /// Tells the peer of an end that is ours.
  virtual void disconnect(const ConnectionRecord& record) noexcept = 0;
};

/// Setup. The one that `device` needs. Everything given outlives it.
Owned<Connector> make_connector(const ReactorConfig& config, rdma::Device& device,
                                ConnectionTable& connections, segment::ReactorArea& area, EventSender& events,
                                Counters& counters);

}  // namespace sluice::reactor
