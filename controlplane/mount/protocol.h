// SPDX-License-Identifier: Apache-2.0
//
// Programs, procedures and messages of MOUNT version 3 (RFC 1813, appendix I) and rpcbind (RFC 1833).
// Decoders treat their input as hostile: all counts are bounded by the message. Pure functions; any thread.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "controlplane/mount/exports.h"
#include "controlplane/mount/rpc_link.h"
#include "dataplane/xdr/cursor.h"

namespace sluice::mount {

inline constexpr std::uint32_t kMountProgram = 100005;
/// NFS, which the data plane serves, in the versions that Linux's server registers with rpcbind.
inline constexpr std::uint32_t kNfsProgram = 100003;
inline constexpr std::array<std::uint32_t, 2> kNfsVersions = {3, 4};
inline constexpr std::uint32_t kMountVersion = 3;
enum MountProcedure : std::uint32_t { kNull = 0, kMnt = 1, kDump = 2, kUmnt = 3, kUmntAll = 4, kExport = 5 };

inline constexpr std::uint32_t kMaxPath = 1024;   ///< MNTPATHLEN
inline constexpr std::uint32_t kMaxName = 255;    ///< MNTNAMLEN
inline constexpr std::uint32_t kMaxHandle = 64;   ///< FHSIZE3
inline constexpr std::uint32_t kMaxFlavors = 16;  ///< further flavors of an upstream are ignored

inline constexpr std::uint16_t kRpcbindPort = 111;
inline constexpr std::uint32_t kRpcbindProgram = 100000;
inline constexpr Procedure kGetPort{kRpcbindProgram, 2, 3};
inline constexpr Procedure kSetAddress{kRpcbindProgram, 3, 1};
inline constexpr Procedure kUnsetAddress{kRpcbindProgram, 3, 2};
inline constexpr Procedure kGetAddress{kRpcbindProgram, 3, 3};
inline constexpr Procedure kDumpAddresses{kRpcbindProgram, 3, 4};

/// Encodes the results of MNT.
void encode(xdr::Writer& writer, const MountAnswer& answer);
/// Decodes the results of MNT. Returns nothing if they are malformed.
std::optional<MountAnswer> decode_mount_answer(xdr::Reader& reader);

/// Encodes the results of EXPORT, without groups of clients.
void encode(xdr::Writer& writer, const std::vector<std::string>& paths);
std::size_t encoded_bytes(const std::vector<std::string>& paths);
std::optional<std::vector<std::string>> decode_paths(xdr::Reader& reader);

/// An entry of rpcbind. The address is a universal address (RFC 5665).
struct Registration {
  std::uint32_t program = kMountProgram;
  std::uint32_t version = kMountVersion;
  std::string netid;
  std::string address;
  std::string owner;
  bool operator==(const Registration&) const = default;
};
void encode(xdr::Writer& writer, const Registration& registration);
std::optional<std::vector<Registration>> decode_registrations(xdr::Reader& reader);

/// Returns the port of a universal address, or zero if it has none.
std::uint16_t port_of_universal(std::string_view address);

}  // namespace sluice::mount
