// SPDX-License-Identifier: Apache-2.0
//
// RPC records from a byte stream (RFC 5531, section 11): fragments are joined and record marks removed, so
// that each record is contiguous. Bytes are received into a small buffer, where short records stay; a record
// that does not fit continues in memory lent by the caller, into which its remaining bytes are received
// directly. Only the owning reactor may call; no allocation.
//
// The input is hostile: a record is bounded in length and in empty fragments, and each byte is moved once at most while
// fragments are joined. A record longer than the caller can
// use is skipped, so that the rest of the stream stays usable.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "dataplane/xdr/cursor.h"

namespace sluice::tcp {

/// Returns the size of the longest record, call or reply, where a READ or WRITE has at most `data_bytes`: there is
/// room for headers and attributes.
constexpr std::uint32_t record_bytes(std::uint32_t data_bytes) noexcept {
  return data_bytes + (64u << 10);
}
/// Limits the data of a READ or WRITE where nothing else is configured.
inline constexpr std::uint32_t kMaxDataBytes = 1u << 20;
inline constexpr std::uint32_t kMaxRecordBytes = record_bytes(kMaxDataBytes);
/// Buffer of one stream: short records stay in it, longer ones continue in lent memory.
inline constexpr std::size_t kStreamBytes = 16u << 10;
/// Limit of fragments without bytes per record. The length of the record bounds all others.
inline constexpr std::uint32_t kMaxEmptyFragments = 256;
/// Longest record that is skipped. A longer length means that the stream is not RPC.
inline constexpr std::uint64_t kMaxSkippedBytes = 64u << 20;

/// Record mark and XID.
inline constexpr std::size_t kRecordHeadBytes = 2 * xdr::kUnit;
/// Record mark and XID of a message of `message_bytes`, XID included, that is sent as one fragment.
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
  static constexpr std::size_t kHeadBytes = 2 * xdr::kUnit;

  enum class Step : std::uint8_t {
    Record,      ///< record() is complete
    NeedBytes,   ///< receive into room()
    NeedMemory,  ///< the record does not fit the buffer: call lend() or skip_record()
    Skipped,  ///< a record was skipped, as asked or longer than max_record_bytes; record() is its first word
    Broken,   ///< a limit was exceeded: close the connection
  };

  /// Setup. `buffer` outlives the stream.
  RecordStream(std::span<std::byte> buffer, std::uint32_t max_record_bytes) noexcept
      : buffer_(buffer), max_record_bytes_(max_record_bytes) {}

  /// Where to receive the next bytes of the stream; never empty after NeedBytes.
  std::span<std::byte> room() noexcept;
  /// room() is the rest of a fragment: so much will come.
  bool awaits_all_of_room() const noexcept { return memory_ != nullptr && fragment_left_ > 0 && !skipping_; }
  void received(std::size_t bytes) noexcept;
  /// Advances to the next record. record() of the previous one becomes invalid, unless its memory was taken.
  Step next() noexcept;
  std::span<std::byte> record() const noexcept { return record_; }
  /// After Record: next() returns the same record again.
  void keep() noexcept { kept_ = true; }

  /// After NeedMemory: the first two words of the record, XID and message type.
  std::span<const std::byte> head() const noexcept { return buffer_.subspan(begin_, kHeadBytes); }
  /// After NeedMemory: the record needs none.
  void skip_record() noexcept { static_cast<void>(begin_skipping()); }
  /// After NeedMemory: `memory` has room for max_record_bytes and belongs to the stream until taken.
  void lend(std::byte* memory) noexcept;
  /// Returns the lent memory, which holds record() or a part of one, to the caller; null: none is lent.
  std::byte* take_memory() noexcept { return std::exchange(memory_, nullptr); }
  bool in_memory() const noexcept { return memory_ != nullptr; }
  /// After NeedBytes: a part of a record is here.
  bool in_record() const noexcept { return in_fragment_ || begun_ || unread() > 0; }

  /// For a new connection. The lent memory must have been taken.
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
  std::uint64_t skipped_ = 0;                ///< bytes of the record being skipped
  std::array<std::byte, 4> skipped_head_{};  ///< the first of them
  bool begun_ = false;                       ///< a fragment of the record was seen
  std::uint32_t empty_fragments_ = 0;
  std::size_t fragment_left_ = 0;
  std::size_t joined_ = 0;  ///< contiguous bytes of the record: at begin_, or in memory_
  std::size_t begin_ = 0;   ///< start of the record in the buffer, unless it is in memory_
  std::size_t at_ = 0;      ///< first byte of the buffer that was not parsed
  std::size_t filled_ = 0;
  std::byte* memory_ = nullptr;
};

}  // namespace sluice::tcp
