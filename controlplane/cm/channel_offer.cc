// SPDX-License-Identifier: Apache-2.0
#include "controlplane/cm/channel_offer.h"

#include <spdlog/spdlog.h>

#include <cstring>
#include <span>

#include "dataplane/segment/datagram_socket.h"
#include "dataplane/segment/heartbeat.h"
#include "dataplane/segment/kept_channel.h"

namespace sluice::cm {

ChannelOffer::ChannelOffer(const segment::Layout& layout, const std::string& segment)
    : layout_(layout), path_(segment::kept_socket_of(segment)) {}

std::uint32_t ChannelOffer::epoch() const noexcept {
  return segment::epoch_of(layout_.control_plane.owner.load(std::memory_order_relaxed));
}

void ChannelOffer::poll(int descriptor, std::uint64_t now_ns) {
  if (layout_.kept_epoch.load(std::memory_order_acquire) == epoch()) {
    waits_since_ns_ = 0;
    complained_ = false;
    return;
  }
  if (now_ns - sent_ns_ < kRepeatNs) return;
  sent_ns_ = now_ns;
  const segment::KeptChannel offer{.epoch = epoch()};
  const int error = segment::send_datagram(path_, std::as_bytes(std::span(&offer, 1)), descriptor);
  complain(error, now_ns);
}

void ChannelOffer::complain(int error, std::uint64_t now_ns) {
  if (!segment::alive(layout_.data_plane, now_ns)) {
    waits_since_ns_ = 0;
    return;
  }
  if (waits_since_ns_ == 0) waits_since_ns_ = now_ns;
  if (complained_ || now_ns - waits_since_ns_ < kPatienceNs) return;
  complained_ = true;
  spdlog::warn(
      "Connections will end with this control plane: the data plane has not taken their channel at {} ({}). "
      "Both "
      "planes' users have to be in that socket's group",
      path_, error == 0 ? "no answer" : std::strerror(error));
}

}  // namespace sluice::cm
