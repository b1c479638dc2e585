// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/bulk_upstream.h"

#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/sendfile.h>

#include <algorithm>
#include <cstring>

#include "tests/bench/worker.h"

namespace sluice::bench {

BulkUpstream::BulkUpstream(const ForwardedShape& shape)
    : shape_(shape),
      reply_(reply_message(shape)),
      events_(::epoll_create1(0)),
      file_(::memfd_create("read", 0)) {
  const std::vector<char> data(kFileBytes, 'x');
  epoll_event event{};
  event.events = EPOLLIN;
  if (::write(file_, data.data(), data.size()) != static_cast<ssize_t>(data.size()) ||
      ::epoll_ctl(events_, EPOLL_CTL_ADD, listener_.socket(), &event) != 0)
    throw std::runtime_error("no file in memory, or no epoll");
  thread_ = std::thread([this] { run(); });
}

BulkUpstream::~BulkUpstream() {
  stop_ = true;
  thread_.join();
  for (const auto& peer : peers_) ::close(peer->socket);
  ::close(file_);
  ::close(events_);
}

/// Polls, because waking a sleeping thread would cost the other side time. epoll does not lock the sockets,
/// unlike recv().
void BulkUpstream::run() {
  sigset_t lost_peer;  // sendfile() has no MSG_NOSIGNAL
  sigemptyset(&lost_peer);
  sigaddset(&lost_peer, SIGPIPE);
  pthread_sigmask(SIG_BLOCK, &lost_peer, nullptr);
  pin(kUpstreamCpu);
  while (!stop_.load(std::memory_order_relaxed)) {
    epoll_event events[16];
    const int count = ::epoll_wait(events_, events, 16, 0);
    for (int i = 0; i < count; ++i)
      if (events[i].data.ptr == nullptr)
        accept();
      else
        serve(*static_cast<Peer*>(events[i].data.ptr));
  }
}

void BulkUpstream::accept() {
  const int socket = listener_.accept();
  if (socket < 0) return;
  Peer& peer = *peers_.emplace_back(std::make_unique<Peer>());
  peer.socket = socket;
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.ptr = &peer;
  ::epoll_ctl(events_, EPOLL_CTL_ADD, socket, &event);
}

void BulkUpstream::serve(Peer& peer) {
  receive(peer);
  send(peer);
}

/// Receives the available part of one call.
void BulkUpstream::receive(Peer& peer) {
  if (peer.to_drop == 0) {
    const auto got = ::recv(peer.socket, &peer.head[peer.filled], kCallHeadBytes - peer.filled, 0);
    if (got <= 0) return;
    peer.filled += static_cast<std::size_t>(got);
    if (peer.filled < kCallHeadBytes) return;
    peer.to_drop = load_mark(peer.head.data()) - xdr::kUnit;
  }
  const auto dropped = ::recv(peer.socket, nullptr, peer.to_drop, MSG_TRUNC);
  if (dropped <= 0) return;
  peer.to_drop -= static_cast<std::size_t>(dropped);
  if (peer.to_drop > 0) return;
  peer.filled = 0;
  peer.xids.push_back(xdr::load_u32(&peer.head[xdr::kUnit]));
}

void BulkUpstream::send(Peer& peer) {
  while (!peer.xids.empty() && send_some(peer)) {
  }
  watch(peer, !peer.xids.empty());
}

/// Sends a part of the first reply. Returns false if the socket's buffer is full.
bool BulkUpstream::send_some(Peer& peer) {
  const std::size_t data_bytes = shape_.reads() ? shape_.data_bytes : 0;
  const std::size_t head_bytes = xdr::kUnit + reply_.size();
  if (peer.sent == 0) {
    peer.reply.resize(head_bytes);
    store_mark(peer.reply.data(), reply_.size() + data_bytes);
    std::memcpy(&peer.reply[xdr::kUnit], reply_.data(), reply_.size());
    xdr::store_u32(&peer.reply[xdr::kUnit], peer.xids.front());
    peer.file_offset = next_offset_;
    next_offset_ = (next_offset_ + data_bytes) % kFileBytes;
  }
  ssize_t sent = 0;
  if (peer.sent < head_bytes) {
    const int more = data_bytes > 0 ? MSG_MORE : 0;
    sent = ::send(peer.socket, &peer.reply[peer.sent], head_bytes - peer.sent, MSG_NOSIGNAL | more);
  } else {
    off_t at = static_cast<off_t>(peer.file_offset + peer.sent - head_bytes);
    sent = ::sendfile(peer.socket, file_, &at, head_bytes + data_bytes - peer.sent);
  }
  if (sent <= 0) return false;
  peer.sent += static_cast<std::size_t>(sent);
  if (peer.sent < head_bytes + data_bytes) return true;
  peer.sent = 0;
  peer.xids.pop_front();
  return true;
}

void BulkUpstream::watch(Peer& peer, bool for_room) {
  if (peer.waits_for_room == for_room) return;
  peer.waits_for_room = for_room;
  epoll_event event{};
  event.events = EPOLLIN | (for_room ? EPOLLOUT : 0u);
  event.data.ptr = &peer;
  ::epoll_ctl(events_, EPOLL_CTL_MOD, peer.socket, &event);
}

}  // namespace sluice::bench
