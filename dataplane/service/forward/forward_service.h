// SPDX-License-Identifier: Apache-2.0
//
// A program and version that an upstream server serves. The call goes there as it came, but for its XID; Read
// chunks have been pulled to their places in the message, which is what goes into the Send. The reply comes
// into registered memory, from where its eligible items are written to the client. One reactor.
#pragma once

#include <string>

#include "dataplane/service/api/service.h"
#include "dataplane/service/forward/upstream.h"

namespace sluice::forward {

class ForwardService final : public service::Service {
 public:
  ForwardService(Upstream& upstream, const service::Binding& binding)
      : upstream_(upstream), binding_(binding), own_connections_(is_stateful(binding)) {}

  const service::Binding& binding() const noexcept override { return binding_; }
  service::Execution execute(service::Call& call) noexcept override;
  void release(service::Call& call) noexcept override;
  void client_gone(service::Client& client) noexcept override { upstream_.client_gone(client); }

  /// Where a reply is, when it is given to its call.
  struct ReplyRecord {
    std::span<const std::byte> bytes;
    bool registered = false;  ///< in ReplyMemory::records
  };
  enum class Delivery : std::uint8_t {
    Done,
    NeedsItems,    ///< a buffer for items, of ReplyMemory::items
    NeedsResults,  ///< memory of the transport's: the call is executed again when there is some
  };
  /// Completes the call with a reply that agrees with its XID.
  Delivery deliver(ForwardedCall& exchange, const ReplyRecord& record) noexcept;

 private:
  static bool is_stateful(const service::Binding& binding) noexcept;

  Upstream& upstream_;
  const service::Binding binding_;
  const bool own_connections_;
};

}  // namespace sluice::forward
