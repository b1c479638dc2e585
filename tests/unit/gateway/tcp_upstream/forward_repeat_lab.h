// SPDX-License-Identifier: Apache-2.0
//
// Connections of one client, which reconnects and retransmits calls, and an upstream that answers only what
// the test answers.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "tests/conformance/raw_call.h"
#include "tests/unit/gateway/tcp_upstream/forward_lab.h"

namespace sluice::tcp_upstream_test::repeated {

using Counter = segment::UpstreamCounter;

inline Bytes mkdir(std::uint32_t xid, std::uint32_t name = 1) {
  Bytes arguments = opaque(pattern(32, 5));
  append(arguments, opaque(words({name})));
  append(arguments, words({0, 0, 0, 0, 0, 0}));
  return with_xid(nfs3(ulb::kNfs3MkDir, arguments), xid);
}
inline Bytes write_call(std::uint32_t xid, std::uint32_t word) {
  Bytes arguments = opaque(pattern(32, 5));
  append(arguments, words({0, 0, 4, 2}));
  append(arguments, opaque(words({word})));
  return with_xid(nfs3(ulb::kNfs3Write, arguments), xid);
}
inline Bytes getattr(std::uint32_t xid) {
  return with_xid(nfs3(ulb::kNfs3GetAttr, opaque(pattern(32, 5))), xid);
}
/// Returns a COMPOUND of version 4, such as PUTROOTFH and CREATE of a directory.
inline Bytes compound(std::uint32_t xid, std::uint32_t minor, const Bytes& operations, std::uint32_t count) {
  Bytes arguments = words({0, minor, count});
  append(arguments, operations);
  return with_xid(call_of(ulb::kNfsProgram, 4, ulb::kNfs4Compound, arguments), xid);
}
inline Bytes create(std::uint32_t xid, std::uint32_t minor) {
  Bytes operations = words({24, 6, 2});
  append(operations, opaque(words({1})));
  append(operations, words({0, 0}));
  return compound(xid, minor, operations, 2);
}

/// Connections of one client, controlled by hand. The upstream does not answer by itself.
struct Repeat : testing::Test {
  explicit Repeat(ForwardOptions options = {.shared_connections = 2, .one_host = true})
      : lab(std::move(options)) {}
  ~Repeat() override {
    for (const auto& peer : peers) peer->owned_qp.reset();
  }

  conformance::RawPeer& connect() {
    peers.push_back(lab.add_raw_peer());
    return *peers.back();
  }
  static void send(conformance::RawPeer& peer, const Bytes& call) {
    peer.send(conformance::RawCall{.xid = word_at(call, 0)}.with(call));
  }
  /// Disconnects the client's side and waits until the gateway detects it.
  void leave(conformance::RawPeer& peer) {
    const std::size_t before = lab.ends.size();
    peer.owned_qp->to_error();
    ASSERT_TRUE(lab.until([&] { return lab.ends.size() == before + 1; }));
  }
  bool has_come(std::size_t calls) {
    return bool{lab.until([&] {
      lab.pass(kSecond / 10'000);
      return lab.upstream.calls.size() >= calls;
    })};
  }
  bool comes_no_more() {
    const std::size_t before = lab.upstream.calls.size();
    for (int i = 0; i < 20; ++i) {
      lab.pass(tcp_upstream::kTickNs);
      lab.turns(10);
    }
    return lab.upstream.calls.size() == before;
  }
  void answer(std::size_t call, const Bytes& results) {
    const auto& asked = lab.upstream.calls[call];
    lab.upstream.send(asked.connection, record(success(asked.xid(), results)));
  }
  bool replied(conformance::RawPeer& peer, std::size_t count) {
    return bool{lab.until([&] {
      lab.pass(kSecond / 10'000);
      return peer.inbox.size() >= count;
    })};
  }
  static Bytes reply(const conformance::RawPeer& peer, std::size_t number) {
    const auto& bytes = peer.inbox[number].bytes;
    return Bytes(bytes.begin() + 28, bytes.end());
  }

  ForwardLab lab;
  std::vector<std::unique_ptr<conformance::RawPeer>> peers;
};

/// Passes time in which the upstream sends data on the connection of its first call and answers no call.
inline void let_time_pass(ForwardLab& lab, std::size_t connection, std::uint64_t seconds) {
  for (std::uint64_t i = 0; i < seconds; ++i) {
    lab.pass(kSecond);
    if (lab.upstream.open(connection)) lab.upstream.send(connection, record(success(1)));
    lab.turns(10);
  }
}

}  // namespace sluice::tcp_upstream_test::repeated
