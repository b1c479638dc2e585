// SPDX-License-Identifier: Apache-2.0
//
// RPC records from a byte stream (RFC 5531, section 11). The stream joins fragments and removes record marks,
// so that each record is contiguous. Bytes are received into a small buffer, where short records stay. A
// record that does not fit continues in memory lent by the caller, into which its remaining bytes are
// received directly. Only the owning reactor may call; no allocation.
//
// The input is untrusted. The length of a record and its number of empty fragments are bounded, and each byte
// is moved at most once while fragments are joined. A record that is longer than the caller can use is
// skipped, so that the rest of the stream stays usable.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "dataplane/xdr/cursor.h"

namespace sluice::tcp {

/// Returns the size of the longest record, call or reply, if a READ or WRITE has at most `data_bytes`. The
/// size includes space for headers and attributes.
constexpr std::uint32_t record_bytes(std::uint32_t data_bytes) noexcept {
  return data_bytes + (64u << 10);
}
/// Default limit of the data of a READ or WRITE.
inline constexpr std::uint32_t kMaxDataBytes = 1u << 20;
inline constexpr std::uint32_t kMaxRecordBytes = record_bytes(kMaxDataBytes);
/// Size of the buffer of one stream. Short records stay in it, longer ones continue in lent memory.
inline constexpr std::size_t kStreamBytes = 16u << 10;
/// Limit of empty fragments per record. The length of the record bounds the number of other fragments.
inline constexpr std::uint32_t kMaxEmptyFragments = 256;
/// Size of the longest record that is skipped. A longer record means that the stream is not RPC.
inline constexpr std::uint64_t kMaxSkippedBytes = 64u << 20;

/// Size of the record mark and the XID.
inline constexpr std::size_t kRecordHeadBytes = 2 * xdr::kUnit;
/// Returns record mark and XID of a message that is sent as one fragment. `message_bytes` includes the XID.
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
    Skipped,     ///< a record was skipped, on request or because of its length; record() is its first word
    Broken,      ///< a limit was exceeded: close the connection
  };

  /// Setup. `buffer` outlives the stream. Records longer than `max_record_bytes` are skipped.
  RecordStream(std::span<std::byte> buffer, std::uint32_t max_record_bytes) noexcept
      : buffer_(buffer), max_record_bytes_(max_record_bytes) {}

  /// Returns the memory into which to receive the next bytes of the stream. Never empty after NeedBytes.
  std::span<std::byte> room() noexcept;
  /// Returns true if room() is the rest of a fragment, so that the peer will send enough bytes to fill it.
  bool awaits_all_of_room() const noexcept { return memory_ != nullptr && fragment_left_ > 0 && !skipping_; }
  /// Reports that `bytes` were received into room().
  void received(std::size_t bytes) noexcept {
    if (awaits_all_of_room()) {
      joined_ += bytes;
      fragment_left_ -= bytes;
    } else {
      filled_ += bytes;
    }
  }
  /// Advances to the next record. record() of the previous one becomes invalid, unless its memory was taken.
  Step next() noexcept;
  std::span<std::byte> record() const noexcept { return record_; }
  /// After Record. Makes the following next() return this record again.
  void keep() noexcept { kept_ = true; }

  /// After NeedMemory. Returns the first two words of the record, which are XID and message type.
  std::span<const std::byte> head() const noexcept { return buffer_.subspan(begin_, kHeadBytes); }
  /// After NeedMemory. Skips the record, so that no memory is needed.
  void skip_record() noexcept { static_cast<void>(begin_skipping()); }
  /// After NeedMemory. Lends `memory` to the stream until take_memory(). It has space for max_record_bytes.
  void lend(std::byte* memory) noexcept;
  /// Returns the lent memory, which holds record() or a part of a record, to the caller. Returns null if none
  /// is lent.
  std::byte* take_memory() noexcept { return std::exchange(memory_, nullptr); }
  bool in_memory() const noexcept { return memory_ != nullptr; }
  /// After NeedBytes. Returns true if a part of a record has been received.
  bool in_record() const noexcept { return in_fragment_ || begun_ || unread() > 0; }

  /// Prepares the stream for a new connection. The lent memory must have been taken.
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
  std::array<std::byte, 4> skipped_head_{};  ///< first bytes of the record being skipped
  bool begun_ = false;                       ///< a fragment of the record was seen
  std::uint32_t empty_fragments_ = 0;
  std::size_t fragment_left_ = 0;
  std::size_t joined_ = 0;  ///< contiguous bytes of the record, at begin_ or in memory_
  std::size_t begin_ = 0;   ///< start of the record in the buffer, unless it is in memory_
  std::size_t at_ = 0;      ///< first unparsed byte of the buffer
  std::size_t filled_ = 0;
  std::byte* memory_ = nullptr;
};

}  // namespace sluice::tcp
