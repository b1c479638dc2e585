// SPDX-License-Identifier: Apache-2.0
//
// Events from one reactor to the control plane. Producer side of ReactorArea::events; the reactor's thread.
#pragma once

#include "dataplane/reactor/counters.h"
#include "dataplane/segment/segment.h"

namespace sluice::reactor {

class EventSender {
 public:
  /// Both outlive the sender.
  EventSender(segment::ReactorArea& area, Counters& counters) : events_(area.events), counters_(counters) {}

  /// For hints, whose content stands in the segment's tables: without room it is lost, and counted.
  void send(const segment::Event& event) noexcept {
    if (!events_.push(event)) ++counters_.events_lost;
  }
  /// For events that must arrive. False: the ring is full, the caller tries again later.
  bool try_send(const segment::Event& event) noexcept { return events_.push(event); }

 private:
  decltype(segment::ReactorArea::events)& events_;
  Counters& counters_;
};

}  // namespace sluice::reactor
