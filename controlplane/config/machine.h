// SPDX-License-Identifier: Apache-2.0
//
// Checks of a configuration against its machine: processors, memory, interface, groups and paths. A start, a reload, `--check` and
// `sluicectl config check` run the same list. System calls, which may wait for a disk or a directory
// service. Setup; one thread.
#pragma once

#include <sched.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "controlplane/config/config.h"
#include "dataplane/base/net_address.h"
#include "dataplane/process/memory_room.h"

namespace sluice::config {

/// User of the control plane's unit, sluice-controlplane.service.
inline constexpr const char* kServiceUser = "sluice-controlplane";

struct User {
  std::string name;
  std::uint32_t id = 0;
  std::vector<std::uint32_t> groups{};
};

/// The machine as this process sees it.
struct Machine {
  std::uint32_t processors = 0;  ///< number that is configured in the kernel
  cpu_set_t allowed{};           ///< affinity mask that this process has begun with
  process::MemoryRoom memory{};
  std::function<std::optional<std::uint32_t>(const std::string& interface)>
      mtu_of{};                                           ///< none: no such interface
  std::function<bool(const PeerAddress&)> has_address{};  ///< whether an interface has it
  /// kServiceUser, if it exists and this process is root's, which may read every file.
  std::optional<User> service_user{};
};
Machine this_machine();

/// Sentences, a line each.
struct Findings {
  std::string defects;  ///< a data plane or control plane on this machine refuses to start
  std::string
      notes;  ///< a data plane with the processors, the control group and the network of this process refuses to start
};
Findings judge(const Config& config, const Machine& machine);
/// Throws ConfigError with the defects. Puts the notes into `config`.
void check_machine(Config& config, const Machine& machine = this_machine());

}  // namespace sluice::config
