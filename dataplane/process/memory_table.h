// SPDX-License-Identifier: Apache-2.0
//
// Memory that the data plane reserves, as a table for `sluicectl memory`, and the comparison of that need
// with the memory that the machine and its control groups allow. Both planes compare: the data plane before
// it allocates any memory, the control plane when it checks a configuration. Reads files of the kernel. For
// setup; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dataplane/segment/config_block.h"
#include "dataplane/segment/tables.h"

namespace sluice::process {

/// Returns sums over all reactors, in bytes. Lines that do not apply are zero.
segment::MemoryTable memory_table(const segment::ConfigBlock& config);

/// Folders of the kernel's files; tests use other ones.
struct KernelFolders {
  std::string proc = "/proc";
  std::string cgroups = "/sys/fs/cgroup";
};

/// Limit of a control group, and the file that contains it.
struct GroupLimit {
  std::uint64_t bytes = 0;
  std::string file{};
};

struct MemoryRoom {
  std::uint64_t pages_bytes = 0;       ///< memory of the machine without huge pages; zero: unknown
  std::uint64_t huge_pages_bytes = 0;  ///< memory reserved as huge pages
  std::uint64_t available_bytes = 0;   ///< unused memory of the machine; zero: unknown
  std::vector<GroupLimit> limits{};    ///< limits of this process's control group and of its ancestors
};

struct MemoryNeed {
  std::uint64_t pages_bytes = 0;
  std::uint64_t huge_pages_bytes = 0;
  bool in_huge_pages = false;       ///< driver allocates pages_bytes from huge pages first
  std::uint64_t exports_bytes = 0;  ///< the part of pages_bytes that [memory] size_mib decides
};

/// Reads the available memory, with cgroup version 1 or 2.
MemoryRoom memory_room(const KernelFolders& folders = {});
/// Returns the sum of all pools, the lines of memory_table().
MemoryNeed memory_need(const segment::ConfigBlock& config);

/// Returns a sentence if the machine has less memory than needed; empty if it has enough or is unknown.
std::string lacks_of_machine(const MemoryNeed& need, const MemoryRoom& room);
/// Returns a sentence if a control group allows less memory than needed; empty if none does.
std::string lacks_of_group(const MemoryNeed& need, const MemoryRoom& room);
/// Returns a sentence if more memory is needed than is currently unused; empty otherwise.
std::string lacks_at_present(const MemoryNeed& need, const MemoryRoom& room);

/// Throws SetupError if the machine or a control group has less memory than needed. Returns
/// lacks_at_present().
std::string require_memory(const segment::ConfigBlock& config, const KernelFolders& folders = {});

}  // namespace sluice::process
