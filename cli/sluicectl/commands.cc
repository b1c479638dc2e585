// SPDX-License-Identifier: Apache-2.0
#include "cli/sluicectl/commands.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <map>
#include <thread>

namespace sluice::ctl {
namespace {

using SteadyClock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kPollInterval{50};

volatile std::sig_atomic_t interrupted = 0;

}  // namespace

json trace(const Client& client, const TraceOptions& options) {
  json target = {{"reactor", options.reactor}, {"connection", options.connection}};
  if (options.start) return client.ask("trace_start", target);
  if (options.stop) return client.ask("trace_stop", target);
  if (options.last) {
    json recorded = client.ask("trace_read", target)["calls"];
    if (recorded.size() > options.calls)
      recorded.erase(recorded.begin(), recorded.end() - static_cast<std::ptrdiff_t>(options.calls));
    return recorded;
  }
  json from = client.ask("trace_start", target)["next"];
  json calls = json::array();
  const auto end = SteadyClock::now() + std::chrono::seconds(options.seconds);
  while (calls.size() < options.calls && SteadyClock::now() < end) {
    std::this_thread::sleep_for(kPollInterval);
    json parameters = target;
    parameters["from"] = from;
    const json read = client.ask("trace_read", parameters);
    from = read["next"];
    for (const json& call : read["calls"])
      if (calls.size() < options.calls) calls.push_back(call);
  }
  client.ask("trace_stop", target);
  return calls;
}

json drain(const Client& client, const DrainOptions& options) {
  if (options.stop) return client.ask("drain_stop");
  json status = client.ask("drain_start");
  if (options.no_wait) return status;
  const auto end = SteadyClock::now() + std::chrono::seconds(options.seconds);
  while (status["connections"].get<std::uint64_t>() > 0) {
    if (SteadyClock::now() > end)
      throw std::runtime_error(
          std::to_string(status["connections"].get<std::uint64_t>()) +
          " connections still have calls after " + std::to_string(options.seconds) +
          " s: wait longer (--seconds), close them ('sluicectl connections close'), or go on without "
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
  throw std::runtime_error("The data plane has not applied the change: see its log.");
}

void top(const Client& client, double interval, unsigned turns) {
  std::signal(SIGINT, [](int) { interrupted = 1; });
  const bool terminal = ::isatty(STDOUT_FILENO) != 0;
  std::map<std::string, double> before;
  auto looked = SteadyClock::now();
  // Change per second of a value since the last update, by key.
  double seconds = 0;
  const auto rate = [&](const std::string& key, const json& value) {
    const double now = value.get<double>();
    const auto at = before.find(key);
    const double result = at == before.end() || seconds <= 0 ? 0 : (now - at->second) / seconds;
    before[key] = now;
    return result < 0 ? 0 : result;
  };
  for (unsigned turn = 0; !interrupted && (turns == 0 || turn <= turns); ++turn) {
    const auto now = SteadyClock::now();
    seconds = turn == 0 ? 0 : std::chrono::duration<double>(now - looked).count();
    looked = now;
    const json status = client.ask("status");
    const json reactors = client.ask("reactors");
    const json exports = client.ask("exports");
    const json connections = client.ask("connections");
    if (terminal) std::printf("\033[H\033[2J");
    std::printf("sluice %s   data plane %s   %llu connections%s\n\n",
                status["version"].get<std::string>().c_str(),
                status["data_plane"]["alive"].get<bool>() ? "up" : "DOWN",
                static_cast<unsigned long long>(status["connections"].get<std::uint64_t>()),
                status["draining"].get<bool>() ? "   draining" : "");
    std::printf("%-8s %5s %12s %9s %12s %12s\n", "reactor", "cpu", "calls/s", "busy", "MB in/s", "MB out/s");
    for (const json& r : reactors) {
      const std::string key = "r" + r["reactor"].dump();
      const double busy = rate(key + "b", r["busy_ns"]);
      const double idle = rate(key + "i", r["idle_ns"]);
      std::printf("%-8s %5s %12.0f %8.1f%% %12.1f %12.1f\n", r["reactor"].dump().c_str(),
                  r["cpu"].dump().c_str(), rate(key + "c", r["calls"]),
                  busy + idle > 0 ? 100 * busy / (busy + idle) : 0.0, rate(key + "I", r["bytes_in"]) / 1e6,
                  rate(key + "O", r["bytes_out"]) / 1e6);
    }
    std::printf("\n%-24s %12s %12s %12s %10s\n", "export", "calls/s", "MB read/s", "MB written/s",
                "errors/s");
    for (const json& e : exports) {
      const std::string path = e["path"].get<std::string>();
      std::printf("%-24.24s %12.0f %12.1f %12.1f %10.0f\n", path.c_str(), rate("e" + path + "c", e["calls"]),
                  rate("e" + path + "r", e["read_bytes"]) / 1e6,
                  rate("e" + path + "w", e["written_bytes"]) / 1e6, rate("e" + path + "e", e["errors"]));
    }
    std::vector<std::pair<double, const json*>> busiest;
    for (const json& c : connections)
      busiest.emplace_back(rate("c" + c["reactor"].dump() + '.' + c["connection"].dump(), c["calls"]), &c);
    std::sort(busiest.begin(), busiest.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
    constexpr std::size_t kShown = 15;
    if (busiest.size() > kShown) busiest.resize(kShown);
    std::printf("\n%-12s %-28s %-10s %8s %6s %12s\n", "connection", "peer", "class", "credits", "busy",
                "calls/s");
    for (const auto& [calls, c] : busiest)
      std::printf("%-12s %-28.28s %-10.10s %8s %6s %12.0f\n",
                  ((*c)["reactor"].dump() + '.' + (*c)["connection"].dump()).c_str(),
                  (*c)["peer"].get<std::string>().c_str(), (*c)["class"].get<std::string>().c_str(),
                  (*c)["credits"].dump().c_str(), (*c)["busy"].dump().c_str(), calls);
    std::fflush(stdout);
    if (turns != 0 && turn == turns) break;
    std::this_thread::sleep_for(std::chrono::duration<double>(interval));
  }
}

}  // namespace sluice::ctl
