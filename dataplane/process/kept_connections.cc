// SPDX-License-Identifier: Apache-2.0
#include "dataplane/process/kept_connections.h"

#include <signal.h>
#include <spdlog/spdlog.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace sluice::process {
namespace {

constexpr std::uint64_t kProbeIntervalNs = 5'000'000'000;

segment::KeptConnection kept_of(const segment::ConnectionInfo& info) {
  segment::KeptConnection kept;
  static_assert(sizeof kept <= segment::kCmStateBytes);
  std::memcpy(&kept, info.cm_state.data(), sizeof kept);
  return kept;
}

/// A descriptor of our own for what another process has open.
int descriptor_of_process(std::uint32_t pid, int descriptor) {
  const auto process = static_cast<int>(::syscall(SYS_pidfd_open, static_cast<pid_t>(pid), 0));
  if (process < 0) return -1;
  const auto copy = static_cast<int>(::syscall(SYS_pidfd_getfd, process, descriptor, 0));
  const int error = errno;
  ::close(process);
  errno = error;
  return copy;
}

}  // namespace

KeptConnections::~KeptConnections() {
  for (const Channel& channel : channels_) ::close(channel.descriptor);
}

void KeptConnections::poll(std::uint64_t now_ns) {
  take_newest();
  if (now_ns - probed_ns_ >= kProbeIntervalNs) {
    probed_ns_ = now_ns;
    for (const Channel& channel : channels_)
      if (is_orphan(channel)) probe_peers(channel);
  }
  std::erase_if(channels_, [this](const Channel& channel) {
    if (!is_orphan(channel) || in_use(channel)) return false;
    ::close(channel.descriptor);
    return true;
  });
}

void KeptConnections::take_newest() {
  const std::uint64_t published = layout_.kept_channel.load(std::memory_order_acquire);
  const std::uint32_t pid = layout_.control_plane.pid.load(std::memory_order_acquire);
  if (published == 0 || published == seen_ || pid == 0) return;
  const int copy = descriptor_of_process(pid, segment::descriptor_of(published));
  if (copy < 0 && errno == ESRCH) return;  // its successor has not published its own yet
  seen_ = published;
  if (copy < 0) {
    spdlog::warn("Connections will end with the control plane: its channel cannot be kept open ({})",
                 std::strerror(errno));
    return;
  }
  channels_.push_back({.token = segment::token_of(published), .owner_pid = pid, .descriptor = copy});
}

/// The control plane that opened it has ended: it has a successor, or its process is gone.
bool KeptConnections::is_orphan(const Channel& channel) const {
  const std::uint64_t published = layout_.kept_channel.load(std::memory_order_acquire);
  if (published != 0 && segment::token_of(published) != channel.token) return true;
  return ::kill(static_cast<pid_t>(channel.owner_pid), 0) != 0 && errno == ESRCH;
}

bool KeptConnections::in_use(const Channel& channel) const {
  for (const segment::ReactorArea& area : layout_.reactors)
    for (const auto& entry : area.connections) {
      if (entry.sequence() == 0) continue;
      const auto info = entry.read();
      if (!info) return true;
      if (info->state != segment::ConnectionState::Unused && kept_of(*info).token == channel.token)
        return true;
    }
  return false;
}

/// The kernel delivers a channel's events to the process that opened it only. Sending something shows whether
/// the peer is there.
void KeptConnections::probe_peers(const Channel& channel) {
  for (std::uint32_t reactor = 0; reactor < segment::kMaxReactors; ++reactor)
    for (const auto& entry : layout_.reactors[reactor].connections) {
      if (entry.sequence() == 0) continue;
      const auto info = entry.read();
      if (info && info->state == segment::ConnectionState::Open && kept_of(*info).token == channel.token)
        probe_.probe(reactor, info->queue_pair);
    }
}

}  // namespace sluice::process
