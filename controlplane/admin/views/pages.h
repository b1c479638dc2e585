// SPDX-License-Identifier: Apache-2.0
//
// Pages of connections. A position names a reactor and a connection number, so it stays valid while
// connections open and close. A connection that is open during the whole listing is listed exactly once. The
// control plane's thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <utility>

#include "controlplane/admin/pace.h"
#include "controlplane/json/json.h"
#include "dataplane/segment/checked.h"
#include "dataplane/segment/segment.h"

namespace sluice::admin {

struct Page {
  Json rows = Json::array();
  std::optional<std::uint64_t> next{};  ///< position of the next page; empty on the last page
};

/// Returns the position of a connection in listings.
constexpr std::uint64_t position_of(std::uint32_t reactor, std::uint32_t number) {
  return std::uint64_t{reactor} << 32 | number;
}

/// Returns the connections from position `from` on, limited by `most` and by `pace`. `describe` returns the
/// row of a connection, or nothing if the connection is not listed. Any `from` is valid input.
template <typename Describe>
Page page_of(const segment::Layout& layout, const segment::ConfigBlock& config, std::uint64_t from,
             std::uint32_t most, Pace& pace, const Describe& describe) {
  Page page;
  const std::uint32_t connections = config.all_connections();
  auto number = static_cast<std::uint32_t>(from);
  for (std::uint64_t reactor = from >> 32; reactor < config.reactors; ++reactor, number = 0) {
    const segment::ReactorArea& area = layout.reactors[reactor];
    for (; number < connections; ++number) {
      const auto of_reactor = static_cast<std::uint32_t>(reactor);
      if (pace.spent() || page.rows.size() >= most) {
        page.next = position_of(of_reactor, number);
        return page;
      }
      pace.count_row();
      if (area.use[number].open.load(std::memory_order_relaxed) == 0) continue;
      const auto info = segment::checked(area.connections[number]);
      if (!info || info->state == segment::ConnectionState::Unused) continue;
      std::optional<Json> row = describe(area, *info, of_reactor, number);
      if (!row) continue;
      pace.describe();
      page.rows.push_back(std::move(*row));
    }
  }
  return page;
}

}  // namespace sluice::admin
