// SPDX-License-Identifier: Apache-2.0
//
// Tells the journal when an upstream can no longer be reached, or is reached, as the connections of all reactors show it.
// The control plane's thread.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "dataplane/segment/config_block.h"
#include "dataplane/segment/upstreams.h"

namespace sluice::events {
class Journal;
}
namespace sluice::segment {
struct Layout;
}

namespace sluice::upstreams {

class ReachWatch {
 public:
  /// Both outlive it.
  ReachWatch(events::Journal& journal, const segment::Layout& layout) : journal_(journal), layout_(layout) {}

  /// From time to time. Without a data plane nothing is known, and nothing changes.
  void look(const segment::ConfigBlock& config, bool data_plane_alive, std::uint64_t now_ns);

 private:
  enum class Reach : std::uint8_t { Unknown, Lost, Found };
  struct State {
    std::string upstream;  ///< another one may have its place later
    Reach reach = Reach::Unknown;
    std::uint64_t lost_ns = 0;
    std::uint32_t looks_without = 0;  ///< in a row: none was there, and some were being made
  };
  events::Journal& journal_;
  const segment::Layout& layout_;
  std::array<State, segment::kMaxUpstreams> states_{};
};

}  // namespace sluice::upstreams
