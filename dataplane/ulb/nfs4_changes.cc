// SPDX-License-Identifier: Apache-2.0
//
// Changes that the gateways make in calls and results of NFS version 4. They are made in place, without
// moving bytes.
#include "dataplane/ulb/nfs4.h"

#include "dataplane/ulb/nfs4_attributes.h"
#include "dataplane/ulb/nfs4_grammar.h"

namespace sluice::ulb {

// --- Sizes that a server announces: FATTR4_MAXREAD and FATTR4_MAXWRITE (RFC 8881, section 5.8.2), and the
// channel attributes of a session (section 18.36)

namespace {

enum : std::uint32_t { kExchangeId = 42, kCreateSession = 43 };
static_assert(std::size(kNfs4Attributes) == kMaxWrite + 1);

/// Calls `change` for each operation of a reply, with its number, its results after the status, and a reader
/// of these.
template <class Change>
void for_each_result(std::span<std::byte> results, service::PlacedResults* placed, const Change& change) {
  constexpr std::size_t kBehindStatus = 8;
  CompoundWalker walker(results, CompoundWalker::What::Reply, placed);
  CompoundWalker::Operation operation;
  while (walker.next(operation)) {
    const std::size_t begin = operation.begin + kBehindStatus;
    const auto body = results.subspan(begin, operation.end - begin);
    ValueReader in(body);
    change(operation.number, body, in);
  }
}

/// Reads a number at the reader's position in `bytes`, and lowers it in place to `most` if it is larger.
void lower_u32(std::span<std::byte> bytes, xdr::Reader& reader, std::uint32_t most) noexcept {
  const std::size_t at = reader.position();
  if (reader.u32() > most) xdr::store_u32(&bytes[at], most);  // A missing number reads as zero.
}
void lower_u64(std::span<std::byte> bytes, xdr::Reader& reader, std::uint64_t most) noexcept {
  const std::size_t at = reader.position();
  if (reader.u64() > most) xdr::store_u64(&bytes[at], most);
}

/// Returns true if the bitmap at `offset` has one of the sizes. The walker has checked that the bitmap is
/// complete.
bool asks_for_sizes(std::span<const std::byte> arguments, std::size_t offset) noexcept {
  const bool empty = xdr::load_u32(&arguments[offset]) == 0;
  return !empty && (xdr::load_u32(&arguments[offset + xdr::kUnit]) & kSizeAttributes) != 0;
}

/// Lowers the sizes among the attributes of `bitmap`. Attributes are encoded in the order of their numbers.
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

/// Lowers the sizes in a fattr4, which is a bitmap and an opaque with the attributes. The sizes are in the
/// first word of the bitmap.
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

/// Lowers the sizes in a READDIR4resok, which is a verifier, and entries of cookie, name and attributes.
void cap_entries(std::span<std::byte> bytes, const service::CarriedSizes& most) noexcept {
  ValueReader in(bytes);
  in.skip("ww");
  while (in.reader().boolean()) {
    in.skip("do");
    cap_fattr(bytes, in, most);
  }
}

/// Lowers the sizes in a channel_attrs4. The backchannel gets the limit of all messages as well, because
/// Linux refuses a backchannel with less room for replies than it has requested. The transport may limit
/// calls of the server to less, but the client knew that limit when it requested the backchannel.
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
  constexpr std::size_t kReadDirBitmap = kBehindNumber + 24;  // after cookie, verifier, dircount, maxcount
  CompoundWalker walker(arguments, CompoundWalker::What::Call);
  CompoundWalker::Operation operation;
  while (walker.next(operation)) {
    if (operation.number == kCreateSession) return true;
    if (operation.number == kOpGetAttr && asks_for_sizes(arguments, operation.begin + kBehindNumber))
      return true;
    if (operation.number == kOpReadDir && asks_for_sizes(arguments, operation.begin + kReadDirBitmap))
      return true;
  }
  return false;
}

void cap_nfs4_sizes(std::span<std::byte> results, const service::CarriedSizes& most,
                    service::PlacedResults* placed) {
  for_each_result(results, placed, [&](std::uint32_t operation, std::span<std::byte> body, ValueReader& in) {
    if (operation == kOpGetAttr) {
      cap_fattr(body, in, most);
    } else if (operation == kOpReadDir) {
      cap_entries(body, most);
    } else if (operation == kCreateSession) {
      in.skip("wwwwww");  // session, sequence, flags
      cap_channel(body, in, most.message_bytes);
      cap_channel(body, in, most.message_bytes);
    }
  });
}

// --- Information with which a client would bypass the gateway: pNFS (RFC 8881, section 12) and the locations
// of file systems (section 11)
//
// The attributes are removed from the requests in calls and from FATTR4_SUPPORTED_ATTRS in results. The roles
// of pNFS are removed from the results of EXCHANGE_ID.

namespace {

// Flags of EXCHANGE_ID (RFC 8881, section 18.35).
constexpr std::uint32_t kUseNonPnfs = 0x10000;
constexpr std::uint32_t kUsePnfs = 0x20000 | 0x40000;  // metadata server, data server

/// Removes attributes from the bitmap4 at the start of `bitmap`. A bitmap4 that is longer than `bitmap` stays
/// unchanged.
void clear(std::span<std::byte> bitmap, const Attributes& attributes) noexcept {
  change_bitmap(bitmap, [&](std::uint32_t word, std::size_t i) { return word & ~attributes[i]; });
}

bool has_supported_attrs(std::span<const std::byte> bitmap) noexcept {
  return xdr::load_u32(bitmap.data()) > 0 && (xdr::load_u32(&bitmap[xdr::kUnit]) >> kSupportedAttrs & 1) != 0;
}

/// Removes attributes from FATTR4_SUPPORTED_ATTRS in a fattr4, where it precedes all other attributes.
void clear_supported(std::span<std::byte> bytes, ValueReader& in, const Attributes& attributes) noexcept {
  const std::size_t bitmap_at = in.reader().position();
  in.skip("[w]");
  const std::size_t values_at = in.reader().position() + xdr::kUnit;
  const std::size_t values_bytes = in.opaque().size();
  if (in.ok() && has_supported_attrs(bytes.subspan(bitmap_at)))
    clear(bytes.subspan(values_at, values_bytes), attributes);
}

/// Removes attributes from FATTR4_SUPPORTED_ATTRS of each entry of a READDIR4resok.
void clear_supported_of_entries(std::span<std::byte> bytes, const Attributes& attributes) noexcept {
  ValueReader in(bytes);
  in.skip("ww");
  while (in.reader().boolean()) {
    in.skip("do");
    clear_supported(bytes, in, attributes);
  }
}

/// Removes the roles of pNFS from an EXCHANGE_ID4resok, in which the flags follow client and sequence. Sets
/// the role without pNFS instead, because a server must have at least one role.
void clear_roles(std::span<std::byte> bytes) noexcept {
  constexpr std::size_t kFlagsAt = 12;
  if (bytes.size() < kFlagsAt + xdr::kUnit) return;  // The operation has failed.
  const std::uint32_t flags = xdr::load_u32(&bytes[kFlagsAt]);
  if ((flags & kUsePnfs) != 0) xdr::store_u32(&bytes[kFlagsAt], (flags & ~kUsePnfs) | kUseNonPnfs);
}

}  // namespace

namespace {

/// Replaces the unknown operation at `at`, the operation `index` of the COMPOUND, by OP_ILLEGAL, and lets the
/// COMPOUND end there. The count word of the operations follows the tag and the minor version.
void end_at_illegal(std::span<std::byte> arguments, std::size_t at, std::uint32_t index) noexcept {
  ValueReader in(arguments);
  in.skip("ow");
  xdr::store_u32(&arguments[in.reader().position()], index + 1);
  xdr::store_u32(&arguments[at], kNfs4Illegal);
}

}  // namespace

service::CallChanges change_nfs4_call(std::uint32_t procedure, std::span<std::byte> arguments,
                                      const service::Withheld& withheld) {
  if (procedure != kNfs4Compound) return {};
  constexpr std::size_t kBehindNumber = 4;
  constexpr std::size_t kReadDirBitmap = kBehindNumber + 24;  // after cookie, verifier, dircount, maxcount
  const Attributes attributes = withheld_attributes(withheld);
  bool results_tell = false;
  std::uint32_t index = 0;
  CompoundWalker walker(arguments, CompoundWalker::What::Call);
  CompoundWalker::Operation operation;
  for (; walker.next(operation); ++index) {
    if (operation.number == kExchangeId) results_tell = results_tell || withheld.pnfs;
    if (operation.number != kOpGetAttr && operation.number != kOpReadDir) continue;
    const std::size_t at =
        operation.begin + (operation.number == kOpGetAttr ? kBehindNumber : kReadDirBitmap);
    const auto bitmap = arguments.subspan(at, operation.end - at);
    clear(bitmap, attributes);
    results_tell = results_tell || (withheld.any() && has_supported_attrs(bitmap));
  }
  service::CallChanges changes{.results_tell = results_tell};
  if (walker.at_unknown_operation()) {
    changes.unknown_operation = operation.number;
    end_at_illegal(arguments, operation.begin, index);
  }
  const bool ends_at_illegal = index > 0 && index == walker.operations() && operation.number == kNfs4Illegal;
  if (changes.unknown_operation || ends_at_illegal) changes.arguments_bytes = operation.begin + kBehindNumber;
  return changes;
}

std::optional<std::size_t> unknown_nfs4_operation_at(std::uint32_t procedure,
                                                     std::span<const std::byte> arguments) {
  if (procedure != kNfs4Compound) return std::nullopt;
  CompoundWalker walker(arguments, CompoundWalker::What::Call);
  CompoundWalker::Operation operation;
  while (walker.next(operation)) {
  }
  return walker.at_unknown_operation() ? std::optional(operation.begin) : std::nullopt;
}

void withhold_in_nfs4_results(std::span<std::byte> results, const service::Withheld& withheld,
                              service::PlacedResults* placed) {
  const Attributes attributes = withheld_attributes(withheld);
  for_each_result(results, placed, [&](std::uint32_t operation, std::span<std::byte> body, ValueReader& in) {
    if (operation == kOpGetAttr)
      clear_supported(body, in, attributes);
    else if (operation == kOpReadDir)
      clear_supported_of_entries(body, attributes);
    else if (operation == kExchangeId && withheld.pnfs)
      clear_roles(body);
  });
}

// --- Upper bound of the results of a COMPOUND (RFC 8267, section 6.2), from its arguments and the grammar of
// results

namespace {

// Assumed bounds, in bytes or elements, where the protocol has none. They cover what servers are known to
// send.
constexpr std::uint64_t kOpaque = 1024;              // owners, names, server scopes
constexpr std::uint64_t kElements = 32;              // array elements: bitmap words, flavors, server names
constexpr std::uint64_t kPath = 4096;                // READLINK
constexpr std::uint64_t kAttributes = 4096;          // GETATTR without the attributes of kLargeAttributes
constexpr std::uint64_t kLargeAttribute = 64 << 10;  // each attribute of kLargeAttributes
constexpr std::uint64_t kReadPlusOverhead = 4096;    // segments of a READ_PLUS without its data
constexpr std::uint64_t kXattrValue = 64 << 10;      // XATTR_SIZE_MAX of Linux
constexpr std::uint64_t kUnknownOperation = 64 << 10;
/// Attributes acl, fs_locations, dacl, sacl, fs_layout_types, layout_hint and fs_locations_info (RFC 8881,
/// sections 5.6, 11 and 12), posix_default_acl and posix_access_acl (draft-ietf-nfsv4-posix-acls).
constexpr std::uint32_t kLargeAttributes[] = {12, 24, 58, 59, 62, 63, 67, 91, 92};

enum : std::uint32_t {
  kRead = 25,
  kReadLink = 27,
  kGetDeviceInfo = 47,
  kLayoutGet = 50,
  kReadPlus = 68,
  kGetXattr = 72,
  kListXattrs = 74,
};

/// Returns an upper bound of the values described at `grammar`, up to the end of the sequence, and advances
/// to that end.
std::uint64_t bound_of(const char*& grammar) noexcept {
  std::uint64_t bytes = 0;
  for (; *grammar != '\0' && *grammar != ']' && *grammar != ')' && *grammar != ';'; ++grammar) {
    switch (*grammar) {
      case 'w':
        bytes += 4;
        break;
      case 'd':
        bytes += 8;
        break;
      case 'o':
      case 'E':
        bytes += 4 + kOpaque;
        break;
      case '[':
        ++grammar;
        bytes += 4 + kElements * bound_of(grammar);
        break;
      case '*':
        grammar += 2;
        bytes += 4 + kElements * (4 + bound_of(grammar));
        break;
      case '{': {
        std::uint64_t largest = 0;
        ++grammar;
        while (*grammar != '}') {
          while (*grammar++ != ':') {
          }
          largest = larger_of(largest, bound_of(grammar));
          ++grammar;
        }
        bytes += 4 + largest;
        break;
      }
      default:
        break;
    }
  }
  return bytes;
}

/// Returns the word at `offset` of an operation's arguments, or zero if the arguments are shorter.
std::uint64_t word(std::span<const std::byte> arguments, std::size_t offset) noexcept {
  return offset + xdr::kUnit <= arguments.size() ? xdr::load_u32(&arguments[offset]) : 0;
}

std::uint64_t attributes_bound(std::span<const std::byte> arguments) noexcept {
  std::uint64_t bytes = kAttributes;
  const std::uint64_t words = word(arguments, 0);
  for (const std::uint32_t attribute : kLargeAttributes)
    if (attribute / 32 < words && (word(arguments, 4 + 4 * (attribute / 32)) >> (attribute % 32) & 1) != 0)
      bytes += kLargeAttribute;
  return bytes;
}

/// Returns an upper bound of a result without its status.
std::uint64_t body_bound(std::uint32_t number, std::span<const std::byte> arguments) noexcept {
  switch (number) {
    case kOpGetAttr:
      return 4 + 4 * kElements + 4 + attributes_bound(arguments);
    case kRead:  // stateid, offset, count
      return 8 + xdr::padded(word(arguments, 24));
    case kReadPlus:
      return kReadPlusOverhead + xdr::padded(word(arguments, 24));
    case kOpReadDir:  // cookie, verifier, dircount, maxcount
      return 16 + word(arguments, 20);
    case kReadLink:
      return 4 + kPath;
    case kGetDeviceInfo:  // device, type, maxcount (an error has the required size instead)
      return 16 + 4 * kElements + word(arguments, 20);
    case kLayoutGet:  // signal, type, iomode, offset, length, minlength, stateid, maxcount
      return 16 + word(arguments, 52);
    case kGetXattr:
      return 4 + kXattrValue;
    case kListXattrs:  // cookie, maxcount
      return 16 + word(arguments, 8);
    default:
      break;
  }
  if (number >= std::size(kNfs4Operations)) return 0;  // The result of ILLEGAL has only a status.
  const char* grammar = kNfs4Operations[number].results;
  return bound_of(grammar);  // This bound includes the status.
}

}  // namespace

std::uint64_t max_nfs4_results(std::uint32_t procedure, std::span<const std::byte> arguments) {
  if (procedure != kNfs4Compound) return 0;
  CompoundWalker walker(arguments, CompoundWalker::What::Call);
  // The results begin with status, tag (copied from the call) and number of results.
  std::uint64_t bytes = 12 + xdr::padded(word(arguments, 0));
  CompoundWalker::Operation operation;
  while (walker.next(operation)) {
    const auto own = arguments.subspan(operation.begin + 4, operation.end - operation.begin - 4);
    bytes += 8 + body_bound(operation.number, own);
  }
  return walker.complete() ? bytes : bytes + kUnknownOperation;
}

std::size_t expected_nfs4_items(std::uint32_t procedure, std::span<const std::byte> arguments,
                                std::span<std::uint32_t> most_bytes) {
  if (procedure != kNfs4Compound) return 0;
  CompoundWalker walker(arguments, CompoundWalker::What::Call);
  CompoundWalker::Operation operation;
  std::size_t count = 0;
  while (count < most_bytes.size() && walker.next(operation)) {
    if (operation.number == kRead)
      most_bytes[count++] = static_cast<std::uint32_t>(word(arguments, operation.begin + 4 + 24));
    else if (operation.number == kReadLink)
      most_bytes[count++] = 0;
  }
  return count;
}

}  // namespace sluice::ulb
