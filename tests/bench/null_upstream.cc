// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/null_upstream.h"

#include <cstring>

#include "tests/bench/worker.h"

namespace sluice::bench {

NullUpstream::NullUpstream() {
  read_.resize(read_.size() + kMegabyte);
  thread_ = std::thread([this] { run(); });
}

NullUpstream::~NullUpstream() {
  stop_ = true;
  thread_.join();
}

void NullUpstream::run() {
  pin(kUpstreamCpu);
  constexpr std::uint32_t kTurnsPerAccept =
      64;  // accept() is expensive because the kernel creates a socket even if no connection is pending
  std::vector<Peer> peers;
  for (std::uint32_t turn = 0; !stop_.load(std::memory_order_relaxed); ++turn) {
    const int socket = turn % kTurnsPerAccept == 0 && peers.size() < 8 ? listener_.accept() : -1;
    if (socket >= 0) peers.emplace_back().socket = socket;
    for (Peer& peer : peers) serve(peer);
  }
  for (const Peer& peer : peers) ::close(peer.socket);
}

void NullUpstream::serve(Peer& peer) {
  if (!send_out(peer)) return;
  const auto got = ::recv(peer.socket, peer.in.data() + peer.filled, peer.in.size() - peer.filled, 0);
  if (got <= 0) return;
  peer.filled += static_cast<std::size_t>(got);
  std::size_t at = 0;
  while (peer.filled - at >= xdr::kUnit) {
    const std::size_t bytes = load_mark(&peer.in[at]);
    if (peer.filled - at < xdr::kUnit + bytes) break;
    answer(peer, &peer.in[at + xdr::kUnit]);
    at += xdr::kUnit + bytes;
  }
  std::memmove(peer.in.data(), &peer.in[at], peer.filled - at);
  peer.filled -= at;
  send_out(peer);
}

/// Sends pending data. Returns true when everything has been sent.
bool NullUpstream::send_out(Peer& peer) {
  if (peer.out.empty()) return true;
  const auto sent =
      ::send(peer.socket, peer.out.data() + peer.sent, peer.out.size() - peer.sent, MSG_NOSIGNAL);
  if (sent > 0) peer.sent += static_cast<std::size_t>(sent);
  if (peer.sent < peer.out.size()) return false;
  peer.out.clear();
  peer.sent = 0;
  return true;
}

void NullUpstream::answer(Peer& peer, const std::byte* call) {
  const std::span<const std::byte> reply = reply_to(xdr::load_u32(call + kProcedureAt));
  const std::size_t at = peer.out.size();
  peer.out.resize(at + xdr::kUnit + reply.size());
  store_mark(&peer.out[at], reply.size());
  std::memcpy(&peer.out[at + xdr::kUnit], reply.data(), reply.size());
  std::memcpy(&peer.out[at + xdr::kUnit], call, xdr::kUnit);
}

std::span<const std::byte> NullUpstream::reply_to(std::uint32_t procedure) const {
  if (procedure == ulb::kNfs3Null) return null_;
  return procedure == ulb::kNfs3Read ? read_ : getattr_;
}

}  // namespace sluice::bench
