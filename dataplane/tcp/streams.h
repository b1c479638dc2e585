// SPDX-License-Identifier: Apache-2.0
//
// Both directions of a TCP connection: the queue of what is sent, and the receiver on io_uring. Only the
// owning reactor may call.
#pragma once

#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <utility>

#include "dataplane/base/fixed_containers.h"
#include "dataplane/base/invariant.h"
#include "dataplane/base/small_algorithms.h"
#include "dataplane/tcp/uring.h"

namespace sluice::tcp {

inline constexpr std::size_t kSendRingBytes = 64u << 10;
/// Maximum size of messages that are copied.
inline constexpr std::size_t kMaxCopiedBytes = 4096;
/// Maximum number of queued pieces. A piece is a referred message or a run of copied bytes.
inline constexpr std::uint32_t kMaxSendPieces = 64;
/// Maximum number of pieces per sendmsg().
inline constexpr std::size_t kMaxSendVectors = 16;

/// Send queue of a stream, in order. Short messages are copied into a ring, and long messages are sent in
/// place. No allocation after construction.
class SendQueue {
 public:
  SendQueue()
      : ring_(FixedArray<std::byte>::for_overwrite(kSendRingBytes)) {
  }  // The ring is not zeroed, so that its pages become resident on first use.

  bool empty() const noexcept { return pieces_ == 0; }
  /// Returns true if the queue has room for a message with one run of `copied` bytes and `referred` pieces.
  bool room_for(std::size_t copied, std::size_t referred = 1) const noexcept {
    return pieces_ + 2 + referred <= kMaxSendPieces && copied <= kSendRingBytes - in_ring_;
  }

  /// Queues a copy of `bytes`. Requires room_for().
  void copy(std::span<const std::byte> bytes) noexcept {
    SLUICE_INVARIANT_DEBUG(bytes.size() <= kSendRingBytes - in_ring_, buffer_bounds);
    while (!bytes.empty()) {
      const std::size_t at = (ring_head_ + in_ring_) % kSendRingBytes;
      const std::size_t here = smaller_of(bytes.size(), kSendRingBytes - at);
      std::memcpy(&ring_[at], bytes.data(), here);
      in_ring_ += here;
      if (pieces_ > 0 && newest().owner == nullptr && newest().data + newest().bytes == &ring_[at])
        newest().bytes += here;
      else
        add({&ring_[at], here, nullptr});
      bytes = bytes.subspan(here);
    }
  }
  /// Queues `bytes` without a copy. Requires room_for(). `bytes` must not change until sent() has reported
  /// `owner`, which is not null, or until clear().
  void refer(std::span<const std::byte> bytes, void* owner) noexcept {
    add({bytes.data(), bytes.size(), owner});
  }

  /// Returns the front of the queue as vectors for one sendmsg(). They are valid until sent().
  std::span<iovec> gather() noexcept {
    std::size_t count = 0;
    for (std::uint32_t i = 0; i < pieces_ && count < kMaxSendVectors; ++i) {
      const Piece& piece = queue_[(first_ + i) % kMaxSendPieces];
      vectors_[count++] = {const_cast<std::byte*>(piece.data), piece.bytes};
    }
    return {vectors_.data(), count};
  }

  /// Removes `bytes` that were sent from the front. Calls `done(owner)` for each referred piece that is
  /// complete.
  template <typename Done>
  void sent(std::size_t bytes, Done&& done) noexcept {
    while (bytes > 0 && pieces_ > 0) {
      Piece& piece = queue_[first_];
      const std::size_t here = smaller_of(bytes, piece.bytes);
      bytes -= here;
      piece.data += here;
      piece.bytes -= here;
      if (piece.owner == nullptr) {
        SLUICE_INVARIANT_DEBUG(piece.data - here == &ring_[ring_head_] && here <= in_ring_, ring_index);
        in_ring_ -= here;
        ring_head_ = (ring_head_ + here) % kSendRingBytes;
      }
      if (piece.bytes > 0) return;
      void* const owner = piece.owner;
      first_ = (first_ + 1) % kMaxSendPieces;
      --pieces_;
      if (owner != nullptr) done(owner);
    }
    SLUICE_INVARIANT_DEBUG(bytes == 0, buffer_bounds);
  }

  /// Drops everything, without reporting owners.
  void clear() noexcept {
    pieces_ = first_ = 0;
    ring_head_ = in_ring_ = 0;
  }

 private:
  struct Piece {
    const std::byte* data = nullptr;
    std::size_t bytes = 0;
    void* owner = nullptr;  ///< owner of a referred piece; null if the bytes are in the ring
  };
  Piece& newest() noexcept { return queue_[(first_ + pieces_ - 1) % kMaxSendPieces]; }
  void add(const Piece& piece) noexcept {
    SLUICE_INVARIANT_DEBUG(pieces_ < kMaxSendPieces, ring_index);
    queue_[(first_ + pieces_++) % kMaxSendPieces] = piece;
  }

  FixedArray<std::byte> ring_;
  std::size_t ring_head_ = 0;
  std::size_t in_ring_ = 0;
  std::array<Piece, kMaxSendPieces> queue_;
  std::uint32_t first_ = 0;
  std::uint32_t pieces_ = 0;
  std::array<iovec, kMaxSendVectors> vectors_;
};

/// Maximum number of operations in io_uring: the multishot receive, and one receive_all().
inline constexpr std::uint32_t kReceiveOperations = 2;

/// Receives the data of one connection, in order, into one buffer at a time that the caller specifies. If the
/// kernel supports it, one multishot operation (IORING_RECV_MULTISHOT) stays with the socket while the
/// connection lasts, and the caller's buffer is the only provided buffer of its group. Nothing is received
/// while no buffer is provided. Data thus arrives where it is to stay, and remains in the socket while the
/// caller has no buffer for it. Only the owning reactor may call.
///
/// An operation in the kernel may outlast the caller's request, but not the connection. busy() is true while
/// there is such an operation, and the socket must not be closed before it is false.
class StreamReceiver {
 public:
  /// Setup. Completions carry `target`. The ring outlives the receiver.
  StreamReceiver(Uring& uring, void* target);
  ~StreamReceiver();
  StreamReceiver(const StreamReceiver&) = delete;
  StreamReceiver& operator=(const StreamReceiver&) = delete;

  // Only one request may be outstanding. Call receive() and receive_all() only while asked() is false.
  /// Requests the next bytes of the stream, as many as are available.
  void receive(int socket, std::span<std::byte> room) noexcept;
  /// Requests as many bytes as `room` has. Fewer arrive only at the end of the stream.
  void receive_all(int socket, std::span<std::byte> room) noexcept;
  /// Drops the request and ignores its result. The caller has reset or shut down the socket.
  void stop() noexcept { asked_ = false; }

  /// Returns true while a request has no result yet.
  bool asked() const noexcept { return asked_; }
  /// Returns true while an operation is in the kernel.
  bool busy() const noexcept { return once_ || again_; }

  // The functions below return the result of the request: the number of bytes received, or zero or -errno at
  // the end of the stream. They return nothing if the completion does not end the request.
  /// Handles a completion of Kind::Receive.
  std::optional<int> on_received(const Uring::Completion& end) noexcept;
  /// Handles a completion of kReceivedAgain.
  std::optional<int> on_received_again(const Uring::Completion& end) noexcept;

 private:
  std::uint16_t group() const noexcept { return static_cast<std::uint16_t>(number_); }
  bool register_buffers() noexcept;
  void offer(std::span<std::byte> room) noexcept;
  std::optional<int> answer(int result) noexcept {
    return std::exchange(asked_, false) ? std::optional(result) : std::nullopt;
  }

  Uring& uring_;
  void* const target_;
  const std::uint32_t number_;        ///< number of the buffer group
  io_uring_buf_ring* const buffers_;  ///< ring of the buffer group; null without multishot receive
  bool ready_ = false;                ///< true once the group is registered with the kernel
  bool asked_ = false;
  bool once_ = false;     ///< true while a single receive is in the kernel
  bool again_ = false;    ///< true while a multishot receive is in the kernel
  bool offered_ = false;  ///< true while a buffer is provided that the kernel has not used
  int socket_ = -1;
};

}  // namespace sluice::tcp
