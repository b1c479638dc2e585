// SPDX-License-Identifier: Apache-2.0
#include "cli/sluicectl/top.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cli/output.h"
#include "cli/sluicectl/commands.h"
#include "cli/sluicectl/print.h"

namespace sluice::ctl {
namespace {

using SteadyClock = std::chrono::steady_clock;

constexpr std::size_t kConnectionsShown = 15;
constexpr std::size_t kClientsShown = 8;
constexpr std::size_t kProceduresShown = 8;
constexpr double kMaxIntervalS = 1'000'000;  ///< a wait of poll() is an int of milliseconds
constexpr double kMsPerSecond = 1000;

volatile std::sig_atomic_t ended = 0;

/// Rates of change of values per second since the last update.
class Rates {
 public:
  void begin_update() {
    const auto now = SteadyClock::now();
    seconds_ = before_.empty() ? 0 : std::chrono::duration<double>(now - looked_).count();
    looked_ = now;
  }
  double operator()(const std::string& key, const Json& value) {
    const double now = value.get<double>();
    const auto at = before_.find(key);
    const double result = at == before_.end() || seconds_ <= 0 ? 0 : (now - at->second) / seconds_;
    before_[key] = now;
    return std::max(result, 0.0);
  }

 private:
  std::map<std::string, double> before_;
  SteadyClock::time_point looked_;
  double seconds_ = 0;
};

double percent(double part, double whole) {
  return whole > 0 ? 100 * part / whole : 0;
}

void show_reactors(const Client& client, Rates& rate) {
  static constexpr const char* kStages[] = {"device", "calls", "services", "upstreams", "control", "idle"};
  const Json reactors = client.ask("reactors");
  const Json counters = client.ask("counters");
  std::printf("%-8s %5s %12s %7s %12s %12s  ", "reactor", "cpu", "calls/s", "busy", "MB in/s", "MB out/s");
  for (const char* stage : kStages) std::printf("%10s", stage);
  std::printf("\n");
  for (const Json& r : reactors) {
    const std::string key = "r" + r["reactor"].dump();
    const double busy = rate(key + "b", r["busy_ns"]);
    const double idle = rate(key + "i", r["idle_ns"]);
    std::printf("%-8s %5s %12.0f %6.1f%% %12.1f %12.1f  ", r["reactor"].dump().c_str(),
                r["cpu"].dump().c_str(), rate(key + "c", r["calls"]), percent(busy, busy + idle),
                rate(key + "I", r["bytes_in"]) / 1e6, rate(key + "O", r["bytes_out"]) / 1e6);
    const auto number = r["reactor"].get<std::size_t>();
    if (number < counters.size()) {
      std::vector<double> spent;
      double all = 0;
      for (const char* stage : kStages) {
        spent.push_back(rate(key + stage, counters[number][std::string(stage) + "_ns"]));
        all += spent.back();
      }
      for (const double each : spent) std::printf("%9.1f%%", percent(each, all));
    }
    std::printf("\n");
  }
}

/// Shows the procedures that take most of the reactors' time.
void show_procedures(const Client& client, Rates& rate) {
  struct Row {
    double calls = 0, time_ns = 0;
    std::string name, of_class;
  };
  std::vector<Row> rows;
  double all = 0;
  for (const Json& p : client.ask("procedures")) {
    const std::string name =
        text_of(p["program"]) + '.' + text_of(p["version"]) + ' ' + text_of(p["procedure"]);
    const std::string key = "p" + text_of(p["class"]) + ' ' + name;
    rows.push_back({rate(key + "c", p["calls"]), rate(key + "t", p["time_ns"]), name, text_of(p["class"])});
    all += rows.back().time_ns;
  }
  std::sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) {
    return std::pair(a.time_ns, a.calls) > std::pair(b.time_ns, b.calls);
  });
  if (rows.size() > kProceduresShown) rows.resize(kProceduresShown);
  std::printf("\n%-28s %-10s %12s %12s %10s\n", "procedure", "class", "calls/s", "us/call", "of time");
  for (const Row& row : rows)
    std::printf("%-28.28s %-10.10s %12.0f %12.2f %9.1f%%\n", row.name.c_str(), row.of_class.c_str(),
                row.calls, row.calls > 0 ? row.time_ns / row.calls / 1e3 : 0.0, percent(row.time_ns, all));
}

void show_exports(const Client& client, Rates& rate) {
  std::printf("\n%-24s %12s %12s %12s %10s\n", "export", "calls/s", "MB read/s", "MB written/s", "errors/s");
  for (const Json& e : client.ask("exports")) {
    const std::string path = e["path"].get<std::string>();
    std::printf("%-24.24s %12.0f %12.1f %12.1f %10.0f\n", path.c_str(), rate("e" + path + "c", e["calls"]),
                rate("e" + path + "r", e["read_bytes"]) / 1e6,
                rate("e" + path + "w", e["written_bytes"]) / 1e6, rate("e" + path + "e", e["errors"]));
  }
}

void show_upstreams(const Client& client, Rates& rate) {
  const Json upstreams = client.ask("upstreams");
  if (upstreams.empty()) return;
  std::printf("\n%-24s %-12s %12s %12s %10s %10s %12s\n", "upstream", "state", "calls/s", "outstanding",
              "waiting", "resent/s", "p99 us");
  for (const Json& u : upstreams) {
    const std::string name = u["name"].get<std::string>();
    std::printf("%-24.24s %-12s %12.0f %12s %10s %10.0f %12.0f\n", name.c_str(),
                u["state"].get<std::string>().c_str(), rate("u" + name + "c", u["calls"]),
                u["outstanding"].dump().c_str(), u["waiting"].dump().c_str(),
                rate("u" + name + "r", u["resent"]), u["upstream_p99_us"].get<double>());
  }
}

void show_clients(const Json& busiest) {
  std::printf("\n%-40s %12s %12s %8s %8s\n", "client", "connections", "calls/s", "busy", "credits");
  const Json& clients = busiest["clients"];
  for (std::size_t i = 0; i < std::min(clients.size(), kClientsShown); ++i)
    std::printf("%-40.40s %12s %12.0f %8s %8s\n", text_of(clients[i]["peer"]).c_str(),
                clients[i]["connections"].dump().c_str(), clients[i]["calls_per_s"].get<double>(),
                clients[i]["busy"].dump().c_str(), clients[i]["credits"].dump().c_str());
}

void show_connections(const Json& busiest) {
  std::printf("\n%-12s %-28s %-10s %8s %6s %12s\n", "connection", "peer", "class", "credits", "busy",
              "calls/s");
  for (const Json& c : busiest["connections"])
    std::printf("%-12s %-28.28s %-10.10s %8s %6s %12.0f\n",
                (c["reactor"].dump() + '.' + c["connection"].dump()).c_str(), text_of(c["peer"]).c_str(),
                text_of(c["class"]).c_str(), c["credits"].dump().c_str(), c["busy"].dump().c_str(),
                c["calls_per_s"].get<double>());
  std::printf("%-12s %-28s %-10s %8s %6s %12.0f\n", "all", (busiest["open"].dump() + " of clients").c_str(),
              "", busiest["credits"].dump().c_str(), busiest["busy"].dump().c_str(),
              busiest["calls_per_s"].get<double>());
}

void show_busiest(const Client& client) {
  try {
    const Json busiest = client.ask("busiest", {{"count", kConnectionsShown}});
    show_clients(busiest);
    show_connections(busiest);
  } catch (const UnknownMethod&) {
    std::printf("\nThe control plane is of an older release, which does not show the busiest connections.\n");
  }
}

void show_status(const Client& client) {
  const Json status = client.ask("status");
  std::printf("sluice %s   data plane %s   %llu connections%s\n\n",
              status["version"].get<std::string>().c_str(),
              status["data_plane"]["alive"].get<bool>() ? "up" : "DOWN",
              static_cast<unsigned long long>(status["connections"].get<std::uint64_t>()),
              status["draining"].get<bool>() ? "   draining" : "");
}

/// The first SIGINT ends the view after the current update, and the second one ends the process.
void end_at_interrupt() {
  struct sigaction action {};
  action.sa_handler = [](int) { ended = 1; };
  action.sa_flags = static_cast<int>(SA_RESETHAND);  // without SA_RESTART
  ::sigaction(SIGINT, &action, nullptr);
}

}  // namespace

void top(const Client& client, double interval, unsigned turns) {
  end_at_interrupt();
  const bool terminal = ::isatty(STDOUT_FILENO) != 0;
  Rates rate;
  for (unsigned turn = 0; !ended && (turns == 0 || turn <= turns); ++turn) {
    rate.begin_update();
    if (terminal) std::printf("\033[H\033[2J");
    show_status(client);
    show_reactors(client, rate);
    show_procedures(client, rate);
    show_exports(client, rate);
    show_upstreams(client, rate);
    show_busiest(client);
    if (!cli::flush_output() || (turns != 0 && turn == turns)) break;
    // An interrupt ends the wait.
    ::poll(nullptr, 0, static_cast<int>(std::clamp(interval, 0.0, kMaxIntervalS) * kMsPerSecond));
  }
}

// --- Commands that wait

namespace {

constexpr std::chrono::milliseconds kPollInterval{50};

}  // namespace

Json trace(const Client& client, const TraceOptions& options) {
  Json target = {{"reactor", options.reactor}, {"connection", options.connection}};
  if (options.start) return client.ask("trace_start", target);
  if (options.stop) return client.ask("trace_stop", target);
  if (options.last) {
    Json recorded = client.ask("trace_read", target)["calls"];
    if (recorded.size() > options.calls)
      recorded.erase(recorded.begin(), recorded.end() - static_cast<std::ptrdiff_t>(options.calls));
    return recorded;
  }
  Json from = client.ask("trace_start", target)["next"];
  Json calls = Json::array();
  const auto end = SteadyClock::now() + std::chrono::seconds(options.seconds);
  while (calls.size() < options.calls && SteadyClock::now() < end) {
    std::this_thread::sleep_for(kPollInterval);
    Json parameters = target;
    parameters["from"] = from;
    const Json read = client.ask("trace_read", parameters);
    from = read["next"];
    for (const Json& call : read["calls"])
      if (calls.size() < options.calls) calls.push_back(call);
  }
  client.ask("trace_stop", target);
  return calls;
}

Json drain(const Client& client, const DrainOptions& options) {
  if (options.stop) return client.ask("drain_stop");
  Json status = client.ask("drain_start");
  if (options.no_wait) return status;
  const auto end = SteadyClock::now() + std::chrono::seconds(options.seconds);
  while (status["connections"].get<std::uint64_t>() > 0) {
    if (SteadyClock::now() > end)
      throw std::runtime_error(
          std::to_string(status["connections"].get<std::uint64_t>()) +
          " connections still have calls after " + std::to_string(options.seconds) +
          " s. Wait longer (--seconds), close them ('sluicectl connections close'), or end the drain "
          "('sluicectl drain --stop').");
    std::this_thread::sleep_for(kPollInterval);
    status = client.ask("drain_status");
  }
  return status;
}

void wait_until_in_force(const Client& client) {
  for (int i = 0; i < 100; ++i) {
    if (client.ask("status")["configuration"]["in_force"].get<bool>()) return;
    std::this_thread::sleep_for(kPollInterval);
  }
  throw std::runtime_error("The data plane has not applied the change. See its log.");
}

}  // namespace sluice::ctl
