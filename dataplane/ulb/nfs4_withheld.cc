// SPDX-License-Identifier: Apache-2.0
//
// What would lead a client of version 4 past the gateway: pNFS (RFC 8881, section 12) and the locations of file
// systems (section 11). In calls the attributes are not asked for; in results EXCHANGE_ID has no role of pNFS
// and FATTR4_SUPPORTED_ATTRS none of the attributes. No byte moves.
#include <array>

#include "dataplane/ulb/nfs4.h"

#include "dataplane/base/small_algorithms.h"

namespace sluice::ulb {
namespace {

enum : std::uint32_t { kGetAttr = 9, kReadDir = 26, kExchangeId = 42 };

// RFC 8881, section 18.35.
constexpr std::uint32_t kUseNonPnfs = 0x10000;
constexpr std::uint32_t kUsePnfs = 0x20000 | 0x40000;  // metadata server, data server

constexpr std::uint32_t kSupportedAttrs = 0;
/// fs_layout_types, layout_hint, layout_types, layout_blksize, layout_alignment.
constexpr std::uint32_t kPnfsAttributes[] = {62, 63, 64, 65, 66};
/// fs_locations, fs_locations_info.
constexpr std::uint32_t kReferralAttributes[] = {24, 67};

/// By words of a bitmap4.
using Attributes = std::array<std::uint32_t, 3>;

constexpr Attributes withheld_attributes(const service::Withheld& withheld) noexcept {
  Attributes words{};
  for (const std::uint32_t number : kPnfsAttributes)
    if (withheld.pnfs) words[number / 32] |= 1u << number % 32;
  for (const std::uint32_t number : kReferralAttributes)
    if (withheld.referrals) words[number / 32] |= 1u << number % 32;
  return words;
}

/// `bitmap` begins with a bitmap4. One that is longer than `bitmap` stays as it is.
void clear(std::span<std::byte> bitmap, const Attributes& attributes) noexcept {
  if (bitmap.size() < xdr::kUnit) return;
  const std::uint32_t words = xdr::load_u32(bitmap.data());
  if (words > bitmap.size() / xdr::kUnit - 1) return;
  for (std::size_t i = 0; i < smaller_of<std::size_t>(words, attributes.size()); ++i) {
    std::byte* const word = &bitmap[(i + 1) * xdr::kUnit];
    xdr::store_u32(word, xdr::load_u32(word) & ~attributes[i]);
  }
}

bool has_supported_attrs(std::span<const std::byte> bitmap) noexcept {
  return xdr::load_u32(bitmap.data()) > 0 && (xdr::load_u32(&bitmap[xdr::kUnit]) >> kSupportedAttrs & 1) != 0;
}

/// A fattr4. FATTR4_SUPPORTED_ATTRS stands ahead of all others.
void clear_supported(std::span<std::byte> bytes, ValueReader& in, const Attributes& attributes) noexcept {
  const std::size_t bitmap_at = in.reader().position();
  in.skip("[w]");
  const std::size_t values_at = in.reader().position() + xdr::kUnit;
  const std::size_t values_bytes = in.opaque().size();
  if (in.ok() && has_supported_attrs(bytes.subspan(bitmap_at)))
    clear(bytes.subspan(values_at, values_bytes), attributes);
}

/// READDIR4resok.
void clear_supported_of_entries(std::span<std::byte> bytes, const Attributes& attributes) noexcept {
  ValueReader in(bytes);
  in.skip("ww");
  while (in.reader().boolean()) {
    in.skip("do");
    clear_supported(bytes, in, attributes);
  }
}

/// EXCHANGE_ID4resok: client and sequence, flags. A server has one of the roles at least.
void clear_roles(std::span<std::byte> bytes) noexcept {
  constexpr std::size_t kFlagsAt = 12;
  if (bytes.size() < kFlagsAt + xdr::kUnit) return;  // failed
  const std::uint32_t flags = xdr::load_u32(&bytes[kFlagsAt]);
  if ((flags & kUsePnfs) != 0) xdr::store_u32(&bytes[kFlagsAt], (flags & ~kUsePnfs) | kUseNonPnfs);
}

}  // namespace

bool withhold_in_nfs4_call(std::uint32_t procedure, std::span<std::byte> arguments,
                           const service::Withheld& withheld) {
  if (procedure != kNfs4Compound || !withheld.any()) return false;
  constexpr std::size_t kBehindNumber = 4;
  constexpr std::size_t kReadDirBitmap = kBehindNumber + 24;  // behind cookie, verifier, dircount, maxcount
  const Attributes attributes = withheld_attributes(withheld);
  bool results_tell = false;
  CompoundWalker walker(arguments, CompoundWalker::What::Call);
  CompoundWalker::Operation operation;
  while (walker.next(operation)) {
    if (operation.number == kExchangeId) results_tell = results_tell || withheld.pnfs;
    if (operation.number != kGetAttr && operation.number != kReadDir) continue;
    const std::size_t at = operation.begin + (operation.number == kGetAttr ? kBehindNumber : kReadDirBitmap);
    const auto bitmap = arguments.subspan(at, operation.end - at);
    clear(bitmap, attributes);
    results_tell = results_tell || has_supported_attrs(bitmap);
  }
  return results_tell;
}

void withhold_in_nfs4_results(std::span<std::byte> results, const service::Withheld& withheld,
                              service::PlacedResults* placed) {
  constexpr std::size_t kBehindStatus = 8;
  const Attributes attributes = withheld_attributes(withheld);
  CompoundWalker walker(results, CompoundWalker::What::Reply, placed);
  CompoundWalker::Operation operation;
  while (walker.next(operation)) {
    const std::size_t begin = operation.begin + kBehindStatus;
    const auto body = results.subspan(begin, operation.end - begin);
    ValueReader in(body);
    if (operation.number == kGetAttr)
      clear_supported(body, in, attributes);
    else if (operation.number == kReadDir)
      clear_supported_of_entries(body, attributes);
    else if (operation.number == kExchangeId && withheld.pnfs)
      clear_roles(body);
  }
}

}  // namespace sluice::ulb
