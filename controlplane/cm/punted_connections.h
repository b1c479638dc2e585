// SPDX-License-Identifier: Apache-2.0
//
// Connection management of softroce devices by our own agent: management datagrams go through the punt rings,
// the data plane makes queue pairs on commands. One thread.
#pragma once

#include <cstdint>
#include <random>

#include "controlplane/cm/agent.h"
#include "controlplane/cm/connections.h"

namespace sluice::cm {

class PuntedConnections final : public Connections, private Agent::Host {
 public:
  explicit PuntedConnections(const ConnectionContext& context);

  bool poll(std::uint64_t now_ns) override;
  void on_command_done(std::uint32_t reactor, const segment::Event& event, std::uint64_t now_ns) override;
  void on_connect_wanted(std::uint32_t reactor, const segment::Event& event, std::uint64_t now_ns) override;
  void on_connection_up(const segment::Event& event, std::uint64_t now_ns) override;
  void on_connection_down(std::uint32_t reactor, const segment::Event& event, std::uint64_t now_ns) override;
  void restore() override;
  const AgentStatistics& statistics() const override { return agent_.statistics(); }

 private:
  void send_mad(const Endpoint& to, std::span<const std::byte, kMadBytes> mad) override;
  void on_request(Id id, const PeerParameters& peer) override;
  void on_reply(Id id, const PeerParameters& peer) override;
  void on_established(Id id) override;
  void on_rejected(Id id, RejectReason reason, std::span<const std::byte> private_data) override;
  void on_disconnected(Id id) override;

  segment::Command with_attributes(segment::Command command, Id id, const PeerParameters& peer,
                                   const OwnParameters& own) const;
  void refuse(Id id, RejectReason reason = RejectReason::NoResources);
  void on_command_of_predecessor(std::uint32_t reactor, const segment::Event& event);
  bool take_over(std::uint32_t reactor, const segment::ConnectionInfo& info);

  Agent agent_;
  std::uint64_t now_ns_ = 0;
  std::mt19937 random_{std::random_device{}()};
};

}  // namespace sluice::cm
