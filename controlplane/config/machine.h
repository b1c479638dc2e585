// SPDX-License-Identifier: Apache-2.0
//
// Checks of a configuration against its machine: processors, memory, interface, groups and paths. A start, a
// reload, `--check` and `sluicectl config check` perform the same checks. The checks make system calls that
// may block on a disk or a directory service. Used at setup; single-threaded.
#pragma once

#include <sched.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "controlplane/config/config.h"
#include "dataplane/base/net_address.h"
#include "dataplane/process/memory_table.h"

namespace sluice::config {

/// User of the control plane's unit, sluice-controlplane.service.
inline constexpr const char* kServiceUser = "sluice-controlplane";

struct User {
  std::string name;
  std::uint32_t id = 0;
  std::vector<std::uint32_t> groups{};
};

/// Instruction for a file in which a former release saved changes.
inline constexpr const char* kFormerChanges =
    " is no longer read. Move each [[export]] in it, with its clients, to a file *.toml in "
    "exports_directory, "
    "delete the exports in its list removed_exports from the configuration, and remove ";

/// The machine as seen by this process.
struct Machine {
  std::uint32_t processors = 0;  ///< number of processors that are configured in the kernel
  cpu_set_t allowed{};           ///< affinity mask with which this process started
  process::MemoryRoom memory{};
  std::function<std::optional<std::uint32_t>(const std::string& interface)>
      mtu_of{};                                           ///< none: no such interface
  std::function<bool(const PeerAddress&)> has_address{};  ///< returns true if an interface has the address
  /// kServiceUser, if it exists and this process runs as root, which can read every file.
  std::optional<User> service_user{};
  /// File in which the package of a former release saved changes. A start without it would export what was
  /// removed.
  std::string former_changes{};
};
Machine this_machine();

/// Results of the checks, as sentences, one per line.
struct Findings {
  std::string defects;  ///< a data plane or control plane on this machine refuses to start
  std::string
      notes;  ///< a data plane with the CPUs, control group and network of this process refuses to start
};
Findings judge(const Config& config, const Machine& machine);
/// Runs the checks. Throws ConfigError with the defects, and adds the notes to `config`.
void check_machine(Config& config, const Machine& machine = this_machine());

}  // namespace sluice::config
