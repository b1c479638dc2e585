// SPDX-License-Identifier: Apache-2.0
//
// The sizes that a server of version 4 announces: FATTR4_MAXREAD and FATTR4_MAXWRITE (RFC 8881, section
// 5.8.2), and the channel attributes of a session (section 18.36).
#include "dataplane/ulb/nfs4.h"
#include "dataplane/ulb/nfs4_grammar.h"

namespace sluice::ulb {
namespace {

enum : std::uint32_t { kGetAttr = 9, kReadDir = 26, kCreateSession = 43 };
enum : std::uint32_t { kMaxRead = 30, kMaxWrite = 31 };
static_assert(std::size(kNfs4Attributes) == kMaxWrite + 1);

constexpr std::uint32_t kSizeAttributes = 1u << kMaxRead | 1u << kMaxWrite;

/// Reads a number of `bytes`, over which the reader goes, and lowers it in place to `most` at the most.
void lower_u32(std::span<std::byte> bytes, xdr::Reader& reader, std::uint32_t most) noexcept {
  const std::size_t at = reader.position();
  if (reader.u32() > most) xdr::store_u32(&bytes[at], most);  // zero if it is not there
}
void lower_u64(std::span<std::byte> bytes, xdr::Reader& reader, std::uint64_t most) noexcept {
  const std::size_t at = reader.position();
  if (reader.u64() > most) xdr::store_u64(&bytes[at], most);
}

/// Whether the bitmap at `offset`, which has been stepped over, has one of the sizes.
bool asks_for_sizes(std::span<const std::byte> arguments, std::size_t offset) noexcept {
  const bool empty = xdr::load_u32(&arguments[offset]) == 0;
  return !empty && (xdr::load_u32(&arguments[offset + xdr::kUnit]) & kSizeAttributes) != 0;
}

/// Attributes follow each other in the order of their numbers.
void cap_attributes(std::span<std::byte> values, std::uint32_t bitmap, std::uint64_t most) noexcept {
  ValueReader in(values);
  for (std::uint32_t number = 0; number <= kMaxWrite && in.ok(); ++number) {
    if ((bitmap >> number & 1) == 0) continue;
    if (number == kMaxRead || number == kMaxWrite)
      lower_u64(values, in.reader(), most);
    else
      in.skip(kNfs4Attributes[number]);
  }
}

/// A fattr4: the bitmap, of which only the first word matters here, and an opaque with the attributes.
void cap_fattr(std::span<std::byte> bytes, ValueReader& in, const service::CarriedSizes& most) noexcept {
  xdr::Reader& reader = in.reader();
  const std::uint64_t words = reader.u32();
  const std::uint32_t bitmap = words > 0 ? reader.u32() : 0;
  if (words > 1) reader.skip((words - 1) * xdr::kUnit);
  const std::size_t values_at = reader.position() + xdr::kUnit;
  const std::size_t values_bytes = in.opaque().size();
  if (in.ok() && (bitmap & kSizeAttributes) != 0)
    cap_attributes(bytes.subspan(values_at, values_bytes), bitmap, most.data_bytes);
}

/// READDIR4resok: verifier, and entries of cookie, name and attributes.
void cap_entries(std::span<std::byte> bytes, const service::CarriedSizes& most) noexcept {
  ValueReader in(bytes);
  in.skip("ww");
  while (in.reader().boolean()) {
    in.skip("do");
    cap_fattr(bytes, in, most);
  }
}

/// channel_attrs4. Calls of the server may be held to less than others by the transport, which the client knew
/// when it asked for its back channel. Linux refuses one that has less room for replies than it has asked for, so
/// that channel has the limit of all messages.
void cap_channel(std::span<std::byte> bytes, ValueReader& in, std::uint32_t most) noexcept {
  in.skip("w");                         // headerpadsize
  lower_u32(bytes, in.reader(), most);  // maxrequestsize
  lower_u32(bytes, in.reader(), most);  // maxresponsesize
  lower_u32(bytes, in.reader(), most);  // maxresponsesize_cached
  in.skip("ww[w]");                     // maxoperations, maxrequests, rdma_ird
}

}  // namespace

bool nfs4_announces_sizes(std::uint32_t procedure, std::span<const std::byte> arguments) {
  if (procedure != kNfs4Compound) return false;
  constexpr std::size_t kBehindNumber = 4;
  constexpr std::size_t kReadDirBitmap = kBehindNumber + 24;  // behind cookie, verifier, dircount, maxcount
  CompoundWalker walker(arguments, CompoundWalker::What::Call);
  CompoundWalker::Operation operation;
  while (walker.next(operation)) {
    if (operation.number == kCreateSession) return true;
    if (operation.number == kGetAttr && asks_for_sizes(arguments, operation.begin + kBehindNumber))
      return true;
    if (operation.number == kReadDir && asks_for_sizes(arguments, operation.begin + kReadDirBitmap))
      return true;
  }
  return false;
}

void cap_nfs4_sizes(std::span<std::byte> results, const service::CarriedSizes& most,
                    service::PlacedResults* placed) {
  constexpr std::size_t kBehindStatus = 8;
  CompoundWalker walker(results, CompoundWalker::What::Reply, placed);
  CompoundWalker::Operation operation;
  while (walker.next(operation)) {
    const std::size_t begin = operation.begin + kBehindStatus;
    const auto body = results.subspan(begin, operation.end - begin);
    ValueReader in(body);
    if (operation.number == kGetAttr) {
      cap_fattr(body, in, most);
    } else if (operation.number == kReadDir) {
      cap_entries(body, most);
    } else if (operation.number == kCreateSession) {
      in.skip("wwwwww");  // session, sequence, flags
      cap_channel(body, in, most.message_bytes);
      cap_channel(body, in, most.message_bytes);
    }
  }
}

}  // namespace sluice::ulb
