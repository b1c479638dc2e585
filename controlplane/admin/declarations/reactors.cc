// SPDX-License-Identifier: Apache-2.0
#include "controlplane/admin/declarations/common.h"

#include "controlplane/admin/declarations/declarations.h"
#include "controlplane/admin/events.h"
#include "controlplane/admin/slow_calls.h"
#include "controlplane/events/event.h"
#include "pmd/softroce/statistics.h"
#include "pmd/verbs/statistics.h"

namespace sluice::admin {
namespace {

Declaration reactors() {
  Fields stages;
  for (const char* stage : {"device", "calls", "services", "upstreams", "control", "idle"})
    stages.push_back(number(stage, "of the stage of this name"));
  return {
      .name = "reactors",
      .needed = Access::Read,
      .summary = "The reactors that have started: state, processor, totals, and where their time went.",
      .result = rows(
          "", "",
          {reactor_number(), text("state", "its state").one_of({"unused", "starting", "running", "stopped"}),
           whole("cpu", "the processor that it runs on"), whole("numa_node", "that processor's NUMA node"),
           whole("connections", "connections"), whole("calls", "calls received"),
           whole("bytes_in", "received inline and by RDMA Read"),
           whole("bytes_out", "sent inline and by RDMA Write"),
           whole("errors", "connections that ended with an error"),
           number("uptime_s", "since its start, in seconds"),
           whole("busy_ns", "time with something to do, in nanoseconds"),
           whole("idle_ns", "time with nothing to do, in nanoseconds"),
           number("busy_percent", "the busy share of these two"),
           object("stages_percent", "the share of each stage in all of its time", stages)})};
}

Declaration procedures() {
  return {.name = "procedures",
          .needed = Access::Read,
          .summary = "Procedures by class of clients, those that had calls.",
          .result = rows("", "",
                         {text("class", "the class of clients"), text("program", "the program's name"),
                          whole("version", "the program's version"),
                          text("procedure", "the procedure's name"), whole("calls", "calls"),
                          whole("time_ns", "the reactors' time that they took, by samples, in nanoseconds"),
                          number("us_per_call", "the same for each call, in microseconds")})};
}

Declaration counters() {
  return {
      .name = "counters",
      .needed = Access::Read,
      .summary =
          "All counters of the transport and of the loop, for each reactor, in the order of their numbers.",
      .result = rows(
          "", "", joined(counters_of(segment::kTransportCounters), counters_of(segment::kReactorCounters)))};
}

Fields pool_use() {
  return {whole("held", "buffers in use"), whole("waiting", "who waits for one")};
}

Declaration memory() {
  return {
      .name = "memory",
      .needed = Access::Read,
      .summary = "Memory of the data plane, by purpose.",
      .result = object(
          "", "",
          {whole("resident_bytes", "resident memory of the process; 0: there is none"),
           rows("parts", "memory that is reserved",
                {text("what", "what for"), whole("reserved_bytes", "how much")}),
           rows("shared", "pools that the connections of a reactor share",
                joined({reactor_number(), text("pool", "what for").one_of({"calls", "replies", "continued"}),
                        text("size", "the size of its buffers").one_of({"small", "large"}),
                        whole("buffers", "buffers")},
                       pool_use())),
           rows("upstreams", "pools of upstreams",
                joined({reactor_number(), text("upstream", "the upstream's name"),
                        text("pool", "what for")
                            .one_of(words(segment::kUpstreamPools.data(), segment::kUpstreamPools.size())),
                        whole("size", "buffers")},
                       pool_use())),
           rows("biggest_holders", "connections that hold most of the shared buffers",
                {reactor_number(), connection_number(), text("peer", "the client's address"),
                 whole("held_bytes", "what it holds")})})};
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
          whole("queue_pairs", "the most queue pairs"),
          whole("work_requests", "the most work requests of a queue"),
          whole("pieces", "the most pieces of memory of a work request"),
          whole("completions", "the most entries of a completion queue"),
          whole("reads", "the most RDMA Reads in flight of a queue pair"),
          whole("windows", "the most memory windows; 0: it has none that can be used"),
          flag("remote_invalidation", "whether it has Send with Invalidate"),
          text("sluice", "which reactors poll it, or why none does: a sentence")};
}

Declaration devices() {
  const Fields polled = {reactor_number(), text("driver", "the driver").one_of({"softroce", "verbs"})};
  return {
      .name = "devices",
      .needed = Access::Read,
      .summary = "The RDMA ports of this machine, and counters of the device of each reactor.",
      .result = object("", "",
                       {rows("polled", "devices of the reactors; none with the driver loopback",
                             joined(polled, joined(device_counters(rdma::softroce::kStatistics, "softroce"),
                                                   device_counters(rdma::verbs::kStatistics, "verbs")))),
                        rows("rdma_ports", "RDMA ports", port_fields()),
                        text("hint", "what to look at where there is no RDMA port: a sentence").if_any()})};
}

Declaration topology() {
  return {
      .name = "topology",
      .needed = Access::Read,
      .summary = "Processors and NUMA nodes of this machine, and the processors of the reactors.",
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
    fields.push_back(number(segment::kSlotStates[i], "in this state").if_any());
  return fields;
}

/// Returns the fields of a call. `more` lists additional values of "status".
Fields call_fields(const std::vector<std::string>& more = {}) {
  std::vector<std::string> statuses = words(segment::kCallStatuses, segment::kCallStatusCount);
  statuses.insert(statuses.end(), more.begin(), more.end());
  return {whole("xid", "the call's XID"),
          text("procedure", "its name, or program.version.procedure where there is none"),
          text("status", "what RPC has answered").one_of(statuses),
          whole("call_bytes", "the arguments, with those in chunks"),
          whole("reply_bytes", "the results, with those in chunks"),
          number("total_us", "from its arrival until its reply was sent, in microseconds"),
          object("states_us", "how long it was in each state, in microseconds; none where no time went",
                 states())};
}

Declaration trace_read() {
  return {.name = "trace_read",
          .needed = Access::Read,
          .summary = "Calls that were recorded of a connection; its reactor keeps the last " +
                     std::to_string(segment::TraceRing::kRecords) + " of all its connections.",
          .parameters =
              {reactor_number(), connection_number(),
               whole("from", "the number of the first to look at, as another answer's next").or_else(0)},
          .result = object("", "",
                           {whole("next", "where to read on"),
                            rows("calls", "the calls, in the order of their ends", call_fields())}),
          .errors = {"There is no such reactor."}};
}

Declaration slow_calls() {
  return {
      .name = "slow_calls",
      .needed = Access::Read,
      .summary = "Calls that took longer than [observability] slow_call_ms, at most " +
                 std::to_string(kSlowCallsPerAnswer) + " of each reactor: ask again until there are none.",
      .parameters = {list("from", "another answer's next; empty: from the oldest on", whole("", "a number"))
                         .at_most(segment::kMaxReactors)
                         .or_else(Json::array())},
      .result =
          object("", "",
                 {list("next", "where to read on, for each reactor", whole("", "a number")),
                  whole("missed", "calls that were overwritten before they were read"),
                  rows("calls", "the calls, in the order of their ends",
                       joined(call_fields({"connection_lost"}),
                              {time_of_day(), reactor_number(), connection_number(),
                               text("peer", "the client's address"),
                               text("class", "the class of clients that it is in"),
                               number("upstream_us", "spent by an upstream, in microseconds").if_any()}))})};
}

Declaration events_read() {
  return {
      .name = "events_read",
      .needed = Access::Read,
      .summary = "Events of the journal, at most " + std::to_string(kEventsPerAnswer) +
                 " of them: ask again until there are none.",
      .parameters = {whole("since", "the sequence number of the first, as another answer's next").or_else(1)},
      .result = object(
          "", "",
          {whole("journal", "names the journal: another means that sequence numbers begin again at 1"),
           whole("next", "where to read on"),
           whole("missed", "events that were asked for and are no longer there"),
           rows("events", "the events, in the order in which they happened",
                {whole("sequence", "its number"), time_of_day(),
                 text("severity", "how bad it is")
                     .one_of(words(events::kSeverities, std::size(events::kSeverities))),
                 text("event", "what has happened; names are stable"),
                 map("fields", "with whom and why, by the event's kind", {.type = Type::Scalar}),
                 whole("suppressed", "events of its kind before it that were only counted").if_any()})})};
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
                      trace("trace_start", "Records a connection's calls from now on.",
                            {whole("next", "the first that is recorded, for trace_read's from")}),
                      trace("trace_stop", "Records a connection's calls no longer.", {}), trace_read()}};
}

}  // namespace sluice::admin
