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
  /// restore() goes on with it.
  void on_answer_to_predecessor(std::uint32_t, const segment::Event&) override {}
  void on_connect_wanted(std::uint32_t reactor, const segment::Event& event, std::uint64_t now_ns) override;
  void restore(std::uint32_t reactor, std::uint32_t number) override;
  void on_open(const SeenConnection& seen, std::uint64_t now_ns) override;
  const AgentStatistics* statistics() const override { return &agent_.statistics(); }

 private:
  void send_mad(const Endpoint& to, std::span<const std::byte, kMadBytes> mad) override;
  void on_request(Id id, const PeerParameters& peer) override;
  void on_refused(const Endpoint& from, RejectReason reason) override;
  void on_reply(Id id, const PeerParameters& peer) override;
  void on_established(Id id) override;
  void on_rejected(Id id, RejectReason reason, std::span<const std::byte> private_data) override;
  void on_disconnected(Id id) override;
  void disconnect(Id id, std::uint64_t now_ns) override;
  void refuse_unmade(Id id, std::uint64_t now_ns) override;

  segment::Command with_attributes(segment::Command command, Id id, const PeerParameters& peer,
                                   const OwnParameters& own) const;
  void refuse(Id id, RejectReason reason = RejectReason::NoResources);
  void listen_at_new_ports();

  Agent agent_;
  std::uint64_t now_ns_ = 0;
  std::mt19937 random_{std::random_device{}()};
};

}  // namespace sluice::cm
