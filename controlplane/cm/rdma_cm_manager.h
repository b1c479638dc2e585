// SPDX-License-Identifier: Apache-2.0
//
// The kernel's connection management for a verbs device in the process that polls it, for clients and tests
// without a control plane. Runs on the thread that polls the device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "controlplane/cm/rdma_cm.h"
#include "dataplane/base/net_address.h"
#include "pmd/connection_manager.h"

namespace sluice::cm {

class RdmaCmManager final : public rdma::ConnectionManager, private RdmaCm::Host {
 public:
  /// connect() connects to `server`; listening does not need it. Throws SetupError if this machine has no
  /// RDMA.
  explicit RdmaCmManager(const PeerAddress& server = {}) : manager_(*this, {}), server_(server) {}

  void listen(std::uint16_t port) override { manager_.listen(port); }
  std::optional<rdma::CmId> connect(rdma::QueuePair& qp, std::uint16_t port,
                                    std::span<const std::byte> private_data) noexcept override;
  bool accept(rdma::CmId id, rdma::QueuePair& qp, std::span<const std::byte> private_data) noexcept override;
  void reject(rdma::CmId id, std::span<const std::byte> private_data) noexcept override;
  void disconnect(rdma::CmId id) noexcept override;
  std::size_t poll_events(std::span<rdma::CmEvent> events) noexcept override;

 private:
  struct Link {
    rdma::QueuePair* qp = nullptr;
    std::uint16_t port = 0;
    rdma::RcAttributes attributes;
    std::vector<std::byte> private_data;  ///< the peer's private data
    std::vector<std::byte> answer;        ///< the gateway's private data
    bool accepts = false;                 ///< the peer has requested the connection
    bool connecting = false;              ///< the device is connecting the queue pair
  };

  void on_request(Id id, const RdmaCmPeer& peer) override;
  void on_reply(Id id, const RdmaCmPeer& peer) override;
  void on_established(Id id) override;
  void on_rejected(Id id, const std::string& why, std::span<const std::byte> private_data) override;
  void on_disconnected(Id id) override;
  void add_event(rdma::CmEventType type, Id id, std::span<const std::byte> private_data = {});
  void on_connected(Id id);

  RdmaCm manager_;
  const PeerAddress server_;
  std::map<Id, Link> links_;
  /// Connections that the manager disconnects after the current callback.
  std::vector<Id> ended_;
  std::deque<rdma::CmEvent> events_;
};

}  // namespace sluice::cm
