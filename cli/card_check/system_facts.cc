// SPDX-License-Identifier: Apache-2.0
#include <sys/resource.h>
#include <sys/utsname.h>

#include <filesystem>
#include <fstream>

#include "cli/card_check/facts.h"
#include "cli/card_check/process.h"
#include "cli/card_check/sysfs.h"
#include "commit.h"

namespace sluice::card_check {
namespace {

constexpr std::chrono::seconds kProgramLimit{5};

/// Returns the output of a program on one line, or null if it is not installed or fails.
Json output_of(const std::vector<std::string>& arguments) {
  Ended ended = run_process(arguments, kProgramLimit, 1);
  if (ended.how != Ended::How::Exited || ended.code != 0) return nullptr;
  std::string& text = ended.messages;
  text.erase(text.find_last_not_of(" \n") + 1);
  for (char& c : text)
    if (c == '\n') c = ' ';
  return known(text);
}

/// Returns the value of a line such as `PRETTY_NAME="..."`.
std::string value_of(const char* path, const std::string& key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(key)) continue;
    line.erase(0, key.size());
    const auto begin = line.find_first_not_of(" \t\"");
    const auto end = line.find_last_not_of(" \t\"");
    return begin == std::string::npos ? std::string() : line.substr(begin, end - begin + 1);
  }
  return {};
}

Json package_versions() {
  const Json debian = output_of(
      {"dpkg-query", "-W", "-f", "${Package} ${Version};", "rdma-core", "ibverbs-providers", "libibverbs1"});
  return !debian.is_null() ? debian : output_of({"rpm", "-q", "rdma-core", "libibverbs"});
}

Json locked_memory() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_MEMLOCK, &limit) != 0) return nullptr;
  return limit.rlim_cur == RLIM_INFINITY ? Json("unlimited")
                                         : Json(static_cast<std::uint64_t>(limit.rlim_cur));
}

}  // namespace

Json system_facts() {
  utsname kernel{};
  ::uname(&kernel);
  return {{"sluice", SLUICE_VERSION},
          {"commit", SLUICE_COMMIT},
          {"kernel", kernel.release},
          {"machine", kernel.machine},
          {"distribution", known(value_of("/etc/os-release", "PRETTY_NAME="))},
          {"packages", package_versions()},
          {"locked_memory_bytes", locked_memory()},
          {"huge_pages", known(value_of("/proc/meminfo", "HugePages_Total:"))},
          {"huge_page_size", known(value_of("/proc/meminfo", "Hugepagesize:"))},
          {"transparent_huge_pages", known(first_line("/sys/kernel/mm/transparent_hugepage/enabled"))}};
}

Json hardware_facts(const std::string& folder) {
  const std::string function = folder + "/device";
  const std::string module = target_name(function + "/driver/module");
  const std::string iommu = first_line(function + "/iommu_group/type");
  std::error_code failed;
  const bool has_function = std::filesystem::exists(function, failed);
  return {
      {"driver", known(target_name(function + "/driver"))},
      {"module", known(module)},
      {"module_version", known(module.empty() ? module : first_line("/sys/module/" + module + "/version"))},
      {"board", known(first_line(folder + "/board_id"))},
      {"hardware_revision", known(first_line(folder + "/hw_rev"))},
      {"pcie_width", known(first_line(function + "/current_link_width"))},
      {"pcie_speed", known(first_line(function + "/current_link_speed"))},
      {"pcie_width_of_card", known(first_line(function + "/max_link_width"))},
      {"pcie_speed_of_card", known(first_line(function + "/max_link_speed"))},
      {"numa_node", known(first_line(function + "/numa_node"))},
      {"iommu", has_function ? Json(iommu.empty() ? "none" : iommu) : Json(nullptr)},
      {"virtual_function",
       has_function ? Json(std::filesystem::exists(function + "/physfn", failed)) : Json(nullptr)}};
}

Json fabric_facts(const std::string& device, std::uint8_t port, const std::string& interface) {
  const std::string settings =
      "/sys/kernel/config/rdma_cm/" + device + "/ports/" + std::to_string(port) + "/default_roce_tos";
  const bool named = !interface.empty();
  return {
      {"default_roce_tos", known(first_line(settings))},
      {"pfc", named ? output_of({"dcb", "-j", "pfc", "show", "dev", interface}) : Json(nullptr)},
      {"ets", named ? output_of({"dcb", "-j", "ets", "show", "dev", interface}) : Json(nullptr)},
      {"interface_mtu", named ? known(first_line("/sys/class/net/" + interface + "/mtu")) : Json(nullptr)}};
}

}  // namespace sluice::card_check
