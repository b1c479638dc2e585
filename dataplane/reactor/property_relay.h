// SPDX-License-Identifier: Apache-2.0
//
// Carries sets of transport properties of version 2 between a reactor's connections and the control plane,
// which judges them. Sets are longer than a slot of a ring, so they go in parts. One reactor.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "dataplane/base/fixed_ring.h"
#include "dataplane/base/fixed_stack.h"
#include "dataplane/rpcrdma/link/config.h"
#include "dataplane/segment/segment.h"

namespace sluice::reactor {

class PropertyRelay {
 public:
  /// Sets on their way up at once; further ones wait in their connections.
  static constexpr std::size_t kOutboxes = 4;
  static constexpr std::size_t kPartsPerTurn = 16;

  explicit PropertyRelay(segment::ReactorArea& area);

  /// The sink of a connection. False: no outbox is free.
  bool take(std::uint16_t connection, std::uint32_t incarnation, std::span<const std::byte> body,
            bool first) noexcept;
  /// Moves parts; what has come down whole goes to `deliver`, which says whether it was taken. True when
  /// there was something.
  template <typename Deliver>
  bool poll(Deliver&& deliver) noexcept {
    bool any = push_parts();
    for (std::size_t i = 0; i < kPartsPerTurn; ++i) {
      if (whole_) {
        if (!deliver(inbox_.connection, inbox_.incarnation, std::span(inbox_.octets).first(inbox_.bytes)))
          break;
        whole_ = false;
      }
      if (!pop_part()) break;
      any = true;
    }
    return any;
  }

 private:
  struct Box {
    std::uint16_t connection = 0;
    std::uint32_t incarnation = 0;
    bool first = false;
    std::uint32_t bytes = 0;
    std::uint32_t sent = 0;
    std::vector<std::byte> octets;
  };
  bool push_parts() noexcept;
  bool pop_part() noexcept;

  segment::ReactorArea& area_;
  std::array<Box, kOutboxes> outboxes_;
  FixedStack<Box*> free_{kOutboxes};
  FixedRing<Box*> sending_{kOutboxes};
  Box inbox_;
  bool whole_ = false;
};

}  // namespace sluice::reactor
