// SPDX-License-Identifier: Apache-2.0
#include "controlplane/admin/views/reactors.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>

#include "dataplane/segment/checked.h"

namespace sluice::admin {
namespace {

const char* to_string(segment::ReactorState state) {
  switch (state) {
    case segment::ReactorState::Unused:
      return "unused";
    case segment::ReactorState::Starting:
      return "starting";
    case segment::ReactorState::Running:
      return "running";
    case segment::ReactorState::Stopped:
      return "stopped";
  }
  return "?";
}

std::string text_of(const char* chars, std::size_t most) {
  return {chars, ::strnlen(chars, most)};
}

/// Returns the share of `part` in `whole`, in percent.
double percent(double part, double whole) {
  return whole > 0 ? 100 * part / whole : 0;
}

/// Returns how a reactor has spent its time since its start. The busy share leaves out control passes,
/// because they run at a fixed interval of iterations and thus more often under low load.
Json times_of(const Json& counters) {
  static constexpr const char* kBusy[] = {"device", "calls", "services", "upstreams"};
  const auto ns = [&](const std::string& stage) { return counters[stage + "_ns"].get<std::uint64_t>(); };
  std::uint64_t busy = 0;
  Json of;
  for (const char* stage : kBusy) busy += ns(stage);
  const std::uint64_t idle = ns("idle");
  const auto all = static_cast<double>(busy + idle + ns("control"));
  of["busy_ns"] = busy;
  of["idle_ns"] = idle;
  of["busy_percent"] = percent(static_cast<double>(busy), static_cast<double>(busy + idle));
  for (const char* stage : {"device", "calls", "services", "upstreams", "control", "idle"})
    of["stages_percent"][stage] = percent(static_cast<double>(ns(stage)), all);
  return of;
}

Json counters_of(const segment::Layout& layout, const segment::ReactorArea& area) {
  using segment::CounterFamily;
  Json result;
  for (std::size_t i = 0; i < segment::kTransportCounterCount; ++i) {
    std::uint64_t sum = 0;
    for (const auto& of_class : area.transport_counters)
      sum += layout.places.value(CounterFamily::Transport, i, of_class);
    result[std::string(segment::kTransportCounters[i].name)] = sum;
  }
  for (std::size_t i = 0; i < segment::kReactorCounterCount; ++i)
    result[std::string(segment::kReactorCounters[i].name)] =
        layout.places.value(CounterFamily::Reactor, i, area.counters);
  return result;
}

}  // namespace

Json reactors(const segment::Layout& layout, const segment::ConfigBlock& config) {
  Json list = Json::array();
  for (std::uint32_t number = 0; number < config.reactors; ++number) {
    const auto& area = layout.reactors[number];
    const auto info = area.info.read();
    if (!info) continue;
    const Json counters = counters_of(layout, area);
    list.push_back({{"reactor", number},
                    {"state", to_string(info->state)},
                    {"cpu", info->cpu},
                    {"numa_node", info->numa_node},
                    {"connections", info->connections},
                    {"calls", counters["calls_received"]},
                    {"bytes_in", counters["inline_bytes_received"].get<std::uint64_t>() +
                                     counters["rdma_read_bytes"].get<std::uint64_t>()},
                    {"bytes_out", counters["inline_bytes_sent"].get<std::uint64_t>() +
                                      counters["rdma_write_bytes"].get<std::uint64_t>()},
                    {"errors", counters["connection_errors"]},
                    {"uptime_s", seconds_since(info->started_ns)}});
    list.back().update(times_of(counters));
  }
  return list;
}

Json procedures(const segment::Layout& layout, const segment::ConfigBlock& config) {
  Json list = Json::array();
  const segment::CallTable& first = layout.reactors[0].calls;
  const std::uint32_t known =  // pairs with ServiceTable::describe(): `info`
      std::min(first.procedures.load(std::memory_order_acquire), segment::kMaxProcedures);
  const std::uint32_t classes = std::clamp<std::uint32_t>(config.class_count, 1, segment::kMaxClasses);
  const std::uint32_t reactors = std::min(config.reactors, segment::kMaxReactors);
  for (std::uint32_t number = 0; number < classes; ++number)
    for (std::uint32_t procedure = 0; procedure < known; ++procedure) {
      std::uint64_t calls = 0;
      std::uint64_t time_ns = 0;
      for (std::uint32_t reactor = 0; reactor < reactors; ++reactor) {
        const segment::ProcedureUse& use = layout.reactors[reactor].calls.use[number][procedure];
        for (const auto& count : use.calls) calls += count.load(std::memory_order_relaxed);
        time_ns += use.time_ns.load(std::memory_order_relaxed);
      }
      if (calls == 0 && time_ns == 0) continue;
      const segment::ProcedureInfo& info = first.info[procedure];
      const auto& name = config.class_names[number];
      list.push_back({{"class", text_of(name.data(), name.size())},
                      {"program", text_of(info.program_name, sizeof info.program_name)},
                      {"version", info.version},
                      {"procedure", text_of(info.procedure_name, sizeof info.procedure_name)},
                      {"calls", calls},
                      {"time_ns", time_ns},
                      {"us_per_call",
                       calls > 0 ? static_cast<double>(time_ns) / 1e3 / static_cast<double>(calls) : 0.0}});
    }
  return list;
}

Json counters(const segment::Layout& layout, const segment::ConfigBlock& config) {
  Json list = Json::array();
  for (std::uint32_t i = 0; i < config.reactors; ++i) list.push_back(counters_of(layout, layout.reactors[i]));
  return list;
}

std::vector<std::uint32_t> reactor_cpus(const segment::Layout& layout, std::uint32_t reactors) {
  std::vector<std::uint32_t> cpus;
  for (std::uint32_t i = 0; i < reactors; ++i)
    if (const auto info = layout.reactors[i].info.read();
        info && info->state != segment::ReactorState::Unused)
      cpus.push_back(info->cpu);
  return cpus;
}

Json topology(Json machine, const std::vector<std::uint32_t>& reactor_cpus) {
  machine["reactor_cpus"] = reactor_cpus;
  return machine;
}

namespace {

/// Returns a name such as "NFS.GETATTR", or numbers such as "100003.3.1" if the data plane has no name for
/// the procedure.
std::string procedure_name(const segment::CallTable& table, const segment::TraceRecord& record) {
  for (const segment::ProcedureInfo& shared : table.info) {
    const segment::ProcedureInfo info = segment::checked(shared);
    if (info.program != 0 && info.program == record.program && info.version == record.version &&
        info.procedure == record.procedure)
      return std::string(info.program_name) + '.' + info.procedure_name;
  }
  return std::to_string(record.program) + '.' + std::to_string(record.version) + '.' +
         std::to_string(record.procedure);
}

}  // namespace

Json describe_call(const segment::CallTable& table, const segment::TraceRecord& record) {
  Json states = Json::object();
  for (std::size_t i = 1; i < segment::kSlotStateCount; ++i)
    if (record.state_ns[i] > 0)
      states[segment::kSlotStates[i]] = static_cast<double>(record.state_ns[i]) * 1e-3;
  return {
      {"xid", record.xid},
      {"procedure", procedure_name(table, record)},
      {"status", segment::kCallStatuses[static_cast<std::size_t>(record.status) % segment::kCallStatusCount]},
      {"call_bytes", record.call_bytes},
      {"reply_bytes", record.reply_bytes},
      {"total_us", static_cast<double>(record.total_ns) * 1e-3},
      {"states_us", states}};
}

namespace {

constexpr std::uint32_t kNfsProgram = 100003;

Json hosts_of(const segment::ExportConfig& entry) {
  Json hosts = Json::array();
  for (std::uint32_t i = 0; i < std::min(entry.host_count, segment::kMaxExportHosts); ++i)
    hosts.push_back(entry.hosts[i].view());
  return hosts;
}

}  // namespace

Json exports(const segment::Layout& layout) {
  Json list = Json::array();
  const auto config = layout.config.read_copy();
  for (std::size_t i = 0; i < layout.exports.size(); ++i) {
    const auto info = segment::checked(layout.exports[i]);
    if (!info || info->in_use == 0) continue;
    list.push_back({{"path", info->path},
                    {"read_only", info->read_only != 0},
                    {"used_bytes", info->used_bytes},
                    {"quota_bytes", info->quota_bytes},
                    {"files", info->files},
                    {"calls", info->calls},
                    {"errors", info->errors},
                    {"read_bytes", info->read_bytes},
                    {"written_bytes", info->written_bytes},
                    {"hosts", config ? hosts_of(config->exports[i]) : Json::array()}});
  }
  return list;
}

Json export_statistics(const segment::Layout& layout, const std::string& path) {
  Json list = Json::array();
  for (const auto& entry : layout.exports) {
    const auto info = segment::checked(entry);
    if (!info || info->in_use == 0 || (!path.empty() && path != info->path)) continue;
    for (const segment::ProcedureInfo& shared : layout.reactors[0].calls.info) {
      const segment::ProcedureInfo procedure = segment::checked(shared);
      if (procedure.program != kNfsProgram || procedure.procedure >= segment::kMaxNfsProcedures ||
          info->procedure_calls[procedure.procedure] == 0)
        continue;
      list.push_back({{"path", info->path},
                      {"procedure", procedure.procedure_name},
                      {"calls", info->procedure_calls[procedure.procedure]},
                      {"errors", info->procedure_errors[procedure.procedure]}});
    }
  }
  return list;
}

}  // namespace sluice::admin
