// SPDX-License-Identifier: Apache-2.0
//
// TCP clients, the reverse gateway, RPC-over-RDMA, the gateway, and an upstream of the test. Each byte that a
// client sends must reach the upstream unchanged, and vice versa, over any transport in between.
#pragma once

#include "tests/unit/gateway/tcp_clients/reverse_gateway_side.h"
#include "tests/unit/gateway/tcp_upstream/forward_lab.h"

namespace sluice::tcp_clients_test {

/// Record buffers of the gateway that plays the server. All TCP clients together are one client of that
/// gateway, which may use half of the buffers.
inline constexpr std::uint32_t kRecordBuffers = 32;

class ReverseGatewayLab {
 public:
  explicit ReverseGatewayLab(SideOptions side_options = {},
                             tcp_upstream_test::ForwardOptions options = {.record_buffers = kRecordBuffers})
      : forward(std::move(options)),
        side(forward.fabric, side_options, &tcp_upstream_test::ForwardLab::clock) {
    forward.beside = [this] {
      forward.accept_clients();
      side.poll(tcp_upstream_test::ForwardLab::clock());
    };
  }

  testing::AssertionResult until(const std::function<bool()>& reached) { return forward.until(reached); }
  void turns(int count = 300) { forward.turns(count); }
  /// Sends a call and waits for its reply.
  Bytes call(TcpPeer& peer, const Bytes& message) {
    peer.send_record(message);
    return answer(peer);
  }
  Bytes answer(TcpPeer& peer) {
    std::optional<Bytes> record;
    EXPECT_TRUE(until([&] {
      record = peer.take_record();
      return record.has_value() || peer.ended();
    }));
    return record.value_or(Bytes{});
  }

  tcp_upstream_test::ForwardLab forward;
  ReverseGatewaySide side;
};

/// Returns the message with this XID.
inline Bytes with_xid(Bytes message, std::uint32_t xid) {
  xdr::store_u32(message.data(), xid);
  return message;
}
inline Bytes null_call(std::uint32_t xid) {
  return with_xid(tcp_upstream_test::nfs3(ulb::kNfs3Null), xid);
}
/// Returns a call that stays unanswered: the server answers NULL calls, and no GETATTR.
inline Bytes stuck_call(std::uint32_t xid) {
  return with_xid(tcp_upstream_test::nfs3(ulb::kNfs3GetAttr,
                                          tcp_upstream_test::opaque(tcp_upstream_test::pattern(32, 5))),
                  xid);
}
/// Answers NULL calls, and no others.
inline Bytes answer_null(const tcp_upstream_test::FakeUpstream::Call& call) {
  constexpr std::size_t kProcedure = 5;
  return word_at(call.message, kProcedure) == ulb::kNfs3Null ? tcp_upstream_test::success(call.xid())
                                                             : Bytes{};
}

}  // namespace sluice::tcp_clients_test
