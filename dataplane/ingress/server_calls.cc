// SPDX-License-Identifier: Apache-2.0
#include "dataplane/ingress/server_calls.h"

#include <algorithm>
#include <utility>

#include "dataplane/tcp/record_stream.h"

namespace sluice::ingress {

bool ServerCalls::start(service::Call& call, tcp::SendQueue& queue) noexcept {
  const auto place = std::find_if(outstanding_.begin(), outstanding_.end(),
                                  [](const Outstanding& other) { return other.call == nullptr; });
  if (place == outstanding_.end() || call.message().size() > kMaxServerCallBytes) return false;
  *place = {&call, xdr::load_u32(call.message().data()), ++sequence_, false};
  pump(queue);
  return true;
}

bool ServerCalls::pump(tcp::SendQueue& queue) noexcept {
  bool any = false;
  while (Outstanding* const next = next_to_queue()) {
    const auto message = next->call->message();
    if (!queue.room_for(xdr::kUnit + message.size(), 0)) break;
    queue.copy(tcp::record_head(message.size(), next->xid));
    queue.copy(message.subspan(xdr::kUnit));
    next->queued = any = true;
  }
  return any;
}

/// The oldest of those that wait.
ServerCalls::Outstanding* ServerCalls::next_to_queue() noexcept {
  Outstanding* oldest = nullptr;
  for (Outstanding& outstanding : outstanding_)
    if (outstanding.call != nullptr && !outstanding.queued &&
        (oldest == nullptr || outstanding.sequence < oldest->sequence))
      oldest = &outstanding;
  return oldest;
}

bool ServerCalls::empty() const noexcept {
  return std::all_of(outstanding_.begin(), outstanding_.end(),
                     [](const Outstanding& outstanding) { return outstanding.call == nullptr; });
}

ServerCalls::Answer ServerCalls::on_reply(std::span<const std::byte> record) noexcept {
  const std::uint32_t xid = xdr::load_u32(record.data());
  for (Outstanding& outstanding : outstanding_) {
    if (outstanding.call == nullptr || !outstanding.queued || outstanding.xid != xid) continue;
    service::Call& call = *std::exchange(outstanding.call, nullptr);
    if (!call.require_results(record.size())) {
      call.complete(rpc::AcceptStat::SystemErr);
      return Answer::TooLong;
    }
    call.write_whole_reply();
    call.results().opaque_fixed(record.subspan(xdr::kUnit));
    call.complete(rpc::AcceptStat::Success);
    return Answer::Completed;
  }
  return Answer::Unknown;
}

std::uint32_t ServerCalls::drop_all() noexcept {
  std::uint32_t dropped = 0;
  for (Outstanding& outstanding : outstanding_) {
    if (outstanding.call == nullptr) continue;
    std::exchange(outstanding.call, nullptr)->complete(rpc::AcceptStat::SystemErr);
    ++dropped;
  }
  return dropped;
}

}  // namespace sluice::ingress
