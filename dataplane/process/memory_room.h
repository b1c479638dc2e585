// SPDX-License-Identifier: Apache-2.0
//
// Memory that a data plane may have, by the machine and by its control groups, against what its configuration needs. Both planes
// compare: the data plane before it takes any memory, the control plane when it checks a configuration. Reads files of the kernel.
// Setup; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dataplane/segment/config_block.h"

namespace sluice::process {

/// Folders of the kernel's files; tests have their own.
struct KernelFolders {
  std::string proc = "/proc";
  std::string cgroups = "/sys/fs/cgroup";
};

/// A limit of a control group, with the file that has it.
struct GroupLimit {
  std::uint64_t bytes = 0;
  std::string file{};
};

struct MemoryRoom {
  std::uint64_t pages_bytes = 0;       ///< of the machine, without huge pages; zero: unknown
  std::uint64_t huge_pages_bytes = 0;  ///< set aside as huge pages
  std::uint64_t available_bytes = 0;   ///< unused memory of the machine; zero: unknown
  std::vector<GroupLimit> limits{};    ///< limits of this process's control group and of its ancestors
};

struct MemoryNeed {
  std::uint64_t pages_bytes = 0;
  std::uint64_t huge_pages_bytes = 0;
  bool in_huge_pages = false;       ///< the driver takes huge pages first for pages_bytes
  std::uint64_t exports_bytes = 0;  ///< the part of pages_bytes that [memory] size_mib decides
};

/// Reads cgroup version 1 and 2.
MemoryRoom memory_room(const KernelFolders& folders = {});
/// Returns the sum of all pools: the lines of memory_table().
MemoryNeed memory_need(const segment::ConfigBlock& config);

/// Returns a sentence if the machine has less than what is needed; empty if it has enough or is unknown.
std::string lacks_of_machine(const MemoryNeed& need, const MemoryRoom& room);
/// Returns a sentence if a control group allows less; empty if none does.
std::string lacks_of_group(const MemoryNeed& need, const MemoryRoom& room);
/// Returns a sentence if more is needed than is unused at the moment; empty otherwise.
std::string lacks_at_present(const MemoryNeed& need, const MemoryRoom& room);

/// Throws SetupError if machine or control group have less than what is needed. Returns lacks_at_present().
std::string require_memory(const segment::ConfigBlock& config, const KernelFolders& folders = {});

}  // namespace sluice::process
