// SPDX-License-Identifier: Apache-2.0
//
// Connector for a driver that manages connections itself (loopback). Its requests are queued here until the
// control plane's Accept or Reject.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "dataplane/reactor/connector.h"
#include "pmd/connection_manager.h"

namespace sluice::reactor {

inline constexpr std::size_t kCmEventsPerPass = 8;
/// Maximum requests that wait for the control plane. Further requests are refused.
inline constexpr std::size_t kMaxPendingRequests = 64;

class DriverConnector final : public Connector {
 public:
  DriverConnector(const DialConfig& dial, rdma::ConnectionManager& manager, EventSender& events,
                  Counters& counters)
      : dial_(dial), manager_(manager), events_(events), counters_(counters) {}

  void listen(std::uint16_t port) override { manager_.listen(port); }
  bool poll(Listener& listener) noexcept override;
  void announce() noexcept override;
  void forget_announcements() noexcept override;
  bool take_request(const segment::Command& answer) noexcept override;
  bool accept(const segment::Command& accept, rdma::QueuePair& queue_pair,
              ConnectionRecord& record) noexcept override;
  void refuse(const segment::Command& answer) noexcept override;
  bool connect(rdma::QueuePair& queue_pair, ConnectionRecord& record) noexcept override;
  void disconnect(const ConnectionRecord& record) noexcept override { manager_.disconnect(record.cm_id); }

 private:
  struct PendingRequest {
    bool used = false;
    bool announced = false;  ///< sent to the current control plane
    rdma::CmEvent event;
  };

  void on_event(const rdma::CmEvent& event, Listener& listener) noexcept;
  void on_request(const rdma::CmEvent& event) noexcept;
  PendingRequest* find(std::uint32_t cm_id) noexcept;

  const DialConfig dial_;
  rdma::ConnectionManager& manager_;
  EventSender& events_;
  Counters& counters_;
  std::array<PendingRequest, kMaxPendingRequests> pending_{};
};

}  // namespace sluice::reactor
