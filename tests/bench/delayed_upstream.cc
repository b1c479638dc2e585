// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/delayed_upstream.h"

#include <cstring>

#include "tests/bench/worker.h"

namespace sluice::bench {

DelayedUpstream::DelayedUpstream(const ForwardedShape& shape, std::uint64_t delay_ns)
    : reply_(reply_message(shape)), delay_ns_(delay_ns) {
  thread_ = std::thread([this] { run(); });
}

DelayedUpstream::~DelayedUpstream() {
  stop_ = true;
  thread_.join();
  for (const auto& peer : peers_) ::close(peer->socket);
}

void DelayedUpstream::run() {
  pin(kUpstreamCpu);
  while (!stop_.load(std::memory_order_relaxed)) {
    const int socket = listener_.accept();
    if (socket >= 0) peers_.emplace_back(std::make_unique<Peer>())->socket = socket;
    const std::uint64_t now = now_ns();
    for (const auto& peer : peers_) receive(*peer, now);
    send_due(now);
  }
}

void DelayedUpstream::receive(Peer& peer, std::uint64_t now) {
  const auto got = ::recv(peer.socket, &peer.in[peer.filled], peer.in.size() - peer.filled, 0);
  if (got <= 0) return;
  peer.filled += static_cast<std::size_t>(got);
  std::size_t at = 0;
  while (peer.filled - at >= 2 * xdr::kUnit) {
    const std::size_t bytes = load_mark(&peer.in[at]);
    if (peer.filled - at < xdr::kUnit + bytes) break;
    answers_.push_back({now + delay_ns_, xdr::load_u32(&peer.in[at + xdr::kUnit]), &peer});
    at += xdr::kUnit + bytes;
  }
  std::memmove(peer.in.data(), &peer.in[at], peer.filled - at);
  peer.filled -= at;
}

/// Sends all answers that are due. Each has the same delay, so they are due in the order of arrival.
void DelayedUpstream::send_due(std::uint64_t now) {
  for (; !answers_.empty() && answers_.front().due_ns <= now; answers_.pop_front()) {
    std::vector<std::byte>& out = answers_.front().peer->out;
    const std::size_t at = out.size();
    out.resize(at + xdr::kUnit + reply_.size());
    store_mark(&out[at], reply_.size());
    std::memcpy(&out[at + xdr::kUnit], reply_.data(), reply_.size());
    xdr::store_u32(&out[at + xdr::kUnit], answers_.front().xid);
  }
  for (const auto& peer : peers_)
    if (!peer->out.empty()) send_out(*peer);
}

void DelayedUpstream::send_out(Peer& peer) {
  const auto sent = ::send(peer.socket, peer.out.data(), peer.out.size(), MSG_NOSIGNAL);
  if (sent > 0) peer.out.erase(peer.out.begin(), peer.out.begin() + sent);
}

}  // namespace sluice::bench
