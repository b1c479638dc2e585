// SPDX-License-Identifier: Apache-2.0
//
// Base of both kinds of connection management in the control plane: our own over datagrams, and the kernel's
// by librdmacm. Queue pairs belong to the data plane, which makes them on commands. One thread.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "controlplane/cm/agent.h"
#include "controlplane/cm/known_connections.h"
#include "controlplane/config/config.h"
#include "controlplane/policy/admission.h"
#include "controlplane/policy/credit_keeper.h"
#include "dataplane/rpcrdma/link/private_data.h"
#include "dataplane/segment/segment.h"

namespace sluice::cm {

struct KeeperStatistics {
  std::uint64_t reaped = 0;
  std::uint64_t commands_lost = 0;  ///< command ring full
};

/// RDMA Reads outstanding at a time, of either side.
inline constexpr std::uint8_t kMaxReads = 16;

/// References to what a connection manager works on. All outlive it.
struct ConnectionContext {
  segment::Layout& layout;
  const config::Config& config;
  const policy::CreditKeeper& credits;
  policy::Admission& admission;
  KeeperStatistics& statistics;
};

/// Our private data of a reply (RFC 8797).
std::array<std::byte, rpcrdma::kPrivateDataBytes> own_private_data(const segment::ConfigBlock& block);

/// Admission control of a peer's request. When it is admitted, the command has the connection's credits,
/// class and inline sizes, and our private data; the caller adds the queue pair's attributes.
/// `verdict` is always set.
std::optional<segment::Command> judge(const ConnectionContext& context, std::uint32_t reactor,
                                      const PeerAddress& peer, std::span<const std::byte> private_data,
                                      policy::Verdict& verdict, std::uint64_t now_ns);

class Connections {
 public:
  explicit Connections(const ConnectionContext& context) : context_(context) {}
  virtual ~Connections() = default;

  /// Messages and timers. True when a message has arrived.
  virtual bool poll(std::uint64_t now_ns) = 0;
  // Events of reactors.
  virtual void on_command_done(std::uint32_t reactor, const segment::Event& event, std::uint64_t now_ns) = 0;
  /// The data plane opens a connection to a server.
  virtual void on_connect_wanted(std::uint32_t reactor, const segment::Event& event,
                                 std::uint64_t now_ns) = 0;
  virtual void on_connection_up(const segment::Event& event, std::uint64_t now_ns) = 0;
  virtual void on_connection_down(std::uint32_t reactor, const segment::Event& event,
                                  std::uint64_t now_ns) = 0;
  /// Takes over the connections in the tables, which a control plane before this one has made.
  virtual void restore() = 0;
  virtual const AgentStatistics& statistics() const = 0;
  /// An RDMA device is being removed, which this process cannot release.
  virtual bool needs_new_process() const { return false; }

 protected:
  bool command(std::uint32_t reactor, segment::Command command);
  /// Reactor with the fewest connections, of those whose bit in `among` is set.
  std::uint32_t least_loaded(std::uint32_t among) const;
  void report_failure(const Known& known);
  /// judge(), for connection `id`; our private data is kept in `known`.
  std::optional<segment::Command> admit(Id id, Known& known, std::span<const std::byte> private_data,
                                        policy::Verdict& verdict, std::uint64_t now_ns);
  /// Connects the queue pair of an outgoing connection. The caller adds the attributes.
  segment::Command connect_command(Id id, const Known& known, std::span<const std::byte> private_data) const;

  ConnectionContext context_;
  std::uint32_t next_command_ = 1;
  KnownConnections known_;
};

}  // namespace sluice::cm
