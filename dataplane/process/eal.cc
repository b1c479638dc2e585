// SPDX-License-Identifier: Apache-2.0
#include "dataplane/process/eal.h"

#include <rte_eal.h>
#include <rte_errno.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <sstream>

#include "dataplane/base/setup_error.h"
#include "dataplane/process/devices.h"
#include "dataplane/process/dpdk_log.h"

namespace sluice::process {

unsigned main_cpu(const segment::ConfigBlock& config, const cpu_set_t& allowed, unsigned current) {
  const auto* const end = config.cpus.begin() + config.reactors;
  for (unsigned cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &allowed) && std::find(config.cpus.begin(), end, cpu) == end) return cpu;
  return current;
}

std::vector<std::string> eal_arguments(const segment::ConfigBlock& config, const std::string& segment_name,
                                       unsigned main_cpu) {
  std::string lcores = "0@" + std::to_string(main_cpu);
  for (std::uint32_t i = 0; i < config.reactors; ++i)
    lcores += "," + std::to_string(i + 1) + "@" + std::to_string(config.cpus[i]);
  std::string prefix = segment_name;
  std::replace(prefix.begin(), prefix.end(), '/', '-');
  std::vector<std::string> arguments = {
      "sluice-dataplane", "--lcores",      lcores, "-m",          std::to_string(config.dpdk_memory_mib),
      "--no-telemetry",   "--file-prefix", prefix, "--log-level", "error"};
  if (config.hugepages == 0) arguments.emplace_back("--no-huge");
  if (config.driver == segment::Driver::SoftRoce && !is_vdev(config)) {
    arguments.insert(arguments.end(), {"-a", config.ethdev});
  } else {
    arguments.emplace_back("--no-pci");
    if (config.driver == segment::Driver::SoftRoce)
      arguments.insert(arguments.end(), {"--vdev", config.ethdev});
  }
  return arguments;
}

std::string memif_listener(const std::string& ethdev) {
  std::istringstream words(ethdev);
  std::string word;
  std::getline(words, word, ',');
  if (!word.starts_with("net_memif")) return {};
  std::string role;
  std::string socket;
  bool abstract = true;
  while (std::getline(words, word, ',')) {
    if (word.starts_with("role=")) role = word.substr(5);
    if (word.starts_with("socket=")) socket = word.substr(7);
    if (word.starts_with("socket-abstract=")) abstract = word.substr(16) != "no";
  }
  return !abstract && (role == "server" || role == "master") ? socket : std::string();
}

void remove_stale_socket(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  struct stat status {};
  if (path.size() >= sizeof address.sun_path || ::lstat(path.c_str(), &status) != 0 ||
      !S_ISSOCK(status.st_mode))
    return;
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  const int probe = ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  const bool answered = ::connect(probe, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  const int error = answered ? 0 : errno;
  ::close(probe);
  if (error == ECONNREFUSED)
    ::unlink(path.c_str());
  else
    throw SetupError("Another process listens on the memif socket " + path +
                     ": stop it first, or set another socket in ethdev.");
}

std::string advice_on_eal(const segment::ConfigBlock& config) {
  std::string advice =
      "check cpus in [reactor] of the configuration against the processors there are, and ethdev in "
      "[device].";
  if (config.hugepages != 0)
    advice +=
        " With hugepages = true this user has to be able to write to /dev/hugepages, and as many have to be "
        "free as dpdk_memory_mib asks for (/proc/meminfo).";
  return advice;
}

void start_eal(const segment::ConfigBlock& config, const std::string& segment_name) {
  if (config.driver == segment::Driver::SoftRoce)
    if (const std::string socket = memif_listener(config.ethdev); !socket.empty())
      remove_stale_socket(socket);
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  sched_getaffinity(0, sizeof allowed, &allowed);
  std::vector<std::string> arguments =
      eal_arguments(config, segment_name, main_cpu(config, allowed, static_cast<unsigned>(sched_getcpu())));
  std::vector<char*> argv;
  argv.reserve(arguments.size());
  for (std::string& argument : arguments) argv.push_back(argument.data());
  take_dpdk_log();
  if (rte_eal_init(static_cast<int>(argv.size()), argv.data()) < 0)
    throw SetupError("DPDK's environment did not start (" + std::string(rte_strerror(rte_errno)) +
                     "): " + advice_on_eal(config));
}

}  // namespace sluice::process
