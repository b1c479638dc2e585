// SPDX-License-Identifier: Apache-2.0
//
// The gateway between RDMA clients of the test and an upstream of the test, all polled by one thread: client
// engines, the server's engine with its upstreams, and the fake upstream.
#pragma once

#include <gtest/gtest.h>

#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "dataplane/gateway/slots/upstream_slots.h"
#include "dataplane/gateway/tcp_upstream/upstreams.h"
#include "dataplane/ulb/nfs3.h"
#include "dataplane/ulb/nfs4.h"
#include "tests/conformance/lab.h"
#include "tests/unit/gateway/tcp_upstream/fake_upstream.h"

namespace sluice::tcp_upstream_test {

using rpcrdma::CallStatus;

inline constexpr std::uint64_t kSecond = 1'000'000'000;

/// Names of the upstreams, and of one that a reload assigns to a slot. All have the same addresses.
inline constexpr const char* kName = "fake";
inline constexpr const char* kNewcomer = "newcomer";

struct ForwardOptions {
  std::uint32_t version = 1;
  std::uint32_t credits = 16;
  std::uint32_t record_buffers = 4;
  std::uint32_t item_buffers = 16;
  std::uint32_t max_io_bytes = tcp::kMaxDataBytes;
  std::uint32_t reply_buffers = 4;
  std::uint32_t shared_connections = 2;
  std::uint32_t most_connections = 0;
  std::uint32_t max_calls = 64;
  std::uint32_t callers = 4;
  std::uint64_t call_timeout_ns = 0;
  bool privileged_port = false;
  service::Withheld withheld = {};
  std::uint64_t progress_timeout_ns = 0;
  std::uint32_t cache_entries = 4096;
  std::vector<segment::UpstreamAddress> addresses = {{.address = PeerAddress::from_ipv4(127, 0, 0, 1)}};
  UringFeatures uring = UringFeatures::all();  ///< used if the kernel supports them
  bool one_host = false;  ///< true: all connections belong to one client; false: each to a different one
  std::vector<tcp_upstream::Route> hung_routes =
      {};                       ///< routes of a second upstream, which answers nothing by itself
  std::uint32_t tag = 0;        ///< tag of the upstream's file handles; zero: none
  std::uint32_t hung_tag = 0;   ///< tag of the second upstream's file handles
  bool hung_is_spare = false;   ///< the second upstream is added later
  std::uint16_t hung_port = 0;  ///< port of the second upstream for clients; zero: port of the first one
  std::vector<tcp_upstream::Route> routes = {
      {ulb::kNfsProgram, 3}, {ulb::kNfsProgram, 4}, {ulb::kMountProgram, 3}, {0x20000123, 1}};
};

struct Outcome {
  CallStatus status{};
  Bytes message;
  std::vector<rpcrdma::ItemResult> items;
};

/// An RDMA client: an engine, one connection, and a program for callbacks.
class LabClient {
 public:
  LabClient(std::shared_ptr<rdma::loopback::Fabric> fabric, const ForwardOptions& options, int number);

  /// Submits a call. Returns the index of its result in `finished`.
  std::size_t submit(rpcrdma::Request request, std::vector<std::uint32_t> item_counts = {});
  void poll(std::uint64_t now_ns) { engine.poll(now_ns); }
  /// Returns new registered memory.
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
  /// Polls long enough to detect events that must not happen.
  void turns(int count = 300);
  void pass(std::uint64_t ns) { skipped_ns += ns; }
  /// Stops the clock until the next of these calls.
  void stop_clock() { stopped_ns = clock(); }
  void start_clock() { stopped_ns = 0; }

  Outcome call(LabClient& client, rpcrdma::Request request, std::vector<std::uint32_t> item_counts = {});
  /// Publishes the addresses of the upstream, in order of preference, like the control plane. Port zero keeps
  /// the present port.
  void set_addresses(const std::vector<segment::UpstreamAddress>& addresses, std::uint16_t port = 0);

  /// Assigns the spare upstream, with this tag of its handles or at its own port.
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
  tcp_upstream::DuplicateRequestCaches caches;
  std::unique_ptr<tcp_upstream::Upstreams> upstreams;
  std::unique_ptr<gateway::UpstreamSlots> slots;
  std::deque<std::unique_ptr<LabClient>> clients;
  std::vector<std::unique_ptr<rdma::Device>> raw_devices;
  std::vector<conformance::RawPeer*> raw_peers;
  std::vector<rpcrdma::CloseReason> ends;      ///< close reasons of the gateway's connections
  std::function<void()> beside;                ///< polled in each iteration
  static inline std::uint64_t skipped_ns = 0;  ///< total time by which tests have advanced the clock
  static inline std::uint64_t stopped_ns = 0;  ///< time that the clock shows; zero: it runs

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

/// Returns an RPC call with AUTH_NONE. The requester sets the XID.
Bytes call_of(std::uint32_t program, std::uint32_t version, std::uint32_t procedure,
              const Bytes& arguments = {});
Bytes nfs3(std::uint32_t procedure, const Bytes& arguments = {});
Bytes opaque(std::span<const std::byte> data);
/// Returns the message with this XID.
inline Bytes with_xid(Bytes message, std::uint32_t xid) {
  xdr::store_u32(message.data(), xid);
  return message;
}
inline Bytes joined(std::initializer_list<Bytes> parts) {
  Bytes all;
  for (const Bytes& part : parts) append(all, part);
  return all;
}

/// A program that the gateway has no binding for.
inline constexpr std::uint32_t kUnknownProgram = 0x20000123;
inline Bytes unknown_call(const Bytes& arguments = {}) {
  return call_of(kUnknownProgram, 1, 7, arguments);
}

}  // namespace sluice::tcp_upstream_test
