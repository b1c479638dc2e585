// SPDX-License-Identifier: Apache-2.0
//
// Bounds-checked XDR cursors over byte spans (RFC 4506). No allocation, no copy, no exception. The caller
// owns the spans, which must outlive the cursor and the views it returns.
//
// Errors are sticky. After the first error every read returns zero or an empty span, every write is dropped,
// and ok() is false. A decoder therefore reads a whole structure and checks ok() once, but also before it
// loops on a count. Any thread, one thread per cursor.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

namespace sluice::xdr {

inline constexpr std::size_t kUnit = 4;

/// Returns the length rounded up to the XDR unit (RFC 4506, section 3). Does not overflow below 2^64 - 3.
constexpr std::uint64_t padded(std::uint64_t bytes) noexcept {
  return (bytes + (kUnit - 1)) & ~std::uint64_t{kUnit - 1};
}

/// Loads one XDR unit, which is big-endian. The caller guarantees four readable bytes. The functions below
/// load and store one or two units in this way, with as many readable or writable bytes.
inline std::uint32_t load_u32(const std::byte* from) noexcept {
  std::uint32_t raw;
  std::memcpy(&raw, from, sizeof raw);
  if constexpr (std::endian::native == std::endian::little) raw = __builtin_bswap32(raw);
  return raw;
}

inline std::uint64_t load_u64(const std::byte* from) noexcept {
  return std::uint64_t{load_u32(from)} << 32 | load_u32(from + kUnit);
}

inline void store_u32(std::byte* to, std::uint32_t value) noexcept {
  if constexpr (std::endian::native == std::endian::little) value = __builtin_bswap32(value);
  std::memcpy(to, &value, sizeof value);
}

inline void store_u64(std::byte* to, std::uint64_t value) noexcept {
  store_u32(to, static_cast<std::uint32_t>(value >> 32));
  store_u32(to + kUnit, static_cast<std::uint32_t>(value));
}

/// Loads one unit without decoding it, for a comparison with encoded(). The caller guarantees four readable
/// bytes.
inline std::uint32_t load_encoded(const std::byte* from) noexcept {
  std::uint32_t raw;
  std::memcpy(&raw, from, sizeof raw);
  return raw;
}
constexpr std::uint32_t encoded(std::uint32_t value) noexcept {
  if constexpr (std::endian::native == std::endian::little) return __builtin_bswap32(value);
  return value;
}
/// Loads two units without decoding them, for a comparison with encoded_pair(). The caller guarantees eight
/// readable bytes.
inline std::uint64_t load_encoded_pair(const std::byte* from) noexcept {
  std::uint64_t raw;
  std::memcpy(&raw, from, sizeof raw);
  return raw;
}
constexpr std::uint64_t encoded_pair(std::uint32_t first, std::uint32_t second) noexcept {
  const std::uint64_t value = std::uint64_t{first} << 32 | second;
  if constexpr (std::endian::native == std::endian::little) return __builtin_bswap64(value);
  return value;
}

/// Stores several consecutive units. The caller guarantees the space.
template <typename... Words>
inline void store_words(std::byte* to, Words... values) noexcept {
  ((store_u32(to, static_cast<std::uint32_t>(values)), to += kUnit), ...);
}

class Reader {
 public:
  Reader() = default;
  explicit Reader(std::span<const std::byte> bytes) noexcept
      : begin_(bytes.data()), at_(bytes.data()), end_(bytes.data() + bytes.size()) {}

  bool ok() const noexcept { return !failed_; }
  /// Returns the number of bytes consumed so far.
  std::size_t position() const noexcept { return static_cast<std::size_t>(at_ - begin_); }
  std::size_t remaining() const noexcept { return failed_ ? 0 : static_cast<std::size_t>(end_ - at_); }
  /// Returns the remaining bytes without consuming them.
  std::span<const std::byte> rest() const noexcept { return {at_, remaining()}; }

  void fail() noexcept { failed_ = true; }

  std::uint32_t u32() noexcept {
    if (remaining() < kUnit) return fail(), 0;
    const std::uint32_t value = load_u32(at_);
    at_ += kUnit;
    return value;
  }

  /// Consumes `count` units and returns their address for load_u32(). Fails and returns null if fewer units
  /// remain.
  const std::byte* units(std::size_t count) noexcept {
    if (remaining() < count * kUnit) return fail(), nullptr;
    const std::byte* const from = at_;
    at_ += count * kUnit;
    return from;
  }

  std::int32_t i32() noexcept { return static_cast<std::int32_t>(u32()); }

  std::uint64_t u64() noexcept {
    if (remaining() < 2 * kUnit) return fail(), 0;
    const std::uint64_t value = load_u64(at_);
    at_ += 2 * kUnit;
    return value;
  }

  /// Reads an XDR bool. Any word other than 0 and 1 is an error (V1-013).
  bool boolean() noexcept {
    const std::uint32_t value = u32();
    if (value > 1) fail();
    return ok() && value == 1;
  }

  /// Reads an opaque[n] and skips its pad bytes, whose content is ignored (V1-088).
  std::span<const std::byte> opaque_fixed(std::uint32_t bytes) noexcept {
    if (padded(bytes) > remaining()) return fail(), std::span<const std::byte>{};
    const std::span<const std::byte> item{at_, bytes};
    at_ += padded(bytes);
    return item;
  }

  /// Reads an opaque<max>.
  std::span<const std::byte> opaque(std::uint32_t max_bytes) noexcept {
    const std::uint32_t bytes = u32();
    if (bytes > max_bytes) return fail(), std::span<const std::byte>{};
    return opaque_fixed(bytes);
  }

  /// Reads a string<max>. The character set is not checked.
  std::string_view string(std::uint32_t max_bytes) noexcept {
    const auto bytes = opaque(max_bytes);
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }

  void skip(std::uint64_t bytes) noexcept {
    if (bytes > remaining()) return fail();
    at_ += bytes;
  }

 private:
  const std::byte* begin_ = nullptr;
  const std::byte* at_ = nullptr;
  const std::byte* end_ = nullptr;
  bool failed_ = false;
};

class Writer {
 public:
  Writer() = default;
  explicit Writer(std::span<std::byte> room) noexcept
      : begin_(room.data()), at_(room.data()), end_(room.data() + room.size()) {}

  bool ok() const noexcept { return !failed_; }
  std::size_t position() const noexcept { return static_cast<std::size_t>(at_ - begin_); }
  std::size_t remaining() const noexcept { return failed_ ? 0 : static_cast<std::size_t>(end_ - at_); }
  std::span<std::byte> written() const noexcept { return {begin_, position()}; }

  void fail() noexcept { failed_ = true; }

  void u32(std::uint32_t value) noexcept {
    if (remaining() < kUnit) return fail();
    store_u32(at_, value);
    at_ += kUnit;
  }

  /// Writes several units, or none if they do not fit.
  template <typename... Words>
  void words(Words... values) noexcept {
    if (remaining() < sizeof...(values) * kUnit) return fail();
    std::byte* const at = at_;  // A local copy, because stores of bytes may alias the members.
    store_words(at, values...);
    at_ = at + sizeof...(values) * kUnit;
  }

  void i32(std::int32_t value) noexcept { u32(static_cast<std::uint32_t>(value)); }

  void u64(std::uint64_t value) noexcept {
    if (remaining() < 2 * kUnit) return fail();
    store_u64(at_, value);
    at_ += 2 * kUnit;
  }

  void boolean(bool value) noexcept { u32(value ? 1 : 0); }

  /// Writes an opaque[n] and its pad bytes, which are zero (RFC 4506, section 4.9).
  void opaque_fixed(std::span<const std::byte> bytes) noexcept {
    const std::uint64_t with_pad = padded(bytes.size());
    if (with_pad > remaining()) return fail();
    if (!bytes.empty()) std::memcpy(at_, bytes.data(), bytes.size());
    std::memset(at_ + bytes.size(), 0, with_pad - bytes.size());
    at_ += with_pad;
  }

  void opaque(std::span<const std::byte> bytes) noexcept {
    u32(static_cast<std::uint32_t>(bytes.size()));
    opaque_fixed(bytes);
  }

  void string(std::string_view text) noexcept { opaque(std::as_bytes(std::span{text.data(), text.size()})); }

  /// Reserves one unit for a later patch_u32(), and returns its position.
  std::size_t reserve_u32() noexcept {
    const std::size_t where = position();
    u32(0);
    return where;
  }

  /// Overwrites a unit that has been written. Fails if `where` has not been written.
  void patch_u32(std::size_t where, std::uint32_t value) noexcept {
    if (failed_ || where + kUnit > position()) return fail();
    store_u32(begin_ + where, value);
  }

  /// Discards everything written from `where` on, and clears an error.
  void rewind(std::size_t where) noexcept {
    if (where > static_cast<std::size_t>(end_ - begin_)) return fail();
    at_ = begin_ + where;
    failed_ = false;
  }

 private:
  std::byte* begin_ = nullptr;
  std::byte* at_ = nullptr;
  std::byte* end_ = nullptr;
  bool failed_ = false;
};

}  // namespace sluice::xdr
