// SPDX-License-Identifier: Apache-2.0
#include "controlplane/config/routes.h"

#include <algorithm>

#include "dataplane/ulb/bindings.h"

namespace sluice::config {

bool is_same(const segment::RouteConfig& one, const segment::RouteConfig& other) {
  return one.program == other.program && one.version == other.version;
}

bool takes(const segment::UpstreamConfig& upstream, const segment::RouteConfig& route) {
  const auto* const end = upstream.routes.begin() + std::min(upstream.route_count, segment::kMaxRoutes);
  return std::any_of(upstream.routes.begin(), end,
                     [&](const segment::RouteConfig& known) { return is_same(known, route); });
}

std::string to_text(const segment::RouteConfig& route) {
  for (const ulb::NamedProgram& named : ulb::named_programs())
    if (named.program == route.program && named.version == route.version) return std::string(named.name);
  return std::to_string(route.program) + '.' + std::to_string(route.version);
}

}  // namespace sluice::config
