// SPDX-License-Identifier: Apache-2.0
#include "dataplane/process/memory_table.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <optional>
#include <string_view>
#include <utility>

#include "dataplane/base/cache_line.h"
#include "dataplane/base/setup_error.h"
#include "dataplane/base/small_algorithms.h"
#include "dataplane/gateway/tcp_clients/tcp_client.h"
#include "dataplane/gateway/tcp_upstream/upstreams.h"
#include "dataplane/process/settings.h"
#include "dataplane/segment/segment.h"
#include "dataplane/service/cross_reactor_call.h"
#include "dataplane/service/memory/filesystem.h"
#include "dataplane/ulb/nfs3.h"
#include "pmd/loopback/fabric.h"

namespace sluice::process {
namespace {

/// Size of a small buffer. Most long calls and replies are shorter, such as a 4 KiB WRITE in one piece.
constexpr std::uint32_t kSmallBufferBytes = 16u << 10;

bool is_rdma(const segment::UpstreamConfig& upstream) {
  return upstream.transport == segment::Transport::Rdma;
}

}  // namespace

rpcrdma::Version2Config version_2_config(const segment::ConfigBlock& config) {
  rpcrdma::Version2Config version2;
  version2.parameters.max_segments = config.max_segments;
  version2.keep_alive_ns = std::uint64_t{config.keep_alive_s} * 1'000'000'000;
  version2.version_1_memory_ns = std::uint64_t{config.version_1_memory_s} * 1'000'000'000;
  version2.hold_calls = config.hold_calls != 0;
  return version2;
}

rpcrdma::EngineConfig engine_config(const segment::ConfigBlock& config) {
  rpcrdma::EngineConfig engine;
  engine.max_connections = config.all_connections();
  engine.capacity.call_slots = config.credits;
  engine.capacity.receive_bytes = config.inline_bytes;
  engine.capacity.reply_buffer_bytes = config.reply_buffer_bytes;
  engine.small_buffer_bytes = kSmallBufferBytes;
  engine.call_buffers = config.call_buffers;
  engine.call_buffer_bytes = tcp::record_bytes(config.max_io_bytes());
  engine.reply_buffers = config.large_reply_buffers;
  if (config.upstream_count > 0) {
    engine.reply_buffer_bytes = tcp::record_bytes(config.max_io_bytes());
    // Calls keep their buffers while the upstream processes them, and each also needs one of `item_buffers`
    // for that time.
    engine.lent_call_buffers = std::max(engine.lent_call_buffers, config.item_buffers);
    engine.callers = std::min(config.callback_clients, config.max_connections);
    engine.capacity.requests = rpcrdma::kCallBacksAtOnce;
  }
  if (config.reverse.in_use != 0)
    engine.capacity.requests = std::max(engine.capacity.requests, config.reverse.calls);
  if (std::any_of(config.upstreams.begin(), config.upstreams.begin() + config.upstream_count, is_rdma))
    engine.capacity.requests = std::max(engine.capacity.requests, config.calls_to_upstream());
  return engine;
}

bool serves_memory(const segment::ConfigBlock& config) {
  return config.slots().memory_exports != 0;
}

std::uint64_t export_bytes(const segment::ConfigBlock& config) {
  constexpr std::uint64_t kMinBytes = 16u << 20;
  return serves_memory(config) ? config.memory_bytes : kMinBytes;
}

namespace {

using Line = std::pair<const char*, std::uint64_t>;

std::uint32_t tcp_upstreams(const segment::ConfigBlock& config) {
  return config.slots().over_tcp != 0 ? config.slots().count : 0;
}

std::uint64_t upstream_bytes(const segment::ConfigBlock& config) {
  const std::uint32_t over_tcp = tcp_upstreams(config);
  if (over_tcp == 0) return 0;
  const tcp_upstream::ReplyBuffers replies{
      .records = config.record_buffers, .items = config.item_buffers, .max_io_bytes = config.max_io_bytes()};
  const std::uint64_t each =
      replies.records * std::uint64_t{replies.record_bytes()} +
      replies.items_for(config.all_connections()) * std::uint64_t{tcp_upstream::kItemBytes};
  return std::uint64_t{config.reactors} * over_tcp * each;
}

std::uint64_t relay_bytes(const segment::ConfigBlock& config) {
  const std::uint32_t reversed = config.reverse.in_use != 0 ? config.reverse.connections : 0;
  const std::uint32_t record_bytes = tcp::record_bytes(config.max_io_bytes());
  const std::uint64_t each = config.record_buffers * std::uint64_t{record_bytes} +
                             config.item_buffers * std::uint64_t{tcp::kStreamBytes};
  return config.reactors * (config.slots().over_rdma * each +
                            (config.connections_to_servers() - reversed) *
                                rdma_server::server_connection_bytes(config.calls_to_upstream(), record_bytes,
                                                                     config.copied_segment_bytes()));
}

std::uint64_t cache_bytes(const segment::ConfigBlock& config) {
  return std::uint64_t{tcp_upstreams(config)} * config.request_cache * tcp_upstream::kKeptBytes;
}

std::uint64_t reverse_bytes(const segment::ConfigBlock& config) {
  const segment::ReverseConfig& reverse = config.reverse;
  if (reverse.in_use == 0) return 0;
  const std::uint32_t record_bytes = tcp::record_bytes(config.max_io_bytes());
  return config.reactors *
         (reverse.record_buffers * std::uint64_t{record_bytes} +
          reverse.item_buffers * std::uint64_t{tcp::kStreamBytes} +
          reverse.clients * tcp_clients::client_bytes() +
          reverse.connections * rdma_server::server_connection_bytes(reverse.calls, record_bytes,
                                                                     config.copied_segment_bytes()));
}

/// Returns the memory with which the reactors that do not own the files of the memory exports serve them.
std::uint64_t cross_reactor_bytes(const segment::ConfigBlock& config) {
  if (config.reactors < 2 || !serves_memory(config)) return 0;
  const std::uint64_t blocks = export_bytes(config) / service::memory::kSmallBytes;
  const std::uint64_t of_each = service::kMaxRemoteCalls * sizeof(service::RemoteCall) +
                                blocks * service::memory::ReaderPins::kBytesPerBlock;
  return config.max_files * service::memory::Publication::kBytesPerInode + (config.reactors - 1) * of_each;
}

Line driver_line(const segment::ConfigBlock& config) {
  if (config.driver == segment::Driver::Loopback)
    return {"loopback wires (resident as connections are made)",
            std::uint64_t{config.loopback_links} * sizeof(rdma::loopback::Link)};
  return {config.driver == segment::Driver::SoftRoce ? "packet buffers (DPDK)" : "DPDK's own",
          std::uint64_t{config.dpdk_memory_mib} << 20};
}

/// Returns the memory of small buffers for assembled calls, replies and continued messages.
std::uint64_t small_buffer_bytes(const rpcrdma::EngineConfig& engine) {
  rpcrdma::SharedMemoryConfig each{.accounts = engine.max_connections,
                                   .small_bytes = engine.small_buffer_bytes};
  const std::uint32_t replies = each.small_buffers();
  const std::uint32_t calls = replies - each.lent_small + engine.lent_call_buffers;
  each.guaranteed_small = rpcrdma::kGuaranteedAssembly;
  return std::uint64_t{calls + replies + each.small_buffers()} * each.small_bytes;
}

}  // namespace

segment::MemoryTable memory_table(const segment::ConfigBlock& config) {
  const std::uint64_t reactors = config.reactors;
  const rpcrdma::EngineConfig engine = engine_config(config);
  const std::uint64_t connections = reactors * engine.max_connections;
  const std::uint64_t slots = connections * engine.capacity.slots();
  const Line lines[] = {
      {"file data (resident as files grow)", export_bytes(config)},
      {"Receive buffers", connections * engine.capacity.receives() * buffer_stride(config.inline_bytes)},
      {"Receives that connections share", reactors * config.shared_receives * config.inline_bytes},
      {"reply buffers of call slots", slots * buffer_stride(config.reply_buffer_bytes)},
      {"long-call buffers",
       reactors * (engine.call_buffers + engine.assembly_buffers) * engine.call_buffer_bytes},
      {"buffers for short ones of both", reactors * small_buffer_bytes(engine)},
      {"large reply buffers", reactors * config.large_reply_buffers * engine.reply_buffer_bytes},
      {"replies of upstreams", upstream_bytes(config)},
      {"calls and replies of RDMA upstreams", relay_bytes(config)},
      {"calls kept in case they come again", cache_bytes(config)},
      {"calls and replies of the reverse gateway", reverse_bytes(config)},
      {"call slots", slots * (sizeof(rpcrdma::CallSlot) + sizeof(service::CallStorage))},
      {"inodes and directory entries (resident as files are made)",
       config.max_files * (sizeof(service::memory::Inode) + 2 * sizeof(service::memory::Entry))},
      {"what reactors read of the files of another, and its calls", cross_reactor_bytes(config)},
      driver_line(config),
      {"shared segment", sizeof(segment::ControlPart) + sizeof(segment::DataPart)},
  };
  segment::MemoryTable table{};
  static_assert(std::size(lines) <= segment::kMaxMemoryEntries);
  std::size_t i = 0;
  for (const auto& [what, bytes] : lines) {
    std::strncpy(table[i].what, what, sizeof table[i].what - 1);
    table[i++].reserved_bytes = bytes;
  }
  return table;
}

// --- Comparison with the machine and its control groups
namespace {

constexpr std::uint64_t kMiB = 1u << 20;
constexpr std::uint64_t kKiB = 1u << 10;

/// Removes the first line from `text` and returns it without its end.
std::string_view take_line(std::string_view& text) {
  const std::string_view line = text.substr(0, text.find('\n'));
  text.remove_prefix(smaller_of(line.size() + 1, text.size()));
  return line;
}

/// Returns the value of a line such as "MemTotal:   24000 kB" of meminfo, in bytes; zero if there is none.
std::uint64_t value_of(std::string_view meminfo, std::string_view name) {
  while (!meminfo.empty()) {
    std::string_view line = take_line(meminfo);
    if (!line.starts_with(name) || line.size() <= name.size() || line[name.size()] != ':') continue;
    line.remove_prefix(smaller_of(line.find_first_not_of(' ', name.size() + 1), line.size()));
    std::uint64_t kib = 0;
    std::from_chars(line.data(), line.data() + line.size(), kib);
    return kib * kKiB;
  }
  return 0;
}

/// Returns the content of a file of the kernel; empty if it cannot be read.
std::string text_of(const std::string& path) {
  std::string text;
  std::FILE* const file = std::fopen(path.c_str(), "re");
  if (file == nullptr) return text;
  char part[4096];
  for (std::size_t bytes; (bytes = std::fread(part, 1, sizeof part, file)) > 0;) text.append(part, bytes);
  std::fclose(file);
  return text;
}

/// Returns the number in the file; nullopt if there is no file, or no limit in it ("max").
std::optional<std::uint64_t> limit_in(const std::string& path) {
  const std::string text = text_of(path);
  std::uint64_t bytes = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), bytes);
  if (error != std::errc{} || end == text.data()) return std::nullopt;
  return bytes;
}

struct GroupOfProcess {
  std::string folder;  ///< folder of the hierarchy that limits memory
  std::string file;    ///< file that contains the limit
  std::string path;    ///< path in the hierarchy: "/system.slice/x.service"
};

/// Returns the memory control group of a process. Version 1 has the controller's name in its line, version 2
/// has "0::PATH".
GroupOfProcess group_of(std::string_view cgroup, const std::string& folder) {
  GroupOfProcess group{.folder = folder, .file = "memory.max", .path = "/"};
  while (!cgroup.empty()) {
    const std::string line(take_line(cgroup));
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

/// Returns the limits of the group and of its ancestors. A container sees its own group as the root.
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
  need.in_huge_pages = config.driver == segment::Driver::Verbs ||
                       (config.driver == segment::Driver::SoftRoce && config.payload_in_place != 0);
  if (config.hugepages == 0 || config.driver == segment::Driver::Loopback) return need;
  need.huge_pages_bytes = config.dpdk_memory_mib * kMiB;
  need.pages_bytes -= need.huge_pages_bytes;
  return need;
}

std::string lacks_of_machine(const MemoryNeed& need, const MemoryRoom& room) {
  if (room.pages_bytes == 0) return {};
  if (need.huge_pages_bytes > room.huge_pages_bytes)
    return "dpdk_memory_mib in [device] is " + mib(need.huge_pages_bytes) +
           " of huge pages, and this machine has " + mib(room.huge_pages_bytes) +
           " of them. Reserve more (vm.nr_hugepages), or lower dpdk_memory_mib.";
  const std::uint64_t huge = need.in_huge_pages ? room.huge_pages_bytes - need.huge_pages_bytes : 0;
  if (need.pages_bytes <= room.pages_bytes + huge) return {};
  return needed(need) + ", and this machine has " + mib(room.pages_bytes + huge) +
         (room.huge_pages_bytes > huge ? " beside its huge pages" : "") +
         ". Lower size_mib, or the sizes that 'sluicectl memory' shows as large.";
}

std::string lacks_of_group(const MemoryNeed& need, const MemoryRoom& room) {
  const auto least =
      std::min_element(room.limits.begin(), room.limits.end(),
                       [](const auto& one, const auto& other) { return one.bytes < other.bytes; });
  if (least == room.limits.end() || need.pages_bytes <= least->bytes) return {};
  return needed(need) + ", and its control group may use " + mib(least->bytes) + " (" + least->file +
         "). Lower size_mib, or raise the limit (MemoryMax= of the unit, --memory of the container).";
}

std::string lacks_at_present(const MemoryNeed& need, const MemoryRoom& room) {
  if (room.available_bytes == 0 || need.pages_bytes <= room.available_bytes) return {};
  return needed(need) + ", and " + mib(room.available_bytes) +
         " are currently unused. When clients fill the exports, the kernel may end other processes.";
}

std::string require_memory(const segment::ConfigBlock& config, const KernelFolders& folders) {
  const MemoryNeed need = memory_need(config);
  const MemoryRoom room = memory_room(folders);
  for (const std::string& lack : {lacks_of_machine(need, room), lacks_of_group(need, room)})
    if (!lack.empty()) throw SetupError(lack);
  return lacks_at_present(need, room);
}

}  // namespace sluice::process
