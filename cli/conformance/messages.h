// SPDX-License-Identifier: Apache-2.0
//
// Messages of RPC-over-RDMA as words, written and read by hand. This permits defective messages and keeps the
// transport under test from judging itself. Pure functions, any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "dataplane/rpcrdma/wire/header.h"
#include "dataplane/xdr/cursor.h"

namespace sluice::conformance {

using Bytes = std::vector<std::byte>;

/// Returns XDR words, big-endian, in the notation of the vectors of the requirement tables.
inline Bytes words(std::initializer_list<std::uint32_t> list) {
  Bytes bytes(list.size() * 4);
  std::size_t at = 0;
  for (const std::uint32_t word : list) {
    xdr::store_u32(bytes.data() + at, word);
    at += 4;
  }
  return bytes;
}
void append(Bytes& to, std::span<const std::byte> more);
inline std::uint32_t word_at(std::span<const std::byte> bytes, std::size_t index) {
  return (index + 1) * 4 <= bytes.size() ? xdr::load_u32(bytes.data() + index * 4) : 0xDEADDEADu;
}

/// Returns an RPC call header with AUTH_NONE, 40 bytes.
inline Bytes rpc_call(std::uint32_t xid, std::uint32_t program, std::uint32_t version,
                      std::uint32_t procedure) {
  return words({xid, 0, 2, program, version, procedure, 0, 0, 0, 0});
}
/// Returns a version 1 header without chunks, 28 bytes.
inline Bytes plain_header(std::uint32_t xid, std::uint32_t credits, std::uint32_t proc = 0) {
  return words({xid, 1, credits, proc, 0, 0, 0});
}

/// Returns a byte of deterministic content, different for each seed.
inline std::byte pattern_byte(std::uint32_t seed, std::size_t at) {
  return static_cast<std::byte>((at * 131 + std::size_t{seed} * 29 + (at >> 8)) & 0xff);
}
inline void fill_pattern(std::span<std::byte> bytes, std::uint32_t seed) {
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = pattern_byte(seed, i);
}
inline bool has_pattern(std::span<const std::byte> bytes, std::uint32_t seed) {
  for (std::size_t i = 0; i < bytes.size(); ++i)
    if (bytes[i] != pattern_byte(seed, i)) return false;
  return true;
}

inline void fill(std::span<std::byte> bytes, std::byte value) {
  for (std::byte& b : bytes) b = value;
}

/// Reports whether the memory is unchanged since Trial::writable() returned it.
inline bool untouched(std::span<const std::byte> bytes) {
  for (const std::byte b : bytes)
    if (b != std::byte{0xA5}) return false;
  return true;
}

/// Repeatable random numbers (xorshift64).
class RandomNumbers {
 public:
  std::uint64_t next() {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    return state_ ^= state_ << 17;
  }
  /// Returns at least `least` bytes and at most 299 more.
  Bytes message(std::size_t least) {
    Bytes bytes(least + next() % 300);
    for (std::byte& b : bytes) b = static_cast<std::byte>(next());
    return bytes;
  }

 private:
  std::uint64_t state_ = 88172645463325252ull;
};

/// Memory that the peer may access.
struct Exposed {
  std::span<std::byte> bytes;
  rpcrdma::Segment segment;
};

/// Copies the bytes to the beginning of the memory.
inline void place(const Exposed& memory, std::span<const std::byte> bytes) {
  if (!bytes.empty()) std::memcpy(memory.bytes.data(), bytes.data(), bytes.size());
}

struct RawRead {
  std::uint32_t position = 0;
  rpcrdma::Segment segment;
};

/// A version 1 header as a client writes it.
struct RawCall {
  std::uint32_t xid = 0x11111111;
  std::uint32_t version = 1;
  std::uint32_t credits = 32;
  std::uint32_t proc = 0;
  std::vector<RawRead> reads{};
  std::vector<std::vector<rpcrdma::Segment>> writes{};
  std::optional<std::vector<rpcrdma::Segment>> reply{};

  Bytes header() const;
  Bytes with(std::span<const std::byte> payload) const {
    Bytes out = header();
    append(out, payload);
    return out;
  }
};

/// Returns the words of a span as bytes, for the vectors in tests/golden.
inline Bytes bytes_of(std::span<const std::uint32_t> list) {
  Bytes bytes(list.size() * 4);
  for (std::size_t i = 0; i < list.size(); ++i) xdr::store_u32(bytes.data() + i * 4, list[i]);
  return bytes;
}

/// Returns a line for the report with the first words of the message.
std::string shown(const char* what, std::span<const std::byte> message);

inline rpcrdma::Segment part(const rpcrdma::Segment& whole, std::uint32_t from, std::uint32_t bytes) {
  return {whole.handle, bytes, whole.offset + from};
}

inline bool is_err_chunk(const Bytes& answer, std::uint32_t xid) {
  return answer.size() == 20 && word_at(answer, 0) == xid && word_at(answer, 1) == 1 &&
         word_at(answer, 2) >= 1 && word_at(answer, 3) == 4 && word_at(answer, 4) == 2;
}

namespace v2 {

inline constexpr std::uint32_t kMsg = 0;
inline constexpr std::uint32_t kNoMsg = 1;
inline constexpr std::uint32_t kError = 4;
inline constexpr std::uint32_t kConnProp = 5;
inline constexpr std::uint32_t kResponse = 1;
inline constexpr std::uint32_t kMore = 2;

struct Header {
  std::uint32_t xid = 0x11111111;
  std::uint32_t version = 2;
  std::uint32_t credit = 0x00400001;
  std::uint32_t type = kMsg;
  std::uint32_t flags = 0;
  std::uint32_t invalidate = 0;
  std::vector<RawRead> reads{};
  std::vector<std::vector<rpcrdma::Segment>> writes{};
  std::optional<std::vector<rpcrdma::Segment>> reply{};

  Bytes prefix() const { return words({xid, version, credit, type, flags}); }
  Bytes bytes() const {
    Bytes out = prefix();
    append(out, words({invalidate}));
    // The chunk lists have the format of version 1.
    const Bytes lists = RawCall{.reads = reads, .writes = writes, .reply = reply}.header();
    append(out, std::span(lists).subspan(16));
    return out;
  }
  Bytes with(std::span<const std::byte> payload) const {
    Bytes out = bytes();
    append(out, payload);
    return out;
  }
  Bytes then(std::initializer_list<std::uint32_t> body) const {
    Bytes out = prefix();
    append(out, words(body));
    return out;
  }
};

inline bool is_grant(const Bytes& message) {
  return message.size() == 36 && word_at(message, 3) == kNoMsg;
}
inline bool is_error(const Bytes& message, std::uint32_t xid, std::uint32_t code) {
  return message.size() >= 24 && word_at(message, 0) == xid && word_at(message, 1) == 2 &&
         word_at(message, 2) == (word_at(message, 2) & 0xffff0000) && word_at(message, 2) != 0 &&
         word_at(message, 3) == kError && word_at(message, 4) == kResponse && word_at(message, 5) == code;
}

}  // namespace v2
}  // namespace sluice::conformance
