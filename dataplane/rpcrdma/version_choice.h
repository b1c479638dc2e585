// SPDX-License-Identifier: Apache-2.0
//
// Version negotiation of one connection (draft, section 4.3.3; rows V2-011 to V2-017). Confined to one
// reactor.
#pragma once

#include <cstdint>

#include "dataplane/rpcrdma/link/link.h"
#include "dataplane/rpcrdma/roles.h"

namespace sluice::rpcrdma {

class VersionChoice {
 public:
  VersionChoice(Link& link, Roles& roles) : link_(link), roles_(roles) {}

  /// Selects the initial version. Called when the link has been opened.
  void open() noexcept;
  /// Called when a message of ours has been delivered.
  void on_delivered() noexcept { delivered_ = true; }
  /// Called when the link is closed and all Sends are complete. A server that received the first message and
  /// never answered it is remembered as a version 1 server (V2-015).
  void on_drained() noexcept;
  /// Closes the link if the first answer is late.
  void tick() noexcept;

  /// Returns true if the rules of version 2 apply to a message; the first message settles the version.
  bool is_version_2(std::uint16_t buffer, std::uint32_t bytes) noexcept;
  /// Settles the version that the peer speaks.
  void settle(VersionState version) noexcept;
  /// Called when the server does not speak version 2. The connection continues with version 1 if the server
  /// supports it, and is closed otherwise (V2-014).
  void fall_back(rpc::VersionRange supported) noexcept;

 private:
  void remember_version_1() noexcept;

  Link& link_;
  Roles& roles_;
  bool delivered_ = false;      ///< the first message has been delivered
  std::uint64_t asked_ns_ = 0;  ///< when tick() first saw the first message unanswered; 0: not yet
};

}  // namespace sluice::rpcrdma
