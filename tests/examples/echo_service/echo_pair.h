// SPDX-License-Identifier: Apache-2.0
//
// A client and a server of RPC-over-RDMA with the echo service, on two devices that one thread polls.
#pragma once

#include <cstdint>
#include <stdexcept>

#include "dataplane/rpcrdma/engine.h"
#include "dataplane/rpcrdma/requester/requester.h"
#include "tests/examples/echo_service/echo_service.h"

namespace sluice::examples {

class EchoPair {
 public:
  static constexpr std::uint32_t kCredits = 32;

  EchoPair(rdma::Device& client_device, rdma::Device& server_device)
      : service(server_device),
        client(client_device, config(kCredits)),
        server(server_device, config(0)),
        requester(client.requester_context(), client_device,
                  {.requests = 2 * kCredits, .credits_requested = kCredits}) {
    server.add_service(service);
    client_end_ = client.free_connection();
    server_end_ = server.free_connection();
    client_end_->open(client_device.create_queue_pair(client.queue_pair_limits()),
                      {.credit_grant = 0, .credits_requested = kCredits, .active = true}, {}, &requester);
    server_end_->open(server_device.create_queue_pair(server.queue_pair_limits()), {}, {}, nullptr);
    if (server_device.connection_manager() != nullptr)
      connect_by_managers(client_device, server_device);
    else
      connect_by_attributes(client_device, server_device);
  }
  ~EchoPair() { close(); }
  EchoPair(const EchoPair&) = delete;
  EchoPair& operator=(const EchoPair&) = delete;

  void poll() noexcept {
    client.poll(1);
    server.poll(1);
  }
  /// Polls until both ends have been idle for a while.
  void settle() {
    constexpr int kQuietPolls = 16;
    for (int quiet = 0; quiet < kQuietPolls;) {
      poll();
      quiet = client.worked() || server.worked() ? 0 : quiet + 1;
    }
  }
  /// Closes both ends and drains them.
  void close() {
    for (rpcrdma::Connection* end : {client_end_, server_end_})
      if (end->is_open()) end->close(rpcrdma::CloseReason::LocalClose);
    settle();
  }

 private:
  rpcrdma::Connection* client_end_ = nullptr;
  rpcrdma::Connection* server_end_ = nullptr;

 public:
  EchoService service;  ///< of `server`
  rpcrdma::Engine client;
  rpcrdma::Engine server;
  rpcrdma::Requester requester;

 private:
  static rpcrdma::EngineConfig config(std::uint32_t requests) {
    rpcrdma::EngineConfig config;
    config.max_connections = 1;
    config.capacity.requests = requests;
    return config;
  }
  /// Connects by the drivers' own managers, as loopback has.
  void connect_by_managers(rdma::Device& client_device, rdma::Device& server_device) {
    constexpr std::uint16_t kPort = 1;
    constexpr int kPatience = 100;
    rdma::ConnectionManager& client_manager = *client_device.connection_manager();
    rdma::ConnectionManager& server_manager = *server_device.connection_manager();
    server_manager.listen(kPort);
    if (!client_manager.connect(client_end_->queue_pair(), kPort, {})) throw std::runtime_error("no request");
    for (int i = 0; i < kPatience; ++i) {
      rdma::CmEvent event;
      if (server_manager.poll_events({&event, 1}) == 1) {
        if (event.type == rdma::CmEventType::ConnectRequest)
          server_manager.accept(event.id, server_end_->queue_pair(), {});
        if (event.type == rdma::CmEventType::Established) server_end_->established();
      }
      if (client_manager.poll_events({&event, 1}) == 1 && event.type == rdma::CmEventType::Established)
        client_end_->established();
    }
  }
  /// Connects by the attributes that a control plane would have negotiated.
  void connect_by_attributes(rdma::Device& client_device, rdma::Device& server_device) {
    connect(*client_end_, client_device, *server_end_, server_device);
    connect(*server_end_, server_device, *client_end_, client_device);
    client_end_->established();
    server_end_->established();
  }
  static void connect(rpcrdma::Connection& from, rdma::Device& own, rpcrdma::Connection& to,
                      rdma::Device& peer) {
    rdma::RcAttributes attributes;
    attributes.local = own.addresses()[0];
    attributes.remote = peer.addresses()[0];
    attributes.remote_qp = to.queue_pair().number();
    if (!from.queue_pair().connect(attributes)) throw std::runtime_error("not connected");
  }
};

}  // namespace sluice::examples
