// SPDX-License-Identifier: Apache-2.0
//
// Pre-shared keys, their files, and the key schedule of host authentication. The schedule is that of TLS
// 1.3 with a pre-shared key only (psk_ke; RFC 8446, sections 7.1 and 4.4.4), with SHA-256 and with Sluice's
// own prefix before every label. deploy/docs/host-authentication.md describes it in full, with test
// vectors. Any thread. Throws std::runtime_error if OpenSSL fails.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace sluice::properties {

inline constexpr std::size_t kHashBytes = 32;
using Hash = std::array<std::byte, kHashBytes>;
using KeyId = std::array<std::byte, 8>;

/// A secret of the schedule. The destructor overwrites it.
struct Secret {
  Hash bytes{};

  Secret() = default;
  Secret(const Secret&) = default;
  Secret& operator=(const Secret&) = default;
  ~Secret();
};

enum class Role { Client, Server };

/// Returns HKDF-Extract(32 zero bytes, key).
Secret early_secret(std::span<const std::byte> key);
/// Returns an identifier of the key that does not disclose it.
KeyId key_id(const Secret& early);
Secret handshake_secret(const Secret& early);
/// Returns the Finished key of a role. `hellos` is the hash of both hellos. Each role has its own base
/// secret, and therefore its own key.
Secret finished_key(const Secret& handshake, Role role, const Hash& hellos);
Hash finished(const Secret& finished_key, const Hash& transcript);

Hash hash(std::span<const std::byte> text);
/// Compares in constant time.
bool same(const Hash& one, const Hash& other);

/// A pre-shared key, prepared for use. The key itself is not stored.
struct PskKey {
  KeyId id{};
  Secret handshake;
};
PskKey psk_key(std::span<const std::byte> key);

inline constexpr std::size_t kMinKeyBytes = 16;
inline constexpr std::size_t kMaxKeyBytes = 1024;

/// Reads a key, which is the content of the file without the line end. Throws std::runtime_error with a
/// sentence, also if users other than the owner may read the file.
PskKey read_key_file(const std::string& path);

}  // namespace sluice::properties
