// SPDX-License-Identifier: Apache-2.0
//
// Events from one reactor to the control plane. Producer side of ReactorArea::events; used on the reactor's
// thread.
#pragma once

#include "dataplane/reactor/counters.h"
#include "dataplane/segment/segment.h"

namespace sluice::reactor {

class EventSender {
 public:
  /// Both arguments must outlive the sender.
  EventSender(segment::ReactorArea& area, Counters& counters) : events_(area.events), counters_(counters) {}

  /// Sends a hint, whose content is also in the segment's tables. If there is no room, the hint is dropped
  /// and counted.
  void send(const segment::Event& event) noexcept {
    if (!events_.push(event)) ++counters_.events_lost;
  }
  /// Sends an event that must arrive. Returns false if the ring is full; the caller retries later.
  bool try_send(const segment::Event& event) noexcept { return events_.push(event); }

 private:
  decltype(segment::ReactorArea::events)& events_;
  Counters& counters_;
};

}  // namespace sluice::reactor
