// SPDX-License-Identifier: Apache-2.0
#include "controlplane/admin/declarations/declarations.h"

#include "controlplane/admin/methods.h"
#include "controlplane/events/journal.h"
#include "pmd/softroce/statistics.h"
#include "pmd/verbs/statistics.h"

namespace sluice::admin {
namespace {

Declaration reactors() {
  Fields stages;
  for (const char* stage : {"device", "calls", "services", "upstreams", "control", "idle"})
    stages.push_back(number(stage, "share of the stage with this name"));
  return {
      .name = "reactors",
      .needed = Access::Read,
      .summary = "Returns the reactors that have started: state, processor, totals, and time by stage.",
      .result = rows(
          "", "",
          {reactor_number(), text("state", "its state").one_of({"unused", "starting", "running", "stopped"}),
           whole("cpu", "the processor that it runs on"), whole("numa_node", "that processor's NUMA node"),
           whole("connections", "connections"), whole("calls", "calls received"),
           whole("bytes_in", "bytes received inline and by RDMA Read"),
           whole("bytes_out", "bytes sent inline and by RDMA Write"),
           whole("errors", "connections that ended with an error"),
           number("uptime_s", "time since its start, in seconds"),
           whole("busy_ns", "time in iterations that found work, in nanoseconds"),
           whole("idle_ns", "time in iterations that found no work, in nanoseconds"),
           number("busy_percent", "busy_ns as a share of both times"),
           object("stages_percent", "the share of each stage in its total time", stages)})};
}

Declaration procedures() {
  return {.name = "procedures",
          .needed = Access::Read,
          .summary = "Returns the procedures with calls, by client class.",
          .result = rows(
              "", "",
              {text("class", "the client class"), text("program", "the program's name"),
               whole("version", "the program's version"), text("procedure", "the procedure's name"),
               whole("calls", "calls"),
               whole("time_ns", "time of the reactors spent on them, estimated by samples, in nanoseconds"),
               number("us_per_call", "time of the reactors per call, in microseconds")})};
}

Declaration counters() {
  return {
      .name = "counters",
      .needed = Access::Read,
      .summary =
          "Returns all counters of the transport and of the loop, for each reactor, in the order of their "
          "numbers.",
      .result = rows(
          "", "", joined(counters_of(segment::kTransportCounters), counters_of(segment::kReactorCounters)))};
}

Fields pool_use() {
  return {whole("held", "buffers in use"), whole("waiting", "calls and messages that wait for a buffer")};
}

Declaration memory() {
  return {
      .name = "memory",
      .needed = Access::Read,
      .summary = "Returns the memory of the data plane, by purpose.",
      .result = object(
          "", "",
          {whole("resident_bytes", "resident memory of the process; 0 if there is none"),
           rows("parts", "reserved memory",
                {text("what", "its purpose"), whole("reserved_bytes", "its size in bytes")}),
           rows("shared", "pools that the connections of a reactor share",
                joined(
                    {reactor_number(), text("pool", "its purpose").one_of({"calls", "replies", "continued"}),
                     text("size", "the size of its buffers").one_of({"small", "large"}),
                     whole("buffers", "buffers")},
                    pool_use())),
           rows("upstreams", "pools of upstreams",
                joined({reactor_number(), text("upstream", "the upstream's name"),
                        text("pool", "its purpose")
                            .one_of(words(segment::kUpstreamPools.data(), segment::kUpstreamPools.size())),
                        whole("size", "buffers")},
                       pool_use())),
           rows("biggest_holders", "connections that hold most of the shared buffers",
                {reactor_number(), connection_number(), text("peer", "the client's address"),
                 whole("held_bytes", "bytes that it holds")})})};
}

/// Returns a field for each counter of `driver`. A device has only the counters of its driver, so the fields
/// are optional.
template <typename Infos>
Fields device_counters(const Infos& infos, const std::string& driver) {
  Fields fields;
  for (const auto& info : infos)
    fields.push_back(whole(std::string(info.name), driver + ": " + std::string(info.help)).if_any());
  return fields;
}

Fields port_fields() {
  return {text("device", "the device's name"),
          whole("port", "the port's number"),
          text("provider", "the driver of the device"),
          text("firmware", "the version of its firmware"),
          text("state", "the link").one_of({"active", "down"}),
          whole("path_mtu", "the MTU in use, in bytes"),
          whole("mbit_per_s", "its speed"),
          text("addresses", "its IP addresses, with spaces between them"),
          whole("queue_pairs", "maximum number of queue pairs"),
          whole("work_requests", "maximum number of work requests of a queue"),
          whole("pieces", "maximum number of memory segments of a work request"),
          whole("completions", "maximum number of entries of a completion queue"),
          whole("reads", "maximum number of outstanding RDMA Reads of a queue pair"),
          whole("windows", "maximum number of memory windows; 0 if none can be used"),
          flag("remote_invalidation", "whether it supports Send with Invalidate"),
          text("sluice", "the reactors that poll it, or the reason why none does, as a sentence")};
}

Declaration devices() {
  const Fields polled = {reactor_number(), text("driver", "the driver").one_of({"softroce", "verbs"})};
  return {
      .name = "devices",
      .needed = Access::Read,
      .summary = "Returns the RDMA ports of this machine, and the counters of each reactor's device.",
      .result = object("", "",
                       {rows("polled", "devices of the reactors; empty with the driver loopback",
                             joined(polled, joined(device_counters(rdma::softroce::kStatistics, "softroce"),
                                                   device_counters(rdma::verbs::kStatistics, "verbs")))),
                        rows("rdma_ports", "RDMA ports", port_fields()),
                        text("hint", "remedy if there is no RDMA port, as a sentence").if_any()})};
}

Declaration topology() {
  return {
      .name = "topology",
      .needed = Access::Read,
      .summary = "Returns the processors and NUMA nodes of this machine, and the processors of the reactors.",
      .result = object(
          "", "",
          {whole("packages", "sockets"), whole("cores", "cores"),
           rows("numa_nodes", "NUMA nodes",
                {whole("node", "its number"), whole("memory_bytes", "its memory")}),
           rows("processors", "processors",
                {whole("cpu", "its number"), whole("core", "its core"), whole("numa_node", "its NUMA node")}),
           list("reactor_cpus", "the processor of each reactor that has started",
                whole("", "a processor's number"))}),
      .errors = {kTooMuchToDo}};
}

}  // namespace

Chapter declare_reactors() {
  return {.title = "Reactors and the machine",
          .methods = {reactors(), procedures(), counters(), memory(), devices(), topology()}};
}

namespace {

Field time_of_day() {
  return text("time", "RFC 3339, in UTC, with microseconds");
}

Fields states() {
  Fields fields;
  for (std::size_t i = 1; i < segment::kSlotStateCount; ++i)
    fields.push_back(number(segment::kSlotStates[i], "time in this state").if_any());
  return fields;
}

/// Returns the fields of a call. `more` lists additional values of "status".
Fields call_fields(const std::vector<std::string>& more = {}) {
  std::vector<std::string> statuses = words(segment::kCallStatuses, segment::kCallStatusCount);
  statuses.insert(statuses.end(), more.begin(), more.end());
  return {
      whole("xid", "the call's XID"),
      text("procedure", "its name, or program.version.procedure if it has none"),
      text("status", "the RPC status of the reply").one_of(statuses),
      whole("call_bytes", "bytes of the arguments, including those in chunks"),
      whole("reply_bytes", "bytes of the results, including those in chunks"),
      number("total_us", "time from its arrival until its reply was sent, in microseconds"),
      object("states_us", "time in each state, in microseconds; states without time are absent", states())};
}

Declaration trace_read() {
  return {
      .name = "trace_read",
      .needed = Access::Read,
      .summary = "Returns the recorded calls of a connection. Its reactor keeps the last " +
                 std::to_string(segment::TraceRing::kRecords) + " calls of all its connections.",
      .parameters = {reactor_number(), connection_number(),
                     whole("from", "number of the first call to return, from `next` of an earlier response")
                         .or_else(0)},
      .result = object("", "",
                       {whole("next", "position of the next read"),
                        rows("calls", "the calls, in the order in which they ended", call_fields())}),
      .errors = {"There is no such reactor."}};
}

Declaration slow_calls() {
  return {.name = "slow_calls",
          .needed = Access::Read,
          .summary = "Returns calls that took longer than [observability] slow_call_ms, at most " +
                     std::to_string(kSlowCallsPerAnswer) +
                     " of each reactor. Repeat the request until the response is empty.",
          .parameters = {list("from", "`next` of an earlier response; empty to begin with the oldest call",
                              whole("", "a number"))
                             .at_most(segment::kMaxReactors)
                             .or_else(Json::array())},
          .result = object(
              "", "",
              {list("next", "position of the next read, for each reactor", whole("", "a number")),
               whole("missed", "calls that were overwritten before they were read"),
               rows("calls", "the calls, in the order in which they ended",
                    joined(call_fields({"connection_lost"}),
                           {time_of_day(), reactor_number(), connection_number(),
                            text("peer", "the client's address"), text("class", "its client class"),
                            number("upstream_us", "time at the upstream, in microseconds").if_any()}))})};
}

Declaration events_read() {
  return {
      .name = "events_read",
      .needed = Access::Read,
      .summary = "Returns events of the journal, at most " + std::to_string(kEventsPerAnswer) +
                 " of them. Repeat the request until the response is empty.",
      .parameters = {whole("since", "sequence number of the first event, from `next` of an earlier response")
                         .or_else(1)},
      .result = object(
          "", "",
          {whole("journal", "ID of the journal; in another journal sequence numbers begin again at 1"),
           whole("next", "position of the next read"),
           whole("missed", "requested events that are no longer in the journal"),
           rows("events", "the events, in the order in which they happened",
                {whole("sequence", "its number"), time_of_day(),
                 text("severity", "its severity")
                     .one_of(words(events::kSeverities, std::size(events::kSeverities))),
                 text("event", "name of its kind; names are stable"),
                 map("fields", "details, by the event's kind", {.type = Type::Scalar}),
                 whole("suppressed", "earlier events of its kind that were only counted").if_any()})})};
}

}  // namespace

Chapter declare_calls() {
  const auto trace = [](std::string name, std::string summary, Fields result) {
    return Declaration{.name = std::move(name),
                       .summary = std::move(summary),
                       .parameters = {reactor_number(), connection_number()},
                       .result = object("", "", std::move(result)),
                       .errors = {kNoSuchConnection}};
  };
  return {.title = "Events and calls",
          .methods = {events_read(), slow_calls(),
                      trace("trace_start", "Starts recording a connection's calls.",
                            {whole("next", "number of the first recorded call, for `from` of trace_read")}),
                      trace("trace_stop", "Stops recording a connection's calls.", {}), trace_read()}};
}

}  // namespace sluice::admin
