// SPDX-License-Identifier: Apache-2.0
//
// The gateway between RDMA clients of ours and an upstream of the test, all polled by one thread: client
// engines, the server's engine with its upstreams, and the fake upstream.
#pragma once

#include <gtest/gtest.h>

#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "dataplane/gateway/tcp_upstream/upstreams.h"
#include "dataplane/ulb/nfs3.h"
#include "dataplane/ulb/nfs4.h"
#include "tests/conformance/lab.h"
#include "tests/unit/gateway/tcp_upstream/fake_upstream.h"

namespace sluice::tcp_upstream_test {

using rpcrdma::CallStatus;

struct ForwardOptions {
  std::uint32_t version = 1;
  std::uint32_t credits = 16;
  std::uint32_t record_buffers = 4;
  std::uint32_t item_buffers = 16;
  std::uint32_t max_io_bytes = tcp::kMaxDataBytes;
  std::uint32_t reply_buffers = 4;
  std::uint32_t shared_connections = 2;
  std::uint32_t max_calls = 64;
  std::uint32_t callers = 4;
  std::uint64_t call_timeout_ns = 0;
  bool privileged_port = false;
  service::Withheld withheld = {};
  std::uint64_t progress_timeout_ns = 0;
  std::uint32_t cache_entries = 4096;
  std::vector<segment::UpstreamAddress> addresses = {{.address = PeerAddress::from_ipv4(127, 0, 0, 1)}};
  UringFeatures uring = UringFeatures::all();  ///< used if the kernel has them
  bool one_host = false;  ///< all connections are one client's; else each is another one's
  std::vector<tcp_upstream::Route> hung_routes =
      {};                       ///< to an upstream of their own, which answers nothing by itself
  std::uint32_t tag = 0;        ///< of the upstream's file handles; zero: none
  std::uint32_t hung_tag = 0;   ///< of those of the other
  bool hung_is_spare = false;   ///< the other is one that comes later
  std::uint16_t hung_port = 0;  ///< at which clients reach it; zero: at that of the first one
  std::vector<tcp_upstream::Route> routes = {
      {ulb::kNfsProgram, 3}, {ulb::kNfsProgram, 4}, {ulb::kMountProgram, 3}, {0x20000123, 1}};
};

struct Outcome {
  CallStatus status{};
  Bytes message;
  std::vector<rpcrdma::ItemResult> items;
};

/// An RDMA client: an engine, one connection, and a program that can be called back.
class LabClient {
 public:
  LabClient(std::shared_ptr<rdma::loopback::Fabric> fabric, const ForwardOptions& options, int number);

  /// Its result will be in `finished` at the index returned.
  std::size_t submit(rpcrdma::Request request, std::vector<std::uint32_t> item_counts = {});
  void poll(std::uint64_t now_ns) { engine.poll(now_ns); }
  /// New registered memory.
  std::span<std::byte> memory(std::size_t bytes);
  rdma::Sge piece(std::span<std::byte> bytes) const {
    return {bytes.data(), static_cast<std::uint32_t>(bytes.size()), region.lkey};
  }
  void disconnect();

  std::unique_ptr<rdma::loopback::Loopback> device;
  rpcrdma::Engine engine;
  conformance::TestService reverse;
  rpcrdma::Requester requester;
  rdma::MemoryRegion region;
  std::size_t region_used = 0;
  rpcrdma::Connection* connection = nullptr;
  std::optional<rdma::CmId> cm_id;
  std::deque<std::optional<Outcome>> finished;

 private:
  struct Ticket {
    LabClient* client = nullptr;
    std::size_t index = 0;
    std::vector<std::uint32_t> item_counts;
  };
  static void completed(void* context, const rpcrdma::Reply& reply) noexcept;
  std::deque<Ticket> tickets_;
};

class ForwardLab {
 public:
  explicit ForwardLab(ForwardOptions options = {});
  ~ForwardLab();

  /// Connects another client.
  LabClient& add_client(std::uint16_t port = conformance::kPort);
  std::unique_ptr<conformance::RawPeer> add_raw_peer(std::uint32_t receives = 64);
  void disconnect(LabClient& client);
  /// Connects a client again that has been disconnected.
  void reconnect(LabClient& client);

  void turn();
  /// Accepts connections that clients request.
  void accept_clients();
  static std::uint64_t clock() noexcept;
  /// Polls until the condition holds; fails the test if it never does.
  testing::AssertionResult until(const std::function<bool()>& reached);
  /// Polls long enough to see that something does not happen.
  void turns(int count = 300);
  void pass(std::uint64_t ns) { skipped_ns += ns; }
  /// Time stands still until the next of these calls.
  void stop_clock() { stopped_ns = clock(); }
  void start_clock() { stopped_ns = 0; }

  Outcome call(LabClient& client, rpcrdma::Request request, std::vector<std::uint32_t> item_counts = {});
  /// What the control plane has found: the addresses of the upstream, in order of preference. Port zero: as before.
  void set_addresses(const std::vector<segment::UpstreamAddress>& addresses, std::uint16_t port = 0);

  /// The spare upstream becomes one with this tag of its handles, or at this port of its own.
  void bring(std::uint32_t tag, std::uint16_t port = 0);

  std::uint64_t hung_count(segment::UpstreamCounter counter) const {
    return hung_area->counters[static_cast<std::size_t>(counter)].load();
  }
  std::uint64_t count(segment::UpstreamCounter counter) const {
    return area->counters[static_cast<std::size_t>(counter)].load();
  }

  const ForwardOptions options;
  FakeUpstream upstream;
  std::unique_ptr<segment::SharedUpstreamAddresses> addresses =
      std::make_unique<segment::SharedUpstreamAddresses>();
  std::unique_ptr<segment::UpstreamArea> area = std::make_unique<segment::UpstreamArea>();
  std::unique_ptr<FakeUpstream> hung;  ///< null without hung_routes
  std::unique_ptr<segment::UpstreamArea> hung_area = std::make_unique<segment::UpstreamArea>();
  std::shared_ptr<rdma::loopback::Fabric> fabric;
  std::unique_ptr<rdma::loopback::Loopback> device;
  std::unique_ptr<rpcrdma::Engine> engine;
  std::unique_ptr<tcp_upstream::CreditLimits> credits;
  tcp_upstream::RequestCaches caches;
  std::unique_ptr<tcp_upstream::Upstreams> upstreams;
  std::deque<std::unique_ptr<LabClient>> clients;
  std::vector<std::unique_ptr<rdma::Device>> raw_devices;
  std::vector<conformance::RawPeer*> raw_peers;
  std::vector<rpcrdma::CloseReason> ends;      ///< of the gateway's connections
  std::function<void()> beside;                ///< polled as well
  static inline std::uint64_t skipped_ns = 0;  ///< how far tests have advanced the clock
  static inline std::uint64_t stopped_ns = 0;  ///< what the clock shows; zero: it runs

 private:
  std::uint8_t accepted_ = 0;
  segment::UpstreamAddressTable table_{};
  tcp_upstream::UpstreamSetup setup_of(const FakeUpstream& server,
                                       const std::vector<tcp_upstream::Route>& routes, std::uint32_t tag,
                                       segment::UpstreamArea& area);
  /// Polls until `cm` reports the connection established.
  void await_established(rdma::ConnectionManager& cm);
};

/// A WRITE of version 3 with its data in a Read chunk.
struct LongWrite {
  LongWrite(LabClient& client, std::uint32_t bytes);
  rpcrdma::Request request() const { return {.payload = call, .reads = {&item, 1}, .max_reply_bytes = 200}; }
  Bytes call;
  std::span<std::byte> data;
  rdma::Sge piece;
  rpcrdma::ReadItem item;
};

/// RPC call with AUTH_NONE; the XID is the requester's to set.
Bytes call_of(std::uint32_t program, std::uint32_t version, std::uint32_t procedure,
              const Bytes& arguments = {});
Bytes nfs3(std::uint32_t procedure, const Bytes& arguments = {});
Bytes opaque(std::span<const std::byte> data);

}  // namespace sluice::tcp_upstream_test
