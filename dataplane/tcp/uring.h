// SPDX-License-Identifier: Apache-2.0
//
// The reactor's io_uring. One io_uring_enter() per loop iteration submits all operations and reaps
// completions. Without work, the call is omitted. Only the owning reactor may call. Results have the meaning
// of cqe->res, so they are a number of bytes, a descriptor or -errno.
#pragma once

#include <liburing.h>

#include <cstddef>
#include <cstdint>

#include "dataplane/base/invariant.h"
#include "dataplane/base/owned.h"
#include "dataplane/base/setup_error.h"
#include "dataplane/base/thread_owner.h"
#include "dataplane/base/uring_features.h"

namespace sluice::tcp {

/// Number of entries of the largest ring that the kernel supports.
inline constexpr std::uint32_t kMostRingEntries = 32768;
/// Maximum number of completions handled per iteration.
inline constexpr std::size_t kUringCompletionsPerTurn = 256;

class Uring {
 public:
  /// Kind of operation, in the low bits of its user data.
  enum class Kind : std::uint8_t { Connect, Receive, Send, Accept };
  // Kinds of receive_again() and await_end(). They are not enumerators, because few users handle them.
  static constexpr Kind kReceivedAgain{4};
  static constexpr Kind kEnded{5};

  struct Completion {
    int result = 0;
    bool more = false;         ///< true if the operation continues and will have further completions
    bool took_buffer = false;  ///< true if the provided buffer was used; it holds `result` bytes
  };

  /// Setup; any thread. `operations` is the maximum number of operations that the users have outstanding. The
  /// ring has an entry for each of them, up to kMostRingEntries, even while the kernel accepts none. If the
  /// ring is full, its entries are submitted before the end of the iteration. Uses the features of `wanted`
  /// that the kernel supports. Throws SetupError if the kernel does not support io_uring or forbids it.
  explicit Uring(std::uint32_t operations, UringFeatures wanted = UringFeatures::all());
  ~Uring();
  Uring(const Uring&) = delete;
  Uring& operator=(const Uring&) = delete;

  /// Returns the features in use. Features that the kernel refuses later are removed.
  UringFeatures features() const noexcept { return features_; }

  /// Returns the number of operations that the kernel has not accepted yet. They are submitted again in the
  /// next iteration.
  unsigned waiting() const noexcept { return waiting_; }

  // Operations. `target` is 8-byte aligned. It and the memory passed must stay valid until the completion is
  // handled.
  void connect(void* target, int socket, const sockaddr* address, socklen_t bytes) noexcept;
  void receive(void* target, int socket, std::byte* to, std::size_t bytes) noexcept;
  /// Receives like receive(), but completes only when all `bytes` have arrived or the stream has ended.
  void receive_all(void* target, int socket, std::byte* to, std::size_t bytes) noexcept;
  /// Starts a multishot receive. Each time data arrives, it is received into the buffer provided in `group`.
  /// The operation ends when data arrives and no buffer is provided.
  void receive_again(void* target, int socket, std::uint16_t group) noexcept;
  void send(void* target, int socket, const msghdr* message) noexcept;
  /// Accepts a connection. The result is the new socket, and `address` receives the address of the peer.
  void accept(void* target, int socket, sockaddr* address, socklen_t* bytes) noexcept;
  /// Completes when the peer has shut down its sending side, or either side has ended the connection.
  void await_end(void* target, int socket) noexcept;

  /// Setup. Returns a unique number for a group of buffers.
  std::uint32_t new_group() noexcept { return groups_++; }
  /// Registers `buffers`, a page with space for one entry, as the buffer ring of a group, for the lifetime of
  /// this object. Returns false if there is no multishot receive, or if the kernel has no memory for another
  /// group.
  bool provide(io_uring_buf_ring* buffers, std::uint16_t group) noexcept;

  /// Submits, then calls `handle(void* target, Kind, Completion)` for each completion. The first call binds
  /// the ring to the calling thread (IORING_SETUP_SINGLE_ISSUER). Returns the number of completions handled.
  template <typename Handle>
  std::size_t poll(Handle&& handle) noexcept {
    SLUICE_INVARIANT_DEBUG(owner_.is_caller(), object_owner);
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
  static void finish(io_uring_sqe& entry, void* target, Kind kind) noexcept {
    SLUICE_INVARIANT_DEBUG((reinterpret_cast<std::uint64_t>(target) & kKindMask) == 0, table_index);
    entry.user_data = reinterpret_cast<std::uint64_t>(target) | static_cast<std::uint64_t>(kind);
  }
  bool kernel_has_work() const noexcept {
    constexpr unsigned kWork = IORING_SQ_TASKRUN | IORING_SQ_CQ_OVERFLOW;
    return (__atomic_load_n(ring_.sq.kflags, __ATOMIC_RELAXED) & kWork) != 0;
  }
  void enable() noexcept;
  void enter() noexcept;

  io_uring ring_{};
  UringFeatures features_;
  const Owned<io_uring_sqe> dropped_{new io_uring_sqe()};  ///< dummy entry for operations without an entry
  unsigned waiting_ = 0;
  std::uint32_t groups_ = 0;
  bool enabled_ = false;
  ThreadOwner owner_;  ///< thread that polls
};

/// Returns the io_uring features that the running kernel supports. Only the first call tries them: each is
/// tried, because kernel versions say little about features that are backported or forbidden. Any thread, at
/// setup.
UringFeatures uring_features_of_kernel();

}  // namespace sluice::tcp
