// SPDX-License-Identifier: Apache-2.0
//
// An upstream that copies no data: READs are answered out of a file by sendfile(), and what WRITEs carry is
// dropped in the kernel. So it is the other side of the comparison, gateway or client, whose copies count. It runs
// on a thread of its own.
#pragma once

#include <array>
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

class BulkUpstream {
 public:
  /// All calls are of this shape.
  explicit BulkUpstream(const ForwardedShape& shape);
  ~BulkUpstream();
  BulkUpstream(const BulkUpstream&) = delete;
  BulkUpstream& operator=(const BulkUpstream&) = delete;
  std::uint16_t port() const { return listener_.port(); }

 private:
  /// Record mark and XID: all of a call that is looked at.
  static constexpr std::size_t kCallHeadBytes = 2 * xdr::kUnit;
  struct Peer {
    int socket = -1;
    bool waits_for_room = false;
    std::array<std::byte, kCallHeadBytes> head{};
    std::size_t filled = 0;          ///< of the head
    std::size_t to_drop = 0;         ///< bytes of the call behind its head
    std::deque<std::uint32_t> xids;  ///< of calls to be answered
    std::vector<std::byte> reply;    ///< to the first, without data
    std::size_t sent = 0;            ///< of it, its data included
  };

  void run();
  void accept();
  void serve(Peer& peer);
  void receive(Peer& peer);
  void send(Peer& peer);
  bool send_some(Peer& peer);
  void watch(Peer& peer, bool for_room);

  const ForwardedShape shape_;
  const std::vector<std::byte> reply_;
  Listener listener_;
  int events_ = -1;
  int file_ = -1;  ///< what is read
  std::vector<std::unique_ptr<Peer>> peers_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace sluice::bench
