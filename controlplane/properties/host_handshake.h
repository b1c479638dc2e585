// SPDX-License-Identifier: Apache-2.0
//
// How one host shows another who it is, in octets that travel as property 6 (draft, section 5.2.6). The draft
// has no method of its own (D2-26): methods plug in here. One thread.
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
    std::string peer;               ///< Accepted: who it is
  };

  virtual ~HostHandshake() = default;
  /// What the side that begins says first; empty on the other.
  virtual std::vector<std::byte> begin() = 0;
  virtual Step on_octets(std::span<const std::byte> octets) = 0;
};

/// A method of authentication, with our identity: begins a handshake for each connection.
class HostAuthentication {
 public:
  virtual ~HostAuthentication() = default;
  /// Of the side that waits for the first octets.
  virtual std::unique_ptr<HostHandshake> accept() const = 0;
};

}  // namespace sluice::properties
