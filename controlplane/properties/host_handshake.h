// SPDX-License-Identifier: Apache-2.0
//
// Host authentication of version 2, in octets that property 6 carries (draft, section 5.2.6). The draft
// defines no method (D2-26); methods implement these interfaces. Single-threaded, except where noted.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace sluice::config {
struct Config;
}

namespace sluice::properties {

class HostHandshake {
 public:
  enum class Verdict { Pending, Accepted, Refused };
  struct Step {
    Verdict verdict = Verdict::Pending;
    std::vector<std::byte> answer;  ///< octets to send; empty for none
    std::string peer;               ///< name of the host if the verdict is Accepted
  };

  virtual ~HostHandshake() = default;
  /// Returns the first octets of the initiating side. Returns nothing on the other side.
  virtual std::vector<std::byte> begin() = 0;
  /// Processes the octets of one property from the peer. Must not be called after a verdict other than
  /// Pending.
  virtual Step on_octets(std::span<const std::byte> octets) = 0;
};

/// Authentication method with the gateway's own identity. Creates a handshake for each connection.
class HostAuthentication {
 public:
  virtual ~HostAuthentication() = default;
  /// Creates the handshake for a connection on which the peer is the initiator.
  virtual std::unique_ptr<HostHandshake> accept() const = 0;
};

/// Creates the configured authentication method with the current content of the key files. Returns null if
/// the configuration has no method. Blocks on file access. Any thread. Throws config::ConfigError.
std::unique_ptr<HostAuthentication> configured_authentication(const config::Config& config);

}  // namespace sluice::properties
