// SPDX-License-Identifier: Apache-2.0
//
// File handles of NFS version 3 behind a gateway with several servers. A tag before each handle identifies
// its server. Tags are removed from calls and added to results. The part of a call after its last handle
// stays in place, so that the data of a WRITE is neither moved nor copied. Pure; any thread.
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
/// Size of the longest handle of a server that leaves room for a tag.
inline constexpr std::size_t kMaxTaggableBytes = kMaxHandleBytes - kTagBytes;
/// Maximum number of handles in a call. RENAME and LINK have two.
inline constexpr std::size_t kMaxCallHandles = 2;

/// Error codes of NFS version 3 (RFC 1813, section 2.6).
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
    NoProcedure,  ///< the procedure has no handle or is unknown
    Unreadable,   ///< the arguments cannot be parsed
    Untagged,     ///< a handle is too short to have a tag
  };
  State state = State::NoProcedure;
  std::uint8_t count = 0;
  std::array<std::uint32_t, kMaxCallHandles> tags{};
  std::array<std::size_t, kMaxCallHandles> at{};  ///< offset of each tag in the arguments, in bytes
};
/// Finds the handles and their tags. `program` is NFS or NFSACL.
CallHandles find_handles(std::uint32_t program, std::uint32_t procedure,
                         std::span<const std::byte> arguments) noexcept;

/// Removes the tags from a call whose arguments are the end of `message`. Returns the remaining message,
/// which starts later and has the same end. Lowers the maxcount of a READDIRPLUS, so that its results leave
/// room for tags.
std::span<std::byte> remove_tags(std::uint32_t program, std::uint32_t procedure, std::span<std::byte> message,
                                 std::size_t arguments_bytes, const CallHandles& handles) noexcept;

/// Writes the results of a refused call, which are the error without attributes.
void write_error(xdr::Writer& results, std::uint32_t program, std::uint32_t procedure,
                 Nfs3Error error) noexcept;

/// Returns an upper bound of the bytes that tags add to the results of an NFS call.
std::size_t growth_by_tags(std::uint32_t procedure, std::span<const std::byte> results) noexcept;
/// Writes the results with tags. Data that cannot be parsed, and everything after it, is written unchanged. A
/// handle that is too long for a tag is omitted where it is optional, and fails a LOOKUP. Returns how many
/// handles were too long.
std::size_t write_tagged(xdr::Writer& to, std::uint32_t procedure, std::span<const std::byte> results,
                         std::uint32_t tag) noexcept;

/// Changes the fsid in all attributes of the results, in place, so that the file systems of servers with
/// different tags differ. Otherwise, files of two servers could appear to be one file.
void tag_file_systems(std::uint32_t program, std::uint32_t procedure, std::span<std::byte> results,
                      std::uint32_t tag) noexcept;

}  // namespace sluice::ulb
