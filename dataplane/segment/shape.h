// SPDX-License-Identifier: Apache-2.0
//
// Hashes of the memory layout of types, computed by the compiler from names, offsets and sizes of members and
// from names of enumerators. Two releases whose hashes of a type are equal can share memory of that type.
// Constants only.
//
// SLUICE_SHAPE(type, members...) describes a structure. It does not compile if a member is missing, unless
// the member is hidden in padding at the end.
#pragma once

#include <array>
#include <atomic>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>
#include <utility>

#include "dataplane/base/cache_line.h"
#include "dataplane/base/host_name.h"
#include "dataplane/base/seqlock.h"
#include "dataplane/base/spsc_ring.h"
#include "dataplane/base/two_copies.h"
#include "dataplane/segment/histogram.h"

namespace sluice::segment::shape {

using Hash = std::uint64_t;
inline constexpr Hash kBegin = 0xcbf29ce484222325;  // FNV-1a

constexpr Hash mix(Hash hash, std::string_view text) {
  for (const char character : text) hash = (hash ^ static_cast<unsigned char>(character)) * 0x100000001b3;
  return hash;
}
constexpr Hash mix(Hash hash, std::uint64_t value) {
  for (int i = 0; i < 8; ++i) hash = (hash ^ (value >> (8 * i) & 0xff)) * 0x100000001b3;
  return hash;
}
constexpr Hash named(std::string_view name, std::uint64_t a, std::uint64_t b = 0) {
  return mix(mix(mix(kBegin, name), a), b);
}

/// Shape of a type. Types without a specialization have no definition and do not compile.
template <typename T>
struct Of;
template <typename T>
inline constexpr Hash of = Of<T>::value;

template <typename T>
requires std::integral<T> || std::floating_point<T>
struct Of<T> {
  static constexpr Hash value = named(std::floating_point<T>                          ? "float"
                                      : std::is_signed_v<T> && !std::same_as<T, char> ? "int"
                                                                                      : "unsigned",
                                      sizeof(T));
};
template <>
struct Of<std::byte> {
  static constexpr Hash value = named("byte", 1);
};

/// Returns the enumerator's name; empty if no enumerator has this value.
template <auto Value>
constexpr std::string_view enumerator() {
  std::string_view text = __PRETTY_FUNCTION__;
  text.remove_prefix(text.find("Value = ") + 8);
  text = text.substr(0, text.find_first_of(";]"));
  if (text.find('(') != std::string_view::npos) return {};
  text.remove_prefix(text.rfind(':') + 1);
  return text[0] >= '0' && text[0] <= '9' ? std::string_view() : text;
}

template <typename T>
requires std::is_enum_v<T>
struct Of<T> {
  /// Number of values that are hashed. Enumerators with larger values do not count.
  static constexpr std::size_t kMost = 64;
  template <std::size_t... I>
  static constexpr Hash all(std::index_sequence<I...>) {
    Hash hash = named("enum", sizeof(T));
    ((hash = mix(mix(hash, enumerator<static_cast<T>(I)>()), I)), ...);
    return hash;
  }
  static constexpr Hash value = all(std::make_index_sequence<kMost>());
};

template <typename T, std::size_t N>
struct Of<std::array<T, N>> {
  static constexpr Hash value = named("array", of<T>, N);
};
template <typename T, std::size_t N>
struct Of<T[N]> {
  static constexpr Hash value = named("array", of<T>, N);
};
template <typename T>
struct Of<std::atomic<T>> {
  static_assert(sizeof(std::atomic<T>) == sizeof(T));
  static constexpr Hash value = of<T>;
};
template <typename T>
struct Of<SeqLock<T>> {
  static constexpr Hash value = named("SeqLock", of<T>, sizeof(SeqLock<T>));
};
template <typename T>
struct Of<TwoCopies<T>> {
  static constexpr Hash value = named("TwoCopies", of<T>, sizeof(TwoCopies<T>));
};
template <>
struct Of<Histogram> {
  static constexpr Hash value = named("Histogram", Histogram::kSubBits, sizeof(Histogram));
};
template <>
struct Of<HostName> {
  static constexpr Hash value = named("HostName", sizeof(HostName));
};

struct Member {
  std::string_view name;
  std::size_t offset;
  std::size_t bytes;
  std::size_t alignment;
  Hash type;
};

constexpr std::size_t round_up(std::size_t value, std::size_t to) {
  return (value + to - 1) / to * to;
}

/// Returns whether each member begins where the previous one ends, rounded up to its alignment or to that of
/// a cache line.
template <std::size_t N>
constexpr bool is_complete(const Member (&members)[N], std::size_t bytes, std::size_t alignment) {
  std::size_t end = 0;
  for (const Member& member : members) {
    if (member.offset != round_up(end, member.alignment) && member.offset != round_up(end, kCacheLine))
      return false;
    end = member.offset + member.bytes;
  }
  return round_up(end, alignment) == bytes;
}

template <std::size_t N>
constexpr Hash of_members(const Member (&members)[N], std::size_t bytes) {
  Hash hash = named("struct", bytes);
  for (const Member& member : members)
    hash = mix(mix(mix(mix(hash, member.name), member.offset), member.bytes), member.type);
  return hash;
}

#define SLUICE_SHAPE_AGAIN ()
#define SLUICE_SHAPE_1(...) SLUICE_SHAPE_2(SLUICE_SHAPE_2(SLUICE_SHAPE_2(SLUICE_SHAPE_2(__VA_ARGS__))))
#define SLUICE_SHAPE_2(...) SLUICE_SHAPE_3(SLUICE_SHAPE_3(SLUICE_SHAPE_3(SLUICE_SHAPE_3(__VA_ARGS__))))
#define SLUICE_SHAPE_3(...) SLUICE_SHAPE_4(SLUICE_SHAPE_4(SLUICE_SHAPE_4(SLUICE_SHAPE_4(__VA_ARGS__))))
#define SLUICE_SHAPE_4(...) __VA_ARGS__
#define SLUICE_SHAPE_MEMBERS(...) __VA_OPT__(SLUICE_SHAPE_1(SLUICE_SHAPE_MEMBER(__VA_ARGS__)))
#define SLUICE_SHAPE_MEMBER(member, ...)                                                                    \
  {#member, offsetof(T, member), sizeof(T::member), alignof(decltype(T::member)), of<decltype(T::member)>}, \
      __VA_OPT__(SLUICE_SHAPE_MORE SLUICE_SHAPE_AGAIN(__VA_ARGS__))
#define SLUICE_SHAPE_MORE() SLUICE_SHAPE_MEMBER

#define SLUICE_SHAPE(type, ...)                                                                 \
  template <>                                                                                   \
  struct Of<type> {                                                                             \
    using T = type;                                                                             \
    static constexpr Member kMembers[] = {SLUICE_SHAPE_MEMBERS(__VA_ARGS__)};                   \
    static_assert(is_complete(kMembers, sizeof(T), alignof(T)), #type ": a member is missing"); \
    static constexpr Hash value = of_members(kMembers, sizeof(T));                              \
  };

template <typename T, std::uint32_t Slots>
struct Of<RingOfProducer<T, Slots>> {
  static constexpr Hash value = named("RingOfProducer", of<T>, sizeof(RingOfProducer<T, Slots>));
};
SLUICE_SHAPE(RingOfConsumer, head)

}  // namespace sluice::segment::shape
