// SPDX-License-Identifier: Apache-2.0
//
// What the links of one engine share: the stage that they take turns in, memory for continued messages,
// counters, and what is known of the device and of peers. Owned by the engine; one reactor.
#pragma once

#include <array>
#include <cstdint>

#include "dataplane/base/cache_line.h"
#include "dataplane/base/intrusive_queue.h"
#include "dataplane/base/small_algorithms.h"
#include "dataplane/rpcrdma/link/counters.h"
#include "dataplane/rpcrdma/link/receives.h"
#include "dataplane/rpcrdma/link/send_stage.h"
#include "dataplane/rpcrdma/link/shared_memory.h"
#include "dataplane/rpcrdma/v2/version_memory.h"
#include "dataplane/segment/call_table.h"

namespace sluice::rpcrdma {

class Link;

/// A link with something to hand to the driver, to retry or to end at the end of the turn.
struct TurnEntry {
  explicit TurnEntry(std::uint16_t number) noexcept : connection(number) {}
  const std::uint16_t connection;
  QueueLink<TurnEntry> link;
};
using TurnQueue = IntrusiveQueue<TurnEntry, &TurnEntry::link>;

/// Each stage serves all links of the reactor, one at a time: the one whose requests it holds.
struct alignas(kCacheLine) Transmit {
  // How much is staged, for whom, and what time it is, are one line between the large arrays: every message needs it.
  static_assert(sizeof(ReceiveStage::wrs) % kCacheLine == 0);
  ReceiveStage receives;
  Link* receives_for = nullptr;
  Link* staged_for = nullptr;
  TurnQueue turn_end;
  std::uint64_t now_ns = 0;  ///< of the turn; monotonic
  SendStage stage;
};

/// Counters by class of client.
class ClassCounters {
 public:
  Counters& of(std::uint32_t client_class) noexcept { return counters_[client_class]; }
  /// Classes below this one have had a connection.
  std::uint32_t seen() const noexcept { return seen_; }
  void see(std::uint32_t client_class) noexcept { seen_ = larger_of(seen_, client_class + 1); }

 private:
  std::array<Counters, segment::kMaxClasses> counters_;
  std::uint32_t seen_ = 1;
};

struct LinkContext {
  /// Of the turn; monotonic.
  std::uint64_t now_ns() const noexcept { return transmit.now_ns; }

  Transmit transmit;
  ClassCounters counters;
  SharedMemory assembly;  ///< continued messages
  VersionMemory version_memory;

  // Of the device.
  bool remote_invalidation = false;
  std::uint32_t max_send_bytes = ~std::uint32_t{0};
};

}  // namespace sluice::rpcrdma
