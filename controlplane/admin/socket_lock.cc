// SPDX-License-Identifier: Apache-2.0
#include "controlplane/admin/socket_lock.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "dataplane/base/file_descriptor.h"
#include "dataplane/base/setup_error.h"

namespace sluice::admin {
namespace {

/// Byte that a starting control plane locks while it checks the other locks, so that exactly one of two
/// concurrent starters gets the socket.
constexpr std::uint64_t kStarting = 0;
constexpr int kTries = 200;
constexpr useconds_t kBetweenTriesUs = 5000;

/// Returns the byte that a control plane locks: 30 bits of FNV-1a of the segment's name, then the epoch. All
/// releases must use this formula.
std::uint64_t byte_of(const std::string& segment, std::uint32_t epoch) {
  std::uint32_t hash = 2166136261u;
  for (const char character : segment) hash = (hash ^ static_cast<unsigned char>(character)) * 16777619u;
  return 1 + (std::uint64_t{hash >> 2} << 32) + epoch;
}

bool take_patiently(int descriptor, std::uint64_t byte) {
  for (int i = 0; i < kTries; ++i) {
    if (file_lock::take(descriptor, byte)) return true;
    ::usleep(kBetweenTriesUs);
  }
  return false;
}

bool take_alone(int descriptor, const Owner& owner) {
  if (!take_patiently(descriptor, kStarting)) return false;
  bool alone = file_lock::take(descriptor, byte_of(owner.segment, owner.epoch));
  if (owner.predecessor == 0) {
    alone = alone && !file_lock::taken_by_other(descriptor, 1, 0);
  } else {
    const std::uint64_t passed_over = byte_of(owner.segment, owner.predecessor);
    alone = alone && !file_lock::taken_by_other(descriptor, 1, passed_over - 1) &&
            !file_lock::taken_by_other(descriptor, passed_over + 1, 0);
  }
  file_lock::give_back(descriptor, kStarting);
  return alone;
}

}  // namespace

SocketLock::SocketLock(const std::string& socket_path, const Owner& owner)
    : descriptor_(::open((socket_path + ".lock").c_str(),
                         O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600)) {
  if (descriptor_ < 0)
    throw SetupError(
        "Cannot open " + socket_path + ".lock (" + std::strerror(errno) +
        "). The directory of the admin socket has to exist and be writable, and the file has to belong to "
        "this user.");
  if (take_alone(descriptor_, owner)) return;
  ::close(descriptor_);
  throw SetupError("Another control plane serves the admin socket " + socket_path +
                   ". Stop it first, or set another socket in [admin].");
}

SocketLock::~SocketLock() {
  ::close(descriptor_);
}

}  // namespace sluice::admin
