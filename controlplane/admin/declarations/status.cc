// SPDX-License-Identifier: Apache-2.0
#include "controlplane/admin/declarations/common.h"
#include "controlplane/admin/declarations/declarations.h"
#include "controlplane/policy/admission.h"

namespace sluice::admin {
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
           object("connection_requests", "connection requests, by what became of them", verdicts()),
           object("control_loop_stall_ms", "how long the control plane's loop stood still, in milliseconds",
                  {number("since_start", "the longest since the start"),
                   number("recent", "the longest of late")}),
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

}  // namespace sluice::admin
