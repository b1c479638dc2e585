// SPDX-License-Identifier: Apache-2.0
//
// Connector for connections that the control plane manages. The control plane has agreed with the peer before
// it requests a queue pair, and Accept and Connect carry the attributes. If it uses datagrams of the device's
// port for that, they are relayed here.
#pragma once

#include "dataplane/reactor/connector.h"
#include "dataplane/reactor/datagram_relay.h"

namespace sluice::reactor {

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
