// SPDX-License-Identifier: Apache-2.0
//
// Connection management for a device that has none, in the process that polls it, for clients and tests
// without a control plane. Runs on the thread that polls the device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <span>

#include "controlplane/cm/agent.h"
#include "controlplane/cm/random_numbers.h"
#include "dataplane/base/net_address.h"
#include "pmd/connection_manager.h"

namespace sluice::rdma {
class Device;
}

namespace sluice::cm {

using ClockNs = std::uint64_t (*)() noexcept;

class DeviceManager final : public rdma::ConnectionManager, private Agent::Host {
 public:
  /// `device` outlives this object. connect() connects to `server`; listening does not need it.
  DeviceManager(rdma::Device& device, ClockNs clock, const PeerAddress& server = {},
                const AgentConfig& config = {});

  void listen(std::uint16_t port) override { agent_.listen(port); }
  std::optional<rdma::CmId> connect(rdma::QueuePair& qp, std::uint16_t port,
                                    std::span<const std::byte> private_data) noexcept override;
  bool accept(rdma::CmId id, rdma::QueuePair& qp, std::span<const std::byte> private_data) noexcept override;
  void reject(rdma::CmId id, std::span<const std::byte> private_data) noexcept override;
  void disconnect(rdma::CmId id) noexcept override;
  std::size_t poll_events(std::span<rdma::CmEvent> events) noexcept override;

  const AgentStatistics& statistics() const { return agent_.statistics(); }

 private:
  struct Link {
    rdma::QueuePair* qp = nullptr;
    std::uint32_t receive_psn = 0;
    PeerParameters peer;
  };

  void send_mad(const Endpoint& to, std::span<const std::byte, kMadBytes> mad) override;
  void on_request(Id id, const PeerParameters& peer) override;
  void on_reply(Id id, const PeerParameters& peer) override;
  void on_established(Id id) override;
  void on_rejected(Id id, RejectReason reason, std::span<const std::byte> private_data) override;
  void on_disconnected(Id id) override;

  bool attach(Link& link) noexcept;
  void add_event(rdma::CmEventType type, Id id, const PeerParameters& peer,
                 std::span<const std::byte> private_data);

  rdma::Device& device_;
  const ClockNs clock_;
  const PeerAddress server_;
  Agent agent_;
  RandomNumbers random_;
  std::map<Id, Link> links_;
  std::deque<rdma::CmEvent> events_;
};

}  // namespace sluice::cm
