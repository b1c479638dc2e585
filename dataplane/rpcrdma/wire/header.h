// SPDX-License-Identifier: Apache-2.0
//
// Version-neutral transport header of RPC-over-RDMA (RFC 8166, section 4, which also defines the names).
//
// Chunk lists are views of validated wire bytes: a codec checks every count and discriminator once, against
// the received bytes, and iteration then decodes in place. A view is valid as long as the message it was
// decoded from. No allocation; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "dataplane/rpc/message.h"
#include "dataplane/xdr/cursor.h"
#include "pmd/work_request.h"

namespace sluice::rpcrdma {

/// Offset of a data item in the unreduced RPC message, in bytes; a multiple of four (RFC 8166,
/// section 3.4.5).
enum class Position : std::uint32_t {};

enum class Credits : std::uint32_t {};

/// A registered range of the requester's memory (RFC 8166, section 3.4.4).
struct Segment {
  rdma::Rkey handle{};
  std::uint32_t length = 0;  ///< bytes
  std::uint64_t offset = 0;  ///< opaque start value, not necessarily an address (V1-149)
};

struct ReadSegment {
  Position position{};
  Segment target;
};

inline constexpr std::size_t kSegmentBytes = 16;
inline constexpr std::size_t kReadSegmentBytes = 20;
inline constexpr std::size_t kDiscriminatorBytes = 4;
inline constexpr std::size_t kReadEntryBytes = kDiscriminatorBytes + kReadSegmentBytes;
/// The words xid, version, credit, procedure, stable across all versions (RFC 8166, section 7).
inline constexpr std::size_t kFixedBytes = 16;
/// A header with three empty chunk fields.
inline constexpr std::size_t kMinMsgHeaderBytes = 28;

/// Limits on the chunk lists that we accept from a peer. A header that exceeds one is answered with ERR_CHUNK
/// and counted. The limits are what fits a 4096-byte Receive; the Linux kernel sends at most 4096 bytes.
inline constexpr std::uint32_t kMaxReadSegments = 160;
inline constexpr std::uint32_t kMaxWriteChunks = 16;
/// Segments of one Write or Reply chunk, and of a whole Write list.
inline constexpr std::uint32_t kMaxWriteSegments = 240;

inline Segment load_segment(const std::byte* at) noexcept {
  return {static_cast<rdma::Rkey>(xdr::load_u32(at)), xdr::load_u32(at + 4), xdr::load_u64(at + 8)};
}

/// The Read list: entries of discriminator, position, segment. Validated by the codec.
class ReadList {
 public:
  ReadList() = default;
  ReadList(const std::byte* entries, std::uint32_t count) noexcept : entries_(entries), count_(count) {}

  std::uint32_t size() const noexcept { return count_; }
  bool empty() const noexcept { return count_ == 0; }
  ReadSegment operator[](std::uint32_t i) const noexcept {
    const std::byte* at = entries_ + std::size_t{i} * kReadEntryBytes + kDiscriminatorBytes;
    return {static_cast<Position>(xdr::load_u32(at)), load_segment(at + 4)};
  }

 private:
  const std::byte* entries_ = nullptr;
  std::uint32_t count_ = 0;
};

/// A Write chunk or the Reply chunk: a counted array of plain segments.
class WriteChunk {
 public:
  WriteChunk() = default;
  /// `at` points to the count word.
  explicit WriteChunk(const std::byte* at) noexcept : at_(at) {}

  std::uint32_t size() const noexcept { return xdr::load_u32(at_); }
  Segment operator[](std::uint32_t i) const noexcept {
    return load_segment(at_ + 4 + std::size_t{i} * kSegmentBytes);
  }
  /// Sum of the segment lengths. At most kMaxWriteSegments terms of 32 bits: no overflow.
  std::uint64_t capacity() const noexcept {
    std::uint64_t sum = 0;
    for (std::uint32_t i = 0; i < size(); ++i) sum += (*this)[i].length;
    return sum;
  }
  std::size_t encoded_bytes() const noexcept { return 4 + size() * kSegmentBytes; }

 private:
  const std::byte* at_ = nullptr;
};

/// The Write list: entries of discriminator and Write chunk.
class WriteList {
 public:
  class Iterator {
   public:
    Iterator(const std::byte* at, std::uint32_t left) noexcept : at_(at), left_(left) {}
    WriteChunk operator*() const noexcept { return WriteChunk(at_ + kDiscriminatorBytes); }
    Iterator& operator++() noexcept {
      at_ += kDiscriminatorBytes + (**this).encoded_bytes();
      --left_;
      return *this;
    }
    bool operator==(const Iterator& other) const noexcept { return left_ == other.left_; }

   private:
    const std::byte* at_;
    std::uint32_t left_;
  };

  WriteList() = default;
  WriteList(const std::byte* entries, std::uint32_t chunks, std::uint32_t segments) noexcept
      : entries_(entries), chunks_(chunks), segments_(segments) {}

  std::uint32_t size() const noexcept { return chunks_; }
  bool empty() const noexcept { return chunks_ == 0; }
  std::uint32_t total_segments() const noexcept { return segments_; }
  Iterator begin() const noexcept { return {entries_, chunks_}; }
  Iterator end() const noexcept { return {nullptr, 0}; }

 private:
  const std::byte* entries_ = nullptr;
  std::uint32_t chunks_ = 0;
  std::uint32_t segments_ = 0;
};

struct ChunkLists {
  ReadList reads;
  WriteList writes;
  std::optional<WriteChunk> reply;

  bool empty() const noexcept { return reads.empty() && writes.empty() && !reply; }
};

struct FixedHeader {
  rpc::Xid xid{};
  std::uint32_t version = 0;
  Credits credits{};
  std::uint32_t procedure = 0;
};

/// Fields of a message with an RPC payload or chunks that both roles use, in every version.
struct MessageHeader {
  FixedHeader fixed{};
  std::size_t header_bytes = 0;  ///< where the payload stream begins
  bool no_msg = false;  ///< RDMA_NOMSG: the payload is in the position-zero chunk or in the Reply chunk
  ChunkLists chunks{};
  rdma::Rkey invalidate{};  ///< version 2: handle that the responder may invalidate; zero: none
};

/// Loads the fixed header. The caller guarantees kFixedBytes readable bytes.
inline FixedHeader load_fixed(const std::byte* at) noexcept {
  return {static_cast<rpc::Xid>(xdr::load_u32(at)), xdr::load_u32(at + 4),
          static_cast<Credits>(xdr::load_u32(at + 8)), xdr::load_u32(at + 12)};
}

}  // namespace sluice::rpcrdma
