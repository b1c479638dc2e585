// SPDX-License-Identifier: Apache-2.0
#include "cli/sluicectl/events.h"

#include <algorithm>
#include <cctype>
#include <chrono>
#include <cstdio>
#include <iostream>
#include <string>
#include <string_view>
#include <thread>

#include "cli/output.h"
#include "cli/sluicectl/print.h"
#include "cli/sluicectl/slow.h"
#include "cli/sluicectl/why.h"

namespace sluice::ctl {
namespace {

constexpr std::chrono::milliseconds kFollowInterval{250};

/// Returns the value as text. It may come from a peer, so control characters are escaped before they reach
/// the terminal.
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
      if (!options.follow || journal.is_null()) throw;  // the control plane may be restarting
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
      std::cerr << missed << " events were overwritten before they were read\n";
    for (Json event : part["events"]) {
      event["journal"] = journal;
      std::cout << (as_json ? event.dump(-1, Json::Encoding::Ascii) : line_of_event(event)) << '\n';
    }
    if (!cli::flush_output()) return;
    const bool all = part["events"].empty();
    next = part["next"].get<std::uint64_t>();
    if (!all) continue;
    if (!options.follow) return;
    std::this_thread::sleep_for(kFollowInterval);
  }
}

namespace {

std::string milliseconds(const Json& microseconds) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f", microseconds.get<double>() / 1e3);
  return text;
}

void print_all(const Json& calls, bool as_json) {
  for (const Json& call : calls)
    std::cout << (as_json ? call.dump(-1, Json::Encoding::Ascii) : line_of_slow_call(call)) << '\n';
}

/// Returns the calls from `next` on and advances `next`. Each response contains some calls of each reactor.
Json read_from(const Client& client, Json& next) {
  Json all = Json::array();
  for (;;) {
    const Json part = client.ask("slow_calls", {{"from", next}});
    if (const auto missed = part["missed"].get<std::uint64_t>(); missed > 0)
      std::cerr << missed << " slow calls were overwritten before they were read\n";
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
  while (follow && cli::flush_output()) {
    std::this_thread::sleep_for(kFollowInterval);
    try {
      print_all(read_from(client, next), as_json);
    } catch (const Unreachable&) {
      // The control plane may be restarting, and the data plane keeps the calls in the meantime.
    }
  }
}

namespace {

/// Number of events and of slow calls to show, the newest ones.
constexpr std::ptrdiff_t kMostShown = 40;

Json number_of(const ConnectionNumber& number) {
  return {{"reactor", number.reactor}, {"connection", number.connection}};
}

bool has_number(const Json& object, const ConnectionNumber& number) {
  return object.value("reactor", Json()) == number.reactor &&
         object.value("connection", Json()) == number.connection;
}

void keep_newest(Json& list) {
  const auto size = static_cast<std::ptrdiff_t>(list.size());
  if (size > kMostShown) list.erase(list.begin(), list.begin() + size - kMostShown);
}

/// Returns the connection's details, or null if it does not exist now.
Json show(const Client& client, const ConnectionNumber& number) {
  try {
    return client.ask("connection_show", number_of(number));
  } catch (const MethodFailed&) {
    return nullptr;
  }
}

/// Returns the event of the last ended connection with this number, or null if none is in the journal.
Json last_end(const Json& events, const ConnectionNumber& number) {
  Json end;
  for (const Json& event : events)
    if (event["event"] == "connection_down" && has_number(event["fields"], number)) end = event;
  return end;
}

/// Returns the events with this connection number, and the events of its peer without a number, because a
/// refused connection has no number.
Json events_about(const Json& events, const ConnectionNumber& number, const Json& peer) {
  Json about = Json::array();
  for (const Json& event : events) {
    const Json& fields = event["fields"];
    const bool numbered = fields.contains("connection");
    if (numbered ? has_number(fields, number) : fields.contains("peer") && fields["peer"] == peer)
      about.push_back(event);
  }
  keep_newest(about);
  return about;
}

Json slow_calls_of(const Client& client, const ConnectionNumber& number, const Json& peer) {
  Json of = Json::array();
  for (Json& call : all_slow_calls(client))
    if (has_number(call, number) && call["peer"] == peer) of.push_back(std::move(call));
  keep_newest(of);
  return of;
}

std::string seconds(const Json& value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f s", value.get<double>());
  return text;
}

/// Returns the state in which a slow call spent most of its time.
std::string longest_state(const Json& call) {
  std::string longest = "unknown";
  double most_us = 0;
  for (const auto& [state, spent_us] : call["states_us"].items())
    if (spent_us.get<double>() > most_us) most_us = spent_us.get<double>(), longest = state;
  return longest;
}

void find_in_slow_calls(const Json& calls, Json& findings) {
  if (calls.empty()) return;
  const Json& slowest = *std::max_element(calls.begin(), calls.end(), [](const Json& one, const Json& other) {
    return one["total_us"].get<double>() < other["total_us"].get<double>();
  });
  findings.push_back(std::to_string(calls.size()) + " slow calls are recorded, the longest " +
                     seconds(slowest["total_us"].get<double>() / 1e6) + ", most of it " +
                     longest_state(slowest));
}

void find_in_connection(const Json& shown, Json& findings) {
  const auto busy = shown["busy"].get<std::uint64_t>();
  const auto credits = shown["credits"].get<std::uint64_t>();
  if (shown["state"] != "open")
    findings.push_back("it is " + shown["state"].get<std::string>() + " since " + seconds(shown["age_s"]));
  if (shown.value("held", false))
    findings.push_back("its calls wait until the host has authenticated itself");
  if (shown.value("draining", false))
    findings.push_back("it is being drained, and is closed once it is idle");
  if (shown.value("ending", false)) findings.push_back("it is being closed");
  if (credits > 0 && busy >= credits)
    findings.push_back("all of its " + std::to_string(credits) + " credits are in use, so its client waits");
  else if (busy > 0)
    findings.push_back(std::to_string(busy) + " calls are in progress");
  if (const Json& oldest = shown["oldest_call"]; !oldest.is_null())
    findings.push_back("its oldest call is " + oldest["state"].get<std::string>() + " since " +
                       seconds(oldest["age_s"]));
  if (const auto wanted = shown.value("credits_wanted", std::uint64_t{0}); wanted > credits)
    findings.push_back("the policy has set its grant to " + std::to_string(wanted) +
                       " credits, which come with its next replies");
}

Json findings_of(const Json& known) {
  Json findings = Json::array();
  if (!known["shown"].is_null()) {
    find_in_connection(known["shown"], findings);
  } else {
    const Json& fields = known["ended"]["fields"];
    findings.push_back("it has ended " + fields["reason"].get<std::string>() + " after " +
                       seconds(fields["age_s"]) +
                       (fields["was_up"].get<bool>() ? "" : ", before it was open"));
  }
  find_in_slow_calls(known["slow_calls"], findings);
  const auto refused = std::count_if(known["events"].begin(), known["events"].end(), [](const Json& event) {
    const auto name = event["event"].get<std::string>();
    return name.ends_with("_refused") || name == "mount_denied";
  });
  if (refused > 0) findings.push_back(std::to_string(refused) + " refusals of its peer are in the journal");
  return findings;
}

template <typename Line>
void print_lines(const char* title, const Json& list, const Line& line_of) {
  if (list.empty()) return;
  std::cout << title << ":\n";
  for (const Json& entry : list) std::cout << "  " << line_of(entry) << '\n';
}

}  // namespace

Json why(const Client& client, const ConnectionNumber& number) {
  Json known = number_of(number);
  const Json events = all_events(client);
  known["shown"] = show(client, number);
  known["ended"] = known["shown"].is_null() ? last_end(events, number) : Json(nullptr);
  if (known["shown"].is_null() && known["ended"].is_null())
    throw std::runtime_error(
        "Nothing is known of this connection. 'sluicectl connections' lists the current connections, and "
        "'sluicectl events' those that have ended since the control plane's start.");
  const Json peer = known["shown"].is_null() ? known["ended"]["fields"]["peer"] : known["shown"]["peer"];
  known["peer"] = peer;
  known["events"] = events_about(events, number, peer);
  known["slow_calls"] = slow_calls_of(client, number, peer);
  known["trace"] =
      known["shown"].is_null() ? Json::array() : client.ask("trace_read", number_of(number))["calls"];
  known["findings"] = findings_of(known);
  return known;
}

void print_why(const Json& known) {
  print_lines("findings", known["findings"], [](const Json& finding) { return finding.get<std::string>(); });
  if (!known["shown"].is_null()) print({{"now", known["shown"]}}, false);
  print_lines("events of it and its peer", known["events"], line_of_event);
  print_lines("slow calls", known["slow_calls"], line_of_slow_call);
  if (!known["trace"].empty()) print({{"trace", known["trace"]}}, false);
}

}  // namespace sluice::ctl
