// SPDX-License-Identifier: Apache-2.0
//
// RPC records out of a byte stream (RFC 5531, section 11): fragments joined, marks dropped, each record in
// one piece. The stream's bytes come into a small buffer, where short records stay; a record that does not
// fit it goes on in memory of its own, into which its bytes are then received directly. One reactor; no
// allocation.
//
// The input is hostile. A record is bounded in length and in fragments; one that is longer than the caller
// can use is stepped over, since the stream behind it is of use to others.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "dataplane/xdr/cursor.h"

namespace sluice::tcp {

/// Longest record, call or reply: 1 MiB of data and what is around it.
inline constexpr std::uint32_t kMaxRecordBytes = (1u << 20) + (64u << 10);
/// Buffer of one stream: short records stay in it, longer ones go on in memory of their own.
inline constexpr std::size_t kStreamBytes = 16u << 10;
/// Most fragments of one record. Servers send one or a few; each costs a move of the record's bytes.
inline constexpr std::uint32_t kMaxFragments = 256;
/// Longest record that is stepped over. What says that it is longer is no record.
inline constexpr std::uint64_t kMaxSkippedBytes = 64u << 20;

/// Record mark and XID.
inline constexpr std::size_t kRecordHeadBytes = 2 * xdr::kUnit;
/// In front of a message of `message_bytes`, its XID included, that goes out in one fragment.
inline std::array<std::byte, kRecordHeadBytes> record_head(std::size_t message_bytes,
                                                           std::uint32_t xid) noexcept {
  constexpr std::uint32_t kLastFragment = 1u << 31;
  std::array<std::byte, kRecordHeadBytes> head;
  xdr::store_u32(head.data(), kLastFragment | static_cast<std::uint32_t>(message_bytes));
  xdr::store_u32(head.data() + xdr::kUnit, xid);
  return head;
}

class RecordStream {
 public:
  enum class Step : std::uint8_t {
    Record,      ///< record() is complete
    NeedBytes,   ///< receive into room()
    NeedMemory,  ///< the record does not fit the buffer: lend()
    Skipped,     ///< one was longer than max_record_bytes; record() is its first word
    Broken,      ///< no record is so long, or in so many fragments: the stream is of no use any more
  };

  /// Setup. `buffer` outlives the stream.
  RecordStream(std::span<std::byte> buffer, std::uint32_t max_record_bytes) noexcept
      : buffer_(buffer), max_record_bytes_(max_record_bytes) {}

  /// Where the next bytes of the stream go; never empty after NeedBytes.
  std::span<std::byte> room() noexcept;
  void received(std::size_t bytes) noexcept;
  /// Looks for the next record; the one before is given up, unless it was taken.
  Step next() noexcept;
  std::span<std::byte> record() const noexcept { return record_; }
  /// After Record: the same record again at the next next().
  void keep() noexcept { kept_ = true; }

  /// After NeedMemory: `memory` has room for max_record_bytes, and is the stream's until taken.
  void lend(std::byte* memory) noexcept;
  /// The memory that record() or a part of one is in, which is the caller's from now on; null: in the buffer.
  std::byte* take_memory() noexcept { return std::exchange(memory_, nullptr); }
  bool in_memory() const noexcept { return memory_ != nullptr; }

  /// Forgets everything; the memory has been taken.
  void reset() noexcept;

 private:
  std::size_t unread() const noexcept { return filled_ - at_; }
  void compact() noexcept;
  bool begin_fragment() noexcept;
  bool begin_skipping() noexcept;
  Step skip() noexcept;

  const std::span<std::byte> buffer_;
  const std::uint32_t max_record_bytes_;
  std::span<std::byte> record_;
  bool kept_ = false;
  bool in_fragment_ = false;
  bool last_ = false;
  bool skipping_ = false;
  std::uint64_t skipped_ = 0;                ///< bytes of the record, when skipping
  std::array<std::byte, 4> skipped_head_{};  ///< its first
  std::uint32_t fragments_ = 0;
  std::size_t fragment_left_ = 0;
  std::size_t joined_ = 0;  ///< bytes of the record that are in place: at begin_, or in memory_
  std::size_t begin_ = 0;   ///< of the record in the buffer, when it is not in memory
  std::size_t at_ = 0;      ///< first byte of the buffer that was not looked at
  std::size_t filled_ = 0;
  std::byte* memory_ = nullptr;
};

}  // namespace sluice::tcp
