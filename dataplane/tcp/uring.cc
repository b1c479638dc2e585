// SPDX-License-Identifier: Apache-2.0
#include "dataplane/tcp/uring.h"

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <bit>
#include <cstring>
#include <string>

#include "dataplane/base/invariant.h"
#include "dataplane/base/setup_error.h"
#include "dataplane/base/small_algorithms.h"
#include "dataplane/tcp/uring_probe.h"

namespace sluice::tcp {

Uring::Uring(std::uint32_t operations, UringFeatures wanted)
    : features_(UringFeatures(wanted.bits() & uring_features_of_kernel().bits())) {
  const unsigned entries = std::bit_ceil(bounded(operations, 1u, kMostRingEntries));
  io_uring_params parameters{};
  parameters.flags = IORING_SETUP_R_DISABLED | IORING_SETUP_TASKRUN_FLAG;
  parameters.flags |= features_.has(UringFeature::deferred_work)
                          ? IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN
                          : IORING_SETUP_COOP_TASKRUN;
  const int error = io_uring_queue_init_params(entries, &ring_, &parameters);
  if (error < 0)
    throw SetupError(std::string("Cannot set up io_uring (") + std::strerror(-error) +
                     "), which upstreams and the reverse gateway need: use Linux 5.19 or later, set sysctl "
                     "kernel.io_uring_disabled = 0, "
                     "and allow io_uring_setup in the unit or container.");
}

Uring::~Uring() {
  io_uring_queue_exit(&ring_);
}

io_uring_sqe& Uring::prepare() noexcept {
  io_uring_sqe* entry = io_uring_get_sqe(&ring_);
  if (entry == nullptr) {  // in the largest ring only
    enter();
    entry = io_uring_get_sqe(&ring_);
  }
  if (!SLUICE_INVARIANT(entry != nullptr, ring_index)) return *dropped_;
  ++waiting_;
  return *entry;
}

void Uring::finish(io_uring_sqe& entry, void* target, Kind kind) noexcept {
  entry.user_data = reinterpret_cast<std::uint64_t>(target) | static_cast<std::uint64_t>(kind);
}

void Uring::connect(void* target, int socket, const sockaddr* address, socklen_t bytes) noexcept {
  io_uring_sqe& entry = prepare();
  io_uring_prep_connect(&entry, socket, address, bytes);
  finish(entry, target, Kind::Connect);
}

void Uring::receive(void* target, int socket, std::byte* to, std::size_t bytes) noexcept {
  io_uring_sqe& entry = prepare();
  io_uring_prep_recv(&entry, socket, to, bytes, 0);
  finish(entry, target, Kind::Receive);
}

void Uring::receive_all(void* target, int socket, std::byte* to, std::size_t bytes) noexcept {
  io_uring_sqe& entry = prepare();
  io_uring_prep_recv(&entry, socket, to, bytes, MSG_WAITALL);
  finish(entry, target, Kind::Receive);
}

void Uring::receive_again(void* target, int socket, std::uint16_t group) noexcept {
  io_uring_sqe& entry = prepare();
  io_uring_prep_recv_multishot(&entry, socket, nullptr, 0, 0);
  entry.flags |= IOSQE_BUFFER_SELECT;
  entry.buf_group = group;
  finish(entry, target, kReceivedAgain);
}

void Uring::send(void* target, int socket, const msghdr* message) noexcept {
  io_uring_sqe& entry = prepare();
  if (message->msg_iovlen == 1)
    io_uring_prep_send(&entry, socket, message->msg_iov->iov_base, message->msg_iov->iov_len, MSG_NOSIGNAL);
  else
    io_uring_prep_sendmsg(&entry, socket, message, MSG_NOSIGNAL);
  finish(entry, target, Kind::Send);
}

void Uring::accept(void* target, int socket, sockaddr* address, socklen_t* bytes) noexcept {
  io_uring_sqe& entry = prepare();
  io_uring_prep_accept(&entry, socket, address, bytes, SOCK_CLOEXEC);
  finish(entry, target, Kind::Accept);
}

void Uring::await_end(void* target, int socket) noexcept {
  io_uring_sqe& entry = prepare();
  io_uring_prep_poll_add(&entry, socket, POLLRDHUP);
  finish(entry, target, kEnded);
}

bool Uring::kernel_has_work() const noexcept {
  return (__atomic_load_n(ring_.sq.kflags, __ATOMIC_RELAXED) & (IORING_SQ_TASKRUN | IORING_SQ_CQ_OVERFLOW)) !=
         0;
}

/// By the thread to which the ring belongs from now on.
void Uring::enable() noexcept {
  enabled_ = true;
  ::syscall(__NR_io_uring_register, ring_.ring_fd, IORING_REGISTER_ENABLE_RINGS, nullptr, 0);
  if (features_.has(UringFeature::registered_ring) && io_uring_register_ring_fd(&ring_) != 1)
    features_ = features_.without(UringFeature::registered_ring);  // a thread can have 16
}

bool Uring::provide(io_uring_buf_ring* buffers, std::uint16_t group) noexcept {
  if (!features_.has(UringFeature::multishot_receive)) return false;
  io_uring_buf_reg registration{};
  registration.ring_addr = reinterpret_cast<std::uint64_t>(buffers);
  registration.ring_entries = 1;
  registration.bgid = group;
  if (io_uring_register_buf_ring(&ring_, &registration, 0) == 0) return true;
  features_ = features_.without(UringFeature::multishot_receive);
  return false;
}

void Uring::enter() noexcept {
  if (!enabled_) enable();
  io_uring_submit_and_get_events(&ring_);
  waiting_ = io_uring_sq_ready(&ring_);  // some, if the kernel has no memory for them now
}

}  // namespace sluice::tcp
