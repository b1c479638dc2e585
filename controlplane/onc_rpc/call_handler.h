// SPDX-License-Identifier: Apache-2.0
//
// Interface between the sockets of a service and its procedures. Single-threaded; runs on the service's
// thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "dataplane/base/function.h"
#include "dataplane/base/net_address.h"

namespace sluice::onc_rpc {

/// Source and time of a call.
struct Asker {
  PeerAddress address;
  std::uint64_t now_ns = 0;  ///< monotonic
  bool connected = true;     ///< false for UDP, where the source address can be forged
  PeerAddress local{};       ///< local address that the call was sent to; zero if unknown
  bool privileged = false;   ///< true if the source port is below 1024
};

/// Handler of the calls that a service receives from its sockets.
class CallHandler {
 public:
  /// Receives the reply. An empty message means that no reply exists. The client's connection is closed in
  /// this case, so that the client retransmits on a new connection.
  using Reply = Function<void(std::span<const std::byte>)>;

  virtual ~CallHandler() = default;
  /// Calls `reply` once with a message of at most `max_reply_bytes`, before this function returns or later.
  /// Returns false without a reply if `call` is not an RPC call.
  virtual bool answer(std::span<const std::byte> call, const Asker& asker, std::size_t max_reply_bytes,
                      const Reply& reply) = 0;
};

}  // namespace sluice::onc_rpc
