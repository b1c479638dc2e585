// SPDX-License-Identifier: Apache-2.0
#include "controlplane/admin/views/connections.h"

#include <algorithm>
#include <atomic>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "controlplane/admin/registry.h"
#include "controlplane/admin/views/reactors.h"
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

std::size_t class_of(const segment::ConnectionInfo& info, const config::Config& config) {
  return info.client_class < config.classes.size() ? info.client_class : 0;
}

Json describe_connection(const segment::ReactorArea& area, const segment::ConnectionInfo& info,
                         std::uint32_t reactor, std::uint32_t number, const config::Config& config) {
  const segment::ConnectionUse& use = area.use[number];
  Json entry = {{"reactor", reactor},
                {"connection", number},
                {"state", to_string(info.state)},
                {"peer", to_string(info.peer)},
                {"outgoing", info.outgoing != 0},
                {"class", config.classes[class_of(info, config)].name},
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

bool matches(const ConnectionFilter& filter, const segment::ConnectionInfo& info,
             const config::Config& config) {
  const auto is_at = [&](PeerAddress wanted) {
    if (wanted.zone == 0) wanted.zone = info.peer.zone;
    return info.peer == wanted;
  };
  return (!filter.peer || is_at(*filter.peer)) &&
         (filter.client_class.empty() || config.classes[class_of(info, config)].name == filter.client_class);
}

/// Returns age and state of the oldest call, or null if no call is in progress.
Json oldest_call(const segment::ConnectionUse& use) {
  const std::uint32_t state = use.oldest_state.load(std::memory_order_relaxed);
  if (state == 0 || state >= segment::kSlotStateCount || use.busy.load(std::memory_order_relaxed) == 0)
    return nullptr;
  return {{"age_s", static_cast<double>(use.oldest_ns.load(std::memory_order_relaxed)) * 1e-9},
          {"state", segment::kSlotStates[state]}};
}

/// Returns the desired state of a connection. Words of another incarnation of its slot are ignored.
Json describe_wanted(const segment::DesiredStateWords& words, std::uint32_t incarnation) {
  const std::uint64_t course_word = words.course.load(std::memory_order_relaxed);
  const std::uint64_t grant_word = words.grant.load(std::memory_order_relaxed);
  Json wanted = {{"draining", false}, {"traced", false}, {"ending", false}, {"credits_wanted", 0}};
  if (segment::incarnation_of(course_word) == incarnation) {
    const segment::DesiredState course = segment::decode_course(course_word);
    wanted["draining"] = course.draining;
    wanted["traced"] = course.traced;
    wanted["ending"] = course.end != segment::End::No;
  }
  if (segment::incarnation_of(grant_word) == incarnation)
    wanted["credits_wanted"] = segment::decode_grant(grant_word).credits;
  return wanted;
}

/// Returns the nonzero error and wait counters of one client class on one reactor. There are no such counters
/// per connection.
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

PeerAddress peer_argument(const std::string& text) {
  if (const auto address = parse_address(text)) return *address;
  throw MethodError("'" + text +
                    "' is not an IP address. 'sluicectl connections' shows the addresses of peers.");
}

ConnectionFilter connection_filter(const config::Config& config, const std::string& peer,
                                   const std::string& client_class) {
  const auto has_name = [&](const auto& known) { return known.name == client_class; };
  if (!client_class.empty() && std::none_of(config.classes.begin(), config.classes.end(), has_name))
    throw MethodError("No client class is named '" + client_class +
                      "'. 'sluicectl config show' shows the classes.");
  return {peer.empty() ? std::nullopt : std::optional(peer_argument(peer)), client_class};
}

Page connections(const segment::Layout& layout, const config::Config& config, const ConnectionFilter& filter,
                 std::uint64_t from, std::uint32_t most, Pace& pace) {
  return page_of(layout, config.block, from, most, pace,
                 [&](const auto& area, const auto& info, auto reactor, auto number) -> std::optional<Json> {
                   if (!matches(filter, info, config)) return std::nullopt;
                   return describe_connection(area, info, reactor, number, config);
                 });
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

Page connection_properties(const segment::Layout& layout, const segment::ConfigBlock& config,
                           std::uint64_t from, std::uint32_t most, Pace& pace) {
  return page_of(layout, config, from, most, pace,
                 [](const auto&, const auto& info, auto reactor, auto number) -> std::optional<Json> {
                   if (info.version != 2) return std::nullopt;
                   Json entry = both_properties(info);
                   entry["reactor"] = reactor;
                   entry["connection"] = number;
                   entry["peer"] = to_string(info.peer);
                   return entry;
                 });
}

std::uint32_t count_connections(const segment::Layout& layout, const segment::ConfigBlock& config) {
  std::uint32_t count = 0;
  for (std::uint32_t reactor = 0; reactor < config.reactors; ++reactor)
    if (const auto info = layout.reactors[reactor].info.read()) count += info->connections;
  return count;
}

namespace {

double per_second(std::uint64_t calls, const policy::Round& round) {
  return round.interval_ns == 0 ? 0
                                : static_cast<double>(calls) * 1e9 / static_cast<double>(round.interval_ns);
}

Json describe(const policy::BusyConnection& connection, const policy::Round& round,
              const config::Config& config) {
  const std::size_t client_class =
      connection.client_class < config.classes.size() ? connection.client_class : 0;
  return {{"reactor", connection.reactor},
          {"connection", connection.number},
          {"peer", to_string(connection.peer)},
          {"class", config.classes[client_class].name},
          {"credits", connection.granted},
          {"busy", connection.busy},
          {"calls_per_s", per_second(connection.calls, round)}};
}

Json describe(const policy::BusyClient& client, const policy::Round& round, const config::Config&) {
  return {{"peer", to_string(client.peer)},
          {"connections", client.connections},
          {"credits", client.granted},
          {"busy", client.busy},
          {"calls_per_s", per_second(client.calls, round)}};
}

template <typename Busy>
Json first_of(const std::vector<Busy>& all, std::uint32_t count, const policy::Round& round,
              const config::Config& config) {
  Json rows = Json::array();
  for (const Busy& one : std::span(all).first(std::min<std::size_t>(count, all.size())))
    rows.push_back(describe(one, round, config));
  return rows;
}

}  // namespace

Json busiest(const policy::Round& round, const config::Config& config, std::uint32_t count) {
  return {{"interval_s", static_cast<double>(round.interval_ns) * 1e-9},
          {"open", round.connections},
          {"credits", round.granted},
          {"busy", round.busy},
          {"calls_per_s", per_second(round.calls, round)},
          {"connections", first_of(round.busiest, count, round, config)},
          {"clients", first_of(round.clients, count, round, config)}};
}

namespace {

Json describe_class(const policy::ClientClass& client_class) {
  return {{"class", client_class.name},
          {"weight", client_class.credits.weight},
          {"min_credits", client_class.credits.min_credits},
          {"max_credits", client_class.credits.max_credits}};
}

void add_sums(Json& entry, const auto& sums) {
  entry["connections"] = sums.connections;
  entry["idle"] = sums.idle;
  entry["granted"] = sums.granted;
  entry["used"] = sums.used;
}

}  // namespace

CreditSums::CreditSums(const segment::Layout& layout, const config::Config& config,
                       const policy::CreditController& keeper, std::uint64_t now_ns)
    : layout_(layout),
      config_(config),
      keeper_(keeper),
      now_ns_(now_ns),
      by_reactor_(config.block.reactors),
      by_class_(config.classes.size()) {}

void CreditSums::add_connection(std::uint32_t reactor, std::uint32_t number) {
  const segment::ConnectionUse& use = layout_.reactors[reactor].use[number];
  if (use.open.load(std::memory_order_relaxed) != segment::ConnectionUse::kOfClient) return;
  const std::uint32_t client_class = use.client_class.load(std::memory_order_relaxed);
  const bool idle = keeper_.policy(reactor).idle(number, now_ns_);
  for (Sums* sums : {&by_reactor_[reactor], &by_class_[client_class < by_class_.size() ? client_class : 0]}) {
    ++sums->connections;
    sums->granted += use.granted.load(std::memory_order_relaxed);
    sums->used += use.busy.load(std::memory_order_relaxed);
    sums->idle += idle ? 1 : 0;
  }
}

bool CreditSums::add(Pace& pace) {
  const std::uint32_t connections = config_.block.all_connections();
  for (; reactor_ < by_reactor_.size(); ++reactor_, number_ = 0)
    for (; number_ < connections; ++number_) {
      if (pace.spent()) return false;
      pace.count_row();
      add_connection(reactor_, number_);
    }
  return true;
}

Json CreditSums::result() const {
  Json reactors = Json::array();
  for (std::uint32_t reactor = 0; reactor < by_reactor_.size(); ++reactor) {
    Json entry = {{"reactor", reactor}, {"slots", keeper_.policy(reactor).limits().slots}};
    add_sums(entry, by_reactor_[reactor]);
    reactors.push_back(std::move(entry));
  }
  Json classes = Json::array();
  // A reload may have changed the classes since the first connection was added.
  for (std::size_t i = 0; i < std::min(by_class_.size(), config_.classes.size()); ++i) {
    Json entry = describe_class(config_.classes[i]);
    add_sums(entry, by_class_[i]);
    classes.push_back(std::move(entry));
  }
  const policy::CreditStatistics& statistics = keeper_.statistics();
  return {{"reactors", reactors},
          {"classes", classes},
          {"recomputations", statistics.recomputations},
          {"last_recomputation_ms", static_cast<double>(statistics.last_recomputation_ns) * 1e-6},
          {"grants_changed", statistics.changes}};
}

}  // namespace sluice::admin
