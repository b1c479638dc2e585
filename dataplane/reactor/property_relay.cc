// SPDX-License-Identifier: Apache-2.0
#include "dataplane/reactor/property_relay.h"

#include <algorithm>

namespace sluice::reactor {

PropertyRelay::PropertyRelay(segment::ReactorArea& area) : area_(area) {
  for (Box& box : outboxes_) {
    box.octets.resize(rpcrdma::kMaxPropertyBytes);
    free_.push(&box);
  }
  inbox_.octets.resize(rpcrdma::kMaxPropertyBytes);
}

bool PropertyRelay::take(std::uint16_t connection, std::uint32_t incarnation, std::span<const std::byte> body,
                         bool first) noexcept {
  if (free_.empty() || body.size() > rpcrdma::kMaxPropertyBytes) return false;
  Box& box = *free_.pop();
  box.connection = connection;
  box.incarnation = incarnation;
  box.first = first;
  box.bytes = static_cast<std::uint32_t>(body.size());
  box.sent = 0;
  std::copy(body.begin(), body.end(), box.octets.begin());
  sending_.push_back(&box);
  push_parts();
  return true;
}

bool PropertyRelay::push_parts() noexcept {
  bool any = false;
  for (std::size_t i = 0; i < kPartsPerTurn && !sending_.empty(); ++i) {
    Box& box = *sending_.front();
    segment::PropertyPart part{
        .connection = box.connection,
        .incarnation = box.incarnation,
        .first_set = box.first ? 1u : 0u,
        .total_bytes = box.bytes,
        .offset = box.sent,
        .bytes = std::min<std::uint32_t>(box.bytes - box.sent, segment::PropertyPart::kBytes)};
    std::copy_n(box.octets.begin() + box.sent, part.bytes, part.octets.begin());
    if (!area_.properties_up.push(part)) break;
    any = true;
    box.sent += part.bytes;
    if (box.sent == box.bytes) free_.push(sending_.pop_front());
  }
  return any;
}

bool PropertyRelay::pop_part() noexcept {
  segment::PropertyPart part;
  if (!area_.properties_down.pop(part)) return false;
  // A control plane that died in the middle of a set leaves a part of it.
  if (part.offset == 0)
    inbox_.connection = static_cast<std::uint16_t>(part.connection), inbox_.incarnation = part.incarnation,
    inbox_.bytes = 0;
  const bool fits = part.bytes <= segment::PropertyPart::kBytes && part.offset == inbox_.bytes &&
                    part.incarnation == inbox_.incarnation &&
                    inbox_.bytes + part.bytes <= inbox_.octets.size();
  if (!fits) return true;
  std::copy_n(part.octets.begin(), part.bytes, inbox_.octets.begin() + inbox_.bytes);
  inbox_.bytes += part.bytes;
  whole_ = inbox_.bytes == part.total_bytes;
  return true;
}

}  // namespace sluice::reactor
