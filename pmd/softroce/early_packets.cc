// SPDX-License-Identifier: Apache-2.0
#include "pmd/softroce/early_packets.h"

#include <cstring>

#include "dataplane/base/invariant.h"

namespace sluice::rdma::softroce {

EarlyPackets::EarlyPackets(std::size_t payload_bytes)
    : payload_bytes_(payload_bytes), entries_(kEarlyPackets), payloads_(kEarlyPackets * payload_bytes) {
  for (std::uint16_t i = 0; i < kEarlyPackets; ++i)
    entries_[i].next = static_cast<std::uint16_t>(i + 1 < kEarlyPackets ? i + 1 : kNone);
  free_ = {.first = 0, .count = kEarlyPackets};
}

bool EarlyPackets::add(Queue& queue, const Packet& packet) noexcept {
  std::uint16_t* at = &queue.first;
  while (*at != kNone && psn_distance(entries_[*at].packet.bth.psn, packet.bth.psn) > 0)
    at = &entries_[*at].next;
  if (*at != kNone && entries_[*at].packet.bth.psn == packet.bth.psn) return true;
  if (queue.count == kEarlyPacketsPerQueuePair || free_.count == 0 || packet.payload.size() > payload_bytes_)
    return false;
  const std::uint16_t index = free_.first;
  Entry& entry = entries_[index];
  free_.first = entry.next;
  --free_.count;
  entry.packet = packet;
  if (!packet.payload.empty()) std::memcpy(payload(index), packet.payload.data(), packet.payload.size());
  entry.packet.payload = {payload(index), packet.payload.size()};
  entry.next = *at;
  *at = index;
  ++queue.count;
  return true;
}

const Packet* EarlyPackets::find(Queue& queue, std::uint32_t psn) noexcept {
  while (queue.first != kNone && psn_distance(entries_[queue.first].packet.bth.psn, psn) > 0)
    drop_first(queue);
  if (queue.first == kNone || entries_[queue.first].packet.bth.psn != psn) return nullptr;
  return &entries_[queue.first].packet;
}

void EarlyPackets::release(Queue& queue) noexcept {
  while (queue.first != kNone) drop_first(queue);
}

void EarlyPackets::drop_first(Queue& queue) noexcept {
  const std::uint16_t index = queue.first;
  queue.first = entries_[index].next;
  --queue.count;
  entries_[index].next = free_.first;
  free_.first = index;
  ++free_.count;
  static_cast<void>(SLUICE_INVARIANT(free_.count <= kEarlyPackets, pool_balance));
}

}  // namespace sluice::rdma::softroce
