// SPDX-License-Identifier: Apache-2.0
#include "controlplane/config/machine.h"

#include <grp.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <pwd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "controlplane/config/addresses.h"
#include "dataplane/base/net_address.h"
#include "dataplane/base/processor_list.h"
#include "dataplane/base/small_algorithms.h"
#include "dataplane/base/virtual_ethdev.h"
#include "dataplane/ulb/nfs3.h"
#include "dataplane/ulb/nfs4.h"

namespace sluice::config {
namespace {

using sluice::to_text;
using Defects = std::string;

bool is_directory(const std::string& path) {
  struct stat found {};
  return ::stat(path.c_str(), &found) == 0 && S_ISDIR(found.st_mode);
}

/// Checks the path of a file that Sluice creates. `key` is its key, and its folder must exist.
void check_new_file(Defects& defects, const std::string& key, const std::string& path) {
  if (path.empty()) return;
  const std::size_t slash = path.rfind('/');
  const std::string folder = slash == 0 ? "/" : path.substr(0, slash);
  if (is_directory(path))
    defects += key + " is '" + path + "', which is a directory. Name a file in it.\n";
  else if (!is_directory(folder))
    defects += key + " is '" + path + "', and there is no directory '" + folder +
               "'. Create it, or name another file.\n";
}

void check_group(Defects& defects, const std::string& key, const std::string& name) {
  constexpr std::size_t kMaxEntryBytes = 1u << 20;
  std::vector<char> room(4096);
  group entry{};
  group* found = nullptr;
  int error = 0;
  while ((error = ::getgrnam_r(name.c_str(), &entry, room.data(), room.size(), &found)) == ERANGE &&
         room.size() < kMaxEntryBytes)
    room.resize(2 * room.size());
  if (!name.empty() && error == 0 && found == nullptr)
    defects += key + " is '" + name +
               "', and this machine has no such group. Create it with groupadd, or write \"\" for none.\n";
}

/// Returns how many processors of the affinity mask reactors can have.
std::uint32_t usable_processors(const cpu_set_t& mask) {
  std::uint32_t usable = 0;
  for (std::uint32_t cpu = 0; cpu < kMaxProcessors; ++cpu) usable += CPU_ISSET(cpu, &mask) ? 1u : 0u;
  return usable;
}

/// Reports processors that the machine lacks, or DPDK does not number, as defects. Processors outside of this
/// process's affinity mask are notes, because the data plane may have another mask.
void judge_processors(Findings& found, const segment::ConfigBlock& block, const Machine& machine) {
  const auto allowed = usable_processors(machine.allowed);
  const std::string count = "count in [reactor] is " + std::to_string(block.reactors);
  if (block.choose_cpus != 0 && block.reactors > machine.processors)
    found.defects +=
        count + ", and this machine has " + std::to_string(machine.processors) + " processor(s). Lower it.\n";
  else if (block.choose_cpus != 0 && block.reactors > allowed)
    found.notes += count + ", and this process may run on " + to_text(machine.allowed) +
                   " only. A data plane with no more processors refuses to start.\n";
  if (block.choose_cpus != 0) return;
  for (std::uint32_t i = 0; i < block.reactors; ++i) {
    const std::uint32_t cpu = block.cpus[i];
    const std::string named = "cpus in [reactor] names processor " + std::to_string(cpu);
    if (cpu >= machine.processors)
      found.defects += named + ", and the last one of this machine is " +
                       std::to_string(machine.processors - 1) + ". Name others, or remove cpus.\n";
    else if (cpu >= kMaxProcessors)
      found.defects += named + ", and DPDK takes processors up to " + std::to_string(kMaxProcessors - 1) +
                       ". Name others, or remove cpus.\n";
    else if (!CPU_ISSET(cpu, &machine.allowed))
      found.notes += named + ", and this process may run on " + to_text(machine.allowed) +
                     " only. A data plane with the same processors refuses to start.\n";
  }
}

/// Reports a lack of memory. The limit of this process's control group is a note, because the data plane may
/// run in another group.
void judge_memory(Findings& found, const segment::ConfigBlock& block, const Machine& machine) {
  const process::MemoryNeed need = process::memory_need(block);
  if (const std::string lack = process::lacks_of_machine(need, machine.memory); !lack.empty())
    found.defects += lack + '\n';
  else if (const std::string limit = process::lacks_of_group(need, machine.memory); !limit.empty())
    found.notes += limit + " A data plane in the same control group refuses to start.\n";
}

/// Compares the MTU with that of the interface. A difference is a note, because the port uses the smaller
/// value. A missing interface is a note too, because it may exist in the network namespace of the data plane
/// only.
void judge_interface(Findings& found, const segment::ConfigBlock& block, const Machine& machine) {
  if (block.driver != segment::Driver::SoftRoce) return;
  const auto [driver, arguments] = virtual_ethdev(block.ethdev);
  const std::string interface(kernel_interface(driver, arguments));
  if (interface.empty() || creates_interface(driver)) return;
  const std::optional<std::uint32_t> mtu = machine.mtu_of(interface);
  if (!mtu)
    found.notes += "ethdev in [device] names the interface '" + interface +
                   "', which does not exist. A data plane in the same network refuses to start.\n";
  else if (block.mtu > *mtu)
    found.notes += "mtu in [device] is " + std::to_string(block.mtu) + ", and the interface '" + interface +
                   "' takes packets of " + std::to_string(*mtu) +
                   " bytes, which the port uses instead. Run 'ip link set " + interface + " mtu " +
                   std::to_string(block.mtu) + "', or lower mtu.\n";
}

/// Returns true if an upstream over TCP serves NFS version 4, whose servers call clients back.
bool routes_nfs4(const segment::ConfigBlock& block) {
  const auto upstreams = std::span(block.upstreams).first(block.upstream_count);
  return has_match(upstreams, [](const segment::UpstreamConfig& upstream) {
    const auto routes = std::span(upstream.routes).first(upstream.route_count);
    return has_match(routes, [](const segment::RouteConfig& route) {
      return route.program == ulb::kNfsProgram && route.version == ulb::kNfs4Version;
    });
  });
}

/// Compares max_connections with callback_clients. An upstream revokes the delegations of a client that it
/// cannot call back.
void judge_callbacks(Findings& found, const segment::ConfigBlock& block) {
  if (block.callback_clients >= block.max_connections || !routes_nfs4(block)) return;
  found.notes +=
      "callback_clients in [forward] is " + std::to_string(block.callback_clients) +
      ", and max_connections is " + std::to_string(block.max_connections) +
      ". An upstream cannot call back more clients than that, and revokes the delegations of others. "
      "Raise callback_clients to max_connections.\n";
}

/// A port at which this gateway accepts calls.
struct OwnPort {
  const char* key;
  std::uint32_t port;
  PeerAddress address{};  ///< all zero for every address of the host
};

/// Reports a defect if `what`, at this address and port, is the gateway itself, because calls would loop
/// forever.
void judge_loop(Findings& found, const Machine& machine, const std::string& what, const PeerAddress& address,
                std::uint32_t port, const std::vector<OwnPort>& own) {
  for (const OwnPort& one : own) {
    const bool all_of_host =
        one.address == PeerAddress{} || (is_unspecified(one.address) && is_mapped_ipv4(address));
    const bool ours =
        all_of_host ? is_loopback(address) || machine.has_address(address) : one.address == address;
    if (one.port == port && ours)
      found.defects += what + " is at " + to_string(address) + " port " + std::to_string(port) +
                       ", where this gateway itself listens (" + one.key +
                       "). Calls would return to the gateway. Name the server's address, or change a port.\n";
  }
}

/// Reports servers that are this gateway itself. Host names are not resolved.
void judge_loops(Findings& found, const Config& config, const Machine& machine) {
  const segment::ConfigBlock& block = config.block;
  std::vector<OwnPort> tcp;
  std::vector<OwnPort> mount;
  if (block.reverse.in_use != 0)
    tcp.push_back({"reverse.listen_port", block.reverse.listen_port, block.reverse.listen_address});
  if (config.kerberos_enabled) tcp.push_back({"kerberos.port", config.kerberos_port});
  if (config.mount_enabled && config.mount_port != 0) mount.push_back({"mount.port", config.mount_port});
  std::vector<OwnPort> rdma;
  if (block.driver == segment::Driver::Verbs) rdma.push_back({"transport.port", block.port});
  for (std::uint32_t i = 0; block.driver == segment::Driver::SoftRoce && i < block.address_count; ++i)
    rdma.push_back({"transport.port", block.port, block.addresses[i].address});
  for (std::uint32_t i = 0; i < block.upstream_count; ++i) {
    const segment::UpstreamConfig& upstream = block.upstreams[i];
    const std::string name = std::string("upstream '") + upstream.name + '\'';
    for (std::uint32_t host = 0; host < upstream.host_count; ++host) {
      const std::optional<PeerAddress> literal = parse_address(upstream.hosts[host].data());
      if (!literal) continue;
      judge_loop(found, machine, name, *literal, upstream.port,
                 upstream.transport == segment::Transport::Tcp ? tcp : rdma);
      judge_loop(found, machine, "MOUNT of " + name, *literal, upstream.mount_port, mount);
    }
  }
  if (block.reverse.in_use == 0) return;
  judge_loop(found, machine, "server of [reverse]", block.reverse.server, block.reverse.server_port, rdma);
  judge_loop(found, machine, "MOUNT of the server of [reverse]", block.reverse.mount_address,
             block.reverse.mount_port, mount);
}

bool may(const User& user, const struct stat& file, mode_t of_others) {
  constexpr mode_t kGroup = 3;
  constexpr mode_t kOwner = 6;
  if (file.st_uid == user.id) return (file.st_mode & of_others << kOwner) != 0;
  const bool member = has_element(user.groups, file.st_gid);
  return (file.st_mode & (member ? of_others << kGroup : of_others)) != 0;
}

/// Returns the first component of the path that prevents the user from reading the file: a directory without
/// search permission, or the file itself. Returns an empty string if there is none. Access control lists are
/// not considered.
std::string hidden_from(const User& user, const std::string& path) {
  char* const resolved = ::realpath(path.c_str(), nullptr);
  if (resolved == nullptr) return {};
  const std::string real = resolved;
  std::free(resolved);
  for (std::size_t end = 1;; end = smaller_of(real.find('/', end + 1), real.size())) {
    std::string part = real.substr(0, end);
    struct stat found {};
    if (::stat(part.c_str(), &found) != 0) return {};
    if (!may(user, found, S_ISDIR(found.st_mode) ? S_IXOTH : S_IROTH)) return part;
    if (end == real.size()) return {};
  }
}

/// Reports a file that root can read and the service's user cannot. It is a note, because root may start the
/// control plane manually.
void judge_service_user(Findings& found, const User& user, const std::string& its, const std::string& file) {
  const std::string hidden = hidden_from(user, file);
  if (hidden.empty()) return;
  const bool folder = is_directory(hidden);
  found.notes += its + "the user '" + user.name + "' of the service cannot read, because it may not " +
                 (folder ? "search the directory '" + hidden + "'. Run chmod or chgrp for that directory.\n"
                         : "read the file. Run 'chown " + user.name + ' ' + hidden + "' and 'chmod 600 " +
                               hidden + "'.\n");
}

void judge_key_files(Findings& found, const Config& config, const Machine& machine) {
  for (const HostEntry& host : config.authentication_hosts)
    for (const std::string& file : host.key_files) {
      const std::string its = "key_files of host '" + host.name + "' has '" + file + "', which ";
      if (is_directory(file))
        found.defects += its + "is a directory. Name the file.\n";
      else if (config.authentication_method != "none" && ::access(file.c_str(), R_OK) != 0)
        found.defects +=
            its + "this user cannot read (" + std::strerror(errno) +
            "). Create it, owned by the user of the control plane and readable by that user only.\n";
      else if (config.authentication_method != "none" && machine.service_user)
        judge_service_user(found, *machine.service_user, its, file);
    }
}

std::optional<User> user_of_service() {
  constexpr int kMaxGroups = 256;
  if (::geteuid() != 0) return std::nullopt;
  const passwd* const known = ::getpwnam(kServiceUser);
  if (known == nullptr) return std::nullopt;
  User user{.name = kServiceUser, .id = known->pw_uid};
  int count = kMaxGroups;
  user.groups.resize(kMaxGroups);
  if (::getgrouplist(kServiceUser, known->pw_gid, user.groups.data(), &count) < 0) count = kMaxGroups;
  user.groups.resize(static_cast<std::size_t>(count));
  return user;
}

/// Returns nothing if this network namespace has no interface of that name.
std::optional<std::uint32_t> mtu_of_interface(const std::string& interface) {
  ifreq request{};
  if (interface.empty() || interface.size() >= sizeof request.ifr_name) return std::nullopt;
  std::memcpy(request.ifr_name, interface.c_str(), interface.size() + 1);
  const int socket = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  const bool found = socket >= 0 && ::ioctl(socket, SIOCGIFMTU, &request) == 0;
  if (socket >= 0) ::close(socket);
  return found ? std::optional<std::uint32_t>(static_cast<std::uint32_t>(request.ifr_mtu)) : std::nullopt;
}

/// Returns true if an interface of this network namespace has the address.
bool is_address_of_interface(const PeerAddress& address) {
  ifaddrs* all = nullptr;
  if (::getifaddrs(&all) != 0) return false;
  bool found = false;
  for (const ifaddrs* each = all; each != nullptr && !found; each = each->ifa_next) {
    const int family = each->ifa_addr != nullptr ? each->ifa_addr->sa_family : AF_UNSPEC;
    const auto* const its = reinterpret_cast<const std::byte*>(each->ifa_addr);
    PeerAddress known = PeerAddress::from_ipv4(0, 0, 0, 0);
    if (family == AF_INET)
      std::memcpy(&known.bytes[12], its + offsetof(sockaddr_in, sin_addr), sizeof(in_addr));
    else if (family == AF_INET6)
      std::memcpy(known.bytes.data(), its + offsetof(sockaddr_in6, sin6_addr), sizeof(in6_addr));
    else
      continue;
    if (family == AF_INET6)
      std::memcpy(&known.zone, its + offsetof(sockaddr_in6, sin6_scope_id), sizeof known.zone);
    found = known == address;
  }
  ::freeifaddrs(all);
  return found;
}

}  // namespace

Machine this_machine() {
  // The mask is cached, because the control plane later excludes the processors of reactors.
  static const cpu_set_t kMask = own_processors();
  Machine machine;
  const long processors = ::sysconf(_SC_NPROCESSORS_CONF);
  if (processors > 0) machine.processors = static_cast<std::uint32_t>(processors);
  machine.allowed = kMask;
  machine.memory = process::memory_room();
  machine.mtu_of = mtu_of_interface;
  machine.has_address = is_address_of_interface;
  machine.service_user = user_of_service();
  machine.former_changes = "/var/lib/sluice/saved.toml";
  return machine;
}

Findings judge(const Config& config, const Machine& machine) {
  Findings found;
  judge_processors(found, config.block, machine);
  judge_memory(found, config.block, machine);
  judge_interface(found, config.block, machine);
  judge_callbacks(found, config.block);
  judge_loops(found, config, machine);
  check_group(found.defects, "change_group in [admin]", config.admin_change_group);
  check_group(found.defects, "read_group in [admin]", config.admin_read_group);
  if (!machine.former_changes.empty() && ::access(machine.former_changes.c_str(), F_OK) == 0)
    found.defects += machine.former_changes + kFormerChanges + "the file.\n";
  check_new_file(found.defects, "file in [events]", config.events_file);
  if (config.locks_enabled) check_new_file(found.defects, "state in [locks]", config.locks_state);
  if (is_directory(config.admin_socket))
    found.defects +=
        "socket in [admin] is '" + config.admin_socket + "', which is a directory. Name a file in it.\n";
  judge_key_files(found, config, machine);
  return found;
}

void check_machine(Config& config, const Machine& machine) {
  Findings found = judge(config, machine);
  if (!found.defects.empty()) throw ConfigError(found.defects);
  config.notes = std::move(found.notes);
}

}  // namespace sluice::config
