// SPDX-License-Identifier: Apache-2.0
#include "controlplane/admin/views/configuration.h"

namespace sluice::admin {

Json describe_changes(const config::Changes& changes) {
  return {{"in_force", changes.live},
          {"restart_control_plane", changes.restart_control},
          {"restart_both_planes", changes.restart_both}};
}

Json check_configuration(const std::string& text, const std::string& name, const config::Config& running,
                         const segment::UpstreamPlaces& places) {
  try {
    config::Config next = config::parse(text, name);
    // Another file than the one in use is not opened for whoever may ask.
    if (next.saved_changes == running.saved_changes) config::load_saved_changes(next);
    return {{"ok", true}, {"changes", describe_changes(config::compare(running, next, places))}};
  } catch (const std::runtime_error& error) {
    return {{"ok", false}, {"defects", error.what()}};
  }
}

}  // namespace sluice::admin
