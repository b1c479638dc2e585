// SPDX-License-Identifier: Apache-2.0
//
// A second connection of a lab's engine, to a raw peer with a separate device: the behaviour of one
// connection must not affect the other.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "tests/conformance/lab.h"

namespace sluice::conformance {

/// A further client of a ServerLab's server.
class SecondClient {
 public:
  explicit SecondClient(ServerLab& lab, const std::string& name = "second")
      : lab_(lab), device_(rdma::loopback::make_device(lab.fabric, {.name = name})) {
    connect();
  }
  ~SecondClient() {
    if (peer_) peer_->owned_qp.reset();
  }
  SecondClient(const SecondClient&) = delete;
  SecondClient& operator=(const SecondClient&) = delete;

  void connect() {
    peer_ = std::make_unique<RawPeer>(*device_, lab_.options.raw_receive_bytes, lab_.options.raw_receives);
    peer_->owned_qp = peer_->make_queue_pair();
    rdma::ConnectionManager& own_cm = *device_->connection_manager();
    ASSERT_TRUE(own_cm.connect(*peer_->owned_qp, kPort, {}).has_value());
    bool up = false;
    for (int i = 0; i < 100 && !up; ++i) {
      rdma::CmEvent events[4];
      const std::size_t count = lab_.device->connection_manager()->poll_events(events);
      for (const rdma::CmEvent& event : std::span(events, count))
        if (event.type == rdma::CmEventType::ConnectRequest) take(event);
      const std::size_t own_count = own_cm.poll_events(events);
      for (const rdma::CmEvent& event : std::span(events, own_count))
        up = up || event.type == rdma::CmEventType::Established;
    }
    ASSERT_TRUE(up);
    turns();
  }
  /// Ends the connection; the server reports it closed and its slot is free again.
  void disconnect() {
    peer_->owned_qp.reset();
    turns();
    while (lab_.engine->take_closed() != nullptr) {
    }
    ASSERT_EQ(connection->state(), rpcrdma::Connection::State::Closed);
  }

  /// Runs the server and this client, while the lab's own peer is not polled.
  void turns(int count = 60) {
    for (int i = 0; i < count; ++i) {
      lab_.turn();
      if (peer_->owned_qp) peer_->poll();
    }
  }
  void send(std::span<const std::byte> message) {
    peer_->send(message);
    turns();
  }

  /// Runs all three sides once. Returns false if nothing moved.
  bool turn() {
    const auto moved = [this] {
      return lab_.log.ops().size() + peer_->inbox.size() + peer_->send_completions.size() +
             lab_.peer->inbox.size() + lab_.peer->send_completions.size();
    };
    const std::size_t before = moved();
    const bool handed = lab_.turn();
    lab_.peer->poll();
    peer_->poll();
    return handed || moved() != before;
  }
  void settle() {
    for (int quiet = 0, turns = 0; quiet < 8 && turns < 2000; ++turns) quiet = turn() ? 0 : quiet + 1;
  }
  /// Sends a message and returns the replies.
  std::vector<Received> exchange(std::span<const std::byte> message) {
    peer_->inbox.clear();
    peer_->send(message);
    settle();
    return peer_->inbox;
  }
  RawPeer& peer() { return *peer_; }

  rpcrdma::Connection* connection = nullptr;

 private:
  void take(const rdma::CmEvent& event) {
    connection = lab_.engine->free_connection();
    ASSERT_NE(connection, nullptr);
    auto qp = lab_.device->create_queue_pair(lab_.engine->queue_pair_limits());
    rdma::QueuePair& qp_ref = *qp;
    connection->open(std::move(qp), lab_.options.connection, event.peer_address,
                     lab_.requester_for_next_connection);
    ASSERT_TRUE(lab_.device->connection_manager()->accept(event.id, qp_ref, {}));
    connection->established();
  }

  ServerLab& lab_;
  std::unique_ptr<rdma::Device> device_;
  std::unique_ptr<RawPeer> peer_;
};

/// A further server of a ClientLab's engine, and a connection to it with a separate requester.
class SecondServer {
 public:
  explicit SecondServer(ClientLab& lab)
      : lab_(lab),
        device_(rdma::loopback::make_device(lab.fabric, {.name = "second"})),
        peer_(*device_, lab.options.raw_receive_bytes, lab.options.raw_receives),
        requester(lab.engine->requester_context(), *lab.device, lab.options.requester) {
    constexpr std::uint16_t kOwnPort = kPort + 1;
    peer_.owned_qp = peer_.make_queue_pair();
    rdma::ConnectionManager& own_cm = *device_->connection_manager();
    rdma::ConnectionManager& cm = *lab.device->connection_manager();
    own_cm.listen(kOwnPort);
    connection = lab.engine->free_connection();
    auto qp = lab.device->create_queue_pair(lab.engine->queue_pair_limits());
    rdma::QueuePair& qp_ref = *qp;
    connection->open(std::move(qp), lab.options.connection, PeerAddress::from_ipv4(10, 0, 0, 2), &requester);
    EXPECT_TRUE(cm.connect(qp_ref, kOwnPort, {}).has_value());
    rdma::CmEvent events[4];
    for (int i = 0; i < 100 && !requester.connected(); ++i) {
      std::size_t count = own_cm.poll_events(events);
      for (const rdma::CmEvent& event : std::span(events, count))
        if (event.type == rdma::CmEventType::ConnectRequest) {
          EXPECT_TRUE(own_cm.accept(event.id, *peer_.owned_qp, {}));
        }
      count = cm.poll_events(events);
      for (const rdma::CmEvent& event : std::span(events, count))
        if (event.type == rdma::CmEventType::Established) connection->established();
    }
    EXPECT_TRUE(requester.connected());
    settle();
  }
  ~SecondServer() {
    peer_.owned_qp.reset();
    settle();
  }

  void settle() {
    for (int i = 0; i < 100; ++i) {
      lab_.engine->poll(lab_.now_ns += 1000);
      lab_.peer->poll();
      peer_.poll();
    }
  }
  RawPeer& peer() { return peer_; }

  rpcrdma::Connection* connection = nullptr;

 private:
  ClientLab& lab_;
  std::unique_ptr<rdma::Device> device_;
  RawPeer peer_;

 public:
  rpcrdma::Requester requester;
};

}  // namespace sluice::conformance
