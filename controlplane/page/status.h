// SPDX-License-Identifier: Apache-2.0
//
// What the status page shows, as JSON. It reads the segment as the exporter does, and the journal as a sink does: the control
// plane's loop does nothing for it, and is not waited for. One thread, any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>

#include "controlplane/events/journal.h"
#include "controlplane/json/json.h"
#include "dataplane/segment/segment.h"

namespace sluice::page {

/// The last ones; however many there are.
inline constexpr std::size_t kEventsShown = 50;

class Status {
 public:
  /// Both outlive it.
  Status(const segment::Layout& layout, events::Journal& journal) : layout_(layout), journal_(journal) {}

  /// One object, without a line end. Bytes that are not UTF-8 are replaced.
  std::string look();

 private:
  void read_events();

  const segment::Layout& layout_;
  events::Journal& journal_;
  std::uint64_t next_ = 1;  ///< event to read
  std::deque<Json> events_;
};

}  // namespace sluice::page
