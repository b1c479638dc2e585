// SPDX-License-Identifier: Apache-2.0
//
// Owner of a file descriptor, and locks on bytes of a file. Not for the message path.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cstdint>
#include <utility>

namespace sluice {

/// Owner of a file descriptor.
class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int fd) noexcept : fd_(fd) {}
  ~FileDescriptor() { reset(); }
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    if (this != &other) reset(std::exchange(other.fd_, -1));
    return *this;
  }

  /// Returns the descriptor; negative if there is none.
  int get() const noexcept { return fd_; }
  explicit operator bool() const noexcept { return fd_ >= 0; }
  void reset(int fd = -1) noexcept {
    if (fd_ >= 0) ::close(fd_);
    fd_ = fd;
  }
  int release() noexcept { return std::exchange(fd_, -1); }

 private:
  int fd_ = -1;
};

}  // namespace sluice

// Locks on bytes of a file that belong to an open file description (F_OFD_SETLK). The kernel releases them
// when the last descriptor of the description is closed, so also when the process ends for any reason; a
// stopped process keeps them. They work between processes of different PID namespaces. A byte may be beyond
// the end of the file. `descriptor` is open for writing unless noted otherwise.
namespace sluice::file_lock {

inline struct flock range(short type, std::uint64_t first, std::uint64_t bytes) noexcept {
  struct flock lock {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = static_cast<off_t>(first);
  lock.l_len = static_cast<off_t>(bytes);
  return lock;
}

/// Takes an exclusive lock. Returns false if another open file holds a lock on the byte. Never blocks.
inline bool take(int descriptor, std::uint64_t byte) noexcept {
  struct flock lock = range(F_WRLCK, byte, 1);
  return ::fcntl(descriptor, F_OFD_SETLK, &lock) == 0;
}

/// Takes a shared lock, which prevents others from taking an exclusive one. `descriptor` may be open for
/// reading only.
inline bool take_shared(int descriptor, std::uint64_t byte) noexcept {
  struct flock lock = range(F_RDLCK, byte, 1);
  return ::fcntl(descriptor, F_OFD_SETLK, &lock) == 0;
}

inline void give_back(int descriptor, std::uint64_t byte) noexcept {
  struct flock lock = range(F_UNLCK, byte, 1);
  ::fcntl(descriptor, F_OFD_SETLK, &lock);
}

/// Returns whether another open file holds a lock on any of the bytes; zero bytes: all bytes from `first` on.
/// `descriptor` may be open for reading only.
inline bool taken_by_other(int descriptor, std::uint64_t first, std::uint64_t bytes = 1) noexcept {
  struct flock lock = range(F_WRLCK, first, bytes);
  return ::fcntl(descriptor, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

}  // namespace sluice::file_lock
