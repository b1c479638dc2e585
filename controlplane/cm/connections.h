// SPDX-License-Identifier: Apache-2.0
//
// What both kinds of connection management in the control plane have in common: our own over datagrams, and
// the kernel's. Queue pairs are the data plane's, and made by commands. One thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "controlplane/cm/agent.h"
#include "controlplane/config/config.h"
#include "controlplane/policy/admission.h"
#include "controlplane/policy/credit_keeper.h"
#include "dataplane/segment/segment.h"

namespace sluice::cm {

struct KeeperStatistics {
  std::uint64_t reaped = 0;
  std::uint64_t commands_lost = 0;  ///< command ring full
};

/// RDMA Reads outstanding at a time, of either side.
inline constexpr std::uint8_t kMaxReads = 16;

/// Where connections stand, and whom they have to obey.
struct ConnectionContext {
  segment::Layout& layout;
  const config::Config& config;
  const policy::CreditKeeper& credits;
  policy::Admission& admission;
  KeeperStatistics& statistics;
};

/// A peer's request is judged. When it is admitted: a command with what its connection is to be, and our
/// private data.
std::optional<segment::Command> judge(const ConnectionContext& context, std::uint32_t reactor,
                                      const PeerAddress& peer, std::span<const std::byte> private_data,
                                      policy::Verdict& verdict, std::uint64_t now_ns);

class Connections {
 public:
  explicit Connections(const ConnectionContext& context) : context_(context) {}
  virtual ~Connections() = default;

  /// Messages and timers. True when there was something.
  virtual bool poll(std::uint64_t now_ns) = 0;
  // What reactors tell.
  virtual void on_command_done(std::uint32_t reactor, const segment::Event& event, std::uint64_t now_ns) = 0;
  /// The data plane wants a connection to a server.
  virtual void on_connect_wanted(std::uint32_t reactor, const segment::Event& event,
                                 std::uint64_t now_ns) = 0;
  virtual void on_connection_up(const segment::Event& event, std::uint64_t now_ns) = 0;
  virtual void on_connection_down(std::uint32_t reactor, const segment::Event& event,
                                  std::uint64_t now_ns) = 0;
  /// Takes over what a predecessor has left in the connection tables.
  virtual void restore() = 0;
  virtual const AgentStatistics& statistics() const = 0;
  /// Only a new process can go on.
  virtual bool wants_new_process() const { return false; }

 protected:
  /// A connection whose queue pair is being made, or has been.
  struct Known {
    std::uint32_t reactor = 0;
    bool made = false;
    bool outgoing = false;
    std::uint32_t connection = 0;  ///< outgoing
    PeerAddress peer;
    OwnParameters own;
  };

  bool command(std::uint32_t reactor, segment::Command command);
  /// Of those in `among`, a bit for each, the one with the fewest connections.
  std::uint32_t least_loaded(std::uint32_t among) const;
  void tell_failed(const Known& known);
  /// judge(), and our answer is kept in `known`. The command makes the queue pair, but for the attributes.
  std::optional<segment::Command> admit(Id id, Known& known, std::span<const std::byte> private_data,
                                        policy::Verdict& verdict, std::uint64_t now_ns);
  /// The queue pair that was dialed is agreed on, but for the attributes.
  segment::Command connect_command(Id id, const Known& known, std::span<const std::byte> private_data) const;

  ConnectionContext context_;
  std::uint32_t next_command_ = 1;
  std::map<Id, Known> known_;
};

}  // namespace sluice::cm
