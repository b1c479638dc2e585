// SPDX-License-Identifier: Apache-2.0
#include "dataplane/ingress/server_calls.h"

#include <algorithm>
#include <utility>

#include "dataplane/tcp/record_stream.h"

namespace sluice::ingress {

bool ServerCalls::start(service::Call& call, tcp::SendQueue& queue, std::uint64_t now_ns) noexcept {
  const auto message = call.message();
  const auto place = std::find_if(outstanding_.begin(), outstanding_.end(),
                                  [](const Outstanding& other) { return other.call == nullptr; });
  if (place == outstanding_.end() || message.size() > tcp::kMaxCopiedBytes ||
      !queue.room_for(xdr::kUnit + message.size(), 0))
    return false;
  *place = {&call, xdr::load_u32(message.data()), now_ns};
  queue.copy(tcp::record_head(message.size(), place->xid));
  queue.copy(message.subspan(xdr::kUnit));
  return true;
}

ServerCalls::Answer ServerCalls::on_reply(std::span<const std::byte> record) noexcept {
  const std::uint32_t xid = xdr::load_u32(record.data());
  for (Outstanding& outstanding : outstanding_) {
    if (outstanding.call == nullptr || outstanding.xid != xid) continue;
    if (!outstanding.call->require_results(record.size())) return refuse(outstanding), Answer::Refused;
    service::Call& call = *std::exchange(outstanding.call, nullptr);
    call.write_whole_reply();
    call.results().opaque_fixed(record.subspan(xdr::kUnit));
    call.complete(rpc::AcceptStat::Success);
    return Answer::Completed;
  }
  return Answer::Unknown;
}

std::uint32_t ServerCalls::expire(std::uint64_t now_ns) noexcept {
  std::uint32_t ended = 0;
  for (Outstanding& outstanding : outstanding_) {
    if (outstanding.call == nullptr || now_ns - outstanding.begun_ns <= kServerCallTimeoutNs) continue;
    refuse(outstanding);
    ++ended;
  }
  return ended;
}

std::uint32_t ServerCalls::refuse_all() noexcept {
  std::uint32_t ended = 0;
  for (Outstanding& outstanding : outstanding_) {
    if (outstanding.call == nullptr) continue;
    refuse(outstanding);
    ++ended;
  }
  return ended;
}

void ServerCalls::refuse(Outstanding& outstanding) noexcept {
  std::exchange(outstanding.call, nullptr)->complete(rpc::AcceptStat::SystemErr);
}

}  // namespace sluice::ingress
