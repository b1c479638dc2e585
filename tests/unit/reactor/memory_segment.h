// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "dataplane/segment/segment.h"

namespace sluice::reactor {

/// A segment in the memory of this process. Untouched pages take no memory.
class MemorySegment {
 public:
  segment::Layout& layout() { return segment_->layout(); }
  segment::ControlPart& control() { return segment_->control_part(); }
  segment::ReactorArea& area() { return layout().reactors[0]; }

  /// Returns the reactor's next event.
  std::optional<segment::Event> event();
  /// Returns all pending events.
  std::vector<segment::Event> events();
  /// Returns the entry of a connection in the table.
  segment::ConnectionInfo entry(std::uint16_t connection);

 private:
  const Owned<segment::Segment> segment_ = segment::Segment::in_memory();
};

}  // namespace sluice::reactor
