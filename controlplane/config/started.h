// SPDX-License-Identifier: Apache-2.0
//
// A control plane that finds a data plane running: what that has started with stays as it is, whatever the file says by
// now. Pure; any thread.
#pragma once

#include <string>
#include <vector>

#include "controlplane/config/config.h"

namespace sluice::config {

struct BesideDataPlane {
  Config config;                   ///< `read`, but for what only a start of the data plane brings into force
  std::vector<std::string> later;  ///< the keys that differ
};

/// `started` is the configuration that the data plane has begun with and followed since; `places` are those it has for
/// upstreams.
BesideDataPlane beside_data_plane(const Config& read, const segment::ConfigBlock& started,
                                  const segment::UpstreamPlaces& places);

}  // namespace sluice::config
