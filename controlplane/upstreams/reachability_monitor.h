// SPDX-License-Identifier: Apache-2.0
//
// Records an event when an upstream becomes unreachable or reachable, judged by the connections of all
// reactors. Runs on the control plane's thread.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "dataplane/segment/config_block.h"
#include "dataplane/segment/gateways.h"

namespace sluice::events {
class Journal;
}
namespace sluice::segment {
struct Layout;
}

namespace sluice::upstreams {

class ReachabilityMonitor {
 public:
  /// `journal` and `layout` outlive this object.
  ReachabilityMonitor(events::Journal& journal, const segment::Layout& layout)
      : journal_(journal), layout_(layout) {}

  /// Samples the connections. Called periodically. Without a data plane the state of upstreams is unknown,
  /// and nothing changes.
  void poll(const segment::ConfigBlock& config, bool data_plane_alive, std::uint64_t now_ns);

 private:
  enum class Reach : std::uint8_t { Unknown, Lost, Found };
  struct State {
    std::string upstream;  ///< name, because another upstream may take this position later
    Reach reach = Reach::Unknown;
    std::uint64_t lost_ns = 0;
    std::uint32_t looks_without = 0;  ///< consecutive samples with attempts but no connection
  };
  events::Journal& journal_;
  const segment::Layout& layout_;
  std::array<State, segment::kMaxUpstreams> states_{};
};

}  // namespace sluice::upstreams
