// SPDX-License-Identifier: Apache-2.0
#include "controlplane/admin/declarations/common.h"
#include "controlplane/admin/declarations/declarations.h"
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

/// Those of the driver that polls.
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
           list("reactor_cpus", "the processor of each reactor", whole("", "a processor's number"))}),
      .errors = {kTooMuchToDo}};
}

}  // namespace

Chapter declare_reactors() {
  return {.title = "Reactors and the machine",
          .methods = {reactors(), procedures(), counters(), memory(), devices(), topology()}};
}

}  // namespace sluice::admin
