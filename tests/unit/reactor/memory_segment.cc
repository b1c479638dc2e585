// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/reactor/memory_segment.h"

#include <sys/mman.h>

namespace sluice::reactor {

MemorySegment::MemorySegment() {
  void* const memory = ::mmap(nullptr, sizeof(segment::Layout), PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw SetupError("There is no memory for a segment.");
  layout_ = static_cast<segment::Layout*>(memory);
}

MemorySegment::~MemorySegment() {
  ::munmap(layout_, sizeof(segment::Layout));
}

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
