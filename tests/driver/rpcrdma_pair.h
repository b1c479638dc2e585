// SPDX-License-Identifier: Apache-2.0
//
// A client and a server of RPC-over-RDMA with a wire between their softroce ports, all of them in one thread.
#pragma once

#include <bit>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <utility>

#include "dataplane/rpcrdma/engine.h"
#include "dataplane/rpcrdma/requester/requester.h"
#include "tests/driver/softroce_pair.h"

namespace sluice::rdma::conformance {

class RpcRdmaPair {
 public:
  struct Options {
    SoftRocePair::Options ports{};      ///< with a clock
    std::uint32_t version = 1;          ///< of RPC-over-RDMA
    std::uint32_t inline_bytes = 4096;  ///< largest Send, both ways
    std::uint32_t credits = 64;
    std::uint32_t calls = 8;  ///< calls that use memory of the client; a power of two
  };

  explicit RpcRdmaPair(const Options& options)
      : options_(options),
        ports_(options.ports),
        client_(ports_.left(), engine_config(0, options.credits)),
        server_(ports_.right(), engine_config(options.credits, 0)),
        requester_(client_.requester_context(), ports_.left(),
                   {.requests = options.calls,
                    .inline_bytes = options.inline_bytes,
                    .credits_requested = options.credits,
                    .long_buffers = options.calls}),
        client_end_(open(client_, ports_.left(), true)),
        server_end_(open(server_, ports_.right(), false)) {
    join(client_end_, ports_.left(), server_end_, ports_.right(), ports_.link_of_right());
    join(server_end_, ports_.right(), client_end_, ports_.left(), ports_.link_of_left());
    client_end_.established();
    server_end_.established();
  }
  ~RpcRdmaPair() { close(); }
  /// Closes the connection. Call before destroying services that do not outlive the pair.
  void close() {
    if (std::exchange(closed_, true)) return;
    constexpr int kTurnsToDrain = 2000;
    client_end_.close(rpcrdma::CloseReason::LocalClose);
    server_end_.close(rpcrdma::CloseReason::LocalClose);
    for (int i = 0; i < kTurnsToDrain; ++i) turn();
  }
  RpcRdmaPair(const RpcRdmaPair&) = delete;
  RpcRdmaPair& operator=(const RpcRdmaPair&) = delete;

  SoftRocePair& ports() { return ports_; }
  rpcrdma::Engine& client() { return client_; }
  /// Services may be added before the first call of turn().
  rpcrdma::Engine& server() { return server_; }
  rpcrdma::Requester& requester() { return requester_; }
  bool is_open() const { return client_end_.is_open() && server_end_.is_open(); }

  /// Runs the wire and both ends once. Returns false if they were idle.
  bool turn() {
    const std::uint64_t carried = ports_.wire().counts().carried;
    ports_.carry();
    const std::uint64_t now_ns = options_.ports.clock_ns();
    client_.poll(now_ns);
    server_.poll(now_ns);
    return client_.worked() || server_.worked() || ports_.wire().counts().carried > carried;
  }
  /// Calls turn() until everything has been idle for a while.
  void settle() {
    constexpr int kQuietTurns = 8;
    for (int quiet = 0; quiet < kQuietTurns;) quiet = turn() ? 0 : quiet + 1;
  }

  /// RDMA operations of both ends.
  struct Operations {
    std::uint64_t sends = 0, reads = 0, writes = 0;
  };
  Operations operations() {
    Operations sum;
    for (const softroce::SoftRoce* end : {&ports_.left(), &ports_.right()}) {
      sum.sends += end->statistics().sends;
      sum.reads += end->statistics().reads;
      sum.writes += end->statistics().writes;
    }
    return sum;
  }

 private:
  rpcrdma::EngineConfig engine_config(std::uint32_t call_slots, std::uint32_t requests) const {
    rpcrdma::EngineConfig config;
    config.max_connections = 1;
    config.capacity.call_slots = call_slots;
    config.capacity.requests = requests;
    config.capacity.receive_bytes = options_.inline_bytes;
    return config;
  }
  rpcrdma::Connection& open(rpcrdma::Engine& engine, Device& device, bool active) {
    rpcrdma::ConnectionConfig config;
    config.receive_inline_bytes = config.send_inline_bytes = options_.inline_bytes;
    config.credit_grant = active ? 0 : options_.credits;
    config.credits_requested = active ? options_.credits : 0;
    config.active = active;
    config.max_version = options_.version;
    rpcrdma::Connection& connection = *engine.free_connection();
    connection.open(device.create_queue_pair(engine.queue_pair_limits()), config,
                    PeerAddress::from_ipv4(192, 0, 2, active ? 2 : 1), active ? &requester_ : nullptr);
    return connection;
  }
  static void join(rpcrdma::Connection& from, Device& own, rpcrdma::Connection& to, Device& peer,
                   const LinkAddress& link_of_peer) {
    constexpr std::uint32_t kFirstPsn = 100;
    RcAttributes attributes;
    attributes.local = own.addresses()[0];
    attributes.remote = peer.addresses()[0];
    attributes.remote_link = link_of_peer;
    attributes.remote_qp = to.queue_pair().number();
    attributes.send_psn = attributes.receive_psn = kFirstPsn;
    attributes.path_mtu = own.max_path_mtu();
    if (!from.queue_pair().connect(attributes))
      throw std::runtime_error("The queue pairs cannot be connected.");
  }

  bool closed_ = false;
  const Options options_;
  SoftRocePair ports_;
  rpcrdma::Engine client_;
  rpcrdma::Engine server_;
  rpcrdma::Requester requester_;
  rpcrdma::Connection& client_end_;
  rpcrdma::Connection& server_end_;
};

}  // namespace sluice::rdma::conformance
