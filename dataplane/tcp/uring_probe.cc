// SPDX-License-Identifier: Apache-2.0
#include "dataplane/tcp/uring_probe.h"

#include <liburing.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>

namespace sluice::tcp {
namespace {

constexpr unsigned kEntries = 4;
constexpr std::uint16_t kGroup = 0;

/// A ring of this thread.
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

/// Two sockets that are connected, and a page.
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

/// Receives a byte that has been sent.
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

}  // namespace sluice::tcp
