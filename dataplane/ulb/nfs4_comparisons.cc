// SPDX-License-Identifier: Apache-2.0
#include "dataplane/ulb/nfs4_comparisons.h"

#include "dataplane/ulb/nfs3.h"
#include "dataplane/ulb/nfs4.h"
#include "dataplane/ulb/nfs4_grammar.h"

namespace sluice::ulb {
namespace {

enum : std::uint32_t { kNVerify = 17, kVerify = 37 };

/// Size in bytes that no server announces, so that a comparison with it finds a difference.
constexpr std::uint64_t kNoServersSize = 1;
/// Number of FATTR4_SUPPATTR_EXCLCREAT, which servers of minor versions above 0 must support (RFC 8881,
/// section 5.8.1.14).
constexpr std::uint32_t kSuppattrExclcreat = 75;
/// Number of FATTR4_RETENTEVT_GET. It replaces attributes that must appear as unsupported, because no server
/// supports it.
constexpr std::uint32_t kUnsupportedAttribute = 71;

/// Rewrites a fattr4 so that it has an attribute that the server does not support. Even the shortest value of
/// a withheld attribute leaves enough space for the longer bitmap.
void name_unsupported(std::span<std::byte> fattr) noexcept {
  constexpr std::size_t kBitmapBytes = (1 + kAttributeWords) * xdr::kUnit;
  if (fattr.size() < kBitmapBytes + xdr::kUnit) return;
  const std::size_t values_bytes = fattr.size() - kBitmapBytes - xdr::kUnit;
  xdr::Writer out(fattr);
  out.u32(kAttributeWords);
  for (std::uint32_t i = 0; i < kAttributeWords; ++i)
    out.u32(i == kUnsupportedAttribute / 32 ? 1u << kUnsupportedAttribute % 32 : 0);
  out.u32(static_cast<std::uint32_t>(values_bytes));
  for (std::size_t i = 0; i < values_bytes; i += xdr::kUnit) out.u32(0);
}

bool is_nfs4(const service::Binding& binding) noexcept {
  return binding.program == kNfsProgram && binding.version == kNfs4Version;
}

}  // namespace

// --- What the server announces

/// Records the withheld attributes in FATTR4_SUPPORTED_ATTRS, which is at the reader's position.
void ComparedAttributes::note_supported(std::span<const std::byte> values, ValueReader& in) noexcept {
  const auto bitmap = values.subspan(in.reader().position());
  in.skip("[w]");
  if (!in.ok()) return;
  Attributes hidden = withheld_;
  const std::size_t words = words_of_bitmap(bitmap);
  for (std::size_t i = 0; i < hidden.size(); ++i)
    hidden[i] &= i < words ? xdr::load_u32(&bitmap[(i + 1) * xdr::kUnit]) : 0;
  Attributes later{};
  later[kSuppattrExclcreat / 32] = 1u << kSuppattrExclcreat % 32;
  announced_.hidden[bitmap_has(bitmap, later) ? 1 : 0] = hidden;
}

void ComparedAttributes::note_size(ValueReader& in, std::uint64_t& announced) const noexcept {
  const std::uint64_t size = in.reader().u64();
  if (in.ok()) announced = size > carried_bytes_ ? size : 0;
}

/// Records the values in a fattr4.
void ComparedAttributes::note_fattr(ValueReader& in) noexcept {
  xdr::Reader& reader = in.reader();
  const std::uint64_t words = reader.u32();
  const std::uint32_t bitmap = words > 0 ? reader.u32() : 0;
  if (words > 1) reader.skip((words - 1) * xdr::kUnit);
  const auto values = in.opaque();
  if (!in.ok() || (bitmap & (kSizeAttributes | 1u << kSupportedAttrs)) == 0) return;
  ValueReader of(values);
  for (std::uint32_t number = 0; number <= kMaxWrite && of.ok(); ++number) {
    if ((bitmap >> number & 1) == 0) continue;
    if (number == kSupportedAttrs)
      note_supported(values, of);
    else if (number == kMaxRead)
      note_size(of, announced_.max_read);
    else if (number == kMaxWrite)
      note_size(of, announced_.max_write);
    else
      of.skip(kNfs4Attributes[number]);
  }
}

// --- What a call compares

/// Adds the attributes hidden from clients to FATTR4_SUPPORTED_ATTRS. A value that already has withheld
/// attributes is changed so that it differs from the server's value.
void ComparedAttributes::restore_supported(std::span<std::byte> values, ValueReader& in,
                                           bool later_version) const noexcept {
  const auto bitmap = values.subspan(in.reader().position());
  in.skip("[w]");
  if (!in.ok()) return;
  const Attributes& hidden = announced_.hidden[later_version ? 1 : 0];
  if (!bitmap_has(bitmap, withheld_))
    return change_bitmap(bitmap, [&](std::uint32_t word, std::size_t i) { return word | hidden[i]; });
  change_bitmap(bitmap, [](std::uint32_t word, std::size_t i) {
    return i == 0 ? word & ~(1u << kSupportedAttrs) : word;  // Every server supports this attribute.
  });
}

/// Replaces a size by the server's size. Clients are shown the smaller of the gateway's limit and the
/// server's size.
void ComparedAttributes::restore_size(std::span<std::byte> values, ValueReader& in,
                                      std::uint64_t announced) const noexcept {
  const std::size_t at = in.reader().position();
  const std::uint64_t compared = in.reader().u64();
  if (!in.ok()) return;
  if (compared > carried_bytes_)
    xdr::store_u64(&values[at], kNoServersSize);
  else if (compared == carried_bytes_ && announced > carried_bytes_)
    xdr::store_u64(&values[at], announced);
}

void ComparedAttributes::restore_fattr(std::span<std::byte> fattr, bool later_version) const noexcept {
  if (bitmap_has(fattr, withheld_)) return name_unsupported(fattr);
  ValueReader in(fattr);
  const std::uint32_t bitmap = words_of_bitmap(fattr) > 0 ? xdr::load_u32(&fattr[xdr::kUnit]) : 0;
  in.skip("[w]");
  const std::size_t values_at = in.reader().position() + xdr::kUnit;
  const std::size_t values_bytes = in.opaque().size();
  if (!in.ok() || (bitmap & (kSizeAttributes | 1u << kSupportedAttrs)) == 0) return;
  const auto values = fattr.subspan(values_at, values_bytes);
  ValueReader of(values);
  for (std::uint32_t number = 0; number <= kMaxWrite && of.ok(); ++number) {
    if ((bitmap >> number & 1) == 0) continue;
    if (number == kSupportedAttrs)
      restore_supported(values, of, later_version);
    else if (number == kMaxRead)
      restore_size(values, of, announced_.max_read);
    else if (number == kMaxWrite)
      restore_size(values, of, announced_.max_write);
    else
      of.skip(kNfs4Attributes[number]);
  }
}

void ComparedAttributes::note(const service::Binding& binding, std::span<const std::byte> results,
                              service::PlacedResults* placed) noexcept {
  if (!is_nfs4(binding)) return;
  constexpr std::size_t kBehindStatus = 8;
  CompoundWalker walker(results, CompoundWalker::What::Reply, placed);
  CompoundWalker::Operation operation;
  while (walker.next(operation)) {
    if (operation.status != 0 || (operation.number != kOpGetAttr && operation.number != kOpReadDir)) continue;
    const std::size_t begin = operation.begin + kBehindStatus;
    ValueReader in(results.subspan(begin, operation.end - begin));
    if (operation.number == kOpGetAttr) {
      note_fattr(in);
      continue;
    }
    in.skip("ww");  // A READDIR4resok is a verifier, and entries of cookie, name and attributes.
    while (in.reader().boolean()) {
      in.skip("do");
      note_fattr(in);
    }
  }
}

void ComparedAttributes::restore(const service::Binding& binding, std::uint32_t procedure,
                                 std::span<std::byte> arguments) const noexcept {
  if (!is_nfs4(binding) || procedure != kNfs4Compound) return;
  constexpr std::size_t kBehindNumber = 4;
  CompoundWalker walker(arguments, CompoundWalker::What::Call);
  CompoundWalker::Operation operation;
  while (walker.next(operation)) {
    if (operation.number != kVerify && operation.number != kNVerify) continue;
    const std::size_t begin = operation.begin + kBehindNumber;
    restore_fattr(arguments.subspan(begin, operation.end - begin), walker.minor_version() > 0);
  }
}

}  // namespace sluice::ulb
