// SPDX-License-Identifier: Apache-2.0
#include "controlplane/admin/declarations/declarations.h"

#include "controlplane/admin/paced_work.h"
#include "controlplane/config/keys.h"
#include "controlplane/config/upstreams.h"
#include "controlplane/policy/busiest.h"
#include "dataplane/base/uring_features.h"

namespace sluice::admin {
namespace {

constexpr const char* kTooManyRows = "There are more than 16,384 rows; use the method that returns pages.";
static_assert(kMaxListedAtOnce == 16'384);

Fields connection_fields() {
  return {reactor_number(),
          connection_number(),
          text("state", "its state").one_of({"unused", "opening", "open", "closing"}),
          text("peer", "the client's address"),
          flag("outgoing", "whether this side established it, to a server"),
          text("class", "its client class"),
          whole("version", "version of RPC-over-RDMA; 0 before the first message"),
          whole("credits", "credits granted"),
          whole("busy", "calls in progress"),
          whole("calls", "calls received"),
          whole("receive_inline_bytes", "the longest message that is received inline"),
          whole("send_inline_bytes", "the longest message that is sent inline"),
          age_s("time since it was established"),
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
       whole("max_segment_bytes", "the longest chunk segment that it accepts"),
       whole("max_segments", "the maximum number of segments of a chunk that it accepts"),
       text("reverse_support", "calls in the other direction").one_of({"none", "inline", "general"})});
}

Fields both_sides() {
  return {side("ours", "properties that Sluice has sent"),
          side("client", "properties that the client has sent; null if none").or_null()};
}

std::vector<std::string> slot_states() {
  return words(segment::kSlotStates + 1, segment::kSlotStateCount - 1);
}

Declaration connections() {
  return {.name = "connections",
          .needed = Access::Read,
          .summary =
              "Returns all connections in one response, for sites with few connections. connections_read "
              "returns pages.",
          .parameters = {text("peer", "only connections of this address; empty for all").or_else(""),
                         text("class", "only connections of this client class; empty for all").or_else("")},
          .result = rows("", "", connection_fields()),
          .errors = {kTooManyRows, kTooMuchToDo}};
}

Field position_parameter() {
  return whole("from", "position at which the page begins: 0, or `next` of the previous page")
      .or_else(std::uint64_t{0});
}
Field count_parameter(std::uint32_t most, const char* meaning) {
  return whole32("count", meaning).at_most(most).or_else(most);
}
Field next_position() {
  return whole("next", "position at which the next page begins; null after the last page").or_null();
}

Declaration connections_read() {
  return {.name = "connections_read",
          .needed = Access::Read,
          .summary =
              "Returns the connections in pages. A page may have fewer rows than requested, or none, without "
              "being the last one. A connection that stays open during the listing is listed once.",
          .parameters = {position_parameter(),
                         count_parameter(kMaxPageRows, "maximum number of rows of the page"),
                         text("peer", "only connections of this address; empty for all").or_else(""),
                         text("class", "only connections of this client class; empty for all").or_else("")},
          .result = object("", "", {rows("connections", "the page", connection_fields()), next_position()})};
}

Declaration busiest() {
  return {
      .name = "busiest",
      .needed = Access::Read,
      .summary =
          "Returns the connections and clients with the most calls in the last second, and sums over "
          "all connections of clients.",
      .parameters = {whole32("count", "maximum number of connections, and of clients")
                         .at_most(policy::kBusiestKept)
                         .or_else(policy::kBusiestKept)},
      .result = object(
          "", "",
          {number("interval_s", "the interval in which calls were counted, in seconds; 0 if not counted yet"),
           whole("open", "open connections of clients"), whole("credits", "credits granted to them"),
           whole("busy", "their calls in progress"), number("calls_per_s", "their calls answered per second"),
           rows("connections", "the busiest connections, in descending order",
                {reactor_number(), connection_number(), text("peer", "the client's address"),
                 text("class", "its client class"), whole("credits", "credits granted"),
                 whole("busy", "calls in progress"), number("calls_per_s", "calls answered per second")}),
           rows("clients", "the busiest clients, in descending order",
                {text("peer", "the client's address"), whole("connections", "its connections that had calls"),
                 whole("credits", "credits granted to these"), whole("busy", "calls in progress on these"),
                 number("calls_per_s", "calls answered per second")})})};
}

Declaration connection_show() {
  return {
      .name = "connection_show",
      .needed = Access::Read,
      .summary = "Returns all state of a connection.",
      .parameters = {reactor_number(), connection_number()},
      .result = object(
          "", "",
          joined(
              connection_fields(),
              {whole("peak_busy", "the recent maximum of calls in progress"),
               whole("queue_pair", "its queue pair's number"),
               whole("received_bytes",
                     "bytes of messages and of RDMA Reads of the gateway, since it was opened"),
               whole("sent_bytes",
                     "bytes of messages and of RDMA Writes of the gateway, since it was opened"),
               whole("held_bytes", "bytes of shared buffers that it holds"),
               object("oldest_call", "the oldest call in progress; null if none",
                      {age_s("time since its arrival"),
                       text("state", "what it waits for").one_of(slot_states())})
                   .or_null(),
               flag("draining", "whether it is closed once it is idle"),
               flag("traced", "whether its calls are recorded"), flag("ending", "whether it is being closed"),
               whole("credits_wanted", "the grant that the policy has set; 0 if none"),
               map("counters_of_class",
                   "nonzero counters of errors and waits, of all connections of its class on its reactor",
                   whole("", "")),
               whole("cm_id", "its number in connection management"),
               whole("client_process", "loopback: the client's process").if_any(),
               object("properties", "version 2: transport properties", both_sides()).if_any()})),
      .errors = {kNoSuchConnection}};
}

Declaration connection_close() {
  return {.name = "connection_close",
          .summary = "Closes a connection; its client may establish another one.",
          .parameters = {reactor_number(), connection_number()},
          .result = object("", "", {flag("closing", "always true")}),
          .errors = {kNoSuchConnection}};
}

Fields property_fields() {
  return joined(both_sides(), {reactor_number(), connection_number(), text("peer", "the client's address")});
}

Declaration properties() {
  return {
      .name = "properties",
      .needed = Access::Read,
      .summary =
          "Returns the transport properties of all version 2 connections in one response, for sites with few "
          "connections. properties_read returns pages.",
      .result = rows("", "", property_fields()),
      .errors = {kTooManyRows, kTooMuchToDo}};
}

Declaration properties_read() {
  return {.name = "properties_read",
          .needed = Access::Read,
          .summary =
              "Returns the transport properties of the version 2 connections in pages. A page may have fewer "
              "rows than requested, or none, without being the last one.",
          .parameters = {position_parameter(),
                         count_parameter(kMaxPageRows, "maximum number of rows of the page")},
          .result = object("", "", {rows("properties", "the page", property_fields()), next_position()})};
}

Fields credit_sums() {
  return {whole("connections", "open connections of clients"),
          whole("idle", "those of them without a recent call"), whole("granted", "credits granted to them"),
          whole("used", "calls in progress")};
}

Declaration credits() {
  return {
      .name = "credits",
      .needed = Access::Read,
      .summary =
          "Returns the state of the credit policy: call slots of each reactor, and grants by client class.",
      .result =
          object("", "",
                 {rows("reactors", "the reactors",
                       joined({reactor_number(), whole("slots", "call slots")}, credit_sums())),
                  rows("classes", "the client classes",
                       joined({text("class", "the class"), number("weight", "its weight"),
                               whole("min_credits", "the minimum that a connection is granted"),
                               whole("max_credits", "the maximum that a connection is granted")},
                              credit_sums())),
                  whole("recomputations", "times that the policy was recomputed"),
                  number("last_recomputation_ms", "duration of the last recomputation, in milliseconds"),
                  whole("grants_changed", "grants that the policy has changed")}),
      .errors = {kTooMuchToDo}};
}

Field drain_result() {
  return object(
      "", "",
      {flag("draining", "whether connections are drained"), whole("connections", "remaining connections")});
}

Declaration drain(std::string name, std::string summary) {
  return {.name = std::move(name), .summary = std::move(summary), .result = drain_result()};
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
                "Refuses new connections, and closes existing ones once they are idle. Answers immediately."),
          drain("drain_stop", "Admits connections again."),
          {.name = "drain_status",
           .needed = Access::Read,
           .summary = "Returns whether connections are drained, and how many remain.",
           .result = drain_result()}}};
}

namespace {

Field path_parameter() {
  return text("path", "the export's path, which begins with '/'");
}

Declaration exports() {
  return {
      .name = "exports",
      .needed = Access::Read,
      .summary = "Returns the exports: space, files, calls.",
      .result = rows(
          "", "",
          {text("path", "its path"), flag("read_only", "whether changes are refused"),
           whole("used_bytes", "space in use"),
           whole("quota_bytes", "the maximum space that it may use; 0 if unlimited"),
           whole("files", "files and folders"), whole("calls", "calls"),
           whole("errors", "calls that were answered by an error"),
           whole("read_bytes", "bytes read by clients"), whole("written_bytes", "bytes written by clients"),
           list("hosts", "authenticated hosts that may use it; empty for all", text("", "a name"))})};
}

Declaration export_stats() {
  return {.name = "export_stats",
          .needed = Access::Read,
          .summary = "Returns the calls of each export by procedure, for procedures with calls.",
          .parameters = {text("path", "only calls of this export; empty for all").or_else("")},
          .result = rows("", "",
                         {text("path", "the export's path"), text("procedure", "the procedure's name"),
                          whole("calls", "calls"), whole("errors", "calls that were answered by an error")})};
}

Field save_parameter() {
  return flag("save", "whether to keep the change after restarts, in a file of exports_directory")
      .or_else(false);
}

Field change_result() {
  return object(
      "", "",
      {text("path", "the export's path"), flag("saved", "whether the change persists after a restart")});
}

Declaration export_add() {
  const Json usual = config::describe_entry(segment::ExportConfig{});
  const auto key = [&](const Field& field) { return field.or_else(usual.at(field.name)); };
  return {
      .name = "export_add",
      .summary =
          "Adds an export, or changes the export with this path. Omitted parameters have the defaults of the "
          "configuration file.",
      .parameters =
          {path_parameter(), key(flag("read_only", "whether changes are refused")),
           key(flag("root_squash", "whether root becomes anonuid and anongid")),
           key(flag("all_squash", "whether every user becomes anonuid and anongid")),
           key(whole32("anonuid", "the user ID of users that are mapped")),
           key(whole32("anongid", "the group ID of users that are mapped")),
           key(whole("quota_mib", "the maximum space that it may use, in MiB; 0 if unlimited")
                   .at_most(config::kMaxQuotaMib)),
           key(list("clients", "clients that may use it; empty for all", text("", "an address or prefix"))
                   .at_most(segment::kMaxAllowed)),
           key(list("hosts", "authenticated hosts that may use it; empty for all", text("", "a name"))
                   .at_most(segment::kMaxExportHosts)),
           save_parameter()},
      .result = change_result(),
      .errors = {"A value is invalid in a configuration file.",
                 "All export slots are in use until the data plane is restarted.",
                 "The change cannot be saved, and nothing has changed."}};
}

Declaration export_remove() {
  return {.name = "export_remove",
          .summary = "Removes an export. Its files are kept until it is added again.",
          .parameters = {path_parameter(), save_parameter()},
          .result = change_result(),
          .errors = {"There is no such export.", "The change cannot be saved, and nothing has changed."}};
}

std::vector<std::string> uring_features() {
  return {kUringFeatureNames.begin(), kUringFeatureNames.end()};
}

Declaration upstreams() {
  return {
      .name = "upstreams",
      .needed = Access::Read,
      .summary = "Returns the upstream servers of the gateway, summed over all reactors.",
      .result = rows(
          "", "",
          {text("name", "its name"),
           rows("addresses", "its addresses, in order of preference; empty if no name has been resolved",
                {text("address", "the address"), flag("in_use", "whether a reactor uses it"),
                 text("answers", "whether it has answered recently").one_of({"yes", "no", "unknown"})}),
           whole("port", "its port"), whole("listen_port", "the port at which clients reach it"),
           text("state", "slow if it accepts fewer calls than are sent to it")
               .one_of({"up", "slow", "unreachable", "idle", "removed"}),
           whole("connections", "connections"), whole("connecting", "connections that are being established"),
           whole("outstanding", "calls that it has not answered"),
           whole("waiting", "calls that wait to be sent"),
           whole("credit_limit",
                 "the limit of concurrent calls of a reactor, the lowest of all reactors; 0 if unlimited"),
           list("io_uring", "io_uring features that all reactors use for it",
                text("", "a feature").one_of(uring_features())),
           whole("calls", "calls forwarded"), whole("replies", "replies"),
           whole("resent", "calls retransmitted"),
           whole("timeouts", "calls that it has not answered in time"),
           number("upstream_p50_us", "the median of its latency, in microseconds"),
           number("upstream_p99_us", "the 99th percentile of its latency, in microseconds"),
           object("mean_us", "the mean latency by part, in microseconds",
                  {number("upstream", "time from sending a call to the last byte of its reply"),
                   number("gateway", "time from a call's arrival to its forwarding"),
                   number("rdma",
                          "the remaining time, for all upstreams that have programs in common with it")})})};
}

Declaration upstream_counters() {
  return {
      .name = "upstream_counters",
      .needed = Access::Read,
      .summary = "Returns all counters of each upstream.",
      .result = rows("", "",
                     joined({text("name", "the upstream's name")}, counters_of(segment::kUpstreamCounters)))};
}

Field reverse_counter(const char* name) {
  for (const auto& info : segment::kReverseCounters)
    if (info.name == name) return whole(name, std::string(info.help));
  throw std::logic_error(std::string("There is no counter ") + name + ".");
}

Declaration reverse() {
  Fields fields = {whole("listen_port", "the TCP port of its clients"),
                   text("server", "the RDMA server's address"),
                   whole("server_port", "the RDMA server's port"),
                   text("state", "of the server").one_of({"up", "unreachable", "idle"}),
                   whole("clients", "TCP clients"),
                   whole("connected", "TCP clients with a connection to the server"),
                   whole("outstanding", "calls that the server has not answered"),
                   number("server_p50_us", "the median of the server's latency, in microseconds"),
                   number("server_p99_us", "the 99th percentile of the server's latency, in microseconds")};
  for (const char* name : {"calls", "replies", "failures", "timeouts", "calls_lost", "server_resets"})
    fields.push_back(reverse_counter(name));
  return {.name = "reverse",
          .needed = Access::Read,
          .summary =
              "Returns the state of the reverse gateway, summed over all reactors; empty if there is none.",
          .result = object("", "", fields).or_empty()};
}

Declaration reverse_counters() {
  return {.name = "reverse_counters",
          .needed = Access::Read,
          .summary = "Returns all counters of the reverse gateway.",
          .result = object("", "", counters_of(segment::kReverseCounters))};
}

}  // namespace

Chapter declare_gateways() {
  return {.title = "Gateways", .methods = {upstreams(), upstream_counters(), reverse(), reverse_counters()}};
}
Chapter declare_exports() {
  return {.title = "Exports", .methods = {exports(), export_stats(), export_add(), export_remove()}};
}

}  // namespace sluice::admin
