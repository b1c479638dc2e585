// SPDX-License-Identifier: Apache-2.0
//
// Both implementations of Connector: for drivers that manage connections, and for connections that the
// control plane manages. Only connector.cc includes them, so that the reactor's loop is compiled against the
// interface. Called on the reactor's thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "dataplane/reactor/connector.h"
#include "dataplane/segment/segment.h"
#include "pmd/connection_manager.h"
#include "pmd/device.h"

namespace sluice::reactor {

inline constexpr std::size_t kCmEventsPerPass = 8;
/// Maximum requests that wait for the control plane. Further requests are refused.
inline constexpr std::size_t kMaxPendingRequests = 64;

/// Connector for a driver that manages connections itself (loopback). Its requests are queued here until the
/// control plane's Accept or Reject.
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

inline constexpr std::size_t kDatagramsPerPass = 8;  ///< in each direction

/// Relays management datagrams between a device without a connection manager and the control plane, for
/// PlaneConnector.
class DatagramRelay {
 public:
  /// All arguments must outlive the relay.
  DatagramRelay(rdma::Device& device, segment::ReactorArea& area, Counters& counters)
      : device_(device), area_(area), counters_(counters) {}

  /// Relays datagrams in both directions without interpreting them. Datagrams that find no room in the ring
  /// to the control plane stay in the device; lost ones are counted, and peers retransmit them. Returns true
  /// if there were any.
  bool poll() noexcept;

 private:
  rdma::Device& device_;
  segment::ReactorArea& area_;
  Counters& counters_;
};

/// Connector for connections that the control plane manages. The control plane has agreed with the peer
/// before it requests a queue pair, and Accept and Connect carry the attributes. If it uses datagrams of the
/// device's port for that, they are relayed here.
class PlaneConnector final : public Connector {
 public:
  PlaneConnector(const DialConfig& dial, rdma::Device& device, ConnectionTable& connections,
                 segment::ReactorArea& area, EventSender& events, Counters& counters)
      : dial_(dial),
        device_(device),
        connections_(connections),
        events_(events),
        counters_(counters),
        datagrams_(device, area, counters) {}

  /// The control plane listens.
  void listen(std::uint16_t) override {}
  bool poll(Listener&) noexcept override { return datagrams_.poll(); }
  /// Sends ConnectWanted for connections to servers.
  void announce() noexcept override;
  void forget_announcements() noexcept override;
  bool take_request(const segment::Command& answer) noexcept override;
  bool accept(const segment::Command& accept, rdma::QueuePair& queue_pair,
              ConnectionRecord&) noexcept override {
    return queue_pair.connect(accept.attributes);
  }
  /// The control plane refuses the request when it receives the answer to its command.
  void refuse(const segment::Command&) noexcept override {}
  bool connect(rdma::QueuePair&, ConnectionRecord& record) noexcept override {
    record.request_unsent = unsent_ = true;
    return true;
  }
  /// The control plane disconnects when the connection is removed from the table.
  void disconnect(const ConnectionRecord&) noexcept override {}

 private:
  segment::Event connect_wanted(std::uint16_t number) const noexcept;

  const DialConfig dial_;
  rdma::Device& device_;
  ConnectionTable& connections_;
  EventSender& events_;
  Counters& counters_;
  DatagramRelay datagrams_;
  bool unsent_ = false;  ///< any connection may have ConnectionRecord::request_unsent
};

}  // namespace sluice::reactor
