// SPDX-License-Identifier: Apache-2.0
//
// RDMA clients, a relay, and a server over RPC-over-RDMA. The server is the gateway over TCP with an upstream
// of the test. All run in one thread. Each byte that a client sends must reach the upstream unchanged, and
// vice versa, over any transport in between.
#pragma once

#include "dataplane/gateway/rdma_upstream/relay.h"
#include "dataplane/gateway/slots/upstream_slots.h"
#include "tests/unit/gateway/rdma_server/dialing_side.h"
#include "tests/unit/gateway/tcp_upstream/forward_lab.h"

namespace sluice::rdma_upstream_test {

using conformance::append;
using conformance::Bytes;
using conformance::word_at;
using conformance::words;
using tcp_upstream_test::LabClient;
using tcp_upstream_test::Outcome;
using Counter = segment::UpstreamCounter;

struct RelayOptions {
  std::uint32_t client_version = 1;
  std::uint32_t server_version = 1;
  std::uint32_t connections = 4;
  std::uint32_t calls = 16;
  std::uint32_t record_buffers = 16;
  std::uint32_t item_buffers = 16;
  std::uint32_t max_io_bytes = tcp::kMaxDataBytes;  ///< of the relay and of the gateway that plays the server
  std::uint32_t reply_buffers = 16;                 ///< buffers of the relay's engine
  std::uint64_t call_timeout_ns = 0;
  service::Withheld withheld{.pnfs = false, .referrals = false};
  service::Withheld withheld_by_server{};  ///< withheld by the gateway that plays the server
  bool knows_address = true;
  bool spare = false;  ///< the slot has no upstream and no services yet
};

/// The relay's reactor.
class RelaySide final : public rdma_server_test::DialingSide {
 public:
  RelaySide(std::shared_ptr<rdma::loopback::Fabric> fabric, const RelayOptions& options, Clock clock);

  ~RelaySide() override { close_connections(); }

  void poll(std::uint64_t now_ns);
  /// Sets the server's address to 10.0.0.`last`.
  void set_address(std::uint8_t last = 1, std::uint16_t port = 20049);
  std::uint64_t count(Counter counter) const {
    return area->counters[static_cast<std::size_t>(counter)].load();
  }

  std::unique_ptr<segment::SharedUpstreamAddresses> addresses =
      std::make_unique<segment::SharedUpstreamAddresses>();
  std::unique_ptr<segment::UpstreamArea> area = std::make_unique<segment::UpstreamArea>();
  tcp_upstream::CreditLimits limits;
  std::unique_ptr<rdma_upstream::Relay> relay;
  std::unique_ptr<gateway::UpstreamSlots> slots;
  gateway::UpstreamSettings settings;          ///< of the upstream from the start
  std::vector<rpcrdma::Connection*> accepted;  ///< from clients, in order

 private:
  void on_connect_request(rdma::CmId id) override;

  const std::uint32_t credits_;
};

class RelayLab {
 public:
  explicit RelayLab(RelayOptions options = {});
  ~RelayLab();

  LabClient& add_client();
  testing::AssertionResult until(const std::function<bool()>& reached) { return forward.until(reached); }
  Outcome call(LabClient& client, const rpcrdma::Request& request,
               std::vector<std::uint32_t> item_counts = {});
  tcp_upstream_test::FakeUpstream& upstream() { return forward.upstream; }
  std::uint64_t count(Counter counter) const { return side.count(counter); }
  /// Returns true if no memory is held for any client.
  bool balanced() const;

  const RelayOptions options;
  tcp_upstream_test::ForwardLab forward;
  RelaySide side;
  std::deque<std::unique_ptr<LabClient>> clients;

 private:
  void turn();
};

}  // namespace sluice::rdma_upstream_test
