// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <vector>

#include "dataplane/segment/segment.h"

namespace sluice::reactor {

/// A segment of this process alone. Untouched pages take no memory.
class MemorySegment {
 public:
  MemorySegment();
  ~MemorySegment();
  MemorySegment(const MemorySegment&) = delete;
  MemorySegment& operator=(const MemorySegment&) = delete;

  segment::Layout& layout() { return *layout_; }
  segment::ReactorArea& area() { return layout_->reactors[0]; }

  /// The next event of the reactor's.
  std::optional<segment::Event> event();
  /// Events until there are none.
  std::vector<segment::Event> events();
  /// The entry of a connection in the table.
  segment::ConnectionInfo entry(std::uint16_t connection);

 private:
  segment::Layout* layout_;
};

}  // namespace sluice::reactor
