// SPDX-License-Identifier: Apache-2.0
//
// The program sluicectl: administration through the control plane's admin socket.
#include <fcntl.h>

#include <cstdio>
#include <iostream>

#include "cli/arguments.h"
#include "cli/output.h"
#include "cli/sluicectl/capture.h"
#include "cli/sluicectl/client.h"
#include "cli/sluicectl/commands.h"
#include "cli/sluicectl/debug_dump.h"
#include "cli/sluicectl/events.h"
#include "cli/sluicectl/listing.h"
#include "cli/sluicectl/print.h"
#include "cli/sluicectl/slow.h"
#include "cli/sluicectl/top.h"
#include "cli/sluicectl/why.h"
#include "dataplane/base/file_descriptor.h"
#include "dataplane/base/function.h"
#include "dataplane/base/text_file.h"

namespace {

using namespace sluice::ctl;
using sluice::Json;
namespace cli = sluice::cli;

enum ExitCode { kOk = 0, kErrorAnswer = 1, kUnreachable = 3, kForbidden = 4, kDefects = 5 };

struct Defects : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Options of all commands, and the action of the chosen command.
struct Session {
  std::string socket = "/run/sluice/admin.sock";
  bool as_json = false;
  sluice::Function<void(const Client&)> chosen;

  void show(const Json& result) const { print(result, as_json); }
  /// Shows the result of a change. `not_saved` is the sentence for a change that a restart undoes; JSON
  /// output has a key for that.
  void show_change(const Json& result, const char* not_saved) const {
    show(result);
    if (!as_json && !result.value("saved", false)) std::cout << not_saved << '\n';
  }
};

cli::Command command(cli::Command& parent, Session& session, const std::string& name, const std::string& help,
                     sluice::Function<void(const Client&)> action) {
  cli::Command made = parent.subcommand(name, help);
  made.on_chosen([&session, action = std::move(action)] {
    if (!session.chosen) session.chosen = action;  // a subcommand's action is called before its parent's
  });
  return made;
}

/// Returns the result of config_check. A file that is too long for a request line is passed as a descriptor,
/// so that the control plane can read it without permission to open it.
Json check_file(const Client& client, const std::string& file) {
  constexpr std::size_t kMaxLineBytes = 32u << 10;  // a character may take two or more bytes in JSON
  const std::string text = sluice::read_text_file(file);
  const std::string line = Json(text).dump();
  if (line.size() <= kMaxLineBytes) return client.ask("config_check", {{"text", text}, {"name", file}});
  const sluice::FileDescriptor opened(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  return client.ask("config_check", {{"descriptor", true}, {"name", file}}, opened.get());
}

void add_views(cli::Command& app, Session& session) {
  for (const auto& [name, help] : std::vector<std::pair<std::string, std::string>>{
           {"status", "Summary of both planes"},
           {"reactors", "Reactors: state, processor, calls, bytes, and where their time goes"},
           {"procedures", "Procedures by class: calls, and the reactors' time that they take"},
           {"devices", "RDMA ports of this machine, and counters of each reactor's device"},
           {"credits", "Credit policy: call slots of each reactor, and grants by class"},
           {"topology", "Processors and NUMA nodes, and processors of reactors"},
           {"memory", "Memory of the data plane, by purpose"},
           {"counters", "All counters of each reactor"},
           {"version", "Version of the control plane"}})
    command(app, session, name, help,
            [&session, method = name](const Client& client) { session.show(client.ask(method)); });
}

void add_connections(cli::Command& app, Session& session) {
  static std::string peer;
  static std::string of_class;
  cli::Command connections =
      command(app, session, "connections", "Connections: peer, class, version, credits, calls",
              [&](const Client& client) {
                print_listing(client, "connections", {{"peer", peer}, {"class", of_class}}, session.as_json);
              });
  connections.option("--peer", peer, "Only connections of this address");
  connections.option("--class", of_class, "Only connections of this class of clients");
  static std::uint32_t reactor = 0;
  static std::uint32_t number = 0;
  cli::Command one =
      command(connections, session, "show", "Everything about a connection", [&](const Client& client) {
        session.show(client.ask("connection_show", {{"reactor", reactor}, {"connection", number}}));
      });
  one.option("reactor", reactor, "As 'sluicectl connections' shows it").required();
  one.option("connection", number, "As 'sluicectl connections' shows it").required();
  cli::Command close = command(connections, session, "close", "End a connection", [&](const Client& client) {
    session.show(client.ask("connection_close", {{"reactor", reactor}, {"connection", number}}));
  });
  close.option("reactor", reactor, "As 'sluicectl connections' shows it").required();
  close.option("connection", number, "As 'sluicectl connections' shows it").required();

  command(
      app, session, "properties", "Transport properties of version 2 connections, ours and the client's",
      [&](const Client& client) { print_listing(client, "properties", Json::object(), session.as_json); });

  static ConnectionNumber asked;
  cli::Command reasons =
      command(app, session, "why",
              "What is known of a connection: state, credits, calls, events, slow calls, why it "
              "has ended",
              [&](const Client& client) {
                const Json known = why(client, asked);
                session.as_json ? print(known, true) : print_why(known);
              });
  reasons.option("reactor", asked.reactor, "As 'sluicectl connections' and 'sluicectl events' show it")
      .required();
  reasons.option("connection", asked.connection, "As they show it").required();

  static TraceOptions trace_options;
  cli::Command tracing =
      command(app, session, "trace", "Calls of a connection, and the time that each was in each state",
              [&](const Client& client) { session.show(trace(client, trace_options)); });
  tracing.option("reactor", trace_options.reactor, "As 'sluicectl connections' shows it").required();
  tracing.option("connection", trace_options.connection, "As 'sluicectl connections' shows it").required();
  tracing.option("--calls", trace_options.calls, "End after this many calls").shows_default();
  tracing.option("--seconds", trace_options.seconds, "End after this many seconds").shows_default();
  tracing.flag("--start", trace_options.start, "Record calls from now on; the reactor keeps the last 256");
  tracing.flag("--last", trace_options.last, "Show the last recorded calls");
  tracing.flag("--stop", trace_options.stop, "Stop recording");
}

void add_exports(cli::Command& app, Session& session) {
  cli::Command exports = command(app, session, "exports", "Exports: space, files, calls",
                                 [&](const Client& client) { session.show(client.ask("exports")); });
  static std::string path;
  static bool read_only = false;
  static bool no_root_squash = false;
  static bool all_squash = false;
  static std::uint32_t anonuid = 65534;
  static std::uint32_t anongid = 65534;
  static std::uint64_t quota_mib = 0;
  static std::vector<std::string> clients;
  static std::vector<std::string> hosts;
  static bool save = false;
  const auto show = [&](const Json& result) {
    session.show_change(result, "In force until the next reload or restart: with --save it is kept.");
  };
  cli::Command stats =
      command(exports, session, "stats", "Calls and errors by procedure", [&](const Client& client) {
        session.show(client.ask("export_stats", {{"path", path}}));
      });
  stats.option("path", path, "Only of this export");
  cli::Command add =
      command(exports, session, "add", "Add an export, or change one", [&, show](const Client& client) {
        const Json parameters = {{"path", path},
                                 {"read_only", read_only},
                                 {"root_squash", !no_root_squash},
                                 {"all_squash", all_squash},
                                 {"anonuid", anonuid},
                                 {"anongid", anongid},
                                 {"quota_mib", quota_mib},
                                 {"clients", clients},
                                 {"hosts", hosts}};
        const Json result = client.ask("export_add", to_be_saved(parameters, save));
        wait_until_in_force(client);
        show(result);
      });
  add.option("path", path, "Begins with '/'").required();
  add.flag("--read-only", read_only, "Refuse changes");
  add.flag("--no-root-squash", no_root_squash, "Do not map root to anonuid and anongid");
  add.flag("--all-squash", all_squash, "Map all users to anonuid and anongid");
  add.option("--anonuid", anonuid, "User ID of mapped users").shows_default();
  add.option("--anongid", anongid, "Group ID of mapped users").shows_default();
  add.option("--quota-mib", quota_mib, "Limit of space in MiB; 0: as much as there is").shows_default();
  add.option("--client", clients,
             "Address or prefix of permitted clients, repeatable; default: every client");
  add.option("--host", hosts,
             "Name of a permitted host that authenticates itself, repeatable; default: every host");
  cli::Command remove =
      command(exports, session, "remove", "Remove an export; its files are kept, for when it is added again",
              [&, show](const Client& client) {
                const Json result = client.ask("export_remove", to_be_saved({{"path", path}}, save));
                wait_until_in_force(client);
                show(result);
              });
  remove.option("path", path, "As 'sluicectl exports' shows it").required();
  for (cli::Command* change : {&add, &remove})
    change->flag("--save", save, "Keep it over reloads and restarts, in the file that saved_changes names");
}

void add_gateways(cli::Command& app, Session& session) {
  cli::Command upstreams =
      command(app, session, "upstreams",
              "Upstream servers: state, calls in flight, mean latency by where it is spent",
              [&](const Client& client) { session.show(client.ask("upstreams")); });
  command(upstreams, session, "stats", "All counters of each upstream",
          [&](const Client& client) { session.show(client.ask("upstream_counters")); });
  cli::Command reverse =
      command(app, session, "reverse", "The reverse gateway: TCP clients, their calls to the RDMA server",
              [&](const Client& client) { session.show(client.ask("reverse")); });
  command(reverse, session, "stats", "All counters of the reverse gateway",
          [&](const Client& client) { session.show(client.ask("reverse_counters")); });
}

void add_config(cli::Command& app, Session& session) {
  cli::Command config = app.subcommand("config", "The configuration");
  config.requires_subcommand();
  command(config, session, "show", "All keys in force",
          [&](const Client& client) { session.show(client.ask("config_show")); });
  static std::string file;
  cli::Command check = command(config, session, "check", "Check a file, and show what it would change",
                               [&](const Client& client) {
                                 const Json result = check_file(client, file);
                                 if (!result["ok"].get<bool>())
                                   throw Defects(result["defects"].get<std::string>());
                                 if (result.contains("notes"))
                                   std::fprintf(stderr, "%s", result["notes"].get<std::string>().c_str());
                                 session.show(result["changes"]);
                               });
  check.option("file", file, "Configuration file").required();
  command(config, session, "reload", "Read the file again; calls go on; lists the keys that need a restart",
          [&](const Client& client) {
            const Json changes = client.ask("config_reload");
            wait_until_in_force(client);
            session.show(changes);
          });
  static std::string level;
  cli::Command log = command(app, session, "log-level", "Log level of both planes, until the next reload",
                             [&](const Client& client) {
                               session.show(client.ask("log_level", {{"level", level}}));
                             });
  log.option("level", level, "info, warn or error; debug is accepted, and shows no more than info")
      .required();
}

void add_events(cli::Command& app, Session& session) {
  static EventOptions options;
  cli::Command events =
      command(app, session, "events", "What has happened: connections, refusals, upstreams, configurations",
              [&](const Client& client) { print_events(client, options, session.as_json); });
  events.flag("--follow", options.follow, "Go on with what happens from now on, until SIGINT");
  events.option("--since", options.since, "Begin with this sequence number").shows_default();
}

void add_slow_calls(cli::Command& app, Session& session) {
  static bool follow = false;
  cli::Command slow =
      command(app, session, "slow",
              "Calls that took longer than [observability] slow_call_ms, and where their time went",
              [&](const Client& client) { print_slow_calls(client, follow, session.as_json); });
  slow.flag("--follow", follow, "Go on with those to come, until SIGINT");
}

void add_operations(cli::Command& app, Session& session) {
  static CaptureOptions capture_options;
  cli::Command capturing =
      command(app, session, "capture", "Write a device's packets to a pcapng file, for Wireshark",
              [&](const Client& client) {
                const Json status = capture(client, capture_options);
                // The capture uses standard output.
                if (capture_options.file == "-")
                  std::cerr << status["packets"] << " packets, " << status["dropped"] << " dropped\n";
                else
                  session.show(status);
              });
  capturing.option("file", capture_options.file, "File to create, or FIFO; '-': standard output");
  capturing.option("--seconds", capture_options.seconds, "End after so long; 0: no limit").shows_default();
  capturing.option("--packets", capture_options.packets, "End after this many packets; 0: no limit");
  capturing.option("--mib", capture_options.mib, "End before the file is larger; 0: no limit")
      .shows_default();
  capturing.option("--peer", capture_options.peer, "Only packets from and to this address");
  capturing.option("--queue-pair", capture_options.queue_pair,
                   "Only packets of this queue pair, as 'sluicectl connections show' names it");
  capturing.flag("--stop", capture_options.stop, "End the capture that runs, whoever has started it");
  capturing.option("--snap", capture_options.snap, "Bytes kept of each packet").shows_default();

  static DrainOptions drain_options;
  cli::Command draining = command(
      app, session, "drain",
      "Refuse new connections and close each of the others once it has no call; for upgrades",
      [&](const Client& client) {
        session.show_change(drain(client, drain_options),
                            drain_options.stop ? "The next start drains again: with --save it does not."
                                               : "A restart of both planes ends it: with --save it is kept.");
      });
  draining.option("--seconds", drain_options.seconds, "Maximum wait until none is left").shows_default();
  draining.flag("--stop", drain_options.stop, "Admit connections again");
  draining.flag("--save", drain_options.save,
                "Keep it over restarts, or that it has ended, in the file that saved_changes names");
  draining.flag("--no-wait", drain_options.no_wait, "Start, and do not wait");

  static double interval = 1;
  static unsigned turns = 0;
  cli::Command live =
      command(app, session, "top",
              "A live view: reactors, procedures, exports, upstreams, the busiest clients and connections",
              [&](const Client& client) { top(client, interval, turns); });
  live.option("--interval", interval, "Seconds between updates").shows_default();
  live.option("--turns", turns, "End after this many updates; 0: at SIGINT");
}

void add_debug(cli::Command& app, Session& session) {
  cli::Command debug = app.subcommand("debug", "For bug reports");
  debug.requires_subcommand();
  static std::string file;
  cli::Command dump =
      command(debug, session, "dump",
              "Everything that the planes show of themselves, as one JSON document without secrets",
              [&](const Client& client) {
                const Json everything = debug_dump(client);
                if (file.empty()) return print(everything, true);
                write_new_file(file, everything.dump(2) + '\n');
                session.show({{"file", file}, {"connections", everything["connections"].size()}});
              });
  dump.option("file", file, "File to create; default: standard output");
}

}  // namespace

int main(int argc, char** argv) {
  Session session;
  cli::Program program(
      "Administers Sluice through its control plane.\nExit codes: 0 done, 1 error response, or the output "
      "cannot be written, 3 the control plane cannot be reached, 4 access denied, 5 the configuration has "
      "defects, others: wrong usage.");
  cli::Command& app = program.command();
  app.requires_subcommand();
  app.options_fall_through();
  app.option("--socket", session.socket, "Admin socket of the control plane").shows_default();
  app.flag("--json", session.as_json, "Print JSON");
  add_views(app, session);
  add_connections(app, session);
  add_exports(app, session);
  add_gateways(app, session);
  add_config(app, session);
  add_events(app, session);
  add_slow_calls(app, session);
  add_operations(app, session);
  add_debug(app, session);
  if (const auto ended = program.parse(argc, argv)) return *ended;
  try {
    session.chosen(Client(session.socket));
    return cli::finish_output(kOk, kErrorAnswer);
  } catch (const Unreachable& error) {
    std::cerr << error.what() << '\n';
    return kUnreachable;
  } catch (const Forbidden& error) {
    std::cerr << error.what() << '\n';
    return kForbidden;
  } catch (const Defects& error) {
    std::cerr << error.what();
    return kDefects;
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return kErrorAnswer;
  }
}
