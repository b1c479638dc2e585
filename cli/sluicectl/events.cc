// SPDX-License-Identifier: Apache-2.0
#include "cli/sluicectl/events.h"

#include <algorithm>
#include <cctype>
#include <chrono>
#include <iostream>
#include <string>
#include <string_view>
#include <thread>

namespace sluice::ctl {
namespace {

constexpr std::chrono::milliseconds kFollowInterval{250};

/// Escaped, since it may be a peer's: no control character gets to the terminal.
std::string word_of(const Json& value) {
  std::string quoted = value.dump(-1, Json::Encoding::Ascii);
  if (!value.is_string()) return quoted;
  const auto text = value.get<std::string>();
  const bool bare = !text.empty() && std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return c < 0x80 && (std::isalnum(c) != 0 ||
                        std::string_view("._-:/").find(static_cast<char>(c)) != std::string_view::npos);
  });
  return bare ? text : quoted;
}

}  // namespace

std::string line_of_event(const Json& event) {
  std::string line = std::to_string(event.value("sequence", std::uint64_t{0}));
  for (const char* const part : {"time", "severity", "event"})
    line += ' ' + event.value(part, std::string("?"));
  for (const auto& [name, value] : event["fields"].items()) line += ' ' + name + '=' + word_of(value);
  if (event.contains("suppressed")) line += " suppressed=" + word_of(event["suppressed"]);
  return line;
}

Json all_events(const Client& client) {
  Json all = Json::array();
  for (std::uint64_t next = 1;;) {
    Json part = client.ask("events_read", {{"since", next}});
    if (part["events"].empty()) return all;
    next = part["next"].get<std::uint64_t>();
    for (Json& event : part["events"]) all.push_back(std::move(event));
  }
}

void print_events(const Client& client, const EventOptions& options, bool as_json) {
  std::uint64_t next = options.since;
  Json journal;
  for (;;) {
    Json part;
    try {
      part = client.ask("events_read", {{"since", next}});
    } catch (const Unreachable&) {
      if (!options.follow || journal.is_null()) throw;  // one that is restarted comes back
      std::this_thread::sleep_for(kFollowInterval);
      continue;
    }
    if (!journal.is_null() && part["journal"] != journal) {
      journal = part["journal"];
      next = 1;
      continue;
    }
    journal = part["journal"];
    if (const auto missed = part["missed"].get<std::uint64_t>(); missed > 0 && options.since != 1)
      std::cerr << missed << " events have been overwritten before they were read\n";
    for (Json event : part["events"]) {
      event["journal"] = journal;
      std::cout << (as_json ? event.dump(-1, Json::Encoding::Ascii) : line_of_event(event)) << '\n';
    }
    std::cout.flush();
    if (!std::cout) return;
    const bool all = part["events"].empty();
    next = part["next"].get<std::uint64_t>();
    if (!all) continue;
    if (!options.follow) return;
    std::this_thread::sleep_for(kFollowInterval);
  }
}

}  // namespace sluice::ctl
