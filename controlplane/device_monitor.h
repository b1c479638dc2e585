// SPDX-License-Identifier: Apache-2.0
//
// Adds events to the journal when RDMA devices of the data plane lose their links, come up or change, as
// published by the reactors. Runs on the control plane's thread.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "dataplane/segment/config_block.h"
#include "dataplane/segment/tables.h"

namespace sluice::events {
class Journal;
}
namespace sluice::segment {
struct Layout;
}

namespace sluice::controlplane {

class DeviceMonitor {
 public:
  /// `journal` and `layout` outlive this object.
  DeviceMonitor(events::Journal& journal, const segment::Layout& layout)
      : journal_(journal), layout_(layout) {}

  /// Compares the published state with that of the last call. A device that is down when a new data plane
  /// starts causes an event too.
  void poll(const segment::ConfigBlock& config, bool data_plane_alive);

 private:
  /// Counters of a device since its data plane started.
  struct Counts {
    std::uint64_t downs = 0;
    std::uint64_t ups = 0;
    std::uint64_t reopened = 0;
    std::uint64_t mac_changes = 0;
    std::uint64_t mtu_changes = 0;
  };

  Counts counts_of(segment::Driver driver, std::uint32_t reactor) const;
  void compare(std::uint32_t reactor, const segment::ReactorInfo& info, const Counts& before,
               const Counts& now);

  events::Journal& journal_;
  const segment::Layout& layout_;
  std::array<std::optional<Counts>, segment::kMaxReactors> known_{};  ///< as of the last poll()
};

}  // namespace sluice::controlplane
