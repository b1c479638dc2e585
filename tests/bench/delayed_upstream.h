// SPDX-License-Identifier: Apache-2.0
//
// An upstream that answers each call after a fixed delay, independently of their number, like a server with
// disks. It polls its connections on its own thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <thread>
#include <vector>

#include "tests/bench/forward_calls.h"
#include "tests/bench/listener.h"

namespace sluice::bench {

class DelayedUpstream {
 public:
  /// Creates an upstream for calls of this shape, which contain their data.
  DelayedUpstream(const ForwardedShape& shape, std::uint64_t delay_ns);
  ~DelayedUpstream();
  DelayedUpstream(const DelayedUpstream&) = delete;
  DelayedUpstream& operator=(const DelayedUpstream&) = delete;
  std::uint16_t port() const { return listener_.port(); }

 private:
  struct Peer {
    int socket = -1;
    std::vector<std::byte> in = std::vector<std::byte>(256u << 10);
    std::size_t filled = 0;
    std::vector<std::byte> out;
  };
  struct Answer {
    std::uint64_t due_ns = 0;
    std::uint32_t xid = 0;
    Peer* peer = nullptr;
  };

  void run();
  void receive(Peer& peer, std::uint64_t now);
  void send_due(std::uint64_t now);
  static void send_out(Peer& peer);

  const std::vector<std::byte> reply_;
  const std::uint64_t delay_ns_;
  Listener listener_;
  std::vector<std::unique_ptr<Peer>> peers_;
  std::deque<Answer> answers_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace sluice::bench
