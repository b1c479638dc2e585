// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "dataplane/segment/segment.h"

namespace sluice::reactor {

/// A segment of this process alone. Untouched pages take no memory.
class MemorySegment {
 public:
  segment::Layout& layout() { return segment_->layout(); }
  segment::ControlPart& control() { return segment_->control_part(); }
  segment::ReactorArea& area() { return layout().reactors[0]; }

  /// The next event of the reactor's.
  std::optional<segment::Event> event();
  /// Events until there are none.
  std::vector<segment::Event> events();
  /// The entry of a connection in the table.
  segment::ConnectionInfo entry(std::uint16_t connection);

 private:
  const Owned<segment::Segment> segment_ = segment::Segment::in_memory();
};

}  // namespace sluice::reactor
