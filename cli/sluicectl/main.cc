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
           {"status", "Show a summary of both planes"},
           {"reactors", "Show the reactors: state, processor, calls, bytes, and time by stage"},
           {"procedures", "Show the procedures by client class: calls, and time of the reactors"},
           {"devices", "Show the RDMA ports of this machine, and the counters of each reactor's device"},
           {"credits", "Show the credit policy: call slots of each reactor, and grants by client class"},
           {"topology", "Show processors and NUMA nodes, and the processors of reactors"},
           {"memory", "Show the memory of the data plane, by purpose"},
           {"counters", "Show all counters of each reactor"},
           {"version", "Show the version of the control plane"}})
    command(app, session, name, help,
            [&session, method = name](const Client& client) { session.show(client.ask(method)); });
}

void add_connections(cli::Command& app, Session& session) {
  static std::string peer;
  static std::string of_class;
  cli::Command connections =
      command(app, session, "connections", "Show the connections: peer, class, version, credits, calls",
              [&](const Client& client) {
                print_listing(client, "connections", {{"peer", peer}, {"class", of_class}}, session.as_json);
              });
  connections.option("--peer", peer, "Only connections of this address");
  connections.option("--class", of_class, "Only connections of this client class");
  static std::uint32_t reactor = 0;
  static std::uint32_t number = 0;
  cli::Command one =
      command(connections, session, "show", "Show all state of a connection", [&](const Client& client) {
        session.show(client.ask("connection_show", {{"reactor", reactor}, {"connection", number}}));
      });
  one.option("reactor", reactor, "Number, as shown by 'sluicectl connections'").required();
  one.option("connection", number, "Number, as shown by 'sluicectl connections'").required();
  cli::Command close =
      command(connections, session, "close", "Close a connection", [&](const Client& client) {
        session.show(client.ask("connection_close", {{"reactor", reactor}, {"connection", number}}));
      });
  close.option("reactor", reactor, "Number, as shown by 'sluicectl connections'").required();
  close.option("connection", number, "Number, as shown by 'sluicectl connections'").required();

  command(
      app, session, "properties",
      "Show the transport properties of version 2 connections, of Sluice and of the clients",
      [&](const Client& client) { print_listing(client, "properties", Json::object(), session.as_json); });

  static ConnectionNumber asked;
  cli::Command reasons =
      command(app, session, "why",
              "Explain the state of a connection: credits, calls, events, slow calls, and the reason for its "
              "end",
              [&](const Client& client) {
                const Json known = why(client, asked);
                session.as_json ? print(known, true) : print_why(known);
              });
  reasons
      .option("reactor", asked.reactor, "Number, as shown by 'sluicectl connections' and 'sluicectl events'")
      .required();
  reasons.option("connection", asked.connection, "Number, as shown by these commands").required();

  static TraceOptions trace_options;
  cli::Command tracing = command(app, session, "trace",
                                 "Record calls of a connection, and show the time of each call in each state",
                                 [&](const Client& client) { session.show(trace(client, trace_options)); });
  tracing.option("reactor", trace_options.reactor, "Number, as shown by 'sluicectl connections'").required();
  tracing.option("connection", trace_options.connection, "Number, as shown by 'sluicectl connections'")
      .required();
  tracing.option("--calls", trace_options.calls, "Stop after this many calls").shows_default();
  tracing.option("--seconds", trace_options.seconds, "Stop after this many seconds").shows_default();
  tracing.flag("--start", trace_options.start, "Start recording; the reactor keeps the last 256 calls");
  tracing.flag("--last", trace_options.last, "Show the last recorded calls");
  tracing.flag("--stop", trace_options.stop, "Stop recording");
}

void add_exports(cli::Command& app, Session& session) {
  cli::Command exports = command(app, session, "exports", "Show the exports: space, files, calls",
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
    session.show(result);
    if (!session.as_json && !save)
      std::cout << "The change applies until the next reload or restart. Use --save to keep it.\n";
  };
  cli::Command stats =
      command(exports, session, "stats", "Show calls and errors by procedure", [&](const Client& client) {
        session.show(client.ask("export_stats", {{"path", path}}));
      });
  stats.option("path", path, "Only calls of this export");
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
                                 {"hosts", hosts},
                                 {"save", save}};
        const Json result = client.ask("export_add", parameters);
        wait_until_in_force(client);
        show(result);
      });
  add.option("path", path, "Path of the export, which begins with '/'").required();
  add.flag("--read-only", read_only, "Refuse changes");
  add.flag("--no-root-squash", no_root_squash, "Do not map root to anonuid and anongid");
  add.flag("--all-squash", all_squash, "Map all users to anonuid and anongid");
  add.option("--anonuid", anonuid, "User ID of mapped users").shows_default();
  add.option("--anongid", anongid, "Group ID of mapped users").shows_default();
  add.option("--quota-mib", quota_mib, "Limit of space in MiB (0: unlimited)").shows_default();
  add.option("--client", clients,
             "Address or prefix of permitted clients; may be repeated (default: all clients)");
  add.option("--host", hosts, "Name of a permitted authenticated host; may be repeated (default: all hosts)");
  cli::Command remove =
      command(exports, session, "remove", "Remove an export; its files are kept until it is added again",
              [&, show](const Client& client) {
                const Json result = client.ask("export_remove", {{"path", path}, {"save", save}});
                wait_until_in_force(client);
                show(result);
              });
  remove.option("path", path, "Path, as shown by 'sluicectl exports'").required();
  for (cli::Command* change : {&add, &remove})
    change->flag("--save", save,
                 "Keep the change after reloads and restarts, in a file of exports_directory");
}

void add_gateways(cli::Command& app, Session& session) {
  cli::Command upstreams = command(app, session, "upstreams",
                                   "Show the upstream servers: state, calls in flight, mean latency by part",
                                   [&](const Client& client) { session.show(client.ask("upstreams")); });
  command(upstreams, session, "stats", "Show all counters of each upstream",
          [&](const Client& client) { session.show(client.ask("upstream_counters")); });
  cli::Command reverse = command(app, session, "reverse",
                                 "Show the reverse gateway: TCP clients, and their calls to the RDMA server",
                                 [&](const Client& client) { session.show(client.ask("reverse")); });
  command(reverse, session, "stats", "Show all counters of the reverse gateway",
          [&](const Client& client) { session.show(client.ask("reverse_counters")); });
}

void add_config(cli::Command& app, Session& session) {
  cli::Command config = app.subcommand("config", "Show, check or reload the configuration");
  config.requires_subcommand();
  command(config, session, "show", "Show all keys in force",
          [&](const Client& client) { session.show(client.ask("config_show")); });
  static std::string file;
  cli::Command check =
      command(config, session, "check", "Check a configuration file, and show what it would change",
              [&](const Client& client) {
                const Json result = check_file(client, file);
                if (!result["ok"].get<bool>()) throw Defects(result["defects"].get<std::string>());
                if (result.contains("notes"))
                  std::fprintf(stderr, "%s", result["notes"].get<std::string>().c_str());
                session.show(result["changes"]);
              });
  check.option("file", file, "Configuration file").required();
  command(config, session, "reload",
          "Reload the configuration file while calls continue, and list the keys that require a restart",
          [&](const Client& client) {
            const Json changes = client.ask("config_reload");
            wait_until_in_force(client);
            session.show(changes);
          });
  static std::string level;
  cli::Command log =
      command(app, session, "log-level", "Set the log level of both planes, until the next reload",
              [&](const Client& client) {
                session.show(client.ask("log_level", {{"level", level}}));
              });
  log.option("level", level, "info, warn or error; debug is accepted, and is equivalent to info").required();
}

void add_events(cli::Command& app, Session& session) {
  static EventOptions options;
  cli::Command events =
      command(app, session, "events", "Show events of connections, refusals, upstreams and configurations",
              [&](const Client& client) { print_events(client, options, session.as_json); });
  events.flag("--follow", options.follow, "Print new events until interrupted");
  events.option("--since", options.since, "Sequence number of the first event").shows_default();
}

void add_slow_calls(cli::Command& app, Session& session) {
  static bool follow = false;
  cli::Command slow =
      command(app, session, "slow",
              "Show calls that took longer than [observability] slow_call_ms, and their time by state",
              [&](const Client& client) { print_slow_calls(client, follow, session.as_json); });
  slow.flag("--follow", follow, "Print new slow calls until interrupted");
}

void add_operations(cli::Command& app, Session& session) {
  static CaptureOptions capture_options;
  cli::Command capturing =
      command(app, session, "capture", "Write the packets of a device to a pcapng file, for Wireshark",
              [&](const Client& client) {
                const Json status = capture(client, capture_options);
                // The capture uses standard output.
                if (capture_options.file == "-")
                  std::cerr << status["packets"] << " packets, " << status["dropped"] << " dropped\n";
                else
                  session.show(status);
              });
  capturing.option("file", capture_options.file, "File to create, or a FIFO, or '-' for standard output");
  capturing.option("--seconds", capture_options.seconds, "Stop after this many seconds (0: unlimited)")
      .shows_default();
  capturing.option("--packets", capture_options.packets, "Stop after this many packets (0: unlimited)");
  capturing.option("--mib", capture_options.mib, "Maximum size of the file in MiB (0: unlimited)")
      .shows_default();
  capturing.option("--peer", capture_options.peer, "Only packets from and to this address");
  capturing.option("--queue-pair", capture_options.queue_pair,
                   "Only packets of this queue pair, as shown by 'sluicectl connections show'");
  capturing.flag("--stop", capture_options.stop,
                 "Stop the current capture, even if another process has started it");
  capturing.option("--snap", capture_options.snap, "Bytes kept of each packet").shows_default();

  static DrainOptions drain_options;
  cli::Command draining =
      command(app, session, "drain",
              "Refuse new connections, and close existing ones once they are idle; for upgrades",
              [&](const Client& client) { session.show(drain(client, drain_options)); });
  draining.option("--seconds", drain_options.seconds, "Maximum wait until all connections are closed")
      .shows_default();
  draining.flag("--stop", drain_options.stop, "Admit connections again");
  draining.flag("--no-wait", drain_options.no_wait, "Start the drain without waiting");

  static double interval = 1;
  static unsigned turns = 0;
  cli::Command live = command(
      app, session, "top",
      "Show a live view: reactors, procedures, exports, upstreams, the busiest clients and connections",
      [&](const Client& client) { top(client, interval, turns); });
  live.option("--interval", interval, "Seconds between updates").shows_default();
  live.option("--turns", turns, "Stop after this many updates (0: when interrupted)");
}

void add_debug(cli::Command& app, Session& session) {
  cli::Command debug = app.subcommand("debug", "Collect data for bug reports");
  debug.requires_subcommand();
  static std::string file;
  cli::Command dump =
      command(debug, session, "dump", "Write the state of both planes as one JSON document without secrets",
              [&](const Client& client) {
                const Json everything = debug_dump(client);
                if (file.empty()) return print(everything, true);
                write_new_file(file, everything.dump(2) + '\n');
                session.show({{"file", file}, {"connections", everything["connections"].size()}});
              });
  dump.option("file", file, "File to create (default: standard output)");
}

}  // namespace

int main(int argc, char** argv) {
  Session session;
  cli::Program program(
      "Administers Sluice through its control plane.\nExit status: 0 success, 1 error response or unwritable "
      "output, 3 control plane unreachable, 4 access denied, 5 defects in the configuration, others: wrong "
      "usage.");
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
