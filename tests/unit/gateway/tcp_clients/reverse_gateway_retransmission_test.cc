// SPDX-License-Identifier: Apache-2.0
//
// RPC-over-RDMA servers that drop a call and answer others. The connection is replaced, and all calls are
// sent again with their XIDs (V1-152). On the same connection, a retransmission would use a credit that no
// reply returns.
#include <algorithm>
#include <map>

#include "tests/conformance/raw_call.h"
#include "tests/unit/gateway/tcp_clients/reverse_gateway_lab.h"

namespace sluice::tcp_clients_test {
namespace {

using conformance::RawCall;
using tcp_upstream_test::ForwardLab;
using tcp_upstream_test::kSecond;

constexpr std::uint32_t kFirstProbeXid = 1u << 31;

/// A TCP client, the reverse gateway, and a server whose messages the test creates.
class SlowServer {
 public:
  SlowServer() : side_(fabric_, {.version = 1}, &ForwardLab::clock) {
    device_->connection_manager()->listen(conformance::kPort);
    client_ = &side_.add_peer();
  }

  /// Decides for each call that arrives whether it is answered.
  std::function<bool(std::uint32_t xid)> answers = [](std::uint32_t) { return true; };

  void call(std::uint32_t xid) { client_->send_record(stuck_call(xid)); }
  /// Polls everything for this many seconds, in steps of one second.
  void pass(std::uint64_t seconds) {
    for (; seconds > 0; --seconds) {
      ForwardLab::skipped_ns += kSecond;
      for (int i = 0; i < kTurns; ++i) poll();
    }
  }
  std::uint32_t arrivals(std::uint32_t xid) { return arrivals_[xid]; }
  std::size_t connections() const { return side_.connections.size(); }
  void break_connection() { side_.connections.back()->close(rpcrdma::CloseReason::TransportError); }
  /// Returns the XIDs of the replies that the client has received.
  std::vector<std::uint32_t> replies() {
    while (const std::optional<Bytes> reply = client_->take_record()) replies_.push_back(word_at(*reply, 0));
    return replies_;
  }
  bool client_ended() const { return client_->ended(); }
  std::uint64_t count(Counter counter) { return side_.count(counter); }

 private:
  static constexpr int kTurns = 40;

  void poll() {
    side_.poll(ForwardLab::clock());
    std::array<rdma::CmEvent, 4> events;
    rdma::ConnectionManager& manager = *device_->connection_manager();
    const std::size_t count = manager.poll_events(events);
    for (const rdma::CmEvent& event : std::span(events).first(count)) {
      if (event.type != rdma::CmEventType::ConnectRequest) continue;
      peer_ = std::make_unique<conformance::RawPeer>(*device_, 4096, 64);
      peer_->owned_qp = peer_->make_queue_pair();
      seen_ = 0;
      EXPECT_TRUE(manager.accept(event.id, *peer_->owned_qp, {}));
    }
    if (peer_ == nullptr) return;
    peer_->poll();
    for (; seen_ < peer_->inbox.size(); ++seen_) {
      const std::uint32_t xid = word_at(peer_->inbox[seen_].bytes, 0);
      ++arrivals_[xid];
      const bool is_probe = xid >= kFirstProbeXid;
      if (is_probe || answers(xid))
        peer_->send(RawCall{.xid = xid, .credits = 8}.with(success(xid, is_probe ? Bytes{} : words({70}))));
    }
  }

  std::shared_ptr<rdma::loopback::Fabric> fabric_ = rdma::loopback::Fabric::in_process({.links = 64});
  std::unique_ptr<rdma::Device> device_ = rdma::loopback::make_device(fabric_, {.name = "raw"});
  ReverseGatewaySide side_;
  std::unique_ptr<conformance::RawPeer> peer_;
  TcpPeer* client_ = nullptr;
  std::size_t seen_ = 0;
  std::map<std::uint32_t, std::uint32_t> arrivals_;
  std::vector<std::uint32_t> replies_;
};

constexpr std::uint64_t kRetransmitSeconds = gateway::kRetransmitNs / kSecond;
constexpr std::uint64_t kUnansweredSeconds = gateway::kUnansweredNs / kSecond;

/// Makes a call that is answered and grants credits, and call 7, which is not answered.
void drop_call_7(SlowServer& server) {
  server.answers = [](std::uint32_t xid) { return xid == 1; };
  server.call(1);
  server.pass(1);
  server.call(6);
  server.call(7);
  server.pass(1);
  ASSERT_EQ(server.arrivals(7), 1u);
  server.answers = [](std::uint32_t xid) { return xid != 7; };
}

TEST(ReverseGatewayRetransmission,
     V1_152_a_call_dropped_after_a_lost_connection_is_sent_again_on_another_one) {
  SlowServer server;
  drop_call_7(server);
  server.break_connection();
  server.pass(2);
  ASSERT_EQ(server.arrivals(7), 2u);
  server.pass(kRetransmitSeconds - 5);
  EXPECT_EQ(server.arrivals(7), 2u) << "not yet";
  server.answers = [](std::uint32_t) { return true; };
  server.pass(10);
  EXPECT_EQ(server.arrivals(7), 3u);
  EXPECT_EQ(server.connections(), 3u);
  EXPECT_EQ(server.replies(), (std::vector<std::uint32_t>{1, 6, 7}));
  EXPECT_EQ(server.count(Counter::retransmissions), 1u);
  EXPECT_EQ(server.count(Counter::server_resets), 0u);
}

TEST(ReverseGatewayRetransmission, a_clients_own_retransmission_of_a_dropped_call_is_passed_on) {
  SlowServer server;
  drop_call_7(server);
  server.pass(kRetransmitSeconds + 1);
  EXPECT_EQ(server.arrivals(7), 1u) << "the server is more likely to be slow";
  server.call(7);
  server.answers = [](std::uint32_t) { return true; };
  server.pass(4);
  EXPECT_EQ(server.arrivals(7), 2u);
  EXPECT_EQ(server.count(Counter::duplicate_calls), 1u);
  EXPECT_EQ(server.replies(), (std::vector<std::uint32_t>{1, 6, 7}));
}

TEST(ReverseGatewayRetransmission, a_dropped_call_that_nobody_repeats_is_sent_again_later) {
  SlowServer server;
  drop_call_7(server);
  server.pass(kUnansweredSeconds - 5);
  EXPECT_EQ(server.arrivals(7), 1u);
  server.pass(10);
  EXPECT_EQ(server.arrivals(7), 2u);
  server.pass(2 * kRetransmitSeconds + 30);
  EXPECT_EQ(server.arrivals(7), 3u) << "it has been sent over two connections, and the timeout has doubled";
}

TEST(ReverseGatewayRetransmission, a_server_that_answers_nothing_is_left_to_the_liveness_timer) {
  SlowServer server;
  server.answers = [](std::uint32_t) { return false; };
  server.call(7);
  server.pass(2);
  EXPECT_EQ(server.count(Counter::retransmissions), 0u);
}

}  // namespace
}  // namespace sluice::tcp_clients_test
