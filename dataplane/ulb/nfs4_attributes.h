// SPDX-License-Identifier: Apache-2.0
//
// Attributes of NFS version 4 that the gateways change, and bitmaps of attributes (RFC 8881, section 5).
// Pure; any thread.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "dataplane/base/small_algorithms.h"
#include "dataplane/service/api/binding.h"
#include "dataplane/xdr/cursor.h"

namespace sluice::ulb {

enum Nfs4Attribute : std::uint32_t { kSupportedAttrs = 0, kMaxRead = 30, kMaxWrite = 31 };

constexpr std::uint32_t kSizeAttributes = 1u << kMaxRead | 1u << kMaxWrite;

/// Number of words of a bitmap4 that the gateways handle. The words after them stay unchanged.
inline constexpr std::uint32_t kAttributeWords = 3;
using Attributes = std::array<std::uint32_t, kAttributeWords>;

/// Returns fs_layout_types, layout_hint, layout_types, layout_blksize and layout_alignment if pNFS is
/// withheld, and fs_locations and fs_locations_info if referrals are.
constexpr Attributes withheld_attributes(const service::Withheld& withheld) noexcept {
  constexpr std::uint32_t kPnfsAttributes[] = {62, 63, 64, 65, 66};
  constexpr std::uint32_t kReferralAttributes[] = {24, 67};
  Attributes words{};
  for (const std::uint32_t number : kPnfsAttributes)
    if (withheld.pnfs) words[number / 32] |= 1u << number % 32;
  for (const std::uint32_t number : kReferralAttributes)
    if (withheld.referrals) words[number / 32] |= 1u << number % 32;
  return words;
}

/// Returns how many words of the bitmap4 at the start of `bytes` are within Attributes. Returns zero if the
/// bitmap is longer than `bytes`.
inline std::size_t words_of_bitmap(std::span<const std::byte> bytes) noexcept {
  if (bytes.size() < xdr::kUnit) return 0;
  const std::uint32_t words = xdr::load_u32(bytes.data());
  if (words > bytes.size() / xdr::kUnit - 1) return 0;
  return smaller_of<std::size_t>(words, kAttributeWords);
}

/// Replaces each word of the bitmap4 at the start of `bytes` by the result of `change`, which takes the word
/// and its index.
template <typename Change>
void change_bitmap(std::span<std::byte> bytes, Change change) noexcept {
  const std::size_t words = words_of_bitmap(bytes);
  for (std::size_t i = 0; i < words; ++i) {
    std::byte* const word = &bytes[(i + 1) * xdr::kUnit];
    xdr::store_u32(word, change(xdr::load_u32(word), i));
  }
}

/// Returns true if the bitmap4 at the start of `bytes` has at least one of the attributes.
inline bool bitmap_has(std::span<const std::byte> bytes, const Attributes& attributes) noexcept {
  const std::size_t words = words_of_bitmap(bytes);
  for (std::size_t i = 0; i < words; ++i)
    if ((xdr::load_u32(&bytes[(i + 1) * xdr::kUnit]) & attributes[i]) != 0) return true;
  return false;
}

}  // namespace sluice::ulb
