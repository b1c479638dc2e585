// SPDX-License-Identifier: Apache-2.0
//
// Host authentication of version 2, in octets that property 6 carries (draft, section 5.2.6). The draft
// defines no method (D2-26): methods implement these interfaces. One thread.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace sluice::properties {

class HostHandshake {
 public:
  enum class Verdict { Pending, Accepted, Refused };
  struct Step {
    Verdict verdict = Verdict::Pending;
    std::vector<std::byte> answer;  ///< empty: nothing to send
    std::string peer;               ///< Accepted: the host's name
  };

  virtual ~HostHandshake() = default;
  /// First octets of the side that begins; empty on the other.
  virtual std::vector<std::byte> begin() = 0;
  /// Octets from the peer, all of one property. Not called again after a verdict other than Pending.
  virtual Step on_octets(std::span<const std::byte> octets) = 0;
};

/// A method of authentication, with our identity: begins a handshake for each connection.
class HostAuthentication {
 public:
  virtual ~HostAuthentication() = default;
  /// The handshake of a connection on which the peer begins.
  virtual std::unique_ptr<HostHandshake> accept() const = 0;
};

}  // namespace sluice::properties
