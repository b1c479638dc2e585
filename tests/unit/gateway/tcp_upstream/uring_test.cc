// SPDX-License-Identifier: Apache-2.0
#include "dataplane/tcp/uring.h"

#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <thread>

#include "dataplane/base/invariant.h"
#include "tests/unit/base/counted_invariants.h"

namespace sluice::tcp {
namespace {

class Pair {
 public:
  Pair() { EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends_.data()), 0); }
  ~Pair() {
    ::close(ends_[0]);
    ::close(ends_[1]);
  }
  int own() const { return ends_[0]; }
  void peer_sends(std::size_t bytes) const {
    const std::array<std::byte, 64> data{};
    EXPECT_EQ(::send(ends_[1], data.data(), bytes, 0), static_cast<ssize_t>(bytes));
  }
  void peer_ends() const { ::shutdown(ends_[1], SHUT_WR); }

 private:
  std::array<int, 2> ends_{};
};

alignas(8) int target;

std::size_t completed(Uring& ring) {
  return ring.poll([](void* of, Uring::Kind, const Uring::Completion&) { EXPECT_EQ(of, &target); });
}

/// Makes the kernel refuse all io_uring operations of this thread from now on.
bool refuse_entering() {
  std::array<sock_filter, 4> code{{
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_io_uring_enter, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EBUSY),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  }};
  const sock_fprog program{.len = code.size(), .filter = code.data()};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::syscall(__NR_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) == 0;
}

void expect_all_to_end(unsigned operations, unsigned waiting) {
  const Pair pair;
  Uring ring(operations);
  for (unsigned i = 0; i < operations; ++i) ring.await_end(&target, pair.own());
  EXPECT_EQ(ring.waiting(), waiting);
  pair.peer_ends();
  std::size_t ended = 0;
  while (ended < operations) ended += completed(ring);
  EXPECT_EQ(ended, operations);
}

TEST(Uring, bytes_that_have_to_come_together_end_one_operation) {
  const Pair pair;
  Uring ring(1);
  std::array<std::byte, 64> bytes;
  int result = 0;
  const auto poll = [&] {
    return ring.poll([&](void*, Uring::Kind, const Uring::Completion& end) { result = end.result; });
  };
  const auto ends = [&] {
    for (int i = 0; i < 1'000'000; ++i)
      if (poll() > 0) return true;
    return false;
  };
  ring.receive_all(&target, pair.own(), bytes.data(), 30);
  EXPECT_EQ(poll(), 0u);
  pair.peer_sends(20);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(poll(), 0u);
  pair.peer_sends(20);
  ASSERT_TRUE(ends());
  EXPECT_EQ(result, 30);
  ring.receive_all(&target, pair.own(), bytes.data(), 30);
  pair.peer_ends();
  ASSERT_TRUE(ends());
  EXPECT_EQ(result, 10) << "what there was when the peer ended";
}

// All of them may be prepared in one iteration.
TEST(Uring, holds_all_operations_that_its_users_can_have) {
  expect_all_to_end(3000, 3000);
}

TEST(Uring, more_operations_than_the_largest_ring_holds_are_submitted_early) {
  expect_all_to_end(kMostRingEntries + 1000, 1000);
}

TEST(Uring, a_ring_belongs_to_the_thread_that_polls_it) {
  Uring ring(1);
  EXPECT_EQ(completed(ring), 0u);
  std::thread([&ring] {
    const CountedInvariants counted;
    EXPECT_EQ(completed(ring), 0u);
    EXPECT_EQ(counted.failed(Invariant::object_owner), kAbortOnInvariant ? 1u : 0u);
  }).join();
}

TEST(Uring, operations_that_the_kernel_does_not_take_are_offered_again) {
  std::thread([] {
    const Pair pair;
    Uring ring(2);
    if (!refuse_entering()) GTEST_SKIP() << "no seccomp here";
    ring.await_end(&target, pair.own());
    ring.await_end(&target, pair.own());
    EXPECT_EQ(completed(ring), 0u);
    EXPECT_EQ(ring.waiting(), 2u);
  }).join();
}

TEST(Uring, an_operation_too_many_is_counted) {
  std::thread([] {
    const Pair pair;
    Uring ring(1);
    if (!refuse_entering()) GTEST_SKIP() << "no seccomp here";
    count_invariants() = true;
    const auto before = invariant_failures()[static_cast<std::size_t>(Invariant::ring_index)];
    ring.await_end(&target, pair.own());
    ring.await_end(&target, pair.own());
    EXPECT_EQ(invariant_failures()[static_cast<std::size_t>(Invariant::ring_index)], before + 1);
    EXPECT_EQ(ring.waiting(), 1u);
  }).join();
}

}  // namespace
}  // namespace sluice::tcp
