// SPDX-License-Identifier: Apache-2.0
//
// Mutual authentication of hosts with pre-shared keys. This is Sluice's own method, because the draft defines
// none. The key schedule is that of TLS 1.3; deploy/docs/host-authentication.md describes the construction
// and its security properties.
//
//   1  client to server   client's name and nonce, identifiers of its keys
//   2  server to client   server's name and nonce, index of the chosen key, its Finished
//   3  client to server   the client's Finished
//
// The server accepts a key only from the host that it belongs to. The handshake runs once per connection and
// protects no data. Single-threaded.
//
// Decoders process input from unauthenticated peers and return nothing unless the message is exactly
// well-formed to the last byte.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "controlplane/properties/host_handshake.h"
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

/// Returns a nonce that has never been used before. Throws std::runtime_error.
using NonceSource = Nonce (*)();
Nonce random_nonce();

class PskClient final : public HostHandshake {
 public:
  /// Throws std::runtime_error with a sentence if there are no keys or too many, or if the name is not valid.
  PskClient(std::string name, std::vector<PskKey> keys, NonceSource nonces = random_nonce);

  std::vector<std::byte> begin() override;
  Step on_octets(std::span<const std::byte> octets) override;

 private:
  const std::string name_;
  const std::vector<PskKey> keys_;  ///< in order of preference
  const NonceSource nonces_;
  std::vector<std::byte> hello_;  ///< sent hello; empty if no reply to it is expected
};

/// Hosts known to a server, by name, each with its keys. Shared by all connections.
using PskHosts = std::map<std::string, std::vector<PskKey>, std::less<>>;

class PskServer final : public HostHandshake {
 public:
  PskServer(std::string name, std::shared_ptr<const PskHosts> hosts, NonceSource nonces = random_nonce);

  std::vector<std::byte> begin() override { return {}; }
  Step on_octets(std::span<const std::byte> octets) override;

 private:
  enum class Due { Hello, Finished, Nothing };
  Step on_hello(std::span<const std::byte> octets);
  Step on_finished(std::span<const std::byte> octets);

  const std::string name_;
  const std::shared_ptr<const PskHosts> hosts_;
  const NonceSource nonces_;
  Due due_ = Due::Hello;
  Hash expected_{};  ///< expected Finished of the client
  std::string peer_;
};

class PskAuthentication final : public HostAuthentication {
 public:
  /// Throws std::runtime_error with a sentence if a name is not valid or is the gateway's own, or if two
  /// hosts share a key.
  PskAuthentication(std::string name, PskHosts hosts);
  std::unique_ptr<HostHandshake> accept() const override {
    return std::make_unique<PskServer>(name_, hosts_);
  }

 private:
  const std::string name_;
  const std::shared_ptr<const PskHosts> hosts_;
};

}  // namespace sluice::properties
