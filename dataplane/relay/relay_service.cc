// SPDX-License-Identifier: Apache-2.0
#include "dataplane/relay/relay_service.h"

namespace sluice::relay {

service::Execution RelayService::execute(service::Call& call) noexcept {
  auto& relayed = call.state<RelayCall>();
  if (relayed.state == RelayCall::State::Held)
    return relayed.client->deliver(relayed) ? service::Execution::Started : service::Execution::NeedsMemory;
  if (call.client() == nullptr) {
    call.complete(rpc::AcceptStat::SystemErr);
    return service::Execution::Started;
  }
  relayed.call = &call;
  relayed.binding = &binding_;
  relayed.client = &relay_.client(*call.client());
  relayed.client->submit(relayed, *call.client());
  return service::Execution::Started;
}

void RelayService::release(service::Call& call) noexcept {
  auto& relayed = call.state<RelayCall>();
  if (relayed.client != nullptr) relayed.client->release(relayed);
}

}  // namespace sluice::relay
