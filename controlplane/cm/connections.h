// SPDX-License-Identifier: Apache-2.0
//
// Base of the kinds of connection management that the control plane has: our own over datagrams, the kernel's by librdmacm, and
// a driver's, whose requests it only judges. Queue pairs belong to the data plane, which makes them on commands. One thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "controlplane/cm/admission_book.h"
#include "controlplane/cm/connection_state.h"
#include "controlplane/cm/connection_watch.h"
#include "controlplane/cm/known_connections.h"
#include "controlplane/policy/verdict.h"
#include "dataplane/base/net_address.h"
#include "dataplane/base/owned.h"
#include "dataplane/rpcrdma/link/private_data.h"
#include "dataplane/segment/config_block.h"
#include "dataplane/segment/layout.h"

namespace sluice {
namespace controlplane {
class Outbox;
}
namespace policy {
class CreditKeeper;
struct ClientClass;
}  // namespace policy
namespace tasks {
class Arena;
}
}  // namespace sluice

namespace sluice::cm {

struct AgentStatistics;
class ConnectionReports;

/// RDMA Reads outstanding at a time, of either side.
inline constexpr std::uint8_t kMaxReads = 16;

/// References to what a connection manager works on. All outlive it.
struct ConnectionContext {
  segment::Layout& layout;
  const segment::ConfigBlock& block;  ///< of the current configuration, as are the next two
  const std::vector<policy::ClientClass>& classes;
  const std::string& segment;
  const policy::CreditKeeper& credits;
  policy::Admission& admission;
  AdmissionBook& book;
  ConnectionReports& reports;
  controlplane::Outbox& outbox;
  tasks::Arena& tasks;
};

/// Our private data of a reply (RFC 8797).
std::array<std::byte, rpcrdma::kPrivateDataBytes> own_private_data(const segment::ConfigBlock& block);

/// Admission control of a peer's request for a connection to `port`. When it is admitted, the command has the connection's credits,
/// class and inline sizes, and our private data; the caller adds the queue pair's attributes.
/// `verdict` is always set.
std::optional<segment::Command> judge(const ConnectionContext& context, std::uint32_t reactor,
                                      const PeerAddress& peer, std::uint32_t port,
                                      std::span<const std::byte> private_data, policy::Verdict& verdict,
                                      std::uint64_t now_ns);

class Connections {
 public:
  explicit Connections(const ConnectionContext& context);
  virtual ~Connections() = default;

  /// Messages and timers. True when a message has arrived.
  virtual bool poll(std::uint64_t now_ns) = 0;
  // Events of reactors.
  virtual void on_command_done(std::uint32_t reactor, const segment::Event& event, std::uint64_t now_ns) = 0;
  /// Whether the request that the answer is for has not come to an end.
  virtual bool awaits(const segment::Event& event) const {
    return known_.contains(static_cast<Id>(event.cm_id));
  }
  /// At the takeover, before restore(): an answer to the control plane before this one.
  virtual void on_answer_to_predecessor(std::uint32_t reactor, const segment::Event& event) {
    is_awaited(reactor, event);
  }
  /// A client's request that the driver has.
  virtual void on_connect_request(std::uint32_t, const segment::Event&, std::uint64_t) {}
  /// The data plane opens a connection to a server, and the driver cannot.
  virtual void on_connect_wanted(std::uint32_t, const segment::Event&, std::uint64_t) {}
  // What the tables show.
  /// A connection that a control plane before this one has made.
  virtual void restore(std::uint32_t reactor, std::uint32_t number) = 0;
  /// One that is not to be restored.
  virtual void on_appeared(std::uint32_t reactor, std::uint32_t number, const SeenConnection& seen);
  /// The reactor has heard the peer, or that was told to it.
  virtual void on_open(const SeenConnection& seen, std::uint64_t now_ns) = 0;
  void on_gone(std::uint32_t reactor, const SeenConnection& seen, std::uint64_t now_ns);
  /// Another data plane runs: what its predecessor was asked for and had not made is refused.
  void forget_unmade(std::uint64_t now_ns);

  /// Null when others do connection management.
  virtual const AgentStatistics* statistics() const { return nullptr; }
  /// An RDMA device is being removed, which this process cannot release.
  virtual bool needs_new_process() const { return false; }

 protected:
  /// Those of the configuration that a reload has added, for whoever listens, when the data plane serves them: until it does,
  /// they are new.
  std::vector<std::uint16_t> new_ports() const;
  void command(std::uint32_t reactor, segment::Command command);
  /// What is wanted of the connections of a reactor.
  segment::WantedWriter wanted(std::uint32_t reactor) const {
    return segment::WantedWriter(context_.layout.reactors[reactor].wanted);
  }
  /// The data plane ends what it has made; what it has not made is taken back.
  void end(Id id);
  /// The answer to Accept came: false when that was not asked for, or no longer. Then the connection ends.
  bool is_awaited(std::uint32_t reactor, const segment::Event& event);
  /// Ends the connection at connection management. Harmless when it is not known there.
  virtual void disconnect(Id id, std::uint64_t now_ns) = 0;
  /// Refuses a request that was admitted.
  virtual void refuse_unmade(Id id, std::uint64_t now_ns) = 0;
  /// Reactor with the fewest connections, of those whose bit in `among` is set.
  std::uint32_t least_loaded(std::uint32_t among) const;
  void report_failure(const Known& known);
  /// judge(), for connection `id`; our private data is kept in `known`.
  std::optional<segment::Command> admit(Id id, Known& known, std::uint32_t port,
                                        std::span<const std::byte> private_data, policy::Verdict& verdict,
                                        std::uint64_t now_ns);
  /// Connects the queue pair of an outgoing connection. The caller adds the attributes.
  segment::Command connect_command(Id id, const Known& known, std::span<const std::byte> private_data) const;

  ConnectionContext context_;
  std::vector<std::uint16_t> ports_;  ///< at which it listens
  std::uint32_t next_command_ = 1;
  KnownConnections known_;
};

/// Of softroce devices: our own agent, whose datagrams go through the punt rings (punted_connections.cc).
Owned<Connections> make_punted_connections(const ConnectionContext& context);
/// Of verbs devices: the kernel's, through librdmacm (kernel_connections.cc). Throws SetupError when this machine has no RDMA. Not
/// while a data plane is running: then it waits for the device to come back.
Owned<Connections> make_kernel_connections(const ConnectionContext& context);
/// Of a driver that manages them itself (loopback).
Owned<Connections> make_driver_connections(const ConnectionContext& context);

}  // namespace sluice::cm
