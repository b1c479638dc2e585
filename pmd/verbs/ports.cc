// SPDX-License-Identifier: Apache-2.0
#include "pmd/verbs/ports.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <string_view>

#include "dataplane/base/invariant.h"
#include "dataplane/base/small_algorithms.h"
#include "pmd/verbs/port_list.h"
#include "pmd/verbs/probe.h"

namespace sluice::rdma::verbs {
namespace {

/// Upper bound on the GID table size that a device reports for one port.
constexpr int kMaxGidsOfPort = 65536;
/// Number of GIDs of a port, from the first, that a queue pair can have: ibv_global_route::sgid_index is an
/// octet.
constexpr std::uint32_t kUsableGidsOfPort = 256;

struct DeviceList {
  DeviceList() : devices(ibv_get_device_list(&count)) {}
  ~DeviceList() {
    if (devices != nullptr) ibv_free_device_list(devices);
  }
  DeviceList(const DeviceList&) = delete;
  DeviceList& operator=(const DeviceList&) = delete;
  int count = 0;
  ibv_device** devices;
};

constexpr std::string_view kSoftwareDriver = "software";
constexpr std::string_view kUnknownDriver = "unknown";

std::string target_of(const std::string& link) {
  char target[256];
  const ssize_t length = ::readlink(link.c_str(), target, sizeof target);
  return std::string(target, length > 0 ? static_cast<std::size_t>(length) : 0);
}

/// Returns the name of the kernel driver. A device without hardware has the name of its provider, or a folder
/// among the virtual devices of sysfs. It is not recognized by the absence of a driver, because a container
/// may hide sysfs.
std::string driver_of(const ibv_device& device) {
  const std::string_view name = device.name;
  if (name.starts_with("rxe") || name.starts_with("siw")) return std::string(kSoftwareDriver);
  const std::string folder = device.ibdev_path;
  if (const std::string driver = target_of(folder + "/device/driver"); !driver.empty())
    return driver.substr(driver.rfind('/') + 1);
  const bool is_virtual = target_of(folder).find("/virtual/") != std::string::npos;
  return std::string(is_virtual ? kSoftwareDriver : kUnknownDriver);
}

/// Returns the speed in Mbit/s, or zero if unknown.
std::uint32_t speed_of(const ibv_port_attr& port) noexcept {
  constexpr std::uint32_t kLaneMbps[] = {2500, 5000, 10000, 10000, 14000, 25000, 50000, 100000};
  const std::uint32_t lanes = port.active_width == 1   ? 1
                              : port.active_width == 2 ? 4
                              : port.active_width == 4 ? 8
                              : port.active_width == 8 ? 12
                                                       : 2;
  for (std::uint32_t bit = 0; bit < std::size(kLaneMbps); ++bit)
    if (port.active_speed == 1u << bit) return kLaneMbps[bit] * lanes;
  return 0;
}

PortInfo port_info(ibv_device& device, const ibv_device_attr& attributes, const ibv_port_attr& port,
                   std::uint8_t number, std::span<const ibv_gid_entry> gids) {
  PortInfo info{.device = ibv_get_device_name(&device),
                .provider = {},
                .firmware = attributes.fw_ver,
                .port = number,
                .active = port.state == IBV_PORT_ACTIVE,
                .ethernet = port.link_layer == IBV_LINK_LAYER_ETHERNET,
                .active_mtu = bytes_of(port.active_mtu),
                .speed_mbps = speed_of(port),
                .addresses = addresses_of(gids, number),
                .max_queue_pairs = static_cast<std::uint32_t>(attributes.max_qp),
                .max_work_requests = static_cast<std::uint32_t>(attributes.max_qp_wr),
                .max_sge = static_cast<std::uint32_t>(attributes.max_sge),
                .max_completions = static_cast<std::uint32_t>(attributes.max_cqe),
                .max_reads = static_cast<std::uint32_t>(attributes.max_qp_rd_atom),
                .max_region_bytes = attributes.max_mr_size,
                .max_windows = static_cast<std::uint32_t>(attributes.max_mw),
                .problem = {}};
  info.provider = driver_of(device);
  info.problem = problem_of(device, port, !info.addresses.empty());
  return info;
}

}  // namespace

std::uint16_t bytes_of(ibv_mtu mtu) noexcept {
  return static_cast<std::uint16_t>(128u << bounded<unsigned>(mtu, IBV_MTU_256, IBV_MTU_4096));
}

bool is_usable_gid(const ibv_gid_entry& entry, std::uint8_t port) noexcept {
  return entry.port_num == port && entry.gid_type == IBV_GID_TYPE_ROCE_V2 &&
         entry.gid_index < kUsableGidsOfPort;
}

/// Returns the buffer size for the query of the GID table, which fails rather than truncates if there are
/// more entries.
std::size_t gid_room_of(ibv_context* context) {
  ibv_device_attr device{};
  if (ibv_query_device(context, &device) != 0) return 0;
  std::size_t room = 0;
  for (std::uint8_t number = 1; number <= device.phys_port_cnt; ++number) {
    ibv_port_attr port{};
    if (ibv_query_port(context, number, &port) == 0)
      room += static_cast<std::size_t>(bounded(port.gid_tbl_len, 0, kMaxGidsOfPort));
  }
  return room;
}

std::vector<ibv_gid_entry> gids_of(ibv_context* context) {
  std::vector<ibv_gid_entry> entries(gid_room_of(context));
  const ssize_t count = ibv_query_gid_table(context, entries.data(), entries.size(), 0);
  entries.resize(count > 0 ? static_cast<std::size_t>(count) : 0);
  return entries;
}

PeerAddress address_of(const ibv_gid_entry& entry) noexcept {
  PeerAddress address;
  std::memcpy(address.bytes.data(), entry.gid.raw, address.bytes.size());
  return address;
}

std::vector<PeerAddress> addresses_of(std::span<const ibv_gid_entry> gids, std::uint8_t port) {
  std::vector<PeerAddress> addresses;
  std::vector<PeerAddress> link_local;
  for (const ibv_gid_entry& entry : gids) {
    if (!is_usable_gid(entry, port)) continue;
    const PeerAddress address = address_of(entry);
    (is_link_local(address) ? link_local : addresses).push_back(address);
  }
  addresses.insert(addresses.end(), link_local.begin(), link_local.end());
  return addresses;
}

namespace {

struct Findings {
  Finding windows = Finding::Unknown;
  Finding remote_invalidation = Finding::Unknown;
};

/// Probes both features. Without windows only the acceptance of a Send with Invalidate is probed, because
/// nothing can be invalidated. The second window has its own queue pair, because a refused RDMA Read ends the
/// first queue pair.
Findings probe(ibv_context* context, std::uint8_t number, const ibv_port_attr& port,
               const ibv_gid_entry& gid) {
  const std::uint64_t deadline_ns = probe_deadline_ns();
  Findings found;
  SelfConnected first(context, number, gid, port.active_mtu, true, deadline_ns);
  if (first.connected()) found.windows = first.probe(IBV_WR_LOCAL_INV);
  if (found.windows == Finding::Works) {
    SelfConnected second(context, number, gid, port.active_mtu, true, deadline_ns);
    if (second.connected()) found.remote_invalidation = second.probe(IBV_WR_SEND_WITH_INV);
    return found;
  }
  SelfConnected plain(context, number, gid, port.active_mtu, false, deadline_ns);
  if (!plain.connected()) return found;
  if (!first.connected()) found.windows = Finding::Missing;  // memory for windows cannot be registered
  if (!plain.accepts_invalidation()) found.remote_invalidation = Finding::Missing;
  return found;
}

bool decide(Finding found, bool flag) noexcept {
  return found == Finding::Works || (found == Finding::Unknown && flag);
}

std::string described(bool has, Finding found) {
  return std::string(has ? "yes" : "no") + (found == Finding::Unknown ? " (by its flags)" : " (probed)");
}

bool has_windows(const ibv_device_attr& attributes) noexcept {
  constexpr unsigned kType2 = IBV_DEVICE_MEM_WINDOW_TYPE_2A | IBV_DEVICE_MEM_WINDOW_TYPE_2B;
  return (attributes.device_cap_flags & kType2) != 0 && attributes.max_mw > 0;
}
bool has_remote_invalidation(const ibv_device_attr& attributes, const Provider& provider) noexcept {
  return provider.sends_rkey && (attributes.device_cap_flags & IBV_DEVICE_MEM_MGT_EXTENSIONS) != 0;
}

}  // namespace

Capabilities capabilities_of(ibv_context* context, const ibv_device_attr& attributes, std::uint8_t number,
                             const ibv_port_attr& port, std::span<const ibv_gid_entry> gids) {
  static_cast<void>(SLUICE_INVARIANT(context != nullptr && number > 0, table_index));
  Findings found;
  for (const ibv_gid_entry& gid : gids)
    if (is_usable_gid(gid, number)) {
      found = probe(context, number, port, gid);
      break;
    }
  Capabilities has{
      .windows = decide(found.windows, has_windows(attributes)),
      .remote_invalidation = decide(found.remote_invalidation,
                                    has_remote_invalidation(attributes, provider_of(*context->device))),
      .summary = {}};
  has.summary = "memory windows: " + described(has.windows, found.windows) +
                ", Send with Invalidate: " + described(has.remote_invalidation, found.remote_invalidation);
  return has;
}

std::string problem_of(const ibv_device& device, const ibv_port_attr& port, bool has_address) {
  if (device.transport_type == IBV_TRANSPORT_IWARP)
    return "its mode is iWARP: Sluice supports RoCEv2 only. A NIC with both modes is changed by `devlink dev "
           "param set pci/ADDRESS name enable_roce value true cmode runtime`";
  if (port.link_layer != IBV_LINK_LAYER_ETHERNET) return "not Ethernet: Sluice supports RoCEv2 only";
  if (port.state != IBV_PORT_ACTIVE) return "the port is down; check cable, switch and `ip link`";
  if (!has_address)
    return "no RoCEv2 address in the first " + std::to_string(kUsableGidsOfPort) +
           " entries of its GID table; assign an IP address to its network interface, and check its RoCE "
           "mode (devlink parameter enable_roce)";
  return {};
}

bool usable(ibv_context* context, std::uint8_t port) {
  ibv_port_attr attributes{};
  if (ibv_query_port(context, port, &attributes) != 0) return false;
  return problem_of(*context->device, attributes, !addresses_of(gids_of(context), port).empty()).empty();
}

ibv_context* open_by_name(const std::string& wanted, std::uint8_t port) {
  const DeviceList list;
  for (int i = 0; i < list.count; ++i) {
    if (!wanted.empty() && wanted != ibv_get_device_name(list.devices[i])) continue;
    ibv_context* context = ibv_open_device(list.devices[i]);
    if (context == nullptr) continue;
    if (!wanted.empty() || usable(context, port)) return context;
    ibv_close_device(context);
  }
  return nullptr;
}

std::string no_such_device(const std::string& wanted) {
  const std::vector<PortInfo> ports = list_ports();
  if (ports.empty()) return no_devices_hint();
  std::string there;
  for (const PortInfo& port : ports)
    there += (there.empty() ? "" : ", ") + port.device + " port " + std::to_string(port.port) +
             (port.problem.empty() ? "" : " (" + port.problem + ")");
  return (wanted.empty() ? std::string("No RDMA device has a port that Sluice can use")
                         : "There is no RDMA device '" + wanted + "' that can be opened") +
         ". Devices found: " + there + ". Set devices in [device] of the configuration.";
}

const Provider& provider_of(const ibv_device& device) {
  return provider_of_driver(driver_of(device));
}

int numa_node_of(const ibv_device& device) {
  std::FILE* const file = std::fopen((std::string(device.ibdev_path) + "/device/numa_node").c_str(), "re");
  if (file == nullptr) return -1;
  int node = -1;
  if (std::fscanf(file, "%d", &node) != 1) node = -1;
  std::fclose(file);
  return node;
}

std::string no_devices_hint() {
  return "This machine has no RDMA device that programs can use. With an RDMA NIC, load its "
         "driver and ib_uverbs (check `rdma link` and /dev/infiniband); without one, set driver = "
         "\"softroce\" in [device], which runs RoCEv2 over any network card.";
}

std::vector<PortInfo> list_ports() {
  std::vector<PortInfo> ports;
  const DeviceList list;
  for (int i = 0; i < list.count; ++i) {
    ibv_context* context = ibv_open_device(list.devices[i]);
    if (context == nullptr) {
      ports.push_back({.device = ibv_get_device_name(list.devices[i]),
                       .provider = {},
                       .firmware = {},
                       .addresses = {},
                       .problem = std::string("cannot be opened (") + std::strerror(errno) +
                                  "). Check the permissions of /dev/infiniband"});
      continue;
    }
    ibv_device_attr device{};
    ibv_query_device(context, &device);
    const std::vector<ibv_gid_entry> gids = gids_of(context);
    for (std::uint8_t number = 1; number <= device.phys_port_cnt; ++number) {
      ibv_port_attr port{};
      if (ibv_query_port(context, number, &port) != 0) continue;
      PortInfo& info = ports.emplace_back(port_info(*list.devices[i], device, port, number, gids));
      if (!info.problem.empty()) continue;
      const Capabilities has = capabilities_of(context, device, number, port, gids);
      info.windows = has.windows;
      info.remote_invalidation = has.remote_invalidation;
    }
    ibv_close_device(context);
  }
  return ports;
}

}  // namespace sluice::rdma::verbs
