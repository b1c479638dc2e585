// SPDX-License-Identifier: Apache-2.0
#include "controlplane/cm/outbox.h"

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

void Outbox::send(std::uint32_t reactor, const segment::Command& command) {
  auto& queue = reactors_[reactor].commands[urgency_of(command.type)];
  queue.push_back(command);
  flush(reactor);
  if (!queue.empty()) ++statistics_.commands_delayed;
}

void Outbox::send(std::uint32_t reactor, const segment::Punt& datagram) {
  auto& queue = reactors_[reactor].datagrams;
  if (queue.size() >= kMaxWaitingDatagrams) {
    ++statistics_.datagrams_lost;
    return;
  }
  queue.push_back(datagram);
  flush(reactor);
  if (!queue.empty()) ++statistics_.datagrams_delayed;
}

void Outbox::send(std::uint32_t reactor, const segment::PropertyPart& part) {
  auto& queue = reactors_[reactor].parts;
  queue.push_back(part);
  flush(reactor);
  if (!queue.empty()) ++statistics_.parts_delayed;
}

bool Outbox::withdraw(std::uint32_t reactor, std::uint32_t cm_id) {
  return std::erase_if(reactors_[reactor].commands[Make],
                       [cm_id](const segment::Command& command) { return command.cm_id == cm_id; }) > 0;
}

void Outbox::forget() {
  reactors_ = {};
}

bool Outbox::flush(std::uint32_t reactor) {
  OfReactor& of = reactors_[reactor];
  segment::ReactorArea& area = layout_.reactors[reactor];
  bool any = move(of.commands[Refuse], area.commands);
  any |= move(of.commands[Make], area.commands, kMakingSlots);
  any |= move(of.datagrams, area.punt_down);
  any |= move(of.parts, area.properties_down);
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

}  // namespace sluice::cm
