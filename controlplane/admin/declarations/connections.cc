// SPDX-License-Identifier: Apache-2.0
#include "controlplane/admin/declarations/common.h"

#include "controlplane/admin/declarations/declarations.h"
#include "controlplane/admin/pace.h"
#include "controlplane/clients/busiest.h"
#include "controlplane/config/exports.h"
#include "dataplane/base/uring_features.h"

namespace sluice::admin {
namespace {

constexpr const char* kTooManyRows =
    "There are more than 16,384 rows: the method that returns pages has them.";
static_assert(kMaxListedAtOnce == 16'384);

Fields connection_fields() {
  return {reactor_number(),
          connection_number(),
          text("state", "its state").one_of({"unused", "opening", "open", "closing"}),
          text("peer", "the client's address"),
          flag("outgoing", "whether it was made from here, to a server"),
          text("class", "the class of clients that it is in"),
          whole("version", "of RPC-over-RDMA; 0: not known before the first message"),
          whole("credits", "credits granted"),
          whole("busy", "calls in progress"),
          whole("calls", "calls received"),
          whole("receive_inline_bytes", "the longest message that is received inline"),
          whole("send_inline_bytes", "the longest message that is sent inline"),
          age_s("since it was made"),
          whole("window", "version 2: Receives granted to the client").if_any(),
          whole("client_window", "version 2: Receives that the client has granted").if_any(),
          flag("held", "version 2: whether its calls wait until the host has authenticated itself").if_any(),
          text("host", "version 2: the host that has authenticated itself").if_any()};
}

Field side(std::string name, std::string meaning) {
  return object(
      std::move(name), std::move(meaning),
      {whole("max_send_bytes", "the longest message that it sends"),
       whole("receive_buffer_bytes", "the longest message that it receives"),
       whole("max_segment_bytes", "the longest segment of a chunk that it takes"),
       whole("max_segments", "the most segments of a chunk that it takes"),
       text("reverse_support", "calls in the other direction").one_of({"none", "inline", "general"})});
}

Fields both_sides() {
  return {side("ours", "what Sluice has said of itself"),
          side("client", "what the client has said of itself; null: nothing").or_null()};
}

std::vector<std::string> slot_states() {
  return words(segment::kSlotStates + 1, segment::kSlotStateCount - 1);
}

Declaration connections() {
  return {.name = "connections",
          .needed = Access::Read,
          .summary =
              "The connections that there are, all at once: for sites with few. connections_read has them "
              "in pages.",
          .parameters = {text("peer", "only those of this address; empty: all").or_else(""),
                         text("class", "only those of this class of clients; empty: all").or_else("")},
          .result = rows("", "", connection_fields()),
          .errors = {kTooManyRows, kTooMuchToDo}};
}

Field position_parameter() {
  return whole("from", "where the page begins: 0, or next of the page before").or_else(std::uint64_t{0});
}
Field count_parameter(std::uint32_t most, const char* meaning) {
  return whole32("count", meaning).at_most(most).or_else(most);
}
Field next_position() {
  return whole("next", "where the next page begins; null: this was the last one").or_null();
}

Declaration connections_read() {
  return {.name = "connections_read",
          .needed = Access::Read,
          .summary =
              "The connections that there are, in pages. A page may have fewer rows than asked for, or "
              "none, and still not be the last one. A connection that is open all the time is listed once.",
          .parameters = {position_parameter(), count_parameter(kMaxPageRows, "the most rows of the page"),
                         text("peer", "only those of this address; empty: all").or_else(""),
                         text("class", "only those of this class of clients; empty: all").or_else("")},
          .result = object("", "", {rows("connections", "the page", connection_fields()), next_position()})};
}

Declaration busiest() {
  return {
      .name = "busiest",
      .needed = Access::Read,
      .summary =
          "The connections and clients that had the most calls in the last second, and sums over "
          "all connections of clients.",
      .parameters = {whole32("count", "the most connections, and the most clients")
                         .at_most(clients::kBusiestKept)
                         .or_else(clients::kBusiestKept)},
      .result = object(
          "", "",
          {number("interval_s", "the time in which calls were counted, in seconds; 0: not counted yet"),
           whole("open", "open connections of clients"), whole("credits", "credits granted to them"),
           whole("busy", "their calls in progress"), number("calls_per_s", "their calls answered per second"),
           rows("connections", "the busiest connections, the busiest first",
                {reactor_number(), connection_number(), text("peer", "the client's address"),
                 text("class", "the class of clients that it is in"), whole("credits", "credits granted"),
                 whole("busy", "calls in progress"), number("calls_per_s", "calls answered per second")}),
           rows("clients", "the busiest clients, the busiest first",
                {text("peer", "the client's address"), whole("connections", "its connections that had calls"),
                 whole("credits", "credits granted to these"), whole("busy", "calls in progress on these"),
                 number("calls_per_s", "calls answered per second")})})};
}

Declaration connection_show() {
  return {
      .name = "connection_show",
      .needed = Access::Read,
      .summary = "Everything about a connection.",
      .parameters = {reactor_number(), connection_number()},
      .result = object(
          "", "",
          joined(connection_fields(),
                 {whole("peak_busy", "the most calls in progress at a time, of late"),
                  whole("queue_pair", "its queue pair's number"),
                  whole("received_bytes", "of messages and of RDMA Reads of the gateway, since it is open"),
                  whole("sent_bytes", "of messages and of RDMA Writes of the gateway, since it is open"),
                  whole("held_bytes", "of buffers that connections share, those that it holds"),
                  object("oldest_call", "the oldest call in progress; null: there is none",
                         {age_s("since it came"), text("state", "what it waits for").one_of(slot_states())})
                      .or_null(),
                  flag("draining", "whether it ends when it has no call"),
                  flag("traced", "whether its calls are recorded"),
                  flag("ending", "whether it has been told to end"),
                  whole("credits_wanted", "the grant that the policy wants it to have; 0: none is set"),
                  map("counters_of_class",
                      "counters of errors and waits, of all connections of its class on its reactor: those "
                      "that are not zero",
                      whole("", "")),
                  whole("cm_id", "its number in connection management"),
                  whole("client_process", "loopback: the client's process").if_any(),
                  object("properties", "version 2: transport properties", both_sides()).if_any()})),
      .errors = {kNoSuchConnection}};
}

Declaration connection_close() {
  return {.name = "connection_close",
          .summary = "Ends a connection; its client may make another.",
          .parameters = {reactor_number(), connection_number()},
          .result = object("", "", {flag("closing", "always true")}),
          .errors = {kNoSuchConnection}};
}

Fields property_fields() {
  return joined(both_sides(), {reactor_number(), connection_number(), text("peer", "the client's address")});
}

Declaration properties() {
  return {.name = "properties",
          .needed = Access::Read,
          .summary =
              "Transport properties of the version 2 connections, all at once: for sites with few. "
              "properties_read has them in pages.",
          .result = rows("", "", property_fields()),
          .errors = {kTooManyRows, kTooMuchToDo}};
}

Declaration properties_read() {
  return {.name = "properties_read",
          .needed = Access::Read,
          .summary =
              "Transport properties of the version 2 connections, in pages. A page may have fewer rows "
              "than asked for, or none, and still not be the last one.",
          .parameters = {position_parameter(), count_parameter(kMaxPageRows, "the most rows of the page")},
          .result = object("", "", {rows("properties", "the page", property_fields()), next_position()})};
}

Fields credit_sums() {
  return {whole("connections", "open connections of clients"),
          whole("idle", "of those, without a call of late"), whole("granted", "credits granted to them"),
          whole("used", "calls in progress")};
}

Declaration credits() {
  return {.name = "credits",
          .needed = Access::Read,
          .summary = "The credit policy: call slots of each reactor, and grants by class of clients.",
          .result = object("", "",
                           {rows("reactors", "the reactors",
                                 joined({reactor_number(), whole("slots", "call slots")}, credit_sums())),
                            rows("classes", "the classes of clients",
                                 joined({text("class", "the class"), number("weight", "its weight"),
                                         whole("min_credits", "the least that a connection is granted"),
                                         whole("max_credits", "the most that a connection is granted")},
                                        credit_sums())),
                            whole("recomputations", "times that the policy was recomputed"),
                            number("last_recomputation_ms", "how long the last took, in milliseconds"),
                            whole("grants_changed", "grants that the policy has changed")}),
          .errors = {kTooMuchToDo}};
}

Field drain_result() {
  return object("", "",
                {flag("draining", "whether connections are drained"),
                 whole("connections", "connections that there still are"),
                 flag("saved", "whether the next start finds it so")});
}

Declaration drain(std::string name, std::string summary) {
  return {.name = std::move(name),
          .summary = std::move(summary),
          .parameters = {save_parameter()},
          .result = drain_result(),
          .errors = {"It cannot be saved; nothing has changed then."}};
}

}  // namespace

Chapter declare_connections() {
  return {
      .title = "Connections",
      .methods = {
          connections(),
          connections_read(),
          busiest(),
          connection_show(),
          connection_close(),
          properties(),
          properties_read(),
          credits(),
          drain("drain_start",
                "Refuses new connections, and ends each of the others when it has no call; answers at once."),
          drain("drain_stop", "Admits connections again."),
          {.name = "drain_status",
           .needed = Access::Read,
           .summary = "Whether connections are drained, and how many there still are.",
           .result = drain_result()}}};
}

// --- Methods for exports and gateways

namespace {

Field path_parameter() {
  return text("path", "the export's path, which begins with '/'");
}

Declaration exports() {
  return {.name = "exports",
          .needed = Access::Read,
          .summary = "The exports: space, files, calls.",
          .result =
              rows("", "",
                   {text("path", "its path"), flag("read_only", "whether changes are refused"),
                    whole("used_bytes", "space in use"),
                    whole("quota_bytes", "the most that it may use; 0: as much as there is"),
                    whole("files", "files and folders"), whole("calls", "calls"),
                    whole("errors", "of those, answered with an error"),
                    whole("read_bytes", "read by clients"), whole("written_bytes", "written by clients"),
                    list("hosts", "hosts that may use it when they have authenticated themselves; empty: any",
                         text("", "a name"))})};
}

Declaration export_stats() {
  return {.name = "export_stats",
          .needed = Access::Read,
          .summary = "Calls of each export by procedure, of those that had any.",
          .parameters = {text("path", "only of this export; empty: of all").or_else("")},
          .result = rows("", "",
                         {text("path", "the export's path"), text("procedure", "the procedure's name"),
                          whole("calls", "calls"), whole("errors", "of those, answered with an error")})};
}

Field change_result() {
  return object("", "",
                {text("path", "the export's path"), flag("saved", "whether a restart keeps the change")});
}

Declaration export_add() {
  const Json usual = config::describe_export({});
  const auto key = [&](const Field& field) { return field.or_else(usual.at(field.name)); };
  return {.name = "export_add",
          .summary =
              "Adds an export, or changes the one of this path: what is not given is as in a configuration "
              "file that does not give it.",
          .parameters = {path_parameter(), key(flag("read_only", "whether changes are refused")),
                         key(flag("root_squash", "whether root becomes anonuid and anongid")),
                         key(flag("all_squash", "whether every user becomes anonuid and anongid")),
                         key(whole32("anonuid", "the user ID of users that are mapped")),
                         key(whole32("anongid", "the group ID of users that are mapped")),
                         key(whole("quota_mib", "the most that it may use, in MiB; 0: as much as there is")
                                 .at_most(config::kMaxQuotaMib)),
                         key(list("clients", "clients that may use it; empty: every one",
                                  text("", "an address or prefix"))
                                 .at_most(segment::kMaxAllowed)),
                         key(list("hosts",
                                  "hosts that may use it when they have authenticated themselves; empty: any",
                                  text("", "a name"))
                                 .at_most(segment::kMaxExportHosts)),
                         save_parameter()},
          .result = change_result(),
          .errors = {"A value is none that a configuration file may have.",
                     "There is no place for another export before the data plane is started again.",
                     "It cannot be saved; nothing has changed then."}};
}

Declaration export_remove() {
  return {.name = "export_remove",
          .summary = "Removes an export; its files are kept, for when it is added again.",
          .parameters = {path_parameter(), save_parameter()},
          .result = change_result(),
          .errors = {"There is no such export.", "It cannot be saved; nothing has changed then."}};
}

std::vector<std::string> uring_features() {
  return {kUringFeatureNames.begin(), kUringFeatureNames.end()};
}

Declaration upstreams() {
  return {
      .name = "upstreams",
      .needed = Access::Read,
      .summary = "The upstream servers of the gateway, all reactors together.",
      .result = rows(
          "", "",
          {text("name", "its name"),
           rows("addresses", "its addresses, in order of preference; empty: no name of it has been resolved",
                {text("address", "the address"), flag("in_use", "whether a reactor uses it"),
                 text("answers", "whether it has answered of late").one_of({"yes", "no", "unknown"})}),
           whole("port", "its port"), whole("listen_port", "the port at which clients reach it"),
           text("state", "slow: it takes fewer calls than it is sent")
               .one_of({"up", "slow", "unreachable", "idle", "removed"}),
           whole("connections", "connections"), whole("connecting", "connections being made"),
           whole("outstanding", "calls that it has not answered"),
           whole("waiting", "calls that are not sent yet"),
           whole("credit_limit", "the most calls at a time of a reactor, the lowest of any; 0: no limit"),
           list("io_uring", "features of io_uring that every reactor uses for it",
                text("", "a feature").one_of(uring_features())),
           whole("calls", "calls forwarded"), whole("replies", "replies"),
           whole("resent", "calls sent again"), whole("timeouts", "calls that it has not answered in time"),
           number("upstream_p50_us", "the median of its latency, in microseconds"),
           number("upstream_p99_us", "the 99th percentile of its latency, in microseconds"),
           object("mean_us", "the mean latency by where it is spent, in microseconds",
                  {number("upstream", "from sending a call to the last byte of its reply"),
                   number("gateway", "from a call's arrival to sending it on"),
                   number("rdma",
                          "the rest, of all upstreams together that have programs in common with it")})})};
}

Declaration upstream_counters() {
  return {
      .name = "upstream_counters",
      .needed = Access::Read,
      .summary = "All counters of each upstream.",
      .result = rows("", "",
                     joined({text("name", "the upstream's name")}, counters_of(segment::kUpstreamCounters)))};
}

Field reverse_counter(const char* name) {
  for (const auto& info : segment::kIngressCounters)
    if (info.name == name) return whole(name, std::string(info.help));
  throw std::logic_error(std::string("There is no counter ") + name + ".");
}

Declaration reverse() {
  Fields fields = {whole("listen_port", "the TCP port of its clients"),
                   text("server", "the RDMA server's address"),
                   whole("server_port", "the RDMA server's port"),
                   text("state", "of the server").one_of({"up", "unreachable", "idle"}),
                   whole("clients", "TCP clients"),
                   whole("connected", "of those, with a connection to the server"),
                   whole("outstanding", "calls that the server has not answered"),
                   number("server_p50_us", "the median of the server's latency, in microseconds"),
                   number("server_p99_us", "the 99th percentile of it, in microseconds")};
  for (const char* name : {"calls", "replies", "failures", "timeouts", "calls_lost", "server_resets"})
    fields.push_back(reverse_counter(name));
  return {.name = "reverse",
          .needed = Access::Read,
          .summary = "The reverse gateway, all reactors together; empty where there is none.",
          .result = object("", "", fields).or_empty()};
}

Declaration reverse_counters() {
  return {.name = "reverse_counters",
          .needed = Access::Read,
          .summary = "All counters of the reverse gateway.",
          .result = object("", "", counters_of(segment::kIngressCounters))};
}

}  // namespace

Chapter declare_gateways() {
  return {.title = "Gateways", .methods = {upstreams(), upstream_counters(), reverse(), reverse_counters()}};
}
Chapter declare_exports() {
  return {.title = "Exports", .methods = {exports(), export_stats(), export_add(), export_remove()}};
}

}  // namespace sluice::admin
