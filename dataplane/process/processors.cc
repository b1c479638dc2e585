// SPDX-License-Identifier: Apache-2.0
#include "dataplane/process/processors.h"

#include <rte_config.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <set>
#include <string_view>

#include "dataplane/base/processor_list.h"
#include "dataplane/base/setup_error.h"

namespace sluice::process {
namespace {

/// DPDK takes processors by numbers below that of its logical cores.
constexpr std::uint32_t kMaxProcessors = std::min<std::uint32_t>(RTE_MAX_LCORE, CPU_SETSIZE);

/// Returns the number at the beginning of `text`; `otherwise` if there is none.
std::uint32_t leading_number(std::string_view text, std::uint32_t otherwise) {
  std::uint32_t number = otherwise;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

std::uint32_t core_of(const std::filesystem::path& folder, std::uint32_t cpu) {
  std::ifstream file(folder / "topology" / "thread_siblings_list");
  std::string siblings;
  std::getline(file, siblings);
  return leading_number(siblings, cpu);
}

std::uint32_t numa_node_of(const std::filesystem::path& folder) {
  constexpr std::string_view kNode = "node";
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(kNode)) continue;
    const std::string_view number = std::string_view(name).substr(kNode.size());
    if (!number.empty() && number.find_first_not_of("0123456789") == std::string_view::npos)
      return leading_number(number, 0);
  }
  return 0;
}

Processor describe(std::uint32_t cpu, const std::string& system) {
  const std::filesystem::path folder = std::filesystem::path(system) / "cpu" / ("cpu" + std::to_string(cpu));
  return {.cpu = cpu, .core = core_of(folder, cpu), .numa_node = numa_node_of(folder)};
}

void check_named(const segment::ConfigBlock& config, const cpu_set_t& allowed) {
  for (std::uint32_t i = 0; i < config.reactors; ++i) {
    const std::uint32_t cpu = config.cpus[i];
    const std::string named = "cpus in [reactor] names processor " + std::to_string(cpu);
    if (cpu >= kMaxProcessors)
      throw SetupError(named + ", and DPDK takes processors up to " + std::to_string(kMaxProcessors - 1) +
                       ": name others, or leave cpus out.");
    if (!CPU_ISSET(cpu, &allowed))
      throw SetupError(named + ", and the data plane may run on " + to_text(allowed) +
                       " only: name some of these, leave cpus out, or give the data plane more processors "
                       "(CPUAffinity= or AllowedCPUs= of its unit, --cpuset-cpus of its container).");
  }
}

}  // namespace

std::vector<Processor> describe_processors(const cpu_set_t& allowed, const std::string& system) {
  std::vector<Processor> found;
  for (std::uint32_t cpu = 0; cpu < kMaxProcessors; ++cpu)
    if (CPU_ISSET(cpu, &allowed)) found.push_back(describe(cpu, system));
  return found;
}

std::vector<Processor> choose_processors(const std::vector<Processor>& available, std::size_t reactors) {
  std::vector<Processor> first_of_core;
  std::vector<Processor> siblings;
  std::set<std::uint32_t> seen;
  for (const Processor& processor : available)
    (seen.insert(processor.core).second ? first_of_core : siblings).push_back(processor);
  std::vector<Processor> order(first_of_core.begin() + (first_of_core.size() > reactors ? 1 : 0),
                               first_of_core.end());
  // If every core is needed, the first is given last: by default it serves most interrupts.
  if (first_of_core.size() <= reactors) std::reverse(order.begin(), order.end());
  order.insert(order.end(), siblings.begin(), siblings.end());
  if (order.size() < reactors)
    throw SetupError("The data plane may run on " + std::to_string(available.size()) +
                     " processor(s), and count in [reactor] is " + std::to_string(reactors) +
                     ": lower it, or give the data plane more processors.");
  order.resize(reactors);
  return order;
}

void place_reactors(segment::ConfigBlock& config, const cpu_set_t& allowed, const std::string& system) {
  if (config.choose_cpus != 0) {
    const auto chosen = choose_processors(describe_processors(allowed, system), config.reactors);
    for (std::size_t i = 0; i < chosen.size(); ++i) config.cpus[i] = chosen[i].cpu;
  }
  check_named(config, allowed);
  for (std::uint32_t i = 0; i < config.reactors; ++i)
    config.numa_nodes[i] = describe(config.cpus[i], system).numa_node;
}

}  // namespace sluice::process
