// SPDX-License-Identifier: Apache-2.0
#include "controlplane/cm/connection_monitor.h"

#include <algorithm>
#include <utility>

#include "dataplane/segment/layout.h"

namespace sluice::cm {

ConnectionMonitor::ConnectionMonitor(segment::Layout& layout, std::uint32_t reactors,
                                     std::uint32_t connections, Listener& listener)
    : layout_(layout),
      reactors_(std::min(reactors, segment::kMaxReactors)),
      connections_(std::min(connections, segment::kMaxConnections)),
      listener_(listener),
      entries_(std::size_t{reactors_} * connections_) {}

bool ConnectionMonitor::read(std::uint32_t reactor, std::uint32_t number) {
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
