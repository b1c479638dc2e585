// SPDX-License-Identifier: Apache-2.0
#include "telemetry/exporter.h"

#include <dirent.h>
#include <prometheus/collectable.h>
#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "dataplane/base/invariant.h"
#include "dataplane/base/setup_error.h"
#include "dataplane/segment/checked.h"
#include "dataplane/segment/heartbeat.h"
#include "dataplane/segment/version.h"
#include "pmd/softroce/statistics.h"
#include "pmd/verbs/statistics.h"
#include "telemetry/health.h"
#include "telemetry/rdma_counters.h"
#include "telemetry/schema.h"

namespace sluice::telemetry {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;

/// Number of histogram sub-buckets that form one bucket of a metric, which gives two buckets per power of
/// two, from 256 ns to 17 s.
constexpr std::uint32_t kBucketsJoined = segment::Histogram::kSubBuckets / 2;
constexpr std::uint64_t kFirstBoundNs = 256;
constexpr std::uint64_t kLastBoundNs = std::uint64_t{1} << 34;

/// Metric families, indexed by their names in the schema.
class Families {
 public:
  Families() {
    static constexpr MetricType kTypes[] = {MetricType::Counter, MetricType::Gauge, MetricType::Histogram};
    for (const MetricInfo& info : schema()) {
      by_name_[info.name] = families_.size();
      families_.push_back({info.name, info.help, kTypes[static_cast<std::size_t>(info.type)], {}});
      labels_.push_back(&info.labels);
    }
  }

  void add(const std::string& name, double value, const std::vector<std::string>& labels) {
    ClientMetric& metric = place(name, labels);
    (families_[by_name_.at(name)].type == MetricType::Counter ? metric.counter.value : metric.gauge.value) =
        value;
  }
  ClientMetric& place(const std::string& name, const std::vector<std::string>& labels) {
    const std::size_t at = by_name_.at(name);
    assert(labels.size() == labels_[at]->size());
    ClientMetric metric;
    for (std::size_t i = 0; i < labels.size(); ++i) metric.label.push_back({(*labels_[at])[i], labels[i]});
    families_[at].metric.push_back(std::move(metric));
    return families_[at].metric.back();
  }

  std::vector<MetricFamily> take() {
    std::erase_if(families_, [](const MetricFamily& family) { return family.metric.empty(); });
    return std::move(families_);
  }

 private:
  std::vector<MetricFamily> families_;
  std::vector<const std::vector<std::string>*> labels_;
  std::map<std::string, std::size_t> by_name_;
};

template <typename T>
double value_of(const std::atomic<T>& word) {
  return static_cast<double>(word.load(std::memory_order_relaxed));
}

void fill(ClientMetric& metric, const segment::Histogram& histogram) {
  std::uint64_t seen = 0;
  for (std::uint32_t bucket = 0; bucket < segment::Histogram::kBuckets; ++bucket) {
    seen += histogram.in_bucket(bucket);
    const std::uint64_t bound = segment::Histogram::upper_bound(bucket);
    if ((bucket + 1) % kBucketsJoined != 0 || bound + 1 < kFirstBoundNs || bound >= kLastBoundNs) continue;
    metric.histogram.bucket.push_back({seen, static_cast<double>(bound) * 1e-9});
  }
  metric.histogram.bucket.push_back({seen, std::numeric_limits<double>::infinity()});
  metric.histogram.sample_count = seen;
  metric.histogram.sample_sum = static_cast<double>(histogram.sum()) * 1e-9;
}

class SegmentCollector final : public prometheus::Collectable {
 public:
  SegmentCollector(const segment::Layout& layout, const PendingKeys& pending, std::string rdma_devices)
      : layout_(layout), pending_(pending), rdma_devices_(std::move(rdma_devices)) {}

  std::vector<MetricFamily> Collect() const override {
    Families families;
    const auto config = layout_.config.read_copy();
    if (!config) return {};
    return collect(families, *config);
  }

 private:
  using Config = segment::ConfigBlock;
  using Area = segment::ReactorArea;
  using CounterFamily = segment::CounterFamily;

  std::vector<MetricFamily> collect(Families& families, const Config& config) const {
    add_planes(families, config);
    for (std::uint32_t number = 0; number < config.reactors; ++number)
      add_reactor(families, config, layout_.reactors[number], std::to_string(number));
    if (config.driver == segment::Driver::Verbs) add_rdma_ports(families, config);
    add_calls(families, config);
    add_upstreams(families, config);
    add_reverse_gateway(families, config);
    add_exports(families);
    add_clients(families);
    add_control(families);
    return families.take();
  }

  template <typename Counters>
  double counter(CounterFamily family, std::size_t own, const Counters& counters) const {
    return static_cast<double>(layout_.places.value(family, own, counters));
  }
  static std::uint32_t classes(const Config& config) {
    return std::clamp<std::uint32_t>(config.class_count, 1, segment::kMaxClasses);
  }
  static std::string class_name(const Config& config, std::uint32_t number) {
    const auto& name = config.class_names[number];
    return {name.data(), ::strnlen(name.data(), name.size())};
  }

  void add_planes(Families& families, const Config& config) const {
    const std::uint64_t now = segment::monotonic_ns();
    families.add("sluice_build_info", 1, {kVersion});
    const std::pair<const char*, const segment::Heartbeat*> planes[] = {{"control", &layout_.control_plane},
                                                                        {"data", &layout_.data_plane}};
    for (const auto& [plane, heartbeat] : planes) {
      families.add("sluice_plane_up", segment::alive(*heartbeat, now), {plane});
      // Pairs with start_heartbeat(): the first beat and the start time.
      if (heartbeat->pid.load(std::memory_order_acquire) == 0) continue;
      families.add("sluice_heartbeat_age_seconds",
                   static_cast<double>(segment::heartbeat_age_ns(*heartbeat, now)) * 1e-9, {plane});
      families.add("sluice_plane_start_time_seconds", value_of(heartbeat->started_ns) * 1e-9, {plane});
    }
    segment::ProcessUse own{};
    segment::measure_process(own);
    add_process(families, "control", own);
    if (segment::alive(layout_.data_plane, now)) {
      add_process(families, "data", layout_.process);
      families.add("sluice_data_plane_log_lines_lost_total", value_of(layout_.process.log_lines_lost), {});
    }
    for (std::size_t i = 0; i < kInvariantCount; ++i)
      families.add("sluice_invariant_failures_total", static_cast<double>(invariant_failures_of_process(i)),
                   {"control", std::string(kInvariants[i].name)});
    families.add("sluice_draining", value_of(layout_.draining), {});
    families.add("sluice_config_generation", static_cast<double>(config.generation), {"control"});
    families.add("sluice_config_generation", value_of(layout_.generation_applied), {"data"});
    families.add("sluice_config_pending_keys", value_of(pending_.control), {"control"});
    families.add("sluice_config_pending_keys", value_of(pending_.both), {"both"});
    if (const auto memory = segment::checked(layout_.memory))
      for (const segment::MemoryInfo& part : *memory)
        if (part.reserved_bytes > 0)
          families.add("sluice_memory_reserved_bytes", static_cast<double>(part.reserved_bytes), {part.what});
  }

  /// Adds the process metrics under the names that Prometheus's client libraries use. A plane without a
  /// measurement has no series.
  static void add_process(Families& families, const std::string& plane, const segment::ProcessUse& use) {
    if (use.started_ns.load(std::memory_order_relaxed) == 0) return;
    families.add("process_cpu_seconds_total", value_of(use.cpu_ns) * 1e-9, {plane});
    families.add("process_resident_memory_bytes", value_of(use.resident_bytes), {plane});
    families.add("process_virtual_memory_bytes", value_of(use.virtual_bytes), {plane});
    families.add("process_open_fds", value_of(use.open_descriptors), {plane});
    if (use.max_descriptors.load(std::memory_order_relaxed) != 0)
      families.add("process_max_fds", value_of(use.max_descriptors), {plane});
    families.add("process_start_time_seconds", value_of(use.started_ns) * 1e-9, {plane});
  }

  void add_reactor(Families& families, const Config& config, const Area& area,
                   const std::string& reactor) const {
    if (const auto info = area.info.read())
      families.add("sluice_reactor_info", 1,
                   {reactor, std::to_string(info->cpu), std::to_string(info->numa_node)});
    for (std::size_t i = 0; i < segment::kReactorCounterCount; ++i) {
      const std::string name(segment::kReactorCounters[i].name);
      const double value = counter(CounterFamily::Reactor, i, area.counters);
      if (segment::kReactorCounters[i].group == "time")
        families.add("sluice_reactor_time_seconds_total", value * 1e-9,
                     {reactor, name.substr(0, name.find('_'))});
      else
        families.add("sluice_reactor_" + name + "_total", value, {reactor});
    }
    for (std::size_t i = 0; i < kInvariantCount; ++i)
      families.add("sluice_invariant_failures_total",
                   counter(CounterFamily::Invariant, i, area.invariant_failures),
                   {reactor, std::string(kInvariants[i].name)});
    for (std::size_t state = 0; state < segment::kSlotStateCount; ++state)
      families.add("sluice_call_slots", value_of(area.slots_in_state[state]),
                   {reactor, segment::kSlotStates[state]});
    for (std::size_t pool = 0; pool < segment::kSharedPools.size(); ++pool) {
      const auto& [name, size] = segment::kSharedPools[pool];
      families.add("sluice_shared_buffers", value_of(area.pools[pool].buffers), {reactor, name, size});
      families.add("sluice_shared_buffers_held", value_of(area.pools[pool].held), {reactor, name, size});
      families.add("sluice_shared_buffers_waiting", value_of(area.pools[pool].waiting),
                   {reactor, name, size});
    }
    if (config.driver == segment::Driver::Verbs)
      for (std::size_t i = 0; i < std::size(rdma::verbs::kStatistics); ++i)
        families.add("sluice_verbs_" + std::string(rdma::verbs::kStatistics[i].name) + "_total",
                     counter(CounterFamily::Verbs, i, area.device_statistics), {reactor});
    if (config.driver == segment::Driver::SoftRoce)
      for (std::size_t i = 0; i < std::size(rdma::softroce::kStatistics); ++i)
        families.add("sluice_roce_" + std::string(rdma::softroce::kStatistics[i].name) + "_total",
                     counter(CounterFamily::SoftRoce, i, area.device_statistics), {reactor});
    for (std::uint32_t number = 0; number < classes(config); ++number)
      add_transport(families, area.transport_counters[number], reactor, class_name(config, number));
    add_connections(families, config, area, reactor);
    const auto ring = [&](const char* name, const auto& of) {
      families.add("sluice_ring_used_slots", of.size(), {reactor, name});
      families.add("sluice_ring_slots", of.capacity(), {reactor, name});
    };
    ring("commands", area.commands);
    ring("events", area.events);
    ring("hints", area.wanted.hints);
    ring("punt_up", area.punt_up);
    ring("punt_down", area.punt_down);
    ring("properties_up", area.properties_up);
    ring("properties_down", area.properties_down);
  }

  /// Adds the counters of the configured ports, or of port 1 of each device if none is configured. A counter
  /// that the provider does not have has no series.
  void add_rdma_ports(Families& families, const Config& config) const {
    std::set<std::string> ports;  // "device/port"
    for (std::uint32_t i = 0; i < std::min(config.verbs_port_count, segment::kMaxReactors); ++i)
      ports.insert(std::string(config.verbs_ports[i].device) + '/' +
                   std::to_string(config.verbs_ports[i].port));
    DIR* const devices = ports.empty() ? ::opendir(rdma_devices_.c_str()) : nullptr;
    while (const dirent* const device = devices != nullptr ? ::readdir(devices) : nullptr)
      if (device->d_name[0] != '.') ports.insert(std::string(device->d_name) + "/1");
    if (devices != nullptr) ::closedir(devices);
    for (const std::string& name : ports) {
      const std::size_t slash = name.find('/');
      const std::string device = name.substr(0, slash);
      const std::string port = name.substr(slash + 1);
      std::string folder = rdma_devices_;
      folder.append("/").append(device).append("/ports/").append(port);
      for (const RdmaCounter& counter : kRdmaCounters)
        if (const auto value = read_rdma_counter(folder, counter))
          families.add("sluice_rdma_port_" + std::string(counter.name) + "_total", *value, {device, port});
    }
  }

  template <typename Counters>
  void add_transport(Families& families, const Counters& counters, const std::string& reactor,
                     const std::string& client_class) const {
    for (std::size_t i = 0; i < segment::kTransportCounterCount; ++i) {
      const segment::CounterInfo& info = segment::kTransportCounters[i];
      const double value = counter(CounterFamily::Transport, i, counters);
      const std::string name(info.name);
      if (info.group == "error")
        families.add("sluice_protocol_errors_total", value, {reactor, client_class, name});
      else if (info.group == "wait")
        families.add("sluice_waits_total", value, {reactor, client_class, name.substr(6)});
      else if (info.group == "bytes")
        families.add("sluice_bytes_total", value,
                     {reactor, client_class,
                      name == "inline_bytes_received" || name == "rdma_read_bytes" ? "in" : "out",
                      name.rfind("inline", 0) == 0 ? "inline" : "ddp"});
      else
        families.add("sluice_" + name + "_total", value, {reactor, client_class});
    }
  }

  static void add_connections(Families& families, const Config& config, const Area& area,
                              const std::string& reactor) {
    struct Sums {
      double connections = 0, granted = 0, used = 0, oldest_ns = 0;
    };
    std::array<Sums, segment::kMaxClasses> sums{};
    for (std::uint32_t i = 0; i < std::min(config.all_connections(), segment::kMaxConnections); ++i) {
      const segment::ConnectionUse& use = area.use[i];
      if (use.open.load(std::memory_order_relaxed) != segment::ConnectionUse::kOfClient) continue;
      Sums& of = sums[use.client_class.load(std::memory_order_relaxed) % segment::kMaxClasses];
      of.connections += 1;
      of.granted += value_of(use.granted);
      of.used += value_of(use.busy);
      if (use.oldest_state.load(std::memory_order_relaxed) != 0)
        of.oldest_ns = std::max(of.oldest_ns, value_of(use.oldest_ns));
    }
    for (std::uint32_t number = 0; number < classes(config); ++number) {
      const std::string name = class_name(config, number);
      families.add("sluice_connections", sums[number].connections, {reactor, name});
      families.add("sluice_credits_granted", sums[number].granted, {reactor, name});
      families.add("sluice_credits_used", sums[number].used, {reactor, name});
      families.add("sluice_oldest_call_seconds", sums[number].oldest_ns * 1e-9, {reactor, name});
    }
  }

  /// Adds the calls of all reactors. Only procedures that were called at least once have a series.
  void add_calls(Families& families, const Config& config) const {
    const segment::CallTable& first = layout_.reactors[0].calls;
    const std::uint32_t procedures =  // pairs with ServiceTable::describe(): `info`
        std::min(first.procedures.load(std::memory_order_acquire), segment::kMaxProcedures);
    for (std::uint32_t number = 0; number < classes(config); ++number)
      for (std::uint32_t procedure = 0; procedure < procedures; ++procedure) {
        const auto latency = std::make_unique<segment::Histogram>();
        std::array<std::uint64_t, segment::kCallStatusCount> calls{};
        std::uint64_t total = 0;
        double time_ns = 0;
        for (std::uint32_t reactor = 0; reactor < config.reactors; ++reactor) {
          const segment::ProcedureUse& use = layout_.reactors[reactor].calls.use[number][procedure];
          std::uint64_t of_reactor = 0;
          for (std::size_t status = 0; status < calls.size(); ++status) {
            const std::uint64_t count = use.calls[status].load(std::memory_order_relaxed);
            calls[status] += count;
            of_reactor += count;
          }
          if (of_reactor > 0) latency->merge(use.latency);
          time_ns += value_of(use.time_ns);
          total += of_reactor;
        }
        if (total == 0) continue;
        const segment::ProcedureInfo info = segment::checked(first.info[procedure]);
        const std::vector<std::string> labels = {class_name(config, number), info.program_name,
                                                 std::to_string(info.version), info.procedure_name};
        for (std::size_t status = 0; status < calls.size(); ++status) {
          if (calls[status] == 0) continue;
          std::vector<std::string> with_status = labels;
          with_status.emplace_back(segment::kCallStatuses[status]);
          families.add("sluice_rpc_calls_total", static_cast<double>(calls[status]), with_status);
        }
        fill(families.place("sluice_rpc_latency_seconds", labels), *latency);
        families.add("sluice_rpc_time_seconds_total", time_ns * 1e-9, labels);
      }
  }

  void add_clients(Families& families) const {
    const auto table = layout_.clients.read_copy();
    if (!table) return;
    const auto add = [&](const std::string& client, const segment::ServedCalls& served) {
      families.add("sluice_client_calls_total", static_cast<double>(served.calls), {client});
      families.add("sluice_client_time_seconds_total", static_cast<double>(served.time_ns) * 1e-9, {client});
      families.add("sluice_client_bytes_total", static_cast<double>(served.received_bytes), {client, "in"});
      families.add("sluice_client_bytes_total", static_cast<double>(served.sent_bytes), {client, "out"});
    };
    for (const segment::ShownClient& client : table->clients)
      if (client.in_use != 0) add(to_string(client.peer), client.served);
    add("others", table->others);
  }

  void add_upstreams(Families& families, const Config& config) const {
    for (std::uint32_t i = 0; i < std::min(config.upstream_count, segment::kMaxUpstreams); ++i) {
      const std::string name = config.upstreams[i].name;
      const auto upstream = std::make_unique<segment::Histogram>();
      const auto gateway = std::make_unique<segment::Histogram>();
      for (std::uint32_t number = 0; number < config.reactors; ++number) {
        const segment::UpstreamArea& area = layout_.reactors[number].upstreams[i];
        const std::string reactor = std::to_string(number);
        families.add("sluice_upstream_connections", value_of(area.connections), {reactor, name, "up"});
        families.add("sluice_upstream_connections", value_of(area.connecting), {reactor, name, "coming"});
        families.add("sluice_upstream_calls", value_of(area.outstanding), {reactor, name, "outstanding"});
        families.add("sluice_upstream_calls", value_of(area.waiting), {reactor, name, "waiting"});
        for (std::size_t pool = 0; pool < segment::kUpstreamPools.size(); ++pool) {
          const char* const of = segment::kUpstreamPools[pool];
          families.add("sluice_upstream_pool_size", value_of(area.pools[pool].buffers), {reactor, name, of});
          families.add("sluice_upstream_pool_held", value_of(area.pools[pool].held), {reactor, name, of});
          families.add("sluice_upstream_pool_waiting", value_of(area.pools[pool].waiting),
                       {reactor, name, of});
        }
        families.add("sluice_upstream_credit_limit", value_of(area.credit_limit), {reactor, name});
        for (std::size_t c = 0; c < std::size(segment::kUpstreamCounters); ++c)
          families.add("sluice_upstream_" + std::string(segment::kUpstreamCounters[c].name) + "_total",
                       counter(CounterFamily::Upstream, c, area.counters), {reactor, name});
        upstream->merge(area.upstream_ns);
        gateway->merge(area.gateway_ns);
      }
      fill(families.place("sluice_upstream_latency_seconds", {name, "upstream"}), *upstream);
      fill(families.place("sluice_upstream_latency_seconds", {name, "gateway"}), *gateway);
    }
  }

  void add_reverse_gateway(Families& families, const Config& config) const {
    if (config.reverse.in_use == 0) return;
    const auto latency = std::make_unique<segment::Histogram>();
    for (std::uint32_t number = 0; number < config.reactors; ++number) {
      const segment::ReverseArea& area = layout_.reactors[number].reverse;
      const std::string reactor = std::to_string(number);
      families.add("sluice_reverse_clients", value_of(area.clients), {reactor, "all"});
      families.add("sluice_reverse_clients", value_of(area.connected), {reactor, "connected"});
      families.add("sluice_reverse_calls", value_of(area.outstanding), {reactor});
      for (std::size_t c = 0; c < std::size(segment::kReverseCounters); ++c)
        families.add("sluice_reverse_" + std::string(segment::kReverseCounters[c].name) + "_total",
                     counter(CounterFamily::Reverse, c, area.counters), {reactor});
      latency->merge(area.server_ns);
    }
    fill(families.place("sluice_reverse_latency_seconds", {}), *latency);
  }

  void add_exports(Families& families) const {
    const segment::CallTable& table = layout_.reactors[0].calls;
    std::array<std::string, segment::kMaxNfsProcedures> names;
    constexpr std::uint32_t kNfs = 100003;
    for (const segment::ProcedureInfo& shared : table.info) {
      const segment::ProcedureInfo info = segment::checked(shared);
      if (info.program == kNfs && info.procedure < names.size()) names[info.procedure] = info.procedure_name;
    }
    for (const auto& entry : layout_.exports) {
      const auto info = segment::checked(entry);
      if (!info || info->in_use == 0) continue;
      const std::string path = info->path;
      for (std::size_t i = 0; i < names.size(); ++i) {
        if (names[i].empty() || info->procedure_calls[i] == 0) continue;
        families.add("sluice_export_calls_total", static_cast<double>(info->procedure_calls[i]),
                     {path, names[i]});
        families.add("sluice_export_errors_total", static_cast<double>(info->procedure_errors[i]),
                     {path, names[i]});
      }
      families.add("sluice_export_read_bytes_total", static_cast<double>(info->read_bytes), {path});
      families.add("sluice_export_written_bytes_total", static_cast<double>(info->written_bytes), {path});
      families.add("sluice_export_used_bytes", static_cast<double>(info->used_bytes), {path});
      families.add("sluice_export_quota_bytes", static_cast<double>(info->quota_bytes), {path});
      families.add("sluice_export_files", static_cast<double>(info->files), {path});
    }
  }

  void add_control(Families& families) const {
    for (std::size_t i = 0; i < segment::kControlCounterCount; ++i)
      families.add("sluice_" + std::string(segment::kControlCounters[i].family) + "_total",
                   value_of(layout_.control_counters[i]), {std::string(segment::kControlCounters[i].value)});
    for (std::size_t i = 0; i < std::size(segment::kLockGauges); ++i)
      families.add("sluice_lock_table_entries", value_of(layout_.lock_gauges[i]),
                   {std::string(segment::kLockGauges[i])});
    families.add("sluice_credit_recomputation_seconds", value_of(layout_.recomputation_ns) * 1e-9, {});
    families.add("sluice_control_loop_stall_seconds", value_of(layout_.longest_stall_ns) * 1e-9, {"start"});
    families.add("sluice_control_loop_stall_seconds", value_of(layout_.recent_stall_ns) * 1e-9, {"recent"});
  }

  const segment::Layout& layout_;
  const PendingKeys& pending_;
  const std::string rdma_devices_;
};

/// Lifetime of a metrics response: requests within this time get the same one, so that frequent scrapes add
/// no load. Probes are evaluated for each request.
constexpr std::uint64_t kKeptNs = 100'000'000;

http::Content content_of(const Health& health) {
  constexpr unsigned kOk = 200;
  constexpr unsigned kServiceUnavailable = 503;
  return {.status = health.good ? kOk : kServiceUnavailable, .text = health.text + '\n'};
}

http::Site site_of(const std::string& address, const segment::Layout& layout, const PendingKeys& pending,
                   const std::string& rdma_devices) {
  const auto collector = std::make_shared<const SegmentCollector>(layout, pending, rdma_devices);
  const std::string text = "text/plain; charset=utf-8";
  return {.address = address,
          .what = "metrics",
          .advice = "Set metrics.address to another host:port, or to \"\" for none.",
          .pages = {{.path = "/metrics",
                     .type = "text/plain; version=0.0.4; charset=utf-8",
                     .make =
                         [collector] {
                           return http::Content{
                               .text = prometheus::TextSerializer().Serialize(collector->Collect())};
                         }},
                    {.path = "/healthz",
                     .type = text,
                     .make = [&layout] { return content_of(liveness(layout, segment::monotonic_ns())); },
                     .keep_ns = 0},
                    {.path = "/readyz",
                     .type = text,
                     .make = [&layout] { return content_of(readiness(layout, segment::monotonic_ns())); },
                     .keep_ns = 0}}};
}

}  // namespace

Exporter::Exporter(const std::string& address, const segment::Layout& layout, const PendingKeys& pending,
                   const std::string& rdma_devices)
    : http::Server(site_of(address, layout, pending, rdma_devices), {.look_ns = kKeptNs}) {}

}  // namespace sluice::telemetry
