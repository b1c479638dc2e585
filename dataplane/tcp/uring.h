// SPDX-License-Identifier: Apache-2.0
//
// The reactor's io_uring: sockets without a system call each, and none at all while nothing happens. What one
// turn has to submit, and what the kernel has to complete, costs one io_uring_enter().
#pragma once

#include <liburing.h>

#include <cstddef>
#include <cstdint>

#include "dataplane/base/setup_error.h"

namespace sluice::tcp {

/// Operations that may wait for submission in one turn; more are submitted at once.
inline constexpr unsigned kRingEntries = 1024;
/// Completions handled in one turn.
inline constexpr std::size_t kUringCompletionsPerTurn = 256;

class Uring {
 public:
  /// What an operation is for; the low bits of its user data.
  enum class Kind : std::uint8_t { Connect, Receive, Send, Accept };

  /// Setup; any thread. Throws SetupError where the kernel has no io_uring, or forbids it.
  Uring();
  ~Uring();
  Uring(const Uring&) = delete;
  Uring& operator=(const Uring&) = delete;

  /// `target` is aligned to 8 bytes and lives until the completion has come.
  void connect(void* target, int socket, const sockaddr* address, socklen_t bytes) noexcept;
  void receive(void* target, int socket, std::byte* to, std::size_t bytes) noexcept;
  void send(void* target, int socket, const msghdr* message) noexcept;
  /// The result is the new socket; `address` says whose.
  void accept(void* target, int socket, sockaddr* address, socklen_t* bytes) noexcept;

  /// Submits, and calls `handle(void* target, Kind, int result)` for what is complete. The first call fixes
  /// the thread. Returns the completions handled.
  template <typename Handle>
  std::size_t poll(Handle&& handle) noexcept {
    if (waiting_ > 0 || kernel_has_work()) enter();
    std::size_t count = 0;
    io_uring_cqe* completion = nullptr;
    while (count < kUringCompletionsPerTurn && io_uring_peek_cqe(&ring_, &completion) == 0) {
      const std::uint64_t data = completion->user_data;
      const int result = completion->res;
      io_uring_cqe_seen(&ring_, completion);
      ++count;
      handle(reinterpret_cast<void*>(data & ~kKindMask), static_cast<Kind>(data & kKindMask), result);
    }
    return count;
  }

 private:
  static constexpr std::uint64_t kKindMask = 7;

  io_uring_sqe& prepare() noexcept;
  void finish(io_uring_sqe& entry, void* target, Kind kind) noexcept;
  bool kernel_has_work() const noexcept;
  void enter() noexcept;

  io_uring ring_{};
  unsigned waiting_ = 0;  ///< operations not submitted yet
  bool enabled_ = false;
};

}  // namespace sluice::tcp
