// SPDX-License-Identifier: Apache-2.0
//
// Sends commands to the reactors and reads their tables of connections.
#include "controlplane/cm/outbox.h"

#include <algorithm>
#include <utility>

#include "controlplane/cm/connection_monitor.h"
#include "dataplane/base/invariant.h"
#include "dataplane/segment/layout.h"

namespace sluice::cm {
namespace {

/// Moves entries from the queue to the ring until the ring holds `slots` entries. Commands that make
/// connections use a limit below the ring's capacity.
template <typename Ring, typename T>
bool move(std::deque<T>& from, Ring& to, std::uint32_t slots = Ring::capacity()) {
  bool any = false;
  for (; !from.empty() && to.size() < slots && to.push(from.front()); any = true) from.pop_front();
  return any;
}

}  // namespace

Outbox::Urgency Outbox::urgency_of(segment::CommandType type) {
  switch (type) {
    case segment::CommandType::Accept:
    case segment::CommandType::Connect:
      return Make;
    case segment::CommandType::Reject:
    case segment::CommandType::ConnectFailed:
    case segment::CommandType::Shutdown:
      break;
  }
  return Refuse;
}

Outbox::OfReactor& Outbox::of(std::uint32_t reactor) {
  static_cast<void>(SLUICE_INVARIANT(reactor < reactors_.size(), table_index));
  return reactors_[reactor];
}

void Outbox::send(std::uint32_t reactor, const segment::Command& command) {
  auto& queue = of(reactor).commands[urgency_of(command.type)];
  queue.push_back(command);
  flush(reactor);
  if (!queue.empty()) ++statistics_.commands_delayed;
}

void Outbox::send(std::uint32_t reactor, const segment::Punt& datagram) {
  auto& queue = of(reactor).datagrams;
  if (queue.size() >= kMaxWaitingDatagrams) {
    ++statistics_.datagrams_lost;
    return;
  }
  queue.push_back(datagram);
  flush(reactor);
  if (!queue.empty()) ++statistics_.datagrams_delayed;
}

void Outbox::send(std::uint32_t reactor, const segment::PropertyPart& part) {
  auto& queue = of(reactor).parts;
  queue.push_back(part);
  flush(reactor);
  if (!queue.empty()) ++statistics_.parts_delayed;
}

bool Outbox::withdraw(std::uint32_t reactor, std::uint32_t cm_id) {
  return std::erase_if(of(reactor).commands[Make],
                       [cm_id](const segment::Command& command) { return command.cm_id == cm_id; }) > 0;
}

void Outbox::forget() {
  reactors_ = {};
}

bool Outbox::flush(std::uint32_t reactor) {
  OfReactor& queues = of(reactor);
  segment::ReactorArea& area = layout_.reactors[reactor];
  bool any = move(queues.commands[Refuse], area.commands);
  any |= move(queues.commands[Make], area.commands, kMakingSlots);
  any |= move(queues.datagrams, area.punt_down);
  any |= move(queues.parts, area.properties_down);
  static_cast<void>(SLUICE_INVARIANT(queues.datagrams.size() <= kMaxWaitingDatagrams, pool_balance));
  return any;
}

bool Outbox::flush() {
  bool any = false;
  for (std::uint32_t reactor = 0; reactor < segment::kMaxReactors; ++reactor) any |= flush(reactor);
  return any;
}

std::size_t Outbox::waiting() const {
  std::size_t count = 0;
  for (const OfReactor& of : reactors_) {
    for (const auto& commands : of.commands) count += commands.size();
    count += of.datagrams.size() + of.parts.size();
  }
  return count;
}

ConnectionMonitor::ConnectionMonitor(segment::Layout& layout, std::uint32_t reactors,
                                     std::uint32_t connections, Listener& listener)
    : layout_(layout),
      reactors_(std::min(reactors, segment::kMaxReactors)),
      connections_(std::min(connections, segment::kMaxConnections)),
      listener_(listener),
      entries_(std::size_t{reactors_} * connections_) {}

bool ConnectionMonitor::read(std::uint32_t reactor, std::uint32_t number) {
  static_cast<void>(SLUICE_INVARIANT(reactor < reactors_ && number < connections_, table_index));
  Entry& entry = entries_[reactor * connections_ + number];
  const auto& published = layout_.reactors[reactor].connections[number];
  const std::uint32_t sequence = published.sequence();
  if (sequence == entry.sequence) return true;
  const auto info = published.read();
  if (!info) return false;
  entry.sequence = sequence;
  SeenConnection& seen = entry.connection;
  const bool there = info->state != segment::ConnectionState::Unused && info->incarnation != 0;
  const bool same = there && info->incarnation == seen.incarnation;
  if (seen.incarnation != 0 && !same) {
    const SeenConnection gone = std::exchange(seen, {});
    listener_.on_gone(reactor, number, gone);
  }
  if (!there) return true;
  const bool was_up = (same && seen.was_up) || info->state == segment::ConnectionState::Open;
  const bool changed = same && (info->state != seen.state || info->cm_id != seen.cm_id);
  seen = {.state = info->state,
          .incarnation = info->incarnation,
          .cm_id = info->cm_id,
          .queue_pair = info->queue_pair,
          .outgoing = info->outgoing != 0,
          .peer = info->peer,
          .was_up = was_up,
          .since_ns = info->since_ns};
  if (!same)
    listener_.on_appeared(reactor, number, seen);
  else if (changed)
    listener_.on_changed(reactor, number, seen);
  return true;
}

void ConnectionMonitor::sample(std::uint32_t reactor, std::uint32_t number) {
  if (reactor < reactors_ && number < connections_) read(reactor, number);
}

void ConnectionMonitor::expect(std::uint32_t reactor, std::uint32_t number,
                               const SeenConnection& connection) {
  if (reactor >= reactors_ || number >= connections_) return;
  const Expected expected{reactor, number, connection};
  if (!settle(expected)) expected_.push_back(expected);
}

bool ConnectionMonitor::settle(const Expected& expected) {
  if (!read(expected.reactor, expected.number)) return false;
  if (seen(expected.reactor, expected.number).incarnation != expected.connection.incarnation)
    listener_.on_missed(expected.reactor, expected.number, expected.connection);
  return true;
}

void ConnectionMonitor::repeat_hint(std::uint32_t reactor, std::uint32_t number) {
  const SeenConnection& connection = seen(reactor, number);
  if (connection.incarnation == 0) return;
  segment::ReactorArea& area = layout_.reactors[reactor];
  const segment::AppliedState followed{
      .course = area.use[number].followed_course.load(std::memory_order_relaxed),
      .grant = area.use[number].followed_grant.load(std::memory_order_relaxed)};
  segment::DesiredStateWriter wanted(area.wanted);
  if (!wanted.is_behind(number, connection.incarnation, followed)) return;
  ++hints_repeated_;
  wanted.hint(number);
}

void ConnectionMonitor::sample_next() {
  const auto count = static_cast<std::uint32_t>(std::min<std::size_t>(entries_.size(), kEntriesPerLook));
  for (std::uint32_t i = 0; i < count; ++i) {
    read(next_ / connections_, next_ % connections_);
    repeat_hint(next_ / connections_, next_ % connections_);
    if (++next_ == entries_.size()) next_ = 0;
  }
  std::erase_if(expected_, [this](const Expected& expected) { return settle(expected); });
}

void ConnectionMonitor::look_at_all() {
  for (std::uint32_t reactor = 0; reactor < reactors_; ++reactor)
    for (std::uint32_t number = 0; number < connections_; ++number) read(reactor, number);
}

}  // namespace sluice::cm
