// SPDX-License-Identifier: Apache-2.0
//
// File handles of NFS version 3 behind a gateway that stands in front of several servers: a tag in front of each
// says whose it is. The tag comes off in calls, and goes on in results. What a call carries behind its last handle stays
// in place, so that the data of a WRITE is neither moved nor copied. Pure; any thread.
//
// NFSACL version 3 has handles in its calls only.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "dataplane/xdr/cursor.h"

namespace sluice::ulb {

inline constexpr std::size_t kMaxHandleBytes = 64;  ///< NFS3_FHSIZE
inline constexpr std::size_t kTagBytes = xdr::kUnit;
/// Longest handle of a server that has room for a tag.
inline constexpr std::size_t kMaxTaggableBytes = kMaxHandleBytes - kTagBytes;
/// RENAME and LINK have two.
inline constexpr std::size_t kMaxCallHandles = 2;

/// Of a procedure that has results of its own when it fails: RFC 1813, section 2.6.
enum class Nfs3Error : std::uint32_t {
  CrossDevice = 18,
  Stale = 70,
  BadHandle = 10001,
  ServerFault = 10006,
};

/// The handles in the arguments of a call.
struct CallHandles {
  enum class State : std::uint8_t {
    Tagged,
    NoProcedure,  ///< it is none that is known to have a handle
    Unreadable,   ///< they are no arguments of this procedure
    Untagged,     ///< one of them is too short to have a tag
  };
  State state = State::NoProcedure;
  std::uint8_t count = 0;
  std::array<std::uint32_t, kMaxCallHandles> tags{};
  std::array<std::size_t, kMaxCallHandles> at{};  ///< of each tag in the arguments
};
/// `program` is that of NFS or of NFSACL.
CallHandles find_handles(std::uint32_t program, std::uint32_t procedure,
                         std::span<const std::byte> arguments) noexcept;

/// Takes the tags out of a call of NFS whose arguments are the end of `message`. Returns the message that is left, which
/// ends where it ended before. A READDIRPLUS asks for so much less that its results have room for tags.
std::span<std::byte> remove_tags(std::uint32_t program, std::uint32_t procedure, std::span<std::byte> message,
                                 std::size_t arguments_bytes, const CallHandles& handles) noexcept;

/// Results of a call that is refused: the error, and no attributes.
void write_error(xdr::Writer& results, std::uint32_t program, std::uint32_t procedure,
                 Nfs3Error error) noexcept;

/// Most bytes by which the tags lengthen the results of a call of NFS.
std::size_t growth_by_tags(std::uint32_t procedure, std::span<const std::byte> results) noexcept;
/// Writes the results with tags. What cannot be stepped over is written as it is, with all that stands behind it. A handle that
/// is too long for a tag is left out where results may lack it; LOOKUP fails. Returns how many were too long.
std::size_t write_tagged(xdr::Writer& to, std::uint32_t procedure, std::span<const std::byte> results,
                         std::uint32_t tag) noexcept;

/// Changes the numbers of file systems in all attributes of the results, in place, so that those of servers with different
/// tags differ: two files must not seem to be one.
void tag_file_systems(std::uint32_t program, std::uint32_t procedure, std::span<std::byte> results,
                      std::uint32_t tag) noexcept;

}  // namespace sluice::ulb
