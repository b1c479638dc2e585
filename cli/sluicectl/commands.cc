// SPDX-License-Identifier: Apache-2.0
#include "cli/sluicectl/commands.h"

#include <algorithm>
#include <chrono>
#include <thread>

namespace sluice::ctl {
namespace {

using SteadyClock = std::chrono::steady_clock;

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

Json to_be_saved(Json parameters, bool save) {
  if (save) parameters["save"] = true;
  return parameters;
}

Json drain(const Client& client, const DrainOptions& options) {
  if (options.stop) return client.ask("drain_stop", to_be_saved(Json::object(), options.save));
  Json status = client.ask("drain_start", to_be_saved(Json::object(), options.save));
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

}  // namespace sluice::ctl
