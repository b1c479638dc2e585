// SPDX-License-Identifier: Apache-2.0
#include "controlplane/admin/views/connections.h"

#include <atomic>
#include <string>
#include <utility>
#include <vector>

#include "controlplane/admin/parameters.h"
#include "controlplane/admin/views/age.h"
#include "controlplane/admin/views/credits.h"
#include "dataplane/base/net_address.h"
#include "dataplane/segment/checked.h"

namespace sluice::admin {
namespace {

const char* to_string(segment::ConnectionState state) {
  switch (state) {
    case segment::ConnectionState::Unused:
      return "unused";
    case segment::ConnectionState::Opening:
      return "opening";
    case segment::ConnectionState::Open:
      return "open";
    case segment::ConnectionState::Closing:
      return "closing";
  }
  return "?";
}

Json describe_properties(const segment::PropertyInfo& p) {
  return {{"max_send_bytes", p.max_send_bytes},
          {"receive_buffer_bytes", p.receive_buffer_bytes},
          {"max_segment_bytes", p.max_segment_bytes},
          {"max_segments", p.max_segments},
          {"reverse_support", p.reverse == 0   ? "none"
                              : p.reverse == 1 ? "inline"
                                               : "general"}};
}

Json describe_connection(const segment::ReactorArea& area, const segment::ConnectionInfo& info,
                         std::uint32_t reactor, std::uint32_t number, const config::Config& config) {
  const segment::ConnectionUse& use = area.use[number];
  const std::size_t client_class = info.client_class < config.classes.size() ? info.client_class : 0;
  Json entry = {{"reactor", reactor},
                {"connection", number},
                {"state", to_string(info.state)},
                {"peer", to_string(info.peer)},
                {"outgoing", info.outgoing != 0},
                {"class", config.classes[client_class].name},
                {"version", info.version},
                {"credits", use.granted.load()},
                {"busy", use.busy.load()},
                {"calls", use.calls.load()},
                {"receive_inline_bytes", info.receive_inline_bytes},
                {"send_inline_bytes", info.send_inline_bytes},
                {"age_s", seconds_since(info.since_ns)}};
  if (info.version != 2) return entry;
  entry["window"] = info.window;
  entry["client_window"] = info.peer_window;
  entry["held"] = info.held != 0;
  if (!info.host.empty()) entry["host"] = info.host.view();
  return entry;
}

template <typename Each>
void for_each_connection(const segment::Layout& layout, const segment::ConfigBlock& config,
                         const Each& each) {
  for (std::uint32_t reactor = 0; reactor < config.reactors; ++reactor) {
    const segment::ReactorArea& area = layout.reactors[reactor];
    for (std::uint32_t number = 0; number < config.all_connections(); ++number) {
      if (area.use[number].open.load(std::memory_order_relaxed) == 0) continue;
      const auto info = segment::checked(area.connections[number]);
      if (info && info->state != segment::ConnectionState::Unused) each(area, *info, reactor, number);
    }
  }
}

/// Null: no call is in progress.
Json oldest_call(const segment::ConnectionUse& use) {
  const std::uint32_t state = use.oldest_state.load(std::memory_order_relaxed);
  if (state == 0 || state >= segment::kSlotStateCount || use.busy.load(std::memory_order_relaxed) == 0)
    return nullptr;
  return {{"age_s", static_cast<double>(use.oldest_ns.load(std::memory_order_relaxed)) * 1e-9},
          {"state", segment::kSlotStates[state]}};
}

/// What the control plane wants of it; nothing of that where the words are another's.
Json describe_wanted(const segment::WantedWords& words, std::uint32_t incarnation) {
  const std::uint64_t course_word = words.course.load(std::memory_order_relaxed);
  const std::uint64_t grant_word = words.grant.load(std::memory_order_relaxed);
  Json wanted = {{"draining", false}, {"traced", false}, {"ending", false}, {"credits_wanted", 0}};
  if (segment::incarnation_of(course_word) == incarnation) {
    const segment::Course course = segment::decode_course(course_word);
    wanted["draining"] = course.draining;
    wanted["traced"] = course.traced;
    wanted["ending"] = course.end != segment::End::No;
  }
  if (segment::incarnation_of(grant_word) == incarnation)
    wanted["credits_wanted"] = segment::decode_grant(grant_word).credits;
  return wanted;
}

/// Errors and waits of the connections of its class on its reactor: there are none of a connection alone.
template <typename Counters>
Json counters_of_class(const segment::Layout& layout, const Counters& counters) {
  Json result = Json::object();
  for (std::size_t i = 0; i < segment::kTransportCounterCount; ++i) {
    const segment::CounterInfo& info = segment::kTransportCounters[i];
    if (info.group != "error" && info.group != "wait") continue;
    const std::uint64_t value = layout.places.value(segment::CounterFamily::Transport, i, counters);
    if (value > 0) result[std::string(info.name)] = value;
  }
  return result;
}

Json both_properties(const segment::ConnectionInfo& info) {
  return {{"ours", describe_properties(info.own_properties)},
          {"client", info.heard_properties != 0 ? describe_properties(info.peer_properties) : Json(nullptr)}};
}

}  // namespace

Json connections(const segment::Layout& layout, const config::Config& config,
                 const ConnectionFilter& filter) {
  Json list = Json::array();
  for_each_connection(layout, config.block,
                      [&](const auto& area, const auto& info, auto reactor, auto number) {
                        Json entry = describe_connection(area, info, reactor, number, config);
                        if ((filter.peer.empty() || entry["peer"] == filter.peer) &&
                            (filter.client_class.empty() || entry["class"] == filter.client_class))
                          list.push_back(std::move(entry));
                      });
  return list;
}

Json show_connection(const segment::Layout& layout, const config::Config& config, std::uint32_t reactor,
                     std::uint32_t number) {
  const bool there = reactor < config.block.reactors && number < config.block.all_connections();
  const auto info = there ? segment::checked(layout.reactors[reactor].connections[number]) : std::nullopt;
  if (!info || info->state == segment::ConnectionState::Unused) throw no_such_connection(reactor, number);
  Json entry = describe_connection(layout.reactors[reactor], *info, reactor, number, config);
  entry["peak_busy"] = layout.reactors[reactor].use[number].peak_busy.load();
  entry["queue_pair"] = info->queue_pair;
  const segment::ConnectionUse& use = layout.reactors[reactor].use[number];
  entry["received_bytes"] = use.received_bytes.load();
  entry["sent_bytes"] = use.sent_bytes.load();
  entry["held_bytes"] = use.held_bytes.load();
  entry["oldest_call"] = oldest_call(layout.reactors[reactor].use[number]);
  entry.update(describe_wanted(layout.reactors[reactor].wanted.words[number], info->incarnation));
  entry["counters_of_class"] =
      counters_of_class(layout, layout.reactors[reactor].transport_counters[info->client_class]);
  entry["cm_id"] = info->cm_id;
  if (info->peer_pid != 0) entry["client_process"] = info->peer_pid;
  if (info->version == 2) entry["properties"] = both_properties(*info);
  return entry;
}

Json connection_properties(const segment::Layout& layout, const segment::ConfigBlock& config) {
  Json list = Json::array();
  for_each_connection(layout, config, [&](const auto&, const auto& info, auto reactor, auto number) {
    if (info.version != 2) return;
    Json entry = both_properties(info);
    entry["reactor"] = reactor;
    entry["connection"] = number;
    entry["peer"] = to_string(info.peer);
    list.push_back(std::move(entry));
  });
  return list;
}

std::uint32_t count_connections(const segment::Layout& layout, const segment::ConfigBlock& config) {
  std::uint32_t count = 0;
  for (std::uint32_t reactor = 0; reactor < config.reactors; ++reactor)
    if (const auto info = layout.reactors[reactor].info.read()) count += info->connections;
  return count;
}

namespace {

struct Sums {
  std::uint64_t connections = 0, granted = 0, used = 0, idle = 0;
};

/// Sums of the open connections of clients on `reactor`; each counts for its class in `by_class` too.
Sums sum_up(const segment::ReactorArea& area, std::uint32_t connections, const policy::CreditPolicy& policy,
            std::vector<Sums>& by_class, std::uint64_t now_ns) {
  Sums of_reactor;
  for (std::uint32_t number = 0; number < connections; ++number) {
    const segment::ConnectionUse& use = area.use[number];
    if (use.open.load(std::memory_order_relaxed) != segment::ConnectionUse::kOfClient) continue;
    const std::uint32_t client_class = use.client_class.load(std::memory_order_relaxed);
    for (Sums* sums : {&of_reactor, &by_class[client_class < by_class.size() ? client_class : 0]}) {
      ++sums->connections;
      sums->granted += use.granted.load(std::memory_order_relaxed);
      sums->used += use.busy.load(std::memory_order_relaxed);
      sums->idle += policy.idle(number, now_ns) ? 1 : 0;
    }
  }
  return of_reactor;
}

Json describe_class(const policy::ClientClass& client_class, const Sums& sums) {
  return {{"class", client_class.name},
          {"weight", client_class.credits.weight},
          {"min_credits", client_class.credits.min_credits},
          {"max_credits", client_class.credits.max_credits},
          {"connections", sums.connections},
          {"idle", sums.idle},
          {"granted", sums.granted},
          {"used", sums.used}};
}

}  // namespace

Json credits(const segment::Layout& layout, const config::Config& config, const policy::CreditKeeper& keeper,
             std::uint64_t now_ns) {
  std::vector<Sums> by_class(config.classes.size());
  Json reactors = Json::array();
  for (std::uint32_t reactor = 0; reactor < config.block.reactors; ++reactor) {
    const policy::CreditPolicy& policy = keeper.policy(reactor);
    const Sums sums =
        sum_up(layout.reactors[reactor], config.block.all_connections(), policy, by_class, now_ns);
    reactors.push_back({{"reactor", reactor},
                        {"slots", policy.limits().slots},
                        {"connections", sums.connections},
                        {"idle", sums.idle},
                        {"granted", sums.granted},
                        {"used", sums.used}});
  }
  Json classes = Json::array();
  for (std::size_t i = 0; i < by_class.size(); ++i)
    classes.push_back(describe_class(config.classes[i], by_class[i]));
  const policy::CreditStatistics& statistics = keeper.statistics();
  return {{"reactors", reactors},
          {"classes", classes},
          {"recomputations", statistics.recomputations},
          {"last_recomputation_ms", static_cast<double>(statistics.last_recomputation_ns) * 1e-6},
          {"grants_changed", statistics.changes}};
}

}  // namespace sluice::admin
