// SPDX-License-Identifier: Apache-2.0
#include "controlplane/config/started.h"

#include "controlplane/config/changes.h"

namespace sluice::config {

BesideDataPlane beside_data_plane(const Config& read, const segment::ConfigBlock& started,
                                  const segment::UpstreamPlaces& places) {
  Config running = read;
  running.block = started;
  running.authentication_required = started.hold_calls != 0;
  return {.config = live_part(running, read, places), .later = compare(running, read, places).restart_both};
}

}  // namespace sluice::config
