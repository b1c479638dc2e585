// SPDX-License-Identifier: Apache-2.0
#include "dataplane/relay/server_calls.h"

#include <algorithm>
#include <utility>

namespace sluice::relay {

bool ServerCalls::empty() const noexcept {
  return std::none_of(outstanding_.begin(), outstanding_.end(),
                      [](const Outstanding& outstanding) { return outstanding.call != nullptr; });
}

bool ServerCalls::start(service::Call& call, service::Client& client) noexcept {
  const auto place = std::find_if(outstanding_.begin(), outstanding_.end(),
                                  [](const Outstanding& other) { return !other.in_use; });
  if (place == outstanding_.end()) return false;
  *place = {.call = &call, .in_use = true};
  if (client.call_back(call.message(), &on_reply, &*place)) return true;
  *place = {};
  return false;
}

void ServerCalls::on_reply(void* context, std::span<const std::byte> reply) noexcept {
  auto& outstanding = *static_cast<Outstanding*>(context);
  outstanding.in_use = false;
  service::Call* const call = std::exchange(outstanding.call, nullptr);
  if (call == nullptr) return;
  if (reply.size() < xdr::kUnit || !call->require_results(reply.size()))
    return call->complete(rpc::AcceptStat::SystemErr);
  call->write_whole_reply();
  call->results().opaque_fixed(reply.subspan(xdr::kUnit));
  call->complete(rpc::AcceptStat::Success);
}

void ServerCalls::drop_all() noexcept {
  for (Outstanding& outstanding : outstanding_)
    if (outstanding.call != nullptr)
      std::exchange(outstanding.call, nullptr)->complete(rpc::AcceptStat::SystemErr);
}

}  // namespace sluice::relay
