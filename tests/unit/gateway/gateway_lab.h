// SPDX-License-Identifier: Apache-2.0
//
// RDMA clients, a gateway to a server over TCP or over RDMA, and the test's server. Tests that use this lab
// hold for both gateways and for each pair of versions of RPC-over-RDMA. The server over RDMA is a second
// gateway in front of the test's server. One thread.
#pragma once

#include <memory>
#include <string>

#include "tests/unit/gateway/rdma_upstream/relay_lab.h"

namespace sluice::gateway_test {

using tcp_upstream_test::LabClient;
using tcp_upstream_test::Outcome;
using Counter = segment::UpstreamCounter;

enum class Server : std::uint8_t { OverTcp, OverRdma };

struct Path {
  Server server = Server::OverTcp;
  std::uint32_t client_version = 1;  ///< of RPC-over-RDMA, between client and gateway
  std::uint32_t server_version = 1;  ///< of RPC-over-RDMA, between gateway and server; unused over TCP

  std::string name() const {
    const std::string client = "v" + std::to_string(client_version);
    return client + (server == Server::OverTcp ? "_to_tcp" : "_to_v" + std::to_string(server_version));
  }
};

class GatewayLab {
 public:
  explicit GatewayLab(const Path& path,
                      const service::Withheld& withheld = {.pnfs = false, .referrals = false},
                      std::uint32_t max_io_bytes = tcp::kMaxDataBytes) {
    if (path.server == Server::OverTcp)
      tcp_ = std::make_unique<tcp_upstream_test::ForwardLab>(
          tcp_upstream_test::ForwardOptions{.version = path.client_version,
                                            .record_buffers = 32,
                                            .max_io_bytes = max_io_bytes,
                                            .withheld = withheld});
    else
      rdma_ = std::make_unique<rdma_upstream_test::RelayLab>(
          rdma_upstream_test::RelayOptions{.client_version = path.client_version,
                                           .server_version = path.server_version,
                                           .max_io_bytes = max_io_bytes,
                                           .withheld = withheld,
                                           .withheld_by_server = {.pnfs = false, .referrals = false}});
  }

  LabClient& add_client() { return tcp_ ? tcp_->add_client() : rdma_->add_client(); }
  LabClient& client(std::size_t index) { return tcp_ ? *tcp_->clients[index] : *rdma_->clients[index]; }
  std::size_t client_count() const { return tcp_ ? tcp_->clients.size() : rdma_->clients.size(); }
  tcp_upstream_test::FakeUpstream& upstream() { return tcp_ ? tcp_->upstream : rdma_->upstream(); }
  testing::AssertionResult until(const std::function<bool()>& reached) {
    return tcp_ ? tcp_->until(reached) : rdma_->until(reached);
  }
  Outcome call(LabClient& client, const rpcrdma::Request& request,
               std::vector<std::uint32_t> item_counts = {}) {
    return tcp_ ? tcp_->call(client, request, std::move(item_counts))
                : rdma_->call(client, request, std::move(item_counts));
  }
  /// Advances the clock of the gateway.
  void pass(std::uint64_t ns) { tcp_ ? tcp_->pass(ns) : rdma_->forward.pass(ns); }
  std::uint64_t count(Counter counter) const { return tcp_ ? tcp_->count(counter) : rdma_->count(counter); }
  rpcrdma::Engine& engine() { return tcp_ ? *tcp_->engine : rdma_->side.engine; }
  const segment::UpstreamArea& area() const { return tcp_ ? *tcp_->area : *rdma_->side.area; }
  /// Returns true if the gateway holds no memory for a client, and no call is outstanding or waits.
  bool balanced() const {
    if (area().outstanding.load() != 0 || area().waiting.load() != 0) return false;
    if (rdma_) return rdma_->balanced();
    for (std::size_t i = 0; i < tcp_->clients.size(); ++i)
      if (tcp_->upstreams->held_bytes(static_cast<std::uint16_t>(i)) > 0) return false;
    return true;
  }

 private:
  std::unique_ptr<tcp_upstream_test::ForwardLab> tcp_;  ///< null over RDMA
  std::unique_ptr<rdma_upstream_test::RelayLab> rdma_;  ///< null over TCP
};

}  // namespace sluice::gateway_test
