// SPDX-License-Identifier: Apache-2.0
//
// Functions that the tests of version 2 share: replies in parts, and properties. Functions throw Failure for
// replies that cannot be read. They run on the thread of the link.
#pragma once

#include <initializer_list>

#include "cli/conformance/nfs.h"

namespace sluice::conformance {

/// A credit word that grants no credits and permits 64 outstanding messages.
inline constexpr std::uint32_t kNoCredits = 0x00400000;

/// Returns the joined payload of a reply in one or more MSG, of which `message` is the first.
Bytes joined(Trial& t, Bytes message);
/// Returns the beginning of the file, read through a Write chunk.
Bytes content_of(Trial& t, std::uint32_t bytes);

struct Property {
  std::uint32_t id = 0;
  std::uint32_t value = 0;
};
inline constexpr std::uint32_t kSendSize = 1;
inline constexpr std::uint32_t kReceiveSize = 2;
inline constexpr std::uint32_t kSegmentSize = 3;
inline constexpr std::uint32_t kSegmentCount = 4;
inline constexpr std::uint32_t kReverseSupport = 5;
inline constexpr std::uint32_t kHostAuthentication = 6;
inline constexpr std::uint32_t kDefaultThreshold = 4096;
// Errors of version 2.
inline constexpr std::uint32_t kBadXdr = 2;
inline constexpr std::uint32_t kInvalHtype = 3;
inline constexpr std::uint32_t kInvalFlag = 4;
/// Size in bytes of the prefix of a message of version 2.
inline constexpr std::size_t kPrefixBytes = 20;

/// Returns a CONNPROP with properties of one word each, and the given number of new credits for the server.
Bytes properties(std::uint32_t xid, std::initializer_list<Property> list, std::uint16_t credits = 200);
/// Returns the value of this property that the server has announced on this connection.
std::optional<std::uint32_t> announced(const Trial& t, std::uint32_t id);

/// Returns a READ of the file without chunks.
Bytes read_v2_call(Trial& t, std::uint32_t xid, std::uint32_t count, std::uint32_t credit = 0x00400001);

}  // namespace sluice::conformance
