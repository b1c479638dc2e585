// SPDX-License-Identifier: Apache-2.0
#include "dataplane/process/memory_room.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <optional>
#include <sstream>
#include <string_view>

#include "dataplane/base/setup_error.h"
#include "dataplane/process/engine_settings.h"
#include "dataplane/process/memory_table.h"

namespace sluice::process {
namespace {

constexpr std::uint64_t kMiB = 1u << 20;
constexpr std::uint64_t kKiB = 1u << 10;

/// Returns the value of a line such as "MemTotal:   24000 kB" of meminfo, in bytes; zero if there is none.
std::uint64_t value_of(const std::string& meminfo, std::string_view name) {
  std::istringstream lines(meminfo);
  std::string line;
  while (std::getline(lines, line)) {
    if (!line.starts_with(name) || line.size() <= name.size() || line[name.size()] != ':') continue;
    std::uint64_t kib = 0;
    std::istringstream(line.substr(name.size() + 1)) >> kib;
    return kib * kKiB;
  }
  return 0;
}

std::string text_of(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

/// Returns the number that the file has; nothing if there is no file, or no limit in it ("max").
std::optional<std::uint64_t> limit_in(const std::string& path) {
  const std::string text = text_of(path);
  std::uint64_t bytes = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), bytes);
  if (error != std::errc{} || end == text.data()) return std::nullopt;
  return bytes;
}

struct GroupOfProcess {
  std::string folder;  ///< of the hierarchy that limits memory
  std::string file;    ///< that has the limit
  std::string path;    ///< in the hierarchy: "/system.slice/x.service"
};

/// Version 1 has the controller's name in its line, version 2 has "0::PATH".
GroupOfProcess group_of(const std::string& cgroup, const std::string& folder) {
  GroupOfProcess group{.folder = folder, .file = "memory.max", .path = "/"};
  std::istringstream lines(cgroup);
  std::string line;
  while (std::getline(lines, line)) {
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = ',' + line.substr(first + 1, second - first - 1) + ',';
    const std::string path = line.substr(second + 1);
    if (controllers.find(",memory,") != std::string::npos)
      return {.folder = folder + "/memory", .file = "memory.limit_in_bytes", .path = path};
    if (controllers == ",,") group.path = path;
  }
  return group;
}

/// Returns the limits of the group and of all groups that it is in. A container shows its own as the root.
std::vector<GroupLimit> limits_of(const GroupOfProcess& group) {
  std::vector<GroupLimit> limits;
  std::string path = group.path;
  for (;;) {
    while (path.ends_with('/')) path.pop_back();
    const std::string file = group.folder + path + '/' + group.file;
    if (const auto bytes = limit_in(file)) limits.push_back({*bytes, file});
    if (path.empty()) return limits;
    path.resize(path.rfind('/') == std::string::npos ? 0 : path.rfind('/'));
  }
}

std::string mib(std::uint64_t bytes) {
  return std::to_string(bytes / kMiB) + " MiB";
}

std::string needed(const MemoryNeed& need) {
  return "The configuration needs " + mib(need.pages_bytes) + " of memory (" + mib(need.exports_bytes) +
         " for the files of [memory] size_mib, " + mib(need.pages_bytes - need.exports_bytes) +
         " for buffers, call slots, the driver and the segment)";
}

}  // namespace

MemoryRoom memory_room(const KernelFolders& folders) {
  const std::string meminfo = text_of(folders.proc + "/meminfo");
  MemoryRoom room;
  const std::uint64_t all = value_of(meminfo, "MemTotal");
  room.huge_pages_bytes = std::min(all, value_of(meminfo, "Hugetlb"));
  room.pages_bytes = all - room.huge_pages_bytes;
  room.available_bytes = value_of(meminfo, "MemAvailable");
  room.limits = limits_of(group_of(text_of(folders.proc + "/self/cgroup"), folders.cgroups));
  return room;
}

MemoryNeed memory_need(const segment::ConfigBlock& config) {
  MemoryNeed need;
  for (const segment::MemoryInfo& line : memory_table(config)) need.pages_bytes += line.reserved_bytes;
  need.exports_bytes = export_bytes(config);
  if (config.hugepages == 0 || config.driver == segment::Driver::Loopback) return need;
  need.huge_pages_bytes = config.dpdk_memory_mib * kMiB;
  need.pages_bytes -= need.huge_pages_bytes;
  return need;
}

std::string lacks_of_machine(const MemoryNeed& need, const MemoryRoom& room) {
  if (room.pages_bytes == 0) return {};
  if (need.pages_bytes > room.pages_bytes)
    return needed(need) + ", and this machine has " + mib(room.pages_bytes) +
           (room.huge_pages_bytes > 0 ? " beside its huge pages" : "") +
           ": lower size_mib, or what 'sluicectl memory' shows as large.";
  if (need.huge_pages_bytes > room.huge_pages_bytes)
    return "dpdk_memory_mib in [device] is " + mib(need.huge_pages_bytes) +
           " of huge pages, and this machine has " + mib(room.huge_pages_bytes) +
           " of them: set more aside (vm.nr_hugepages), or lower it.";
  return {};
}

std::string lacks_of_group(const MemoryNeed& need, const MemoryRoom& room) {
  const auto least =
      std::min_element(room.limits.begin(), room.limits.end(),
                       [](const auto& one, const auto& other) { return one.bytes < other.bytes; });
  if (least == room.limits.end() || need.pages_bytes <= least->bytes) return {};
  return needed(need) + ", and its control group may have " + mib(least->bytes) + " (" + least->file +
         "): lower size_mib, or raise the limit (MemoryMax= of the unit, --memory of the container).";
}

std::string lacks_at_present(const MemoryNeed& need, const MemoryRoom& room) {
  if (room.available_bytes == 0 || need.pages_bytes <= room.available_bytes) return {};
  return needed(need) + ", and " + mib(room.available_bytes) +
         " are unused at the moment: when clients fill the exports, the kernel may end other processes.";
}

std::string require_memory(const segment::ConfigBlock& config, const KernelFolders& folders) {
  const MemoryNeed need = memory_need(config);
  const MemoryRoom room = memory_room(folders);
  for (const std::string& lack : {lacks_of_machine(need, room), lacks_of_group(need, room)})
    if (!lack.empty()) throw SetupError(lack);
  return lacks_at_present(need, room);
}

}  // namespace sluice::process
