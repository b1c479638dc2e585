// SPDX-License-Identifier: Apache-2.0
//
// The io_uring of a thread, the detection of the kernel's features, and the receiver of a stream.
#include "dataplane/tcp/uring.h"

#include <liburing.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "dataplane/base/invariant.h"
#include "dataplane/base/setup_error.h"
#include "dataplane/base/small_algorithms.h"
#include "dataplane/tcp/streams.h"

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
                     "), which upstreams and the reverse gateway require. Use Linux 5.19 or later, set "
                     "sysctl kernel.io_uring_disabled = 0, and allow io_uring_setup in the unit or "
                     "container.");
}

Uring::~Uring() {
  io_uring_queue_exit(&ring_);
}

io_uring_sqe& Uring::prepare() noexcept {
  io_uring_sqe* entry = io_uring_get_sqe(&ring_);
  if (entry == nullptr) {  // This happens in the largest ring only.
    enter();
    entry = io_uring_get_sqe(&ring_);
  }
  if (!SLUICE_INVARIANT(entry != nullptr, ring_index)) return *dropped_;
  ++waiting_;
  return *entry;
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

/// Enables the ring. The calling thread owns it from now on.
void Uring::enable() noexcept {
  enabled_ = true;
  ::syscall(__NR_io_uring_register, ring_.ring_fd, IORING_REGISTER_ENABLE_RINGS, nullptr, 0);
  if (features_.has(UringFeature::registered_ring) && io_uring_register_ring_fd(&ring_) != 1)
    features_ = features_.without(UringFeature::registered_ring);  // A thread can register 16 rings.
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
  waiting_ = io_uring_sq_ready(&ring_);  // Not zero if the kernel is short of memory.
}

// --- Detection of features

namespace {

constexpr unsigned kEntries = 4;
constexpr std::uint16_t kGroup = 0;

/// Ring for one test, used by the calling thread only.
class Ring {
 public:
  explicit Ring(unsigned flags) : works_(io_uring_queue_init(kEntries, &ring_, flags) == 0) {}
  ~Ring() {
    if (works_) io_uring_queue_exit(&ring_);
  }
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;
  bool works() const { return works_; }
  io_uring* get() { return &ring_; }

 private:
  io_uring ring_{};
  bool works_;
};

/// Two connected sockets and a page of memory for a test.
struct Bench {
  Bench() {
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) ends = {-1, -1};
  }
  ~Bench() {
    if (ends[0] >= 0) ::close(ends[0]);
    if (ends[1] >= 0) ::close(ends[1]);
    if (page != MAP_FAILED) ::munmap(page, bytes);
  }
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;

  const std::size_t bytes = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  void* const page = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  std::array<int, 2> ends{-1, -1};
};

bool has_deferred_work() {
  return Ring(IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_TASKRUN_FLAG).works();
}

bool has_registered_ring() {
  Ring ring(0);
  return ring.works() && io_uring_register_ring_fd(ring.get()) == 1;
}

/// Returns true if a multishot receive gets a byte that was sent.
bool has_multishot_receive() {
  Ring ring(0);
  const Bench bench;
  if (!ring.works() || bench.ends[0] < 0 || bench.page == MAP_FAILED) return false;
  auto* const buffers = static_cast<io_uring_buf_ring*>(bench.page);
  io_uring_buf_reg registration{};
  registration.ring_addr = reinterpret_cast<std::uint64_t>(buffers);
  registration.ring_entries = 1;
  registration.bgid = kGroup;
  if (io_uring_register_buf_ring(ring.get(), &registration, 0) != 0) return false;
  char byte = 1;
  io_uring_buf_ring_add(buffers, &byte, sizeof byte, 0, 0, 0);
  io_uring_buf_ring_advance(buffers, 1);
  io_uring_sqe* const entry = io_uring_get_sqe(ring.get());
  io_uring_prep_recv_multishot(entry, bench.ends[0], nullptr, 0, 0);
  entry->flags |= IOSQE_BUFFER_SELECT;
  entry->buf_group = kGroup;
  io_uring_cqe* completion = nullptr;
  return ::send(bench.ends[1], &byte, sizeof byte, 0) == 1 && io_uring_submit_and_wait(ring.get(), 1) == 1 &&
         io_uring_peek_cqe(ring.get(), &completion) == 0 && completion->res == 1 &&
         (completion->flags & IORING_CQE_F_BUFFER) != 0;
}

UringFeatures find_out() {
  UringFeatures found;
  if (has_deferred_work()) found = found.with(UringFeature::deferred_work);
  if (has_multishot_receive()) found = found.with(UringFeature::multishot_receive);
  if (has_registered_ring()) found = found.with(UringFeature::registered_ring);
  return found;
}

}  // namespace

UringFeatures uring_features_of_kernel() {
  static const UringFeatures found = find_out();
  return found;
}

// --- Receiving

namespace {

constexpr std::uint32_t kMostGroups = 1u << 16;
/// Index and mask of the only entry of a buffer ring.
constexpr int kOnlyEntry = 0;

std::size_t page_bytes() {
  return static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

/// Returns memory for a buffer ring, which becomes resident on first use. Returns null if there is no
/// multishot receive, too many streams or no memory.
io_uring_buf_ring* new_buffers(const Uring& uring, std::uint32_t number) {
  if (!uring.features().has(UringFeature::multishot_receive) || number >= kMostGroups) return nullptr;
  void* const page =
      ::mmap(nullptr, page_bytes(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return page == MAP_FAILED ? nullptr : static_cast<io_uring_buf_ring*>(page);
}

}  // namespace

StreamReceiver::StreamReceiver(Uring& uring, void* target)
    : uring_(uring), target_(target), number_(uring.new_group()), buffers_(new_buffers(uring, number_)) {}

StreamReceiver::~StreamReceiver() {
  if (buffers_ != nullptr) ::munmap(buffers_, page_bytes());
}

/// Registers the buffer group. Returns false if there is none. Called at a connection's first receive rather
/// than at setup, because most of the possible connections are never opened.
bool StreamReceiver::register_buffers() noexcept {
  return buffers_ != nullptr && uring_.provide(buffers_, group());
}

/// Provides a buffer. Replaces a provided buffer that was never used. This is safe, because the kernel has no
/// operation then that could use it.
void StreamReceiver::offer(std::span<std::byte> room) noexcept {
  io_uring_buf_ring_add(buffers_, room.data(), static_cast<unsigned>(room.size()), 0, kOnlyEntry, 0);
  if (!std::exchange(offered_, true)) io_uring_buf_ring_advance(buffers_, 1);
}

void StreamReceiver::receive(int socket, std::span<std::byte> room) noexcept {
  SLUICE_INVARIANT_DEBUG(!asked_, gateway_state);
  asked_ = true;
  if (!ready_) ready_ = register_buffers();
  if (!ready_) {
    once_ = true;
    return uring_.receive(target_, socket, room.data(), room.size());
  }
  socket_ = socket;
  offer(room);
  if (!std::exchange(again_, true)) uring_.receive_again(target_, socket, group());
}

void StreamReceiver::receive_all(int socket, std::span<std::byte> room) noexcept {
  SLUICE_INVARIANT_DEBUG(!asked_ && !once_, gateway_state);
  asked_ = once_ = true;
  uring_.receive_all(target_, socket, room.data(), room.size());
}

std::optional<int> StreamReceiver::on_received(const Uring::Completion& end) noexcept {
  SLUICE_INVARIANT_DEBUG(once_, gateway_state);
  once_ = false;
  return answer(end.result);
}

std::optional<int> StreamReceiver::on_received_again(const Uring::Completion& end) noexcept {
  SLUICE_INVARIANT_DEBUG(again_, gateway_state);
  again_ = end.more;
  if (end.took_buffer) offered_ = false;
  if (end.result != -ENOBUFS) return answer(end.result);
  // Data arrived while no buffer was provided, which ends the operation. Restart it if there is a buffer now.
  if (!again_ && asked_ && offered_) {
    again_ = true;
    uring_.receive_again(target_, socket_, group());
  }
  return std::nullopt;
}

}  // namespace sluice::tcp
