// SPDX-License-Identifier: Apache-2.0
//
// Who answers the calls that a service takes from its sockets. One thread, the service's.
#pragma once

#include <cstddef>
#include <span>

#include "controlplane/mount/exports.h"
#include "dataplane/base/function.h"

namespace sluice::mount {

class CallHandler {
 public:
  /// An empty message: there is none, and the client's connection ends, so that it calls again.
  using Reply = Function<void(std::span<const std::byte>)>;

  virtual ~CallHandler() = default;
  /// Calls `reply` once with a message of at most `max_reply_bytes`, before it returns or later. False: `call` is
  /// no call, and has no reply.
  virtual bool answer(std::span<const std::byte> call, const Asker& asker, std::size_t max_reply_bytes,
                      const Reply& reply) = 0;
};

}  // namespace sluice::mount
