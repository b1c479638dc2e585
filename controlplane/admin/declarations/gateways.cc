// SPDX-License-Identifier: Apache-2.0
//
// Methods for exports and gateways.
#include "controlplane/admin/declarations/declarations.h"

#include "controlplane/config/keys.h"
#include "controlplane/config/upstreams.h"
#include "dataplane/base/uring_features.h"

namespace sluice::admin {
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
