// SPDX-License-Identifier: Apache-2.0
#include "cli/sluicectl/slow.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <iostream>
#include <string>
#include <thread>

namespace sluice::ctl {
namespace {

constexpr std::chrono::milliseconds kFollowInterval{250};

std::string milliseconds(const Json& microseconds) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f", microseconds.get<double>() / 1e3);
  return text;
}

std::string text_of(const Json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

void print_all(const Json& calls, bool as_json) {
  for (const Json& call : calls)
    std::cout << (as_json ? call.dump(-1, Json::Encoding::Ascii) : line_of_slow_call(call)) << '\n';
  std::cout.flush();
}

/// What there is from `next` on; moves `next` on. An answer has a part of each reactor's.
Json read_from(const Client& client, Json& next) {
  Json all = Json::array();
  for (;;) {
    const Json part = client.ask("slow_calls", {{"from", next}});
    if (const auto missed = part["missed"].get<std::uint64_t>(); missed > 0)
      std::cerr << missed << " slow calls have been overwritten before they were read\n";
    const bool at_end = part["next"] == next;
    next = part["next"];
    for (const Json& call : part["calls"]) all.push_back(call);
    if (at_end || part["calls"].empty()) break;
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const Json& one, const Json& other) { return one["time"] < other["time"]; });
  return all;
}

}  // namespace

std::string line_of_slow_call(const Json& call) {
  std::string line = text_of(call["time"]) + ' ' + text_of(call["peer"]) + ' ' + text_of(call["procedure"]) +
                     ' ' + milliseconds(call["total_us"]) + " ms status=" + text_of(call["status"]);
  for (const auto& [state, spent_us] : call["states_us"].items())
    line += ' ' + state + '=' + milliseconds(spent_us);
  if (call.contains("upstream_us")) line += " upstream=" + milliseconds(call["upstream_us"]);
  for (const char* const name : {"reactor", "connection", "class", "xid", "call_bytes", "reply_bytes"})
    line += std::string(" ") + name + '=' + text_of(call[name]);
  return line;
}

Json all_slow_calls(const Client& client) {
  Json next = Json::array();
  return read_from(client, next);
}

void print_slow_calls(const Client& client, bool follow, bool as_json) {
  Json next = Json::array();
  print_all(read_from(client, next), as_json);
  while (follow && std::cout) {
    std::this_thread::sleep_for(kFollowInterval);
    try {
      print_all(read_from(client, next), as_json);
    } catch (const Unreachable&) {
      // A control plane that is restarted comes back, and the calls are the data plane's.
    }
  }
}

}  // namespace sluice::ctl
