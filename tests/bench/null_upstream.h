// SPDX-License-Identifier: Apache-2.0
//
// An upstream that answers NULL, GETATTR and READs of 1 MiB immediately with constant results. It polls its
// connections on its own thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <thread>
#include <vector>

#include "tests/bench/forward_calls.h"
#include "tests/bench/listener.h"

namespace sluice::bench {

class NullUpstream {
 public:
  NullUpstream();
  ~NullUpstream();
  std::uint16_t port() const { return listener_.port(); }

 private:
  struct Peer {
    int socket = -1;
    std::vector<std::byte> in = std::vector<std::byte>(64u << 10);
    std::size_t filled = 0;
    std::vector<std::byte> out;
    std::size_t sent = 0;
  };

  void run();
  void serve(Peer& peer);
  static bool send_out(Peer& peer);
  void answer(Peer& peer, const std::byte* call);
  std::span<const std::byte> reply_to(std::uint32_t procedure) const;

  Listener listener_;
  const std::vector<std::byte> null_ = reply_message({ulb::kNfs3Null});
  const std::vector<std::byte> getattr_ = reply_message({ulb::kNfs3GetAttr});
  std::vector<std::byte> read_ = reply_message({ulb::kNfs3Read, kMegabyte});
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace sluice::bench
