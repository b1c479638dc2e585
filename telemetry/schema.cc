// SPDX-License-Identifier: Apache-2.0
#include "telemetry/schema.h"

#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "dataplane/base/invariant.h"
#include "dataplane/segment/calls.h"
#include "dataplane/segment/counters.h"
#include "dataplane/segment/gateways.h"
#include "pmd/softroce/statistics.h"
#include "pmd/verbs/statistics.h"
#include "telemetry/rdma_counters.h"

namespace sluice::telemetry {
namespace {

/// Reports whether each transport counter of this group has its own metric. The other counters are values of
/// a label.
bool stands_alone(std::string_view group) {
  return group != "error" && group != "wait" && group != "bytes";
}

/// Metrics of both planes and of their configuration.
std::vector<MetricInfo> planes() {
  return {
      {"sluice_build_info",
       Type::Gauge,
       {"version"},
       "Always 1; the label is the version of the control plane"},
      {"sluice_plane_up", Type::Gauge, {"plane"}, "1 if a plane's heartbeat is recent, else 0"},
      {"sluice_heartbeat_age_seconds",
       Type::Gauge,
       {"plane"},
       "Time since a plane's last heartbeat; no value if there was none"},
      {"sluice_plane_start_time_seconds",
       Type::Gauge,
       {"plane"},
       "Start time of a plane, in seconds since 1970"},
      {"process_cpu_seconds_total", Type::Counter, {"plane"}, "Processor time of a plane's process"},
      {"process_resident_memory_bytes", Type::Gauge, {"plane"}, "Resident memory of a plane's process"},
      {"process_virtual_memory_bytes", Type::Gauge, {"plane"}, "Address space of a plane's process"},
      {"process_open_fds", Type::Gauge, {"plane"}, "Open file descriptors of a plane's process"},
      {"process_max_fds",
       Type::Gauge,
       {"plane"},
       "Limit of open file descriptors of a plane's process; no value if unlimited"},
      {"process_start_time_seconds",
       Type::Gauge,
       {"plane"},
       "Start time of a plane's process, in seconds since 1970"},
      {"sluice_data_plane_log_lines_lost_total",
       Type::Counter,
       {},
       "Lines of the data plane's log that were dropped because the output was too slow"},
      {"sluice_draining",
       Type::Gauge,
       {},
       "1 if new connections are refused because the appliance is being drained, else 0"},
      {"sluice_config_generation",
       Type::Gauge,
       {"plane"},
       "Generation of the configuration that is published (control) and in force (data)"},
      {"sluice_config_pending_keys",
       Type::Gauge,
       {"restart"},
       "Changed keys of the configuration's files that take effect after a restart of the control plane "
       "(control) or of both planes (both)"},
      {"sluice_memory_reserved_bytes",
       Type::Gauge,
       {"part"},
       "Memory that the data plane has reserved, by purpose"},
  };
}

/// Metrics of connections, credits and calls, by reactor or by class.
std::vector<MetricInfo> calls() {
  return {
      {"sluice_reactor_info",
       Type::Gauge,
       {"reactor", "cpu", "numa_node"},
       "Always 1; the labels are the processor and the NUMA node of a reactor"},
      {"sluice_reactor_time_seconds_total",
       Type::Counter,
       {"reactor", "stage"},
       "Time of a reactor's loop by stage: the stages of iterations that found work, control passes, and "
       "idle"},
      {"sluice_connections", Type::Gauge, {"reactor", "class"}, "Open connections"},
      {"sluice_credits_granted",
       Type::Gauge,
       {"reactor", "class"},
       "Sum of the credits that open connections are granted"},
      {"sluice_credits_used", Type::Gauge, {"reactor", "class"}, "Call slots in use on open connections"},
      {"sluice_oldest_call_seconds",
       Type::Gauge,
       {"reactor", "class"},
       "Age of the oldest call in progress, in seconds; 0 if none"},
      {"sluice_call_slots", Type::Gauge, {"reactor", "state"}, "Call slots in each state"},
      {"sluice_shared_buffers", Type::Gauge, {"reactor", "pool", "size"}, "Buffers that connections share"},
      {"sluice_shared_buffers_held", Type::Gauge, {"reactor", "pool", "size"}, "Shared buffers in use"},
      {"sluice_shared_buffers_waiting",
       Type::Gauge,
       {"reactor", "pool", "size"},
       "Calls and messages that wait for a shared buffer"},
      {"sluice_rpc_calls_total",
       Type::Counter,
       {"class", "program", "version", "procedure", "status"},
       "RPC calls answered, by procedure and status"},
      {"sluice_rpc_latency_seconds",
       Type::Histogram,
       {"class", "program", "version", "procedure"},
       "Time from the loop iteration that received a call to the end of the iteration that posted its reply"},
      {"sluice_rpc_time_seconds_total",
       Type::Counter,
       {"class", "program", "version", "procedure"},
       "Time of the reactors spent on the completions of calls, estimated by samples"},
      {"sluice_client_calls_total",
       Type::Counter,
       {"client"},
       "RPC calls answered, by the client's address, for the 16 busiest clients since they became one of "
       "them, and for all other clients together"},
      {"sluice_client_time_seconds_total",
       Type::Counter,
       {"client"},
       "Sum of the latencies of the calls of sluice_client_calls_total, each from arrival until the reply "
       "was sent; divided by the number of calls it is the mean latency"},
      {"sluice_client_bytes_total",
       Type::Counter,
       {"client", "direction"},
       "Bytes in and out for the clients of sluice_client_calls_total, in messages and by RDMA Read and "
       "Write"},
      {"sluice_bytes_total",
       Type::Counter,
       {"reactor", "class", "direction", "path"},
       "Bytes in and out, inline by Send, or placed directly (ddp) by RDMA Read and Write"},
      {"sluice_waits_total",
       Type::Counter,
       {"reactor", "class", "reason"},
       "Waits of calls and messages, by resource"},
      {"sluice_protocol_errors_total",
       Type::Counter,
       {"reactor", "class", "kind"},
       "Messages that violate RPC-over-RDMA or RPC, by defect"},
      {"sluice_invariant_failures_total",
       Type::Counter,
       {"reactor", "invariant"},
       "Internal errors of Sluice that were detected and contained, by kind; those of the control plane have "
       "the reactor 'control'"},
  };
}

/// Metrics of exports in memory.
std::vector<MetricInfo> exports() {
  return {
      {"sluice_export_calls_total", Type::Counter, {"export", "procedure"}, "NFS calls on an export"},
      {"sluice_export_errors_total",
       Type::Counter,
       {"export", "procedure"},
       "NFS calls on an export that were answered by an error"},
      {"sluice_export_read_bytes_total", Type::Counter, {"export"}, "Bytes read from an export"},
      {"sluice_export_written_bytes_total", Type::Counter, {"export"}, "Bytes written to an export"},
      {"sluice_export_used_bytes",
       Type::Gauge,
       {"export"},
       "Space in use by the files of an export, in bytes"},
      {"sluice_export_quota_bytes",
       Type::Gauge,
       {"export"},
       "Maximum space of the files of an export, in bytes; 0 if unlimited"},
      {"sluice_export_files", Type::Gauge, {"export"}, "Files and directories of an export"},
  };
}

/// Metrics of upstreams and of the reverse gateway.
std::vector<MetricInfo> gateways() {
  return {
      {"sluice_upstream_connections",
       Type::Gauge,
       {"reactor", "upstream", "state"},
       "Connections to an upstream that are up, or being established (including those that wait to retry)"},
      {"sluice_upstream_pool_size",
       Type::Gauge,
       {"reactor", "upstream", "pool"},
       "Size of the pools that clients share: numbers for outstanding calls, buffers for short replies and "
       "for long replies"},
      {"sluice_upstream_pool_held",
       Type::Gauge,
       {"reactor", "upstream", "pool"},
       "Elements of these pools in use"},
      {"sluice_upstream_pool_waiting",
       Type::Gauge,
       {"reactor", "upstream", "pool"},
       "Calls that wait for an element of these pools"},
      {"sluice_upstream_calls",
       Type::Gauge,
       {"reactor", "upstream", "state"},
       "Calls outstanding at an upstream, or waiting to be sent"},
      {"sluice_upstream_credit_limit",
       Type::Gauge,
       {"reactor", "upstream"},
       "Lowest credit limit that an upstream imposes on a client whose calls wait; 0 if no client is "
       "limited"},
      {"sluice_upstream_latency_seconds",
       Type::Histogram,
       {"upstream", "part"},
       "Time of forwarded calls at the upstream, from the call's Send to the last byte of its reply, and in "
       "the gateway before the Send"},
      {"sluice_reverse_clients",
       Type::Gauge,
       {"reactor", "state"},
       "TCP clients of the reverse gateway, and its connections to the server"},
      {"sluice_reverse_calls",
       Type::Gauge,
       {"reactor"},
       "Calls of TCP clients that were received and not answered yet"},
      {"sluice_reverse_latency_seconds",
       Type::Histogram,
       {},
       "Time of the reverse gateway's calls from their last byte to the server's reply"},
  };
}

/// Metrics of the rings between the planes and of the control plane's work.
std::vector<MetricInfo> control() {
  return {
      {"sluice_ring_used_slots",
       Type::Gauge,
       {"reactor", "ring"},
       "Messages waiting in a ring between the planes"},
      {"sluice_ring_slots", Type::Gauge, {"reactor", "ring"}, "Capacity of a ring between the planes"},
      {"sluice_connection_requests_total",
       Type::Counter,
       {"verdict"},
       "Connection requests by result; those refused after admission count twice"},
      {"sluice_cm_messages_total", Type::Counter, {"event"}, "Events of connection management"},
      {"sluice_property_exchange_total",
       Type::Counter,
       {"event"},
       "Transport properties and host authentication of version 2"},
      {"sluice_credit_policy_total", Type::Counter, {"event"}, "Work of the credit policy"},
      {"sluice_connection_keeper_total",
       Type::Counter,
       {"event"},
       "Repeated hints to reactors, waits for space in a ring, truncations of the data plane's part of the "
       "segment, and starts of a data plane that were answered"},
      {"sluice_tasks_total",
       Type::Counter,
       {"event"},
       "Slow tasks of the control plane, such as name resolution and files: started, delayed because all "
       "threads were busy, and refused because too many waited"},
      {"sluice_events_total",
       Type::Counter,
       {"event"},
       "Events of the journal: recorded, suppressed because their rate was too high, overwritten before they "
       "were read, lost by the file or journald, and lines of the log that were dropped"},
      {"sluice_admin_total",
       Type::Counter,
       {"event"},
       "Clients of the admin socket that were disconnected because they did not read their responses"},
      {"sluice_mount_total",
       Type::Counter,
       {"event"},
       "Events of MOUNT: calls, connections and their limits, queries to upstreams, addresses that rpcbind "
       "has of other servers"},
      {"sluice_kerberos_total",
       Type::Counter,
       {"event"},
       "Events of RPCSEC_GSS contexts: calls that establish them, connections and their limits, calls "
       "forwarded to upstreams"},
      {"sluice_locks_total",
       Type::Counter,
       {"event"},
       "Events of NFS 3 locks (NLM): calls by procedure, locks granted after a wait, refusals, restarts of "
       "clients and of the upstream, connections and their limits"},
      {"sluice_lock_table_entries",
       Type::Gauge,
       {"kind"},
       "Locks of NFS 3 held through the gateway, their owners, and pending lock requests"},
      {"sluice_credit_recomputation_seconds",
       Type::Gauge,
       {},
       "Duration of the last recomputation of all grants"},
      {"sluice_control_loop_stall_seconds",
       Type::Gauge,
       {"over"},
       "Longest iteration of the control plane's loop, since its start (over=\"start\") and in the last one "
       "to two minutes (over=\"recent\"). More than 20 ms indicates that a disk or a processor delayed it"},
  };
}

/// Adds one metric for each name of a counter list: "sluice_" + infix + name + "_total".
template <typename Counters>
void add_counters(std::vector<MetricInfo>& all, const Counters& counters, const std::string& infix,
                  const std::vector<std::string>& labels, const std::string& help_prefix = "") {
  for (const auto& counter : counters)
    all.push_back({"sluice_" + infix + std::string(counter.name) + "_total", Type::Counter, labels,
                   help_prefix + std::string(counter.help)});
}

std::vector<MetricInfo> build() {
  std::vector<MetricInfo> all;
  for (const auto& part : {planes(), calls(), exports(), gateways(), control()})
    all.insert(all.end(), part.begin(), part.end());
  for (const auto& counter : segment::kTransportCounters)
    if (stands_alone(counter.group)) add_counters(all, std::span(&counter, 1), "", {"reactor", "class"});
  for (const auto& counter : segment::kReactorCounters)
    if (counter.group != "time") add_counters(all, std::span(&counter, 1), "reactor_", {"reactor"});
  add_counters(all, segment::kUpstreamCounters, "upstream_", {"reactor", "upstream"});
  add_counters(all, segment::kReverseCounters, "reverse_", {"reactor"});
  add_counters(all, rdma::softroce::kStatistics, "roce_", {"reactor"}, "softroce: ");
  add_counters(all, rdma::verbs::kStatistics, "verbs_", {"reactor"}, "verbs: ");
  add_counters(all, kRdmaCounters, "rdma_port_", {"device", "port"}, "verbs, counted by the device: ");
  return all;
}

void list_values(std::string& out, const char* metric, const char* label,
                 const std::vector<std::pair<std::string, std::string>>& values) {
  out += std::string("\n## ") + label + " of " + metric + "\n\n| value | meaning |\n|---|---|\n";
  for (const auto& [value, meaning] : values)
    out.append("| `").append(value).append("` | ").append(meaning).append(" |\n");
}

}  // namespace

const std::vector<MetricInfo>& schema() {
  static const std::vector<MetricInfo> all = build();
  return all;
}

std::string reference() {
  std::string out =
      "# Metrics reference\n\n"
      "All metrics of this release; `sluice-reference metrics` prints this page. The page metrics.md "
      "explains "
      "scraping, names and labels.\n"
      "The label `class` is a client class (`[[client_class]]` in the configuration; all other clients are "
      "in "
      "\"default\"). There are at most ";
  out += std::to_string(segment::kMaxClasses);
  out +=
      " classes.\nA counter restarts at zero with the plane that keeps it.\n\n"
      "| metric | type | labels | meaning |\n|---|---|---|---|\n";
  static constexpr const char* kTypes[] = {"counter", "gauge", "histogram"};
  for (const MetricInfo& metric : schema()) {
    std::string labels;
    for (const std::string& label : metric.labels) labels += (labels.empty() ? "" : ", ") + label;
    out += "| `" + metric.name + "` | " + kTypes[static_cast<std::size_t>(metric.type)] + " | " + labels +
           " | " + metric.help + " |\n";
  }
  std::vector<std::pair<std::string, std::string>> errors;
  std::vector<std::pair<std::string, std::string>> waits;
  for (const auto& counter : segment::kTransportCounters) {
    if (counter.group == "error") errors.emplace_back(counter.name, counter.help);
    if (counter.group == "wait") waits.emplace_back(counter.name.substr(6), counter.help);
  }
  std::vector<std::pair<std::string, std::string>> stages;
  for (const auto& counter : segment::kReactorCounters)
    if (counter.group == "time")
      stages.emplace_back(counter.name.substr(0, counter.name.find('_')), counter.help);
  list_values(out, "sluice_protocol_errors_total", "kind", errors);
  list_values(out, "sluice_waits_total", "reason", waits);
  list_values(out, "sluice_reactor_time_seconds_total", "stage", stages);
  std::vector<std::pair<std::string, std::string>> invariants;
  for (const InvariantInfo& invariant : kInvariants) invariants.emplace_back(invariant.name, invariant.help);
  list_values(out, "sluice_invariant_failures_total", "invariant", invariants);
  return out;
}

}  // namespace sluice::telemetry
