// SPDX-License-Identifier: Apache-2.0
//
// The two ends of a wire: a ring of bytes in shared memory, in which the Sends of one side of a link reach
// the other side. Positions are free-running counts of bytes. Only the reactor of its queue pair uses an end.
//
// Format of a record: a word with the length of the Send and the kind in the top byte, the rkey of a Send
// with invalidate, the bytes of the Send, padding to a cache line. Records without an rkey do not reserve
// space for one: short messages are frequent, and the other side need not fetch a cache line that is not
// written.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "dataplane/base/cache_line.h"
#include "dataplane/base/invariant.h"
#include "dataplane/base/small_algorithms.h"
#include "pmd/loopback/fabric.h"

namespace sluice::rdma::loopback {

inline constexpr std::uint64_t kRecordWordBytes = 4;
inline constexpr std::uint32_t kKindSend = 1;
inline constexpr std::uint32_t kKindSendWithInvalidate = 2;
inline constexpr std::uint32_t kKindSkip = 3;  ///< padding up to the end of the wire
inline constexpr std::uint32_t kKindShift = 24;
inline constexpr std::uint32_t kLengthMask = (1u << kKindShift) - 1;
static_assert(kMaxSendBytes <= kLengthMask);

constexpr std::uint64_t record_header_bytes(std::uint32_t kind) noexcept {
  return kind == kKindSendWithInvalidate ? 2 * kRecordWordBytes : kRecordWordBytes;
}
constexpr std::uint64_t record_bytes(std::uint32_t kind, std::uint64_t length) noexcept {
  return (record_header_bytes(kind) + length + kCacheLine - 1) / kCacheLine * kCacheLine;
}
inline void store_word(std::byte* at, std::uint32_t word) noexcept {
  std::memcpy(at, &word, sizeof word);
}
inline std::uint32_t load_word(const std::byte* at) noexcept {
  std::uint32_t word = 0;
  std::memcpy(&word, at, sizeof word);
  return word;
}
constexpr std::size_t wire_offset(std::uint64_t position) noexcept {
  return position & (kWireBytes - 1);
}
static_assert(std::has_single_bit(kWireBytes));

/// Sending end. `own` is this side of the link, `peer` the other one.
class WireSender {
 public:
  /// Adds a record for a Send of `length` bytes, at most kMaxSendBytes. `rkey` is the handle that it
  /// invalidates, if the kind is kKindSendWithInvalidate. Returns the memory for the bytes of the Send, which
  /// the caller fills before publish(), or null if the wire has no room.
  [[gnu::always_inline]] std::byte* add(Side& own, const Side& peer, std::uint32_t kind, std::uint32_t length,
                                        Rkey rkey) noexcept {
    SLUICE_INVARIANT_DEBUG(length <= kMaxSendBytes && kind < kKindSkip, buffer_bounds);
    const std::uint64_t needed = record_bytes(kind, length);
    const std::size_t offset = wire_offset(produced_);
    const std::uint64_t skipped = offset + needed > kWireBytes ? kWireBytes - offset : 0;
    if (produced_ + skipped + needed - acknowledged_ > kWireBytes) {
      acknowledged_ =  // pairs with WireReceiver::acknowledge(): the records have been copied from the wire
          larger_of(acknowledged_, smaller_of(peer.consumed.load(std::memory_order_acquire), produced_));
      if (produced_ + skipped + needed - acknowledged_ > kWireBytes) return nullptr;
    }
    SLUICE_INVARIANT_DEBUG(produced_ + skipped + needed - acknowledged_ <= kWireBytes, buffer_bounds);
    std::byte* const wire = own.wire.data();
    if (skipped > 0) {
      store_word(wire + offset, kKindSkip << kKindShift);
      produced_ += skipped;
    }
    SLUICE_INVARIANT_DEBUG(wire_offset(produced_) + needed <= kWireBytes, buffer_bounds);
    std::byte* const at = wire + wire_offset(produced_);
    store_word(at, length | kind << kKindShift);
    if (kind == kKindSendWithInvalidate) store_word(at + kRecordWordBytes, static_cast<std::uint32_t>(rkey));
    produced_ += needed;
    return at + record_header_bytes(kind);
  }
  /// Returns the position after the last record.
  std::uint64_t position() const noexcept { return produced_; }
  /// Hands all records over to the peer.
  void publish(Side& own) noexcept {
    if (published_ == produced_) return;
    SLUICE_INVARIANT_DEBUG(produced_ - published_ <= kWireBytes, ring_index);
    published_ = produced_;
    // Pairs with WireReceiver::find(): the records on the wire.
    own.produced.store(produced_, std::memory_order_release);
  }
  /// Reads the position up to which the peer has consumed the wire. Returns false if it is impossible.
  bool read_acknowledged(const Side& peer) noexcept {
    // Pairs with WireReceiver::acknowledge(): the records have been copied.
    const std::uint64_t consumed = peer.consumed.load(std::memory_order_acquire);
    if (consumed - acknowledged_ > produced_ - acknowledged_) return false;
    acknowledged_ = consumed;
    return true;
  }
  /// Returns the last position that was read.
  std::uint64_t acknowledged() const noexcept { return acknowledged_; }

 private:
  std::uint64_t produced_ = 0;
  std::uint64_t published_ = 0;
  std::uint64_t acknowledged_ = 0;
};

/// A Send on the wire.
struct WireRecord {
  std::uint32_t kind = 0;
  std::uint32_t length = 0;  ///< bytes of the Send
  Rkey rkey{};               ///< zero unless the kind is kKindSendWithInvalidate
  const std::byte* data = nullptr;
  std::uint64_t bytes = 0;  ///< bytes of the record
};

/// Receiving end. `own` is this side of the link, `peer` the other one.
class WireReceiver {
 public:
  enum class Found : std::uint8_t { Nothing, Record, Corrupt };

  /// Finds the next Send. It remains the next one until take().
  [[gnu::always_inline]] Found find(const Side& peer, WireRecord& record) noexcept {
    for (;;) {
      if (received_ == available_) {
        // Pairs with WireSender::publish(): the records.
        const std::uint64_t produced = peer.produced.load(std::memory_order_acquire);
        if (produced - received_ > kWireBytes) return Found::Corrupt;
        available_ = produced;
        if (received_ == available_) return Found::Nothing;
      }
      SLUICE_INVARIANT_DEBUG(available_ - received_ <= kWireBytes, ring_index);
      const std::size_t offset = wire_offset(received_);
      const std::byte* const at = peer.wire.data() + offset;
      const std::uint32_t word = load_word(at);
      const std::uint32_t kind = word >> kKindShift;
      const std::uint32_t length = word & kLengthMask;
      const std::uint64_t bytes = kind == kKindSkip ? kWireBytes - offset : record_bytes(kind, length);
      if (bytes > available_ - received_ || offset + bytes > kWireBytes || kind < kKindSend ||
          kind > kKindSkip)
        return Found::Corrupt;
      if (kind != kKindSkip) {
        const std::uint32_t rkey = kind == kKindSendWithInvalidate ? load_word(at + kRecordWordBytes) : 0;
        record = {kind, length, static_cast<Rkey>(rkey), at + record_header_bytes(kind), bytes};
        return Found::Record;
      }
      received_ += bytes;
    }
  }
  void take(const WireRecord& record) noexcept {
    SLUICE_INVARIANT_DEBUG(record.bytes <= available_ - received_, ring_index);
    received_ += record.bytes;
  }
  /// Returns the position of the next record.
  std::uint64_t position() const noexcept { return received_; }
  /// Acknowledges all records that were taken.
  void acknowledge(Side& own) const noexcept {
    // Pairs with WireSender::add() and WireSender::read_acknowledged(): the records have been copied from the
    // wire.
    own.consumed.store(received_, std::memory_order_release);
  }

 private:
  std::uint64_t received_ = 0;
  std::uint64_t available_ = 0;  ///< last known `produced` of the peer
};

}  // namespace sluice::rdma::loopback
