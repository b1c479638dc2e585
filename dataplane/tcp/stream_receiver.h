// SPDX-License-Identifier: Apache-2.0
//
// Receives the data of one connection, in order, into one buffer at a time that the caller specifies. If the
// kernel supports it, one multishot operation (IORING_RECV_MULTISHOT) stays with the socket while the
// connection lasts, and the caller's buffer is the only provided buffer of its group. Nothing is received
// while no buffer is provided. Data thus arrives where it is to stay, and remains in the socket while the
// caller has no buffer for it. Only the owning reactor may call.
//
// An operation in the kernel may outlast the caller's request, but not the connection. busy() is true while
// there is such an operation, and the socket must not be closed before it is false.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "dataplane/tcp/uring.h"

namespace sluice::tcp {

/// Maximum number of operations in io_uring: the multishot receive, and one receive_all().
inline constexpr std::uint32_t kReceiveOperations = 2;

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
  bool prepare() noexcept;
  void offer(std::span<std::byte> room) noexcept;
  std::optional<int> answer(int result) noexcept;

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
