// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/device.h"

#include <rte_eal.h>
#include <rte_errno.h>
#include <sched.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/bench/clock.h"
#include "controlplane/cm/device_manager.h"
#include "controlplane/cm/rdma_cm_manager.h"
#include "dataplane/base/setup_error.h"
#include "pmd/loopback/loopback.h"
#include "pmd/softroce/softroce.h"
#include "pmd/verbs/verbs.h"

namespace sluice::bench {
namespace {

constexpr std::uint32_t kFrameBufferBytes = 8192;  // size that memif and af_packet need

int choose_cpu(int wanted) {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  sched_getaffinity(0, sizeof allowed, &allowed);
  if (wanted >= 0) {
    if (wanted < CPU_SETSIZE && CPU_ISSET(wanted, &allowed)) return wanted;
    throw SetupError("This process may not use processor " + std::to_string(wanted) +
                     ". Choose another --cpu.");
  }
  // Reactors are placed from the second processor on, so the first one is free for this process.
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &allowed)) return cpu;
  return 0;
}

void pin(int cpu) {
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(cpu, &one);
  sched_setaffinity(0, sizeof one, &one);
}

PeerAddress address_in(const std::string& text) {
  const std::optional<PeerAddress> address = parse_address(text);
  if (!address)
    throw SetupError(
        "'" + text +
        "' is not an IP address, or names an interface that does not exist. Use --address 192.0.2.2/24 and "
        "--server 192.0.2.1, or --server fe80::1%eth0 with verbs.");
  return *address;
}

/// Returns our own address of softroce, which has a prefix length.
rdma::softroce::InterfaceAddress own_address(const std::string& text) {
  const std::size_t slash = text.find('/');
  const PeerAddress address = address_in(text.substr(0, slash));
  constexpr unsigned kIpv4Offset = 96;
  const unsigned offset = is_mapped_ipv4(address) ? kIpv4Offset : 0;
  const unsigned bits =
      slash == std::string::npos ? 128 : static_cast<unsigned>(std::stoul(text.substr(slash + 1))) + offset;
  return {address, static_cast<std::uint8_t>(bits)};
}

/// Returns the address without a zone, because the device of softroce has one link.
PeerAddress on_device_link(PeerAddress address) {
  address.zone = 0;
  return address;
}

void start_dpdk(const DeviceOptions& options, int cpu) {
  std::vector<std::string> words{"sluice-bench",
                                 "--lcores",
                                 "0@" + std::to_string(cpu),
                                 "--no-huge",
                                 "-m",
                                 std::to_string(options.dpdk_memory_mib),
                                 "--no-telemetry",
                                 "--log-level",
                                 "error",
                                 "--file-prefix",
                                 "sluice-bench-" + std::to_string(::getpid())};
  if (options.ethdev.rfind("net_", 0) == 0)
    words.insert(words.end(), {"--no-pci", "--vdev", options.ethdev});
  else
    words.insert(words.end(), {"-a", options.ethdev});
  std::vector<char*> argv;
  argv.reserve(words.size());
  for (std::string& word : words) argv.push_back(word.data());
  if (rte_eal_init(static_cast<int>(argv.size()), argv.data()) < 0 || !rdma::softroce::first_ethdev())
    throw SetupError("DPDK does not start with --ethdev '" + options.ethdev + "' (" +
                     rte_strerror(rte_errno) + ").");
}

}  // namespace

ToolDevice open_device(const DeviceOptions& options) {
  const int cpu = choose_cpu(options.cpu);
  ToolDevice result;
  if (options.driver == "loopback") {
    pin(cpu);
    result.device =
        rdma::loopback::make_device(rdma::loopback::Fabric::attach(options.fabric), {.name = "bench"});
    return result;
  }
  if (options.driver == "verbs") {
    // The device is opened before this thread is pinned. Otherwise the device's set-up thread would inherit
    // the affinity and share the processor of the poll loop.
    result.device = rdma::verbs::open({.device = options.rdma_device,
                                       .max_queue_pairs = 64,
                                       .windows = !options.no_memory_windows,
                                       .call_regions = options.no_memory_windows});
    pin(cpu);
    result.own_manager = std::make_unique<cm::RdmaCmManager>(address_in(options.server));
    return result;
  }
  rdma::softroce::InterfaceAddress own = own_address(options.address);
  own.address = on_device_link(own.address);
  const PeerAddress server = on_device_link(address_in(options.server));
  start_dpdk(options, cpu);
  rdma::softroce::PortConfig config;
  config.name = "bench";
  config.ethdev = *rdma::softroce::first_ethdev();
  config.addresses = {own};
  config.link_mtu = options.mtu;
  config.frame_buffer_bytes = kFrameBufferBytes;
  config.max_queue_pairs = 64;
  result.port = rdma::softroce::Port::open(config);
  result.device = result.port->make_device(0);
  result.own_manager = std::make_unique<cm::DeviceManager>(*result.device, &now_ns, server);
  return result;
}

}  // namespace sluice::bench
