// SPDX-License-Identifier: Apache-2.0
//
// Connections of devices that leave connection management to the control plane: management datagrams go
// through the punt rings, queue pairs are made by commands. One thread.
#pragma once

#include <cstdint>
#include <map>
#include <random>

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

class PuntedConnections final : public Agent::Host {
 public:
  PuntedConnections(segment::Layout& layout, const config::Config& config,
                    const policy::CreditKeeper& credits, policy::Admission& admission,
                    KeeperStatistics& statistics);

  /// Datagrams and timers. True when there was something.
  bool poll(std::uint64_t now_ns);
  /// What reactors tell.
  void on_command_done(std::uint32_t reactor, const segment::Event& event, std::uint64_t now_ns);
  /// The data plane wants a connection to a server.
  void on_connect_wanted(std::uint32_t reactor, const segment::Event& event, std::uint64_t now_ns);
  void on_connection_up(const segment::Event& event, std::uint64_t now_ns);
  void on_connection_down(std::uint32_t reactor, const segment::Event& event, std::uint64_t now_ns);
  /// Takes over what a predecessor has left in the connection tables.
  void restore();

  const AgentStatistics& statistics() const { return agent_.statistics(); }

 private:
  /// A connection whose queue pair is being made, or has been.
  struct Known {
    std::uint32_t reactor = 0;
    bool made = false;
    bool outgoing = false;
    std::uint32_t connection = 0;  ///< outgoing
    rdma::PeerAddress peer;
    OwnParameters own;
  };

  void send_mad(const Endpoint& to, std::span<const std::byte, kMadBytes> mad) override;
  void on_request(Id id, const PeerParameters& peer) override;
  void on_reply(Id id, const PeerParameters& peer) override;
  void on_established(Id id) override;
  void on_rejected(Id id, RejectReason reason, std::span<const std::byte> private_data) override;
  void on_disconnected(Id id) override;

  bool command(std::uint32_t reactor, segment::Command command);
  std::uint32_t least_loaded() const;
  void tell_failed(const Known& known);
  segment::Command with_attributes(segment::Command command, Id id, const PeerParameters& peer,
                                   const OwnParameters& own) const;
  void refuse(Id id, RejectReason reason = RejectReason::NoResources);

  segment::Layout& layout_;
  const config::Config& config_;
  const policy::CreditKeeper& credits_;
  policy::Admission& admission_;
  KeeperStatistics& keeper_statistics_;
  Agent agent_;
  std::uint64_t now_ns_ = 0;
  std::uint32_t next_command_ = 1;
  std::map<Id, Known> known_;
  std::mt19937 random_{std::random_device{}()};
};

}  // namespace sluice::cm
