// SPDX-License-Identifier: Apache-2.0
#include "controlplane/admin/declarations/declarations.h"

#include <iterator>
#include <map>
#include <set>
#include <stdexcept>
#include <string>

#include "controlplane/config/keys.h"
#include "controlplane/policy/admission.h"

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
      {flag("alive", "whether its heartbeat is recent"), whole("pid", "its process; 0 if none"),
       text("version", "its release; absent if unknown").if_any(),
       number("heartbeat_age_s", "time since its last heartbeat, in seconds; absent if there is no process")
           .if_any(),
       number("uptime_s",
              "time since its start, in seconds; 0 if it is not alive; absent if there is no process")
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
          whole("suppressed", "events that were only counted because their rate was too high"),
          whole("overwritten_unread", "events that were overwritten before they were read"),
          whole("lost_by_targets", "events that a file or journald did not accept in time"),
          whole("log_lines_dropped", "lines of the log that the output did not accept in time")};
}

Declaration status() {
  return {
      .name = "status",
      .needed = Access::Read,
      .summary = "Returns a summary of both planes.",
      .result = object(
          "", "",
          {text("version", "the control plane's release"), plane("control_plane", "the control plane"),
           plane("data_plane", "the data plane"),
           object(
               "configuration", "the configuration that is published",
               {whole("generation", "number of configurations that were published"),
                flag("in_force", "whether the data plane has applied it, or there is no data plane"),
                list("pending", "changed keys that take effect after a restart of both planes",
                     text("", "a key")),
                list("pending_control", "changed keys that take effect after a restart of the control plane",
                     text("", "a key"))}),
           flag("draining", "whether connections are drained"),
           whole("connections", "number of connections, counted by the reactors"),
           whole("admitted_connections", "number of connections, counted by admission"),
           whole("exports", "exports"), whole("port", "the port of NFS over RDMA"),
           rows("services", "addresses at which clients find the service (RFC 8166, section 9)",
                {text("netid", "the netid").one_of({"rdma", "rdma6"}),
                 text("address", "the universal address")}),
           object("connection_requests",
                  "connection requests by result; those refused after admission count twice", verdicts()),
           object("control_loop_stall_ms", "longest iterations of the control plane's loop, in milliseconds",
                  {number("since_start", "the longest since the start"),
                   number("recent", "the longest recent one")}),
           object("admin", "the admin socket",
                  {whole("clients_cut_off",
                         "clients disconnected because they did not read their responses, or had more than a "
                         "share of the connections"),
                   whole("requests_queued",
                         "requests that waited because earlier requests of their process, their user or "
                         "all users were unanswered")}),
           object("events", "recorded and lost events and lines of the log", event_counts())})};
}

Declaration planes_version() {
  return {.name = "version",
          .needed = Access::Read,
          .summary = "Returns the control plane's release.",
          .result = object("", "", {text("version", "the release")})};
}

}  // namespace

Chapter declare_status() {
  return {.title = "Planes", .methods = {status(), planes_version()}};
}

namespace {

Fields changes() {
  return {
      list("in_force", "keys whose changes take effect without a restart", text("", "a key")),
      list("restart_control_plane", "keys whose changes require a restart of the control plane",
           text("", "a key")),
      list("restart_both_planes", "keys whose changes require a restart of both planes", text("", "a key"))};
}

Field field_of(const config::KeyRow& key) {
  switch (key.kind) {
    case config::Kind::Integer:
      return whole(key.name, key.sentence);
    case config::Kind::Boolean:
      return flag(key.name, key.sentence);
    case config::Kind::Text:
      return text(key.name, key.sentence);
    case config::Kind::IntegerList:
      return list(key.name, key.sentence, whole("", ""));
    case config::Kind::List:
    case config::Kind::TextOrList:
      break;
  }
  return list(key.name, key.sentence, text("", ""));
}

/// Declares all keys of the file, nested in their tables.
Fields keys_of_file() {
  std::map<std::string, Fields> tables;
  std::set<std::string> lists;
  for (const config::KnownKey& key : config::known_keys()) {
    const Field field = field_of(*key.row);
    // A key without a default is in the result only if it has a value.
    tables[key.table].push_back(key.usual.is_null() ? field.if_any() : field);
    if (key.in_list) lists.insert(key.table);
  }
  // The names are in order: a table is behind its outer table, and the top level is first.
  while (tables.size() > 1) {
    const auto last = std::prev(tables.end());
    const std::string& full = last->first;
    const std::size_t dot = full.rfind('.');
    const std::string name = full.substr(dot == std::string::npos ? 0 : dot + 1);
    const Field table = lists.count(full) != 0 ? rows(name, "the tables of this name", last->second)
                                               : object(name, "the table of this name", last->second);
    Fields& outer = tables[dot == std::string::npos ? "" : full.substr(0, dot)];
    outer.insert(outer.begin(), table);
    tables.erase(last);
  }
  return tables.begin()->second;
}

/// Declares config_show. Its fields have the names of the keys in the file.
Declaration config_show() {
  return {.name = "config_show",
          .needed = Access::Read,
          .summary =
              "Returns all keys of the configuration in force, as described in "
              "[configuration](configuration.md).",
          .result = object("", "", keys_of_file())};
}

Declaration config_check() {
  return {
      .name = "config_check",
      .needed = Access::Read,
      .summary =
          "Checks the text of a configuration file, and returns what it would change. Nothing is changed.",
      .parameters = {text("text", "the file's content").or_else(""),
                     text("name", "the name of the file in defects").or_else("configuration"),
                     flag("descriptor",
                          "whether the content is that of a regular file, of at most 1 MiB, whose descriptor "
                          "is passed with the request (SCM_RIGHTS); `text` is ignored then")
                         .or_else(false)},
      .result = object(
          "", "",
          {flag("ok", "whether the file has no defects"),
           object("changes", "the changes that a reload would apply; absent if there are defects", changes())
               .if_any(),
           text("notes",
                "a line for each thing that a data plane with the processors, the control "
                "group and the network of the control plane would refuse")
               .if_any(),
           text("defects", "a line for each defect; absent if there are none").if_any()}),
      .errors = {kTooMuchToDo}};
}

Declaration config_reload() {
  return {.name = "config_reload",
          .summary =
              "Reloads the configuration file, and applies changes that take effect without a restart, while "
              "calls continue. The data plane has applied it when status has configuration.in_force.",
          .result = object("", "", changes()),
          .errors = {"The file has defects or cannot be read; the configuration in force is not changed."}};
}

Declaration log_level() {
  const Field level =
      text("level", "the level; debug is equivalent to info").one_of({"debug", "info", "warn", "error"});
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
  return {
      .name = "capture_start",
      .summary =
          "Writes the packets of a softroce device to a pipe, as a pcapng file. The writing end of the pipe "
          "is passed with the first byte of the request (SCM_RIGHTS).",
      .parameters = {whole32("seconds", "time limit in seconds; 0 if unlimited").or_else(0),
                     whole32("snap", "bytes kept of each packet").or_else(9216),
                     whole("packets", "maximum number of packets; 0 if unlimited").or_else(0),
                     whole("bytes", "maximum size of the output; 0 if unlimited").or_else(0),
                     whole32("queue_pair", "only packets of this queue pair; 0 for all").or_else(0),
                     text("peer", "only packets from and to this address; empty for all").or_else("")},
      .result = object("", "", {whole("id", "ID of the capture")}),
      .errors = {"No descriptor was passed.", "peer is not an IP address.", "A capture runs already.",
                 "No data plane accepts the request."}};
}

Declaration capture_stop() {
  return {.name = "capture_stop",
          .summary = "Ends a capture. Packets that were captured are still written.",
          .parameters = {whole("id", "ID of the capture; 0 for any").or_else(0)},
          .result = object("", "", {whole("id", "ID of the capture")}),
          .errors = {"No data plane accepts the request."}};
}

Declaration capture_status() {
  return {.name = "capture_status",
          .needed = Access::Read,
          .summary = "Returns the status of the last capture.",
          .result =
              object("", "",
                     {text("state", "none if there was no capture since the data plane's start")
                          .one_of({"none", "running", "done", "failed"}),
                      whole("id", "ID of the capture").if_any(), whole("packets", "packets written").if_any(),
                      whole("bytes", "bytes written").if_any(),
                      whole("dropped", "packets lost because the pipe was full").if_any(),
                      text("end", "reason for the end, if done").if_any(),
                      text("problem", "reason for the failure as a sentence, if failed").if_any()})};
}

}  // namespace

Chapter declare_captures() {
  return {.title = "Packet capture", .methods = {capture_start(), capture_stop(), capture_status()}};
}

}  // namespace sluice::admin
