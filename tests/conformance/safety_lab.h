// SPDX-License-Identifier: Apache-2.0
//
// A further raw client of a ServerLab, with a device of its own: it goes on while the lab's peer stands
// still.
#pragma once

#include <gtest/gtest.h>

#include <memory>

#include "tests/conformance/lab.h"

namespace sluice::conformance {

/// A long call: the RPC message is in a position-zero Read chunk. `call` is an RPC call message of the test
/// program.
inline void send_long_call(RawPeer& peer, std::span<const std::byte> call) {
  const auto memory = peer.expose(call.size(), rdma::kRemoteRead);
  std::copy(call.begin(), call.end(), memory.bytes.begin());
  Bytes message = words({word_at(call, 0), 1, 32, 1, 1, 0, static_cast<std::uint32_t>(memory.segment.handle),
                         memory.segment.length, static_cast<std::uint32_t>(memory.segment.offset >> 32),
                         static_cast<std::uint32_t>(memory.segment.offset), 0, 0, 0});
  peer.send(message);
}

class SecondClient {
 public:
  explicit SecondClient(ServerLab& lab, const std::string& name = "second")
      : lab_(lab), device_(rdma::loopback::make_device(lab.fabric, {.name = name})) {
    connect();
  }
  ~SecondClient() {
    if (peer) peer->owned_qp.reset();
  }
  SecondClient(const SecondClient&) = delete;
  SecondClient& operator=(const SecondClient&) = delete;

  void connect() {
    peer = std::make_unique<RawPeer>(*device_, lab_.options.raw_receive_bytes, lab_.options.raw_receives);
    peer->owned_qp = peer->make_queue_pair();
    rdma::ConnectionManager& raw_cm = *device_->connection_manager();
    rdma::ConnectionManager& cm = *lab_.device->connection_manager();
    ASSERT_TRUE(raw_cm.connect(*peer->owned_qp, kPort, {}).has_value());
    bool up = false;
    for (int i = 0; i < 100 && !up; ++i) {
      rdma::CmEvent events[4];
      const std::size_t count = cm.poll_events(events);
      for (const rdma::CmEvent& event : std::span(events, count)) {
        if (event.type != rdma::CmEventType::ConnectRequest) continue;
        connection = lab_.engine->free_connection();
        ASSERT_NE(connection, nullptr);
        auto qp = lab_.device->create_queue_pair(lab_.engine->queue_pair_limits());
        rdma::QueuePair& accepted = *qp;
        connection->open(std::move(qp), lab_.options.connection, event.peer_address, nullptr);
        ASSERT_TRUE(cm.accept(event.id, accepted, {}));
        connection->established();
      }
      const std::size_t raw_count = raw_cm.poll_events(events);
      for (const rdma::CmEvent& event : std::span(events, raw_count))
        up = up || event.type == rdma::CmEventType::Established;
    }
    ASSERT_TRUE(up);
    turns();
  }
  /// The connection ends, and its place with the server is free again.
  void disconnect() {
    peer->owned_qp.reset();
    turns();
    while (lab_.engine->take_closed() != nullptr) {
    }
    ASSERT_EQ(connection->state(), rpcrdma::Connection::State::Closed);
  }
  /// Turns of the server and of this client; the lab's own peer does nothing.
  void turns(int count = 60) {
    for (int i = 0; i < count; ++i) {
      lab_.turn();
      if (peer->owned_qp) peer->poll();
    }
  }
  void send(std::span<const std::byte> message) {
    peer->send(message);
    turns();
  }

  std::unique_ptr<RawPeer> peer;
  rpcrdma::Connection* connection = nullptr;

 private:
  ServerLab& lab_;
  std::unique_ptr<rdma::Device> device_;
};

}  // namespace sluice::conformance
