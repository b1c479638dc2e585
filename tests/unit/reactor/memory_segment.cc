// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/reactor/memory_segment.h"

namespace sluice::reactor {

std::optional<segment::Event> MemorySegment::event() {
  segment::Event event;
  if (!area().events.pop(event)) return std::nullopt;
  return event;
}

std::vector<segment::Event> MemorySegment::events() {
  std::vector<segment::Event> all;
  while (const auto next = event()) all.push_back(*next);
  return all;
}

segment::ConnectionInfo MemorySegment::entry(std::uint16_t connection) {
  return area().connections[connection].read().value();
}

}  // namespace sluice::reactor
