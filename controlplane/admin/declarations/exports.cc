// SPDX-License-Identifier: Apache-2.0
//
// Methods of exports, and of the gateways.
#include "controlplane/config/exports.h"
#include "controlplane/admin/declarations/common.h"
#include "controlplane/admin/declarations/declarations.h"
#include "dataplane/base/uring_features.h"

namespace sluice::admin {
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

}  // namespace

Chapter declare_exports() {
  return {.title = "Exports", .methods = {exports(), export_stats(), export_add(), export_remove()}};
}

namespace {

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

}  // namespace sluice::admin
