// SPDX-License-Identifier: Apache-2.0
//
// Programs, procedures and messages of rpcbind (RFC 1833). Decoders treat their input as hostile: all counts
// are bounded by the message. Pure functions; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "controlplane/onc_rpc/rpc_link.h"
#include "dataplane/xdr/cursor.h"

namespace sluice::onc_rpc {

inline constexpr const char* kRpcbindSocket = "/run/rpcbind.sock";
inline constexpr std::uint16_t kRpcbindPort = 111;
inline constexpr std::uint32_t kRpcbindProgram = 100000;
inline constexpr Procedure kGetPort{kRpcbindProgram, 2, 3};
inline constexpr Procedure kSetAddress{kRpcbindProgram, 3, 1};
inline constexpr Procedure kUnsetAddress{kRpcbindProgram, 3, 2};
inline constexpr Procedure kGetAddress{kRpcbindProgram, 3, 3};
inline constexpr Procedure kDumpAddresses{kRpcbindProgram, 3, 4};

/// Maximum length of a universal address in the results of kGetAddress.
inline constexpr std::uint32_t kMaxUniversalAddress = 255;

/// An entry of rpcbind. The address is a universal address (RFC 5665).
struct Registration {
  std::uint32_t program = 0;
  std::uint32_t version = 0;
  std::string netid;
  std::string address;
  std::string owner;
  bool operator==(const Registration&) const = default;
};
void encode(xdr::Writer& writer, const Registration& registration);
/// Decodes the results of kDumpAddresses. Returns nothing if they are malformed.
std::optional<std::vector<Registration>> decode_registrations(xdr::Reader& reader);

/// Returns the port of a universal address, or zero if it has none.
std::uint16_t port_of_universal(std::string_view address);

}  // namespace sluice::onc_rpc
