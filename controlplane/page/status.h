// SPDX-License-Identifier: Apache-2.0
//
// Contents of the status page, as JSON. Status reads the segment as the exporter does and the journal as a
// sink does, so the control plane's loop does no work for the page and is never blocked by it. A Status is
// used by one thread, which can be any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>

#include "controlplane/events/journal.h"
#include "controlplane/json/json.h"
#include "dataplane/segment/segment.h"

namespace sluice::page {

/// Number of most recent events on the page.
inline constexpr std::size_t kEventsShown = 50;

class Status {
 public:
  /// `layout` and `journal` outlive this object.
  Status(const segment::Layout& layout, events::Journal& journal) : layout_(layout), journal_(journal) {}

  /// Renders the status as one JSON object without a line end. Bytes that are not UTF-8 are replaced.
  std::string render();

 private:
  void read_events();

  const segment::Layout& layout_;
  events::Journal& journal_;
  std::uint64_t next_ = 1;  ///< sequence number of the next event to read
  std::deque<Json> events_;
};

}  // namespace sluice::page
