// SPDX-License-Identifier: Apache-2.0
//
// Clients over loopback RDMA, and the reactor with its upstream connections that forwards their calls, all on
// one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "dataplane/gateway/rdma_upstream/relay.h"
#include "dataplane/gateway/slots/upstream_slots.h"
#include "dataplane/gateway/tcp_upstream/upstreams.h"
#include "pmd/loopback/loopback.h"
#include "tests/bench/forward_calls.h"
#include "tests/bench/rate.h"
#include "tests/bench/relay_dialer.h"

namespace sluice::bench {

struct GatewayShape {
  std::uint32_t clients = 1;
  std::uint32_t upstream_connections = 1;
  std::uint32_t max_io_bytes = tcp::kMaxDataBytes;  ///< maximum data bytes of one READ or WRITE
};

class Gateway {
 public:
  /// Creates a gateway with an upstream over TCP at this port of the host.
  Gateway(std::uint16_t upstream_port, const GatewayShape& shape);
  /// Creates a gateway with its own upstream over RDMA, for calls of this shape.
  Gateway(const ForwardedShape& calls, const GatewayShape& shape);
  ~Gateway();
  Gateway(const Gateway&) = delete;
  Gateway& operator=(const Gateway&) = delete;

  /// Measures with `depth` outstanding calls of each client. May be called once.
  Rate run(const ForwardedShape& shape, std::uint32_t depth, double seconds);

  /// One iteration of the reactor, as a function.
  using Turn = std::function<void()>;
  /// Makes one call without data. `around` runs each iteration of the reactor until the call is answered. All
  /// iterations have the same time, so that periodic work, which is not a part of the call, is not due.
  void call_once(const ForwardedShape& shape, const std::function<void(const Turn&)>& around);

 private:
  struct Call {
    Gateway* gateway = nullptr;
    rpcrdma::Requester* client = nullptr;
    std::uint64_t begun_ns = 0;
    rdma::Sge piece;
    rpcrdma::ReadItem argument;
    rpcrdma::WriteItem result;
    rpcrdma::Request request;
  };

  explicit Gateway(const GatewayShape& shape);
  tcp_upstream::UpstreamsConfig upstream_config(std::uint16_t port, const GatewayShape& shape);
  void serve(const gateway::UpstreamSettings& settings);
  void connect();
  void begin(Call& call, const ForwardedShape& shape);
  static void submit(Call& call);
  static void done(void* context, const rpcrdma::Reply& reply) noexcept;
  void poll(std::uint64_t now);
  void poll_reactor(std::uint64_t now);

  const std::unique_ptr<segment::SharedUpstreamAddresses> addresses_ =
      std::make_unique<segment::SharedUpstreamAddresses>();
  const std::unique_ptr<segment::UpstreamArea> area_ = std::make_unique<segment::UpstreamArea>();
  const std::shared_ptr<rdma::loopback::Fabric> fabric_;
  const std::unique_ptr<rdma::loopback::Loopback> server_device_;
  const std::unique_ptr<rdma::loopback::Loopback> client_device_;
  rpcrdma::Engine server_;
  rpcrdma::Engine client_;
  // Only one of the two transports is in use.
  tcp_upstream::CreditLimits credits_;
  tcp_upstream::DuplicateRequestCache cache_{4096, 64};
  std::unique_ptr<tcp_upstream::Upstreams> upstreams_;
  std::unique_ptr<RdmaServer> rdma_server_;
  RelayDialer dialer_;
  std::vector<Owned<rdma_upstream::Relay>> relays_;  ///< at most one
  std::unique_ptr<gateway::UpstreamSlots> slots_;
  std::vector<std::unique_ptr<rpcrdma::Requester>> requesters_;  ///< requesters of the clients
  std::vector<std::byte> message_;
  Rate rate_;
  std::size_t open_ = 0;  ///< calls; outstanding() excludes replies that are not delivered yet
  bool stopping_ = false;
};

}  // namespace sluice::bench
