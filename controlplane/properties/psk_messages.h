// SPDX-License-Identifier: Apache-2.0
//
// Messages of host authentication with pre-shared keys, in encoded and decoded form.
// deploy/docs/host-authentication.md defines the formats. Decoders process input from unauthenticated peers
// and return nothing unless the message is exactly well-formed to the last byte. Pure functions; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "controlplane/properties/key_schedule.h"
#include "dataplane/base/host_name.h"

namespace sluice::properties {

inline constexpr std::size_t kNonceBytes = 32;
inline constexpr std::size_t kMaxOfferedKeys = 4;

using Nonce = std::array<std::byte, kNonceBytes>;

/// Returns true for 1 to kMaxHostNameBytes printable ASCII characters without spaces.
bool valid_name(std::string_view name);

/// Message 1.
struct ClientHello {
  std::string name;
  Nonce nonce{};
  std::vector<KeyId> keys;  ///< in order of preference
};

/// Message 2 without its last part, the server's Finished.
struct ServerHello {
  std::string name;
  Nonce nonce{};
  std::uint8_t choice = 0;  ///< index into the client's list of keys
};

struct ServerMessage {
  ServerHello hello;
  Hash finished{};
};

std::vector<std::byte> encode(const ClientHello& hello);
std::vector<std::byte> encode(const ServerHello& hello);
/// Message 3.
std::vector<std::byte> encode_client_finished(const Hash& finished);

std::optional<ClientHello> decode_client_hello(std::span<const std::byte> message);
std::optional<ServerMessage> decode_server_message(std::span<const std::byte> message);
std::optional<Hash> decode_client_finished(std::span<const std::byte> message);

}  // namespace sluice::properties
