// SPDX-License-Identifier: Apache-2.0
#include "dataplane/segment/cut_guard.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string>

namespace sluice::segment {
namespace {

/// A plane has one; tests play several processes in one.
constexpr std::size_t kMaxGuards = 64;

struct Place {
  std::atomic<bool> taken;
  std::atomic<bool> cut;
  std::atomic<std::uintptr_t> begin;  ///< zero: nothing is guarded
  std::atomic<std::size_t> bytes;
};
static_assert(std::atomic<bool>::is_always_lock_free && std::atomic<std::uintptr_t>::is_always_lock_free);

constinit std::array<Place, kMaxGuards> places{};
struct sigaction before {};

Place* place_of(std::uintptr_t address) noexcept {
  for (Place& place : places) {
    const std::uintptr_t begin = place.begin.load(std::memory_order_acquire);
    if (begin != 0 && address - begin < place.bytes.load(std::memory_order_relaxed)) return &place;
  }
  return nullptr;
}

bool read_as_zeros(Place& place) noexcept {
  auto* const memory = reinterpret_cast<void*>(place.begin.load(std::memory_order_relaxed));
  // By its number: the C library does not promise that mmap() may be called in a handler, and ThreadSanitizer takes it
  // for a write that races with the reads of other threads.
  if (::syscall(SYS_mmap, memory, place.bytes.load(std::memory_order_relaxed), PROT_READ,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == -1)
    return false;
  place.cut.store(true, std::memory_order_release);
  return true;
}

/// In the thread that has read there. Calls the kernel only: nothing here may take a lock or memory.
void on_bus_error(int number, siginfo_t* info, void*) {
  const int error = errno;
  // A positive code is the kernel's, for an access; others come from kill().
  Place* const place =
      info->si_code > 0 ? place_of(reinterpret_cast<std::uintptr_t>(info->si_addr)) : nullptr;
  if (place == nullptr || !read_as_zeros(*place)) {
    // The access comes again, and so does the signal.
    ::sigaction(number, &before, nullptr);
    if (info->si_code <= 0) ::raise(number);
  }
  errno = error;
}

void install_handler() {
  static const bool installed = [] {
    struct sigaction action {};
    action.sa_sigaction = on_bus_error;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    ::sigemptyset(&action.sa_mask);
    return ::sigaction(SIGBUS, &action, &before) == 0;
  }();
  if (!installed)
    throw SetupError(std::string("Cannot handle SIGBUS (") + std::strerror(errno) +
                     "), which a cut segment would send.");
}

}  // namespace

void CutGuard::guard() {
  install_handler();
  for (std::size_t i = 0; place_ < 0 && i < kMaxGuards; ++i)
    if (!places[i].taken.exchange(true)) place_ = static_cast<int>(i);
  if (place_ < 0) throw SetupError("This process has too many segments of other planes mapped.");
  Place& place = places[static_cast<std::size_t>(place_)];
  place.cut = false;
  place.bytes = bytes_;
  place.begin.store(reinterpret_cast<std::uintptr_t>(memory_), std::memory_order_release);
}

void CutGuard::release() noexcept {
  if (place_ < 0) return;
  Place& place = places[static_cast<std::size_t>(place_)];
  place.begin = 0;
  place.taken = false;
  place_ = -1;
}

bool CutGuard::was_cut() const noexcept {
  return place_ >= 0 && places[static_cast<std::size_t>(place_)].cut.load(std::memory_order_acquire);
}

}  // namespace sluice::segment
