// SPDX-License-Identifier: Apache-2.0
//
// The reactor's io_uring. One io_uring_enter() per loop turn submits all operations and reaps completions;
// none is made while there is nothing to do. Only the owning reactor may call. Results are as in cqe->res:
// bytes or a descriptor, or -errno.
#pragma once

#include <liburing.h>

#include <cstddef>
#include <cstdint>

#include "dataplane/base/owned.h"
#include "dataplane/base/setup_error.h"
#include "dataplane/base/uring_features.h"

namespace sluice::tcp {

/// Places of the largest ring that the kernel makes.
inline constexpr std::uint32_t kMostRingEntries = 32768;
/// Completions handled per turn.
inline constexpr std::size_t kUringCompletionsPerTurn = 256;

class Uring {
 public:
  /// Kind of operation, in the low bits of its user data.
  enum class Kind : std::uint8_t { Connect, Receive, Send, Accept };
  // Of receive_again() and await_end(), which have few users: no enumerators.
  static constexpr Kind kReceivedAgain{4};
  static constexpr Kind kEnded{5};

  struct Completion {
    int result = 0;
    bool more = false;         ///< the operation goes on: it will have another one
    bool took_buffer = false;  ///< the provided one, which `result` bytes are in
  };

  /// Setup; any thread. All `operations` that its users can have at once find room, also while the kernel takes
  /// none; of more than kMostRingEntries, as many. The others are submitted before the end of the turn. Uses
  /// what the kernel has of `wanted`. Throws SetupError where the kernel has no io_uring, or forbids it.
  explicit Uring(std::uint32_t operations, UringFeatures wanted = UringFeatures::all());
  ~Uring();
  Uring(const Uring&) = delete;
  Uring& operator=(const Uring&) = delete;

  /// In use: what the kernel refuses later is no longer among them.
  UringFeatures features() const noexcept { return features_; }

  /// Operations that the kernel has not taken yet; they are offered again at the next turn.
  unsigned waiting() const noexcept { return waiting_; }

  // `target` is 8-byte aligned; it and the memory passed live until the completion was handled.
  void connect(void* target, int socket, const sockaddr* address, socklen_t bytes) noexcept;
  void receive(void* target, int socket, std::byte* to, std::size_t bytes) noexcept;
  /// The same, but it ends when all of `bytes` are there, or no more will come.
  void receive_all(void* target, int socket, std::byte* to, std::size_t bytes) noexcept;
  /// Into the buffer that is provided in `group`, whenever there is something and as long as it finds one.
  void receive_again(void* target, int socket, std::uint16_t group) noexcept;
  void send(void* target, int socket, const msghdr* message) noexcept;
  /// The result is the new socket; `address` receives the peer.
  void accept(void* target, int socket, sockaddr* address, socklen_t* bytes) noexcept;
  /// The peer sends nothing any more, or either side has ended the connection.
  void await_end(void* target, int socket) noexcept;

  /// Setup: the number of a group of buffers, which no other has.
  std::uint32_t new_group() noexcept { return groups_++; }
  /// `buffers`, a page with room for one entry, becomes the ring of buffers of a group, as long as the ring lives.
  /// False: there is no multishot receive, or the kernel has no memory for another group.
  bool provide(io_uring_buf_ring* buffers, std::uint16_t group) noexcept;

  /// Submits, then calls `handle(void* target, Kind, Completion)` for each completion. The first call binds
  /// the ring to the calling thread (IORING_SETUP_SINGLE_ISSUER). Returns the completions handled.
  template <typename Handle>
  std::size_t poll(Handle&& handle) noexcept {
    if (waiting_ > 0 || kernel_has_work()) enter();
    std::size_t count = 0;
    io_uring_cqe* completion = nullptr;
    while (count < kUringCompletionsPerTurn && io_uring_cq_ready(&ring_) > 0 &&
           io_uring_peek_cqe(&ring_, &completion) == 0) {
      const std::uint64_t data = completion->user_data;
      const Completion end{.result = completion->res,
                           .more = (completion->flags & IORING_CQE_F_MORE) != 0,
                           .took_buffer = (completion->flags & IORING_CQE_F_BUFFER) != 0};
      io_uring_cqe_seen(&ring_, completion);
      ++count;
      handle(reinterpret_cast<void*>(data & ~kKindMask), static_cast<Kind>(data & kKindMask), end);
    }
    return count;
  }

 private:
  static constexpr std::uint64_t kKindMask = 7;

  io_uring_sqe& prepare() noexcept;
  void finish(io_uring_sqe& entry, void* target, Kind kind) noexcept;
  bool kernel_has_work() const noexcept;
  void enable() noexcept;
  void enter() noexcept;

  io_uring ring_{};
  UringFeatures features_;
  const Owned<io_uring_sqe> dropped_{new io_uring_sqe()};  ///< takes what finds no room
  unsigned waiting_ = 0;
  std::uint32_t groups_ = 0;
  bool enabled_ = false;
};

}  // namespace sluice::tcp
