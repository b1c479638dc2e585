// SPDX-License-Identifier: Apache-2.0
//
// TCP clients, the reverse gateway, RPC-over-RDMA, the gateway, and an upstream of the test. Each byte that a
// client sends must reach the upstream unchanged, and vice versa, over any transport in between.
#pragma once

#include <algorithm>

#include "tests/unit/gateway/tcp_clients/reverse_gateway_side.h"
#include "tests/unit/gateway/tcp_upstream/forward_lab.h"

namespace sluice::tcp_clients_test {

using tcp_upstream_test::call_of;
using tcp_upstream_test::joined;
using tcp_upstream_test::nfs3;
using tcp_upstream_test::opaque;
using tcp_upstream_test::pattern;
using tcp_upstream_test::record;
using tcp_upstream_test::success;
using tcp_upstream_test::with_xid;

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

inline Bytes null_call(std::uint32_t xid) {
  return with_xid(nfs3(ulb::kNfs3Null), xid);
}
/// Returns a call that stays unanswered: the server answers NULL calls, and no GETATTR.
inline Bytes stuck_call(std::uint32_t xid) {
  return with_xid(nfs3(ulb::kNfs3GetAttr, opaque(pattern(32, 5))), xid);
}
/// Answers NULL calls, and no others.
inline Bytes answer_null(const tcp_upstream_test::FakeUpstream::Call& call) {
  constexpr std::size_t kProcedure = 5;
  return word_at(call.message, kProcedure) == ulb::kNfs3Null ? success(call.xid()) : Bytes{};
}

/// Operations of NFS version 4.
inline constexpr std::uint32_t kRead = 25, kReadLink = 27, kWrite = 38, kGetAttr = 9;

/// Returns the message without its XID, which the gateway on the other side replaces.
inline Bytes without_xid(const Bytes& message) {
  return Bytes(message.begin() + std::min<std::ptrdiff_t>(4, std::ssize(message)), message.end());
}
inline Bytes write3(std::uint32_t bytes, std::uint32_t seed) {
  return nfs3(ulb::kNfs3Write,
              joined({opaque(pattern(32, 5)), words({0, 0, bytes, 2}), opaque(pattern(bytes, seed))}));
}
inline Bytes read3(std::uint32_t bytes) {
  return nfs3(ulb::kNfs3Read, joined({opaque(pattern(32, 5)), words({0, 0, bytes})}));
}
inline Bytes read3_result(std::uint32_t bytes, std::uint32_t seed) {
  return joined({words({0, 0, bytes, 1}), opaque(pattern(bytes, seed))});
}
inline Bytes compound(std::uint32_t operations, const Bytes& body) {
  return call_of(ulb::kNfsProgram, 4, ulb::kNfs4Compound, joined({words({0, 1, operations}), body}));
}
inline Bytes compound_result(std::uint32_t operations, const Bytes& body) {
  return joined({words({0, 0, operations}), body});
}
/// Makes the client's first call, whose reply grants all credits.
inline void all_credits(ReverseGatewayLab& lab, TcpPeer& client) {
  lab.forward.upstream.answer = [](const auto& call) { return success(call.xid()); };
  EXPECT_EQ(lab.call(client, with_xid(nfs3(0), 1)), success(1));
  lab.forward.upstream.answer = nullptr;
  lab.forward.upstream.calls.clear();
}

}  // namespace sluice::tcp_clients_test
