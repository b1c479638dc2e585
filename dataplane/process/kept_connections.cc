// SPDX-License-Identifier: Apache-2.0
#include "dataplane/process/kept_connections.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

#include "dataplane/log/log.h"

namespace sluice::process {
namespace {

constexpr int kOffersPerPoll = 16;
/// One for each control plane that has made a connection which is still there.
constexpr std::size_t kMaxChannels = 1024;
/// Who cannot write to the socket cannot fill it either, so that the control plane's offers find room.
constexpr mode_t kSocketMode = 0660;

segment::KeptConnection kept_of(const segment::ConnectionInfo& info) {
  segment::KeptConnection kept;
  static_assert(sizeof kept <= segment::kCmStateBytes);
  std::memcpy(&kept, info.cm_state.data(), sizeof kept);
  return kept;
}

}  // namespace

KeptConnections::KeptConnections(segment::Segment& segment)
    : segment_(segment),
      layout_(segment.layout()),
      inbox_(segment::kept_socket_of(segment.name()), kSocketMode,
             segment.file(segment::Part::Control)->user()) {
  layout_.kept_epoch.store(0, std::memory_order_release);
}

void KeptConnections::poll() {
  take_offered();
  const std::uint32_t owner = segment::epoch_of(layout_.control_plane.owner.load(std::memory_order_acquire));
  layout_.kept_epoch.store(holds(owner) ? owner : 0, std::memory_order_release);
  std::erase_if(channels_, [this](const Channel& channel) { return is_orphan(channel) && !in_use(channel); });
}

/// Also those of a control plane that has ended since: its connections may need them.
void KeptConnections::take_offered() {
  for (int i = 0; i < kOffersPerPoll; ++i) {
    segment::KeptChannel offer;
    FileDescriptor descriptor;
    const auto got = inbox_.receive(std::as_writable_bytes(std::span(&offer, 1)), descriptor);
    if (got == segment::DatagramInbox::Got::Nothing) return;
    const bool is_offer = got == segment::DatagramInbox::Got::Datagram &&
                          offer.magic == segment::kKeptChannelMagic && offer.epoch != 0 && descriptor;
    if (is_offer && !holds(offer.epoch) && channels_.size() < kMaxChannels)
      channels_.push_back({.epoch = offer.epoch, .descriptor = std::move(descriptor)});
  }
}

bool KeptConnections::holds(std::uint32_t epoch) const {
  return std::any_of(channels_.begin(), channels_.end(),
                     [epoch](const Channel& channel) { return channel.epoch == epoch; });
}

/// The control plane that opened it has a successor, or is gone.
bool KeptConnections::is_orphan(const Channel& channel) const {
  const std::uint64_t owner = layout_.control_plane.owner.load(std::memory_order_acquire);
  return segment::epoch_of(owner) != channel.epoch || !segment_.control_plane_runs(channel.epoch);
}

bool KeptConnections::in_use(const Channel& channel) const {
  for (const segment::ReactorArea& area : layout_.reactors)
    for (const auto& entry : area.connections) {
      if (entry.sequence() == 0) continue;
      const auto info = entry.read();
      if (!info) return true;
      if (info->state != segment::ConnectionState::Unused && kept_of(*info).epoch == channel.epoch)
        return true;
    }
  return false;
}

}  // namespace sluice::process
