// SPDX-License-Identifier: Apache-2.0
#include "cli/sluicectl/why.h"

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <string>

#include "cli/sluicectl/events.h"
#include "cli/sluicectl/print.h"
#include "cli/sluicectl/slow.h"

namespace sluice::ctl {
namespace {

/// Of events and of slow calls, the newest.
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

/// Null: there is none now.
Json show(const Client& client, const ConnectionNumber& number) {
  for (const Json& connection : client.ask("connections"))
    if (has_number(connection, number)) return client.ask("connection_show", number_of(number));
  return nullptr;
}

/// The event of the last connection of this number that has ended; null: none is known.
Json last_end(const Json& events, const ConnectionNumber& number) {
  Json end;
  for (const Json& event : events)
    if (event["event"] == "connection_down" && has_number(event["fields"], number)) end = event;
  return end;
}

/// Those of this number, and those of its peer, which may have been refused under no number.
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

/// Where most of a slow call's time went.
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
  if (shown.value("draining", false)) findings.push_back("it is being drained, and ends when it has no call");
  if (shown.value("ending", false)) findings.push_back("it has been told to end");
  if (credits > 0 && busy >= credits)
    findings.push_back("all of its " + std::to_string(credits) + " credits are in use: its client waits");
  else if (busy > 0)
    findings.push_back(std::to_string(busy) + " calls are in progress");
  if (const Json& oldest = shown["oldest_call"]; !oldest.is_null())
    findings.push_back("its oldest call is " + oldest["state"].get<std::string>() + " since " +
                       seconds(oldest["age_s"]));
  if (const auto wanted = shown.value("credits_wanted", std::uint64_t{0}); wanted > credits)
    findings.push_back("the policy wants it to have " + std::to_string(wanted) +
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
                       (fields["was_up"].get<bool>() ? "" : ", before its peer was heard"));
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
        "Nothing is known of such a connection: 'sluicectl connections' lists those that there are, and "
        "'sluicectl events' the ends since the control plane's start.");
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
