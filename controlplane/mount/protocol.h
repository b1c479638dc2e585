// SPDX-License-Identifier: Apache-2.0
//
// Programs, procedures and messages of MOUNT version 3 (RFC 1813, appendix I). Decoders treat their input
// as hostile: all counts are bounded by the message. Pure functions; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "controlplane/mount/exports.h"
#include "dataplane/xdr/cursor.h"

namespace sluice::mount {

inline constexpr std::uint32_t kMountProgram = 100005;
inline constexpr std::uint32_t kMountVersion = 3;
inline constexpr std::uint32_t kOldestMountVersion = 1;  ///< served except for MNT
enum MountProcedure : std::uint32_t { kNull = 0, kMnt = 1, kDump = 2, kUmnt = 3, kUmntAll = 4, kExport = 5 };

inline constexpr std::uint32_t kMaxPath = 1024;   ///< MNTPATHLEN
inline constexpr std::uint32_t kMaxName = 255;    ///< MNTNAMLEN
inline constexpr std::uint32_t kMaxHandle = 64;   ///< FHSIZE3
inline constexpr std::uint32_t kMaxFlavors = 16;  ///< further flavors of an upstream are ignored

/// Encodes the results of MNT.
void encode(xdr::Writer& writer, const MountAnswer& answer);
/// Decodes the results of MNT. Returns nothing if they are malformed.
std::optional<MountAnswer> decode_mount_answer(xdr::Reader& reader);

/// Encodes the results of EXPORT, without groups of clients.
void encode(xdr::Writer& writer, const std::vector<std::string>& paths);
std::size_t encoded_bytes(const std::vector<std::string>& paths);
std::optional<std::vector<std::string>> decode_paths(xdr::Reader& reader);

}  // namespace sluice::mount
