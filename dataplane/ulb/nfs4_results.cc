// SPDX-License-Identifier: Apache-2.0
//
// Upper bound of the results of a COMPOUND (RFC 8267, section 6.2), from its arguments and the grammar of
// results.

#include "dataplane/base/small_algorithms.h"
#include "dataplane/ulb/nfs4.h"
#include "dataplane/ulb/nfs4_grammar.h"

namespace sluice::ulb {
namespace {

// Assumed bounds in bytes or elements where the protocol has none, from what servers are known to send.
constexpr std::uint64_t kOpaque = 1024;              // owners, names, server scopes
constexpr std::uint64_t kElements = 32;              // of an array: bitmap words, flavors, server names
constexpr std::uint64_t kPath = 4096;                // READLINK
constexpr std::uint64_t kAttributes = 4096;          // GETATTR without the following
constexpr std::uint64_t kLargeAttribute = 64 << 10;  // each
constexpr std::uint64_t kReadPlusOverhead = 4096;    // segments of a READ_PLUS besides its data
constexpr std::uint64_t kXattrValue = 64 << 10;      // XATTR_SIZE_MAX of Linux
constexpr std::uint64_t kUnknownOperation = 64 << 10;
/// RFC 8881, section 5.6 and 12: acl, fs_locations, dacl, sacl, fs_layout_type, layout_hint.
constexpr std::uint32_t kLargeAttributes[] = {12, 24, 58, 59, 62, 63, 67};

enum : std::uint32_t {
  kGetAttr = 9,
  kRead = 25,
  kReadDir = 26,
  kReadLink = 27,
  kGetDeviceInfo = 47,
  kLayoutGet = 50,
  kReadPlus = 68,
  kGetXattr = 72,
  kListXattrs = 74,
};

/// Upper bound of the values described at `grammar`, up to the end of the sequence; advances behind it.
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

/// The word at `offset` of an operation's arguments; zero if they are shorter.
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

/// Upper bound of a result behind its status.
std::uint64_t body_bound(std::uint32_t number, std::span<const std::byte> arguments) noexcept {
  switch (number) {
    case kGetAttr:
      return 4 + 4 * kElements + 4 + attributes_bound(arguments);
    case kRead:  // stateid, offset, count
      return 8 + xdr::padded(word(arguments, 24));
    case kReadPlus:
      return kReadPlusOverhead + xdr::padded(word(arguments, 24));
    case kReadDir:  // cookie, verifier, dircount, maxcount
      return 16 + word(arguments, 20);
    case kReadLink:
      return 4 + kPath;
    case kGetDeviceInfo:  // device, type, maxcount; or, in an error, the needed size
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
  if (number >= std::size(kNfs4Operations)) return 0;  // ILLEGAL: only a status
  const char* grammar = kNfs4Operations[number].results;
  return bound_of(grammar);  // includes the status
}

}  // namespace

std::uint64_t max_nfs4_results(std::uint32_t procedure, std::span<const std::byte> arguments) {
  if (procedure != kNfs4Compound) return 0;
  CompoundWalker walker(arguments, CompoundWalker::What::Call);
  // Status, tag (copied from the call), number of results.
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
