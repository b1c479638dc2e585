// SPDX-License-Identifier: Apache-2.0
//
// Locks on bytes of a file that belong to an open file description (F_OFD_SETLK). The kernel gives them up when the
// last descriptor of it is closed, thus when the process ends, however it ends; a stopped process keeps them. They
// hold between processes of different PID namespaces. A byte may lie behind the end of the file.
//
// Setup, or a thread that may call the kernel. `descriptor` is open for writing, except where it says otherwise.
#pragma once

#include <fcntl.h>

#include <cstdint>

namespace sluice::file_lock {

inline struct flock range(short type, std::uint64_t first, std::uint64_t bytes) noexcept {
  struct flock lock {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = static_cast<off_t>(first);
  lock.l_len = static_cast<off_t>(bytes);
  return lock;
}

/// False when another open file has it. Never waits.
inline bool take(int descriptor, std::uint64_t byte) noexcept {
  struct flock lock = range(F_WRLCK, byte, 1);
  return ::fcntl(descriptor, F_OFD_SETLK, &lock) == 0;
}

/// Keeps others from taking it. A descriptor that is open for reading will do.
inline bool take_shared(int descriptor, std::uint64_t byte) noexcept {
  struct flock lock = range(F_RDLCK, byte, 1);
  return ::fcntl(descriptor, F_OFD_SETLK, &lock) == 0;
}

inline void give_back(int descriptor, std::uint64_t byte) noexcept {
  struct flock lock = range(F_UNLCK, byte, 1);
  ::fcntl(descriptor, F_OFD_SETLK, &lock);
}

/// Whether another open file has a lock on any of the bytes; zero bytes: all from `first` on. A descriptor that is open
/// for reading will do.
inline bool taken_by_other(int descriptor, std::uint64_t first, std::uint64_t bytes = 1) noexcept {
  struct flock lock = range(F_WRLCK, first, bytes);
  return ::fcntl(descriptor, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

}  // namespace sluice::file_lock
