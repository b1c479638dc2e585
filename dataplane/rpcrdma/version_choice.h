// SPDX-License-Identifier: Apache-2.0
//
// Which version of RPC-over-RDMA a connection speaks (draft, section 4.3.3; rows V2-011 to V2-017). One
// reactor.
#pragma once

#include <cstdint>

#include "dataplane/rpcrdma/link/link.h"
#include "dataplane/rpcrdma/roles.h"

namespace sluice::rpcrdma {

class VersionChoice {
 public:
  VersionChoice(Link& link, Roles& roles) : link_(link), roles_(roles) {}

  /// The link has been opened: the version to begin with.
  void open() noexcept;
  /// A message of ours has arrived.
  void on_delivered() noexcept { delivered_ = true; }
  /// The link is closed, and all that was sent is complete: a server that had the first message and never
  /// answered it is taken for one of version 1 (V2-015).
  void on_drained() noexcept;
  /// The first answer is late: closes the link.
  void tick() noexcept;

  /// Whether a message is to be judged by the rules of version 2; the first message settles that.
  bool is_version_2(std::uint16_t buffer, std::uint32_t bytes) noexcept;
  /// The peer speaks this version.
  void settle(VersionState version) noexcept;
  /// The server does not speak version 2: the connection goes on with version 1, if that is what it speaks
  /// (V2-014).
  void fall_back(rpc::VersionRange supported) noexcept;

 private:
  void remember_version_1() noexcept;

  Link& link_;
  Roles& roles_;
  bool delivered_ = false;      ///< the first message
  std::uint64_t asked_ns_ = 0;  ///< when the first message was seen to wait for its answer; 0: not yet
};

}  // namespace sluice::rpcrdma
