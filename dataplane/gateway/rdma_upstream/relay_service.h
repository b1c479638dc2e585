// SPDX-License-Identifier: Apache-2.0
//
// A program and version that an RPC-over-RDMA server provides. Callable only on the owning reactor. The
// transport owns the calls, and the Relay outlives the service.
#pragma once

#include "dataplane/gateway/rdma_upstream/relay.h"

namespace sluice::rdma_upstream {

class RelayService final : public service::Service {
 public:
  RelayService(Relay& relay, const service::Binding& binding) : relay_(relay), binding_(binding) {}

  const service::Binding& binding() const noexcept override { return binding_; }
  service::Execution execute(service::Call& call) noexcept override;
  void release(service::Call& call) noexcept override;
  void client_gone(service::Client& client) noexcept override { relay_.client(client).gone(); }

 private:
  Relay& relay_;
  const service::Binding binding_;
};

}  // namespace sluice::rdma_upstream
