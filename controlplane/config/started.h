// SPDX-License-Identifier: Apache-2.0
//
// Configuration of a control plane that finds a running data plane. Values that the data plane applied at its
// start stay in force, independent of the current content of the file. Pure function; any thread.
#pragma once

#include <string>
#include <vector>

#include "controlplane/config/config.h"

namespace sluice::config {

struct BesideDataPlane {
  Config config;                   ///< `read`, except for values that only a start of the data plane applies
  std::vector<std::string> later;  ///< keys that differ and take effect at that start
};

/// Combines `read` with `started`, the configuration that the data plane was started with, including later
/// reloads. `places` describes the data plane's upstream slots.
BesideDataPlane beside_data_plane(const Config& read, const segment::ConfigBlock& started,
                                  const segment::UpstreamPlaces& places);

}  // namespace sluice::config
