// SPDX-License-Identifier: Apache-2.0
#include "controlplane/admin/declarations/declarations.h"

#include <stdexcept>

#include "controlplane/admin/declarations/common.h"
#include "controlplane/config/config.h"
#include "controlplane/config/describe.h"
#include "controlplane/policy/refusal.h"
#include "controlplane/policy/verdict.h"

namespace sluice::admin {
const std::vector<Chapter>& chapters() {
  static const std::vector<Chapter> all = {declare_status(),        declare_connections(), declare_calls(),
                                           declare_exports(),       declare_reactors(),    declare_gateways(),
                                           declare_configuration(), declare_captures()};
  return all;
}

const Declaration& declared(const std::string& name) {
  for (const Chapter& chapter : chapters())
    for (const Declaration& method : chapter.methods)
      if (method.name == name) return method;
  throw std::logic_error("The method " + name + " is not declared.");
}

namespace {

Field plane(std::string name, std::string meaning) {
  return object(
      std::move(name), std::move(meaning),
      {flag("alive", "whether its heartbeat beats"), whole("pid", "its process; 0: there is none"),
       text("version", "its release; none where it has not said it").if_any(),
       number("heartbeat_age_s", "since its last heartbeat, in seconds; none where there is no process")
           .if_any(),
       number("uptime_s",
              "since its start, in seconds; 0 when it is not alive; none where there is no process")
           .if_any()});
}

Fields verdicts() {
  Fields fields;
  for (std::size_t i = 0; i < std::size(policy::kVerdicts); ++i)
    fields.push_back(whole(policy::kVerdictNames[i], policy::kVerdicts[i]));
  for (const policy::RefusalInfo& refusal : policy::kRefusals)
    fields.push_back(whole(refusal.name, refusal.text));
  return fields;
}

Fields event_counts() {
  return {whole("recorded", "events in the journal since the start"),
          whole("suppressed", "events that came too fast, and are counted only"),
          whole("overwritten_unread", "events overwritten before anybody had read them"),
          whole("lost_by_targets", "events that a file or journald did not take in time"),
          whole("log_lines_dropped", "lines of the log that it did not take in time")};
}

Declaration status() {
  return {
      .name = "status",
      .needed = Access::Read,
      .summary = "A summary of both planes.",
      .result = object(
          "", "",
          {text("version", "the control plane's release"), plane("control_plane", "the control plane"),
           plane("data_plane", "the data plane"),
           object("configuration", "the configuration that is published",
                  {whole("generation", "counts the configurations that were published"),
                   flag("in_force", "whether the data plane has applied it, or there is no data plane"),
                   list("pending", "keys that a restart of both planes brings into force", text("", "a key")),
                   list("pending_control", "keys that a restart of the control plane brings into force",
                        text("", "a key"))}),
           flag("draining", "whether connections are drained"),
           whole("connections", "connections, as the reactors count them"),
           whole("admitted_connections", "connections, as admission counts them"),
           whole("exports", "exports"), whole("port", "the port of NFS over RDMA"),
           rows("services", "where clients find the service (RFC 8166, section 9)",
                {text("netid", "the netid").one_of({"rdma", "rdma6"}),
                 text("address", "the universal address")}),
           object("connection_requests",
                  "connection requests, by what became of them; those refused after admission count twice",
                  verdicts()),
           object("control_loop_stall_ms", "how long the control plane's loop stood still, in milliseconds",
                  {number("since_start", "the longest since the start"),
                   number("recent", "the longest of late")}),
           object("admin", "the admin socket",
                  {whole("clients_cut_off",
                         "clients disconnected because they did not read their responses, or had more than a "
                         "share of the connections"),
                   whole("requests_queued",
                         "requests that waited because others of the same process, of the same user or "
                         "of all had not been answered")}),
           object("events", "what of events and of the log was recorded, and what was lost",
                  event_counts())})};
}

Declaration version() {
  return {.name = "version",
          .needed = Access::Read,
          .summary = "The control plane's release.",
          .result = object("", "", {text("version", "the release")})};
}

Declaration discover() {
  return {
      .name = "rpc.discover",
      .needed = Access::Read,
      .summary =
          "This reference for programs: an OpenRPC document, with a JSON Schema (draft 7) of each parameter "
          "and each result. An administrator's right to call a method is its x-access.",
      .result =
          object("", "",
                 {text("openrpc", "the version of OpenRPC that it follows"),
                  object("info", "what it describes",
                         {text("title", "the interface"), text("version", "the control plane's release")}),
                  list("methods", "a method object for each method", {})})};
}

}  // namespace

Chapter declare_status() {
  return {.title = "Planes", .methods = {status(), version(), discover()}};
}

namespace {

constexpr const char* kKeyOfFile = "the key of this name";

Fields changes() {
  return {list("in_force", "keys whose changes take effect without a restart", text("", "a key")),
          list("restart_control_plane", "keys that want a restart of the control plane", text("", "a key")),
          list("restart_both_planes", "keys that want a restart of both planes", text("", "a key"))};
}

/// Returns `config` with at least one entry in each list of tables, and with a value for each key that is
/// described only if it is set.
config::Config with_everything(config::Config config) {
  config.block.vlan = 1;
  config.block.service_level = 0;
  config.block.exports[0].in_use = 1;
  config.block.upstream_count = 1;
  config.block.choose_cpus = 0;
  config.classes.resize(2);
  config.authentication_hosts.resize(1);
  return config;
}

Fields keys_of(const Json& table, const Json& usual);

/// Declares the key `name` with the type of `value`. Keys that `usual`, the table of defaults, lacks are
/// optional.
Field key_of(const std::string& name, const Json& value, const Json& usual) {
  if (value.is_object()) return object(name, "the table of this name", keys_of(value, usual));
  if (value.is_array() && !value.empty() && value[0].is_object())
    return rows(name, "the tables of this name", keys_of(value[0], value[0]));
  const bool numbers = value.is_array() && !value.empty() && value[0].is_number();
  if (value.is_array()) return list(name, kKeyOfFile, numbers ? whole("", "") : text("", ""));
  if (value.is_boolean()) return flag(name, kKeyOfFile);
  if (value.is_number_integer()) return whole(name, kKeyOfFile);
  return value.is_number() ? number(name, kKeyOfFile) : text(name, kKeyOfFile);
}

Fields keys_of(const Json& table, const Json& usual) {
  Fields keys;
  for (const auto& [name, value] : table.items()) {
    const bool always = usual.contains(name);
    const Field key = key_of(name, value, always ? usual[name] : Json::object());
    keys.push_back(always ? key : key.if_any());
  }
  return keys;
}

/// Declares config_show. Its fields have the names of the keys in the file, which configuration.md explains.
Declaration config_show() {
  const config::Config usual = config::parse("", "defaults");
  Fields keys = keys_of(config::describe(with_everything(usual)), config::describe(usual));
  keys.push_back(object("saved", "changes that were saved (saved_changes)",
                        {flag("drain", "whether the appliance drains from its start on"),
                         list("export", "exports that were added", text("", "a path")),
                         list("removed_exports", "of the configuration's exports", text("", "a path"))}));
  return {.name = "config_show",
          .needed = Access::Read,
          .summary = "All keys of the configuration in force, as [configuration](configuration.md) has them.",
          .result = object("", "", keys)};
}

Declaration config_check() {
  return {
      .name = "config_check",
      .needed = Access::Read,
      .summary = "Checks a configuration file's text, and says what it would change. Nothing is changed.",
      .parameters = {text("text", "the file's content").or_else(""),
                     text("name", "what defects call the file").or_else("configuration"),
                     flag("descriptor",
                          "whether the content is that of a regular file, of at most 1 MiB, whose descriptor "
                          "is passed with the request (SCM_RIGHTS); `text` has no meaning then")
                         .or_else(false)},
      .result = object("", "",
                       {flag("ok", "whether it has no defect"),
                        object("changes", "what it would change; none with a defect", changes()).if_any(),
                        text("notes",
                             "a line for each thing that a data plane with the processors, the control "
                             "group and the network of the control plane would refuse")
                            .if_any(),
                        text("defects", "a line for each; none without a defect").if_any()}),
      .errors = {kTooMuchToDo}};
}

Declaration config_reload() {
  return {
      .name = "config_reload",
      .summary =
          "Reads the configuration file again, and applies what can take effect without a restart; calls go "
          "on. The data plane has applied it when status has configuration.in_force.",
      .result = object("", "", changes()),
      .errors = {"The file has defects, or cannot be read; the configuration in force stays."}};
}

Declaration log_level() {
  const Field level =
      text("level", "the level; debug shows no more than info").one_of({"debug", "info", "warn", "error"});
  return {.name = "log_level",
          .summary = "Sets the log level of both planes, until the next reload.",
          .parameters = {level},
          .result = object("", "", {text("log_level", "the level")})};
}

}  // namespace

Chapter declare_configuration() {
  return {.title = "Configuration", .methods = {config_show(), config_check(), config_reload(), log_level()}};
}

namespace {

Declaration capture_start() {
  return {.name = "capture_start",
          .summary =
              "Writes the packets of a softroce device to a pipe, as a pcapng file. Its writing end is "
              "passed with "
              "the request (SCM_RIGHTS), with the request's first byte.",
          .parameters = {whole32("seconds", "end after so long; 0: no limit").or_else(0),
                         whole32("snap", "bytes kept of each packet").or_else(9216),
                         whole("packets", "end after so many packets; 0: no limit").or_else(0),
                         whole("bytes", "end before more is written; 0: no limit").or_else(0),
                         whole32("queue_pair", "only packets of this queue pair; 0: of all").or_else(0),
                         text("peer", "only packets from and to this address; empty: of all").or_else("")},
          .result = object("", "", {whole("id", "names the capture")}),
          .errors = {"No descriptor was passed.", "peer is no IP address.", "A capture runs already.",
                     "No data plane takes the request."}};
}

Declaration capture_stop() {
  return {.name = "capture_stop",
          .summary = "Ends a capture; what was captured is still written.",
          .parameters = {whole("id", "the capture; 0: any").or_else(0)},
          .result = object("", "", {whole("id", "the same")}),
          .errors = {"No data plane takes the request."}};
}

Declaration capture_status() {
  return {.name = "capture_status",
          .needed = Access::Read,
          .summary = "The last capture.",
          .result =
              object("", "",
                     {text("state", "none: there was none since the data plane's start")
                          .one_of({"none", "running", "done", "failed"}),
                      whole("id", "names the capture").if_any(), whole("packets", "packets written").if_any(),
                      whole("bytes", "bytes written").if_any(),
                      whole("dropped", "packets lost because the pipe was full").if_any(),
                      text("end", "done: why it has ended").if_any(),
                      text("problem", "failed: why, a sentence").if_any()})};
}

}  // namespace

Chapter declare_captures() {
  return {.title = "Packet capture", .methods = {capture_start(), capture_stop(), capture_status()}};
}

}  // namespace sluice::admin
