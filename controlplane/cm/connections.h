// SPDX-License-Identifier: Apache-2.0
//
// Connections that the control plane manages, and the base class of the kinds of connection management: the
// gateway's own over datagrams, the kernel's through librdmacm, and a driver's, whose requests are only
// admitted or refused. Queue pairs belong to the data plane, which creates them on commands.
// Single-threaded.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "controlplane/cm/connection_monitor.h"
#include "controlplane/cm/connection_state.h"
#include "controlplane/cm/reactor_loads.h"
#include "controlplane/policy/admission.h"
#include "dataplane/base/invariant.h"
#include "dataplane/base/net_address.h"
#include "dataplane/base/owned.h"
#include "dataplane/rpcrdma/link/config.h"
#include "dataplane/segment/config_block.h"
#include "dataplane/segment/layout.h"
#include "dataplane/segment/tables.h"

namespace sluice {
namespace policy {
class CreditController;
struct ClientClass;
}  // namespace policy
namespace tasks {
class Arena;
}
}  // namespace sluice

namespace sluice::cm {

/// A known connection. `reactor`, `outgoing` and the queue pair number of an outgoing connection are
/// constant.
struct Known {
  std::uint32_t reactor = 0;
  bool made = false;  ///< the data plane has its queue pair
  bool outgoing = false;
  std::uint32_t connection = 0;   ///< set if outgoing or made
  std::uint32_t incarnation = 0;  ///< set if outgoing or made
  PeerAddress peer;
  OwnParameters own;
};

/// Returns a connection that the data plane has kept, as connection `number` of its reactor.
inline Known restored(std::uint32_t reactor, std::uint32_t number, const segment::ConnectionInfo& info) {
  return {.reactor = reactor,
          .made = true,
          .outgoing = info.outgoing != 0,
          .connection = number,
          .incarnation = info.incarnation,
          .peer = info.peer,
          .own = {.qpn = info.queue_pair, .private_data = {}}};
}

/// Connections of a connection manager, from the request on, with the number of connections per reactor.
/// Lookups use a hash table, so their cost does not depend on the number of connections.
class KnownConnections {
 public:
  using Map = std::unordered_map<Id, Known>;
  using iterator = Map::iterator;

  /// Reserves space for `most` connections, because growing the table would move all entries in one iteration
  /// of the loop.
  explicit KnownConnections(std::size_t most = 0) { known_.reserve(most); }

  iterator begin() { return known_.begin(); }
  iterator end() { return known_.end(); }
  iterator find(Id id) { return known_.find(id); }
  bool contains(Id id) const { return known_.count(id) != 0; }

  /// Adds a connection, and replaces another one with this identifier.
  void put(Id id, Known known) {
    erase(id);
    static_cast<void>(SLUICE_INVARIANT(known.reactor < load_.size(), table_index));
    ++load_[known.reactor];
    if (known.outgoing) dialed_[key(known.reactor, known.own.qpn)] = id;
    known_.emplace(id, std::move(known));
  }
  iterator erase(iterator at) {
    const Known& known = at->second;
    static_cast<void>(SLUICE_INVARIANT(load_[known.reactor] > 0, pool_balance));
    --load_[known.reactor];
    if (known.outgoing) {
      const auto dialed = dialed_.find(key(known.reactor, known.own.qpn));
      if (dialed != dialed_.end() && dialed->second == at->first) dialed_.erase(dialed);
    }
    return known_.erase(at);
  }
  /// Removes a connection. Has no effect if it is unknown.
  void erase(Id id) {
    if (const auto at = known_.find(id); at != known_.end()) erase(at);
  }

  /// Returns the number of connections of a reactor.
  std::uint32_t load(std::uint32_t reactor) const { return load_[reactor]; }
  /// Returns the outgoing connection of a queue pair.
  std::optional<Id> dialed(std::uint32_t reactor, std::uint32_t queue_pair) const {
    const auto at = dialed_.find(key(reactor, queue_pair));
    if (at == dialed_.end()) return std::nullopt;
    return at->second;
  }

 private:
  static std::uint64_t key(std::uint32_t reactor, std::uint32_t queue_pair) {
    return std::uint64_t{reactor} << 32 | queue_pair;
  }

  Map known_;
  std::unordered_map<std::uint64_t, Id> dialed_;
  std::array<std::uint32_t, segment::kMaxReactors> load_{};
};

class Outbox;

/// Maximum number of outstanding RDMA Reads on either side.
inline constexpr std::uint8_t kMaxReads = 16;

/// References to the objects that a connection manager uses. All of them outlive it.
struct ConnectionContext {
  segment::Layout& layout;
  const segment::ConfigBlock& block;  ///< of the current configuration, as are the next two
  const std::vector<policy::ClientClass>& classes;
  const std::string& segment;
  const policy::CreditController& credits;
  policy::Admission& admission;
  AdmissionTable& book;
  ConnectionReports& reports;
  Outbox& outbox;
  tasks::Arena& tasks;
};

/// Returns the gateway's private data for a reply (RFC 8797).
std::array<std::byte, rpcrdma::kPrivateDataBytes> own_private_data(const segment::ConfigBlock& block);

/// Admission control of a peer's request for a connection to `port`. If the request is admitted, the returned
/// command contains the connection's credits, class and inline sizes, and the gateway's private data; the
/// caller adds the queue pair's attributes. `verdict` is always set.
std::optional<segment::Command> judge(const ConnectionContext& context, std::uint32_t reactor,
                                      const PeerAddress& peer, std::uint32_t port,
                                      std::span<const std::byte> private_data, policy::Verdict& verdict,
                                      std::uint64_t now_ns);

class Connections {
 public:
  explicit Connections(const ConnectionContext& context);
  virtual ~Connections() = default;

  /// Handles messages and timers. Returns true if a message has arrived.
  virtual bool poll(std::uint64_t now_ns) = 0;
  // Events of reactors.
  virtual void on_command_done(std::uint32_t reactor, const segment::Event& event, std::uint64_t now_ns) = 0;
  /// Returns true if the request that the answer belongs to is still in progress.
  virtual bool awaits(const segment::Event& event) const {
    return known_.contains(static_cast<Id>(event.cm_id));
  }
  /// Handles an answer to the previous control plane. Called at the takeover, before restore().
  virtual void on_answer_to_predecessor(std::uint32_t reactor, const segment::Event& event) {
    is_awaited(reactor, event);
  }
  /// Handles a client's request that the driver reports.
  virtual void on_connect_request(std::uint32_t, const segment::Event&, std::uint64_t) {}
  /// Handles a request of the data plane to open a connection to a server, if the driver cannot do this.
  virtual void on_connect_wanted(std::uint32_t, const segment::Event&, std::uint64_t) {}
  // Functions for changes of the connection tables. restore() takes over a connection of the previous control
  // plane.
  virtual void restore(std::uint32_t reactor, std::uint32_t number) = 0;
  /// Handles a new connection that is not to be restored.
  virtual void on_appeared(std::uint32_t reactor, std::uint32_t number, const SeenConnection& seen);
  /// Called when the reactor has heard the peer, or was notified that the peer is ready.
  virtual void on_open(const SeenConnection& seen, std::uint64_t now_ns) = 0;
  void on_gone(std::uint32_t reactor, const SeenConnection& seen, std::uint64_t now_ns);
  /// Refuses requests that the previous data plane has not completed. Called when another data plane has
  /// started.
  void forget_unmade(std::uint64_t now_ns);

  /// Measures how busy the reactors are, if that is due. Called in each turn of the loop.
  void measure_reactors(std::uint64_t now_ns);

  /// Returns null if connection management is not done by the control plane.
  virtual const AgentStatistics* statistics() const { return nullptr; }
  /// Returns true if an RDMA device is being removed that only the exit of this process can release.
  virtual bool needs_new_process() const { return false; }

 protected:
  /// Returns the ports that a reload has added and on which this object does not listen yet. Returns none
  /// until the data plane has applied the configuration.
  std::vector<std::uint16_t> new_ports() const;
  void command(std::uint32_t reactor, segment::Command command);
  /// Returns a writer for the desired state of a reactor's connections.
  segment::DesiredStateWriter wanted(std::uint32_t reactor) const {
    return segment::DesiredStateWriter(context_.layout.reactors[reactor].wanted);
  }
  /// Ends a connection. Requests the end of one that the data plane has made, and withdraws the command
  /// otherwise.
  void end(Id id);
  /// Checks the answer to an Accept command. Returns false if the request is unknown or abandoned, in which
  /// case the connection is closed.
  bool is_awaited(std::uint32_t reactor, const segment::Event& event);
  /// Ends the connection in connection management. Has no effect if it is unknown there.
  virtual void disconnect(Id id, std::uint64_t now_ns) = 0;
  /// Refuses a request that was admitted.
  virtual void refuse_unmade(Id id, std::uint64_t now_ns) = 0;
  /// Chooses the reactor for a new connection: the one among those whose bit in `among` is set that is
  /// expected to be least busy (ReactorLoads). A full reactor is chosen only if all are. Returns kMaxReactors
  /// if `among` has none.
  std::uint32_t place(std::uint32_t among);
  void report_failure(const Known& known);
  /// Calls judge() for connection `id`, and stores the gateway's private data in `known`.
  std::optional<segment::Command> admit(Id id, Known& known, std::uint32_t port,
                                        std::span<const std::byte> private_data, policy::Verdict& verdict,
                                        std::uint64_t now_ns);
  /// Returns the command that connects the queue pair of an outgoing connection. The caller adds the
  /// attributes.
  segment::Command connect_command(Id id, const Known& known, std::span<const std::byte> private_data) const;

  ConnectionContext context_;
  std::vector<std::uint16_t> ports_;  ///< ports with a listener
  std::uint32_t next_command_ = 1;
  KnownConnections known_;
  ReactorLoads loads_;
};

/// Connection management for softroce devices by the gateway's own agent, with datagrams in the punt rings
/// (punted_connections.cc).
Owned<Connections> make_punted_connections(const ConnectionContext& context);
/// Connection management for verbs devices by the kernel, through librdmacm (kernel_connections.cc). Throws
/// SetupError if this machine has no RDMA, unless a data plane is running; in this case it waits until a
/// device is available.
Owned<Connections> make_kernel_connections(const ConnectionContext& context);
/// Connection management for a driver that does it itself (loopback).
Owned<Connections> make_driver_connections(const ConnectionContext& context);

/// Passes the event channel of the kernel's connections to the data plane, which keeps it open when this
/// control plane exits (segment/kept_channel.h). An offer that was lost, or that another data plane
/// received, is repeated.
class ChannelOffer {
 public:
  static constexpr std::uint64_t kRepeatNs = 200'000'000;
  /// Time after which a missing acknowledgment is logged, once until the data plane has the channel.
  static constexpr std::uint64_t kPatienceNs = 5'000'000'000;

  /// `layout` outlives this object.
  ChannelOffer(const segment::Layout& layout, const std::string& segment);

  /// Repeats the offer if necessary. `descriptor` is the channel's descriptor, which the caller keeps
  /// ownership of. The caller must hold the right to write the segment. Does not block.
  void poll(int descriptor, std::uint64_t now_ns);

  /// Returns the epoch by which connections and the data plane identify the channel. The caller must hold the
  /// right to write the segment.
  std::uint32_t epoch() const noexcept;

 private:
  void complain(int error, std::uint64_t now_ns);

  const segment::Layout& layout_;
  const std::string path_;
  std::uint64_t sent_ns_ = 0;
  std::uint64_t waits_since_ns_ = 0;  ///< start of the wait for a running data plane; zero if there is none
  bool complained_ = false;
};

}  // namespace sluice::cm
