// SPDX-License-Identifier: Apache-2.0
//
// The upstream slots of one reactor. Each can be used over TCP or RDMA, for an upstream with its own exports
// or its own port, or for the only one of a program. The constructor and start() are setup; afterwards only
// the owning reactor may call, except where upstream_slot.h permits other threads.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "dataplane/base/invariant.h"
#include "dataplane/base/owned.h"
#include "dataplane/base/setup_error.h"
#include "dataplane/gateway/slots/upstream_slot.h"
#include "dataplane/service/api/service.h"

namespace sluice::gateway {

class UpstreamSlots final : public service::Poller, public SlotSides {
 public:
  using Sides = std::vector<SlotSide*>;
  /// Setup. Makes one slot for each of `areas`. Each slot can use its element of `over_tcp`, unless that is
  /// empty, and any element of `over_rdma`. Areas and sides outlive this object.
  UpstreamSlots(const std::vector<segment::UpstreamArea*>& areas, Sides over_tcp, Sides over_rdma)
      : over_tcp_(std::move(over_tcp)), over_rdma_(std::move(over_rdma)) {
    for (std::uint32_t i = 0; i < areas.size(); ++i)
      slots_.push_back(make_owned<UpstreamSlot>(*this, i, *areas[i]));
  }

  /// Serves an upstream from the start. Throws SetupError.
  void start(std::uint32_t number, const UpstreamSettings& settings) {
    slots_[number]->offer(settings);
    slots_[number]->poll_slot();
    if (!slots_[number]->settled())
      throw SetupError("There is no room for the services of upstream '" + settings.name +
                       "'. Configure fewer upstreams or programs.");
  }
  /// Returns a slot, for the main thread. Numbers are below the number of areas.
  UpstreamSlot& slot(std::uint32_t number) const noexcept { return *slots_[number]; }

  bool poll(std::uint64_t /*now_ns*/) noexcept override {
    for (const auto& slot : slots_) slot->poll_slot();
    return false;
  }

 private:
  SlotSide* take(segment::Transport transport, std::uint32_t slot) noexcept override {
    static_cast<void>(SLUICE_INVARIANT(slot < slots_.size(), table_index));
    if (transport == segment::Transport::Tcp) return slot < over_tcp_.size() ? over_tcp_[slot] : nullptr;
    for (SlotSide* const side : over_rdma_)
      if (!side->in_use()) return side;
    return nullptr;
  }

  const Sides over_tcp_;
  const Sides over_rdma_;
  std::vector<Owned<UpstreamSlot>> slots_;
};

}  // namespace sluice::gateway
