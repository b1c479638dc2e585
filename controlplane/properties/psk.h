// SPDX-License-Identifier: Apache-2.0
//
// Mutual challenge and response over a pre-shared key, with HMAC-SHA-256: a method of Sluice's own, which the
// draft does not define. Three messages, each beginning with kMagic and its number:
//
//   1  client to server   client's name, client's nonce
//   2  server to client   server's name, server's nonce, proof of the server
//   3  client to server   proof of the client
//
// A proof is HMAC(key, number of its message and the names and nonces of messages 1 and 2). The number makes
// the two proofs differ, so that neither can be reflected.
// It authenticates hosts once per connection; it protects no data.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "controlplane/properties/host_handshake.h"

namespace sluice::properties {

inline constexpr std::size_t kNonceBytes = 32;
inline constexpr std::size_t kProofBytes = 32;
inline constexpr std::size_t kMaxNameBytes = 64;
inline constexpr std::size_t kMinKeyBytes = 16;
inline constexpr std::size_t kMaxKeyBytes = 1024;

struct PskIdentity {
  std::string name;            ///< of this host; at most kMaxNameBytes
  std::vector<std::byte> key;  ///< kMinKeyBytes to kMaxKeyBytes
};

/// Reads a key: the content of the file without the line end. Throws std::runtime_error with a sentence, also
/// when others than the owner may read it.
std::vector<std::byte> read_key_file(const std::string& path);

class PskHandshake final : public HostHandshake {
 public:
  enum class Role { Client, Server };
  PskHandshake(Role role, PskIdentity identity);
  ~PskHandshake() override;

  std::vector<std::byte> begin() override;
  Step on_octets(std::span<const std::byte> octets) override;

 private:
  Step on_greeting(std::span<const std::byte> octets);
  Step on_challenge(std::span<const std::byte> octets);
  Step on_response(std::span<const std::byte> octets);
  std::array<std::byte, kProofBytes> proof(std::byte number) const;

  const Role role_;
  PskIdentity identity_;
  std::byte next_;                     ///< number of the message that is due
  std::vector<std::byte> transcript_;  ///< names and nonces so far
  std::string peer_;
};

class PskAuthentication final : public HostAuthentication {
 public:
  explicit PskAuthentication(PskIdentity identity) : identity_(std::move(identity)) {}
  std::unique_ptr<HostHandshake> accept() const override {
    return std::make_unique<PskHandshake>(PskHandshake::Role::Server, identity_);
  }

 private:
  const PskIdentity identity_;
};

}  // namespace sluice::properties
