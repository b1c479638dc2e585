// SPDX-License-Identifier: Apache-2.0
//
// What a connection receives, in order, into one place at a time that its user names. Where the kernel can, one
// operation stays with the socket for as long as the connection lasts (IORING_RECV_MULTISHOT): the place is then
// a provided buffer, the only one of its group. While none is provided nothing is received, so that bytes go
// where they are to stay, and a user that cannot take them lets them wait in the socket. Only the owning reactor
// may call.
//
// An operation of the kernel's may outlast what was asked for, never the connection: busy() says so, and a socket
// is not closed before.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "dataplane/tcp/uring.h"

namespace sluice::tcp {

/// In io_uring at once: the one that stays, and one for what has to come together.
inline constexpr std::uint32_t kReceiveOperations = 2;

class StreamReceiver {
 public:
  /// Setup. Completions have `target`. The ring outlives it.
  StreamReceiver(Uring& uring, void* target);
  ~StreamReceiver();
  StreamReceiver(const StreamReceiver&) = delete;
  StreamReceiver& operator=(const StreamReceiver&) = delete;

  // One at a time: not while asked().
  /// What comes next, as much as there is.
  void receive(int socket, std::span<std::byte> room) noexcept;
  /// All of `room`, or what comes before the end.
  void receive_all(int socket, std::span<std::byte> room) noexcept;
  /// Nothing is wanted any more; the socket has been reset or shut down.
  void stop() noexcept { asked_ = false; }

  /// There was no result yet.
  bool asked() const noexcept { return asked_; }
  /// The kernel has an operation, and completes it.
  bool busy() const noexcept { return once_ || again_; }

  // What a completion means for its user: bytes received, or zero or -errno at the end; nothing: no news.
  std::optional<int> on_received(const Uring::Completion& end) noexcept;        // of Kind::Receive
  std::optional<int> on_received_again(const Uring::Completion& end) noexcept;  // of kReceivedAgain

 private:
  std::uint16_t group() const noexcept { return static_cast<std::uint16_t>(number_); }
  bool prepare() noexcept;
  void offer(std::span<std::byte> room) noexcept;
  std::optional<int> answer(int result) noexcept;

  Uring& uring_;
  void* const target_;
  const std::uint32_t number_;        ///< of the group
  io_uring_buf_ring* const buffers_;  ///< null: there is none
  bool ready_ = false;                ///< the group is known to the kernel
  bool asked_ = false;
  bool once_ = false;     ///< in the kernel
  bool again_ = false;    ///< the same, the one that stays
  bool offered_ = false;  ///< a buffer is provided that the kernel has not taken
  int socket_ = -1;
};

}  // namespace sluice::tcp
