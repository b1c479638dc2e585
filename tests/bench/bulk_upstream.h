// SPDX-License-Identifier: Apache-2.0
//
// An upstream that copies no data: sendfile() answers READs from a file, and the kernel discards the data of
// WRITEs. A comparison therefore measures the copies of the gateway or the client only. READs walk through
// the file, so that short ones find no more of it in the processor's cache than long ones. It runs on its own
// thread.
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
  /// Creates an upstream for calls of this shape only.
  explicit BulkUpstream(const ForwardedShape& shape);
  ~BulkUpstream();
  BulkUpstream(const BulkUpstream&) = delete;
  BulkUpstream& operator=(const BulkUpstream&) = delete;
  std::uint16_t port() const { return listener_.port(); }

 private:
  /// Size of record mark and XID, the only part of a call that is read.
  static constexpr std::size_t kCallHeadBytes = 2 * xdr::kUnit;
  static constexpr std::size_t kFileBytes = 8u << 20;  ///< a multiple of each shape's data
  struct Peer {
    int socket = -1;
    bool waits_for_room = false;
    std::array<std::byte, kCallHeadBytes> head{};
    std::size_t filled = 0;          ///< bytes of the head received
    std::size_t to_drop = 0;         ///< bytes of the call after its head
    std::deque<std::uint32_t> xids;  ///< of unanswered calls
    std::vector<std::byte> reply;    ///< to the first call, without data
    std::size_t sent = 0;            ///< bytes of it sent, including its data
    std::size_t file_offset = 0;     ///< of its data
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
  int file_ = -1;  ///< content of READs, kFileBytes long
  std::size_t next_offset_ = 0;
  std::vector<std::unique_ptr<Peer>> peers_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace sluice::bench
