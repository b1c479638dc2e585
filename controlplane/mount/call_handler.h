// SPDX-License-Identifier: Apache-2.0
//
// Interface for handlers of the calls that a service receives from its sockets. Single-threaded; runs on the
// service's thread.
#pragma once

#include <cstddef>
#include <span>

#include "controlplane/mount/exports.h"
#include "dataplane/base/function.h"

namespace sluice::mount {

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

}  // namespace sluice::mount
