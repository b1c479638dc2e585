// SPDX-License-Identifier: Apache-2.0
//
// A service that waits for descriptors and deadlines in a poll loop that it shares with other services.
// prepare() registers the events to wait for, and poll() does the work that is possible without blocking.
#pragma once

#include <poll.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace sluice {

/// File descriptors and the earliest deadline for one iteration of a poll loop. Single-threaded.
class PollSet {
 public:
  static constexpr std::size_t kNowhere = ~std::size_t{0};
  static constexpr std::uint64_t kNever = ~std::uint64_t{0};

  void clear() {
    fds_.clear();
    wake_ns_ = kNever;
  }
  /// Adds a descriptor and returns its index for events().
  std::size_t add(int fd, short events) {
    fds_.push_back({fd, events, 0});
    return fds_.size() - 1;
  }
  /// Limits the wait to this monotonic time. Zero means that wait() does not block.
  void wake_at(std::uint64_t deadline_ns) {
    if (deadline_ns < wake_ns_) wake_ns_ = deadline_ns;
  }
  std::uint64_t wake_ns() const { return wake_ns_; }

  void wait(std::uint64_t now_ns) {
    constexpr std::uint64_t kMillisecondNs = 1'000'000;
    constexpr std::uint64_t kLongestMs = 60'000;
    const std::uint64_t left_ns = wake_ns_ > now_ns ? wake_ns_ - now_ns : 0;
    const std::uint64_t left_ms = left_ns / kMillisecondNs + (left_ns > 0 ? 1 : 0);
    if (::poll(fds_.data(), fds_.size(), static_cast<int>(left_ms < kLongestMs ? left_ms : kLongestMs)) < 0)
      for (pollfd& entry : fds_) entry.revents = 0;
  }

  /// Returns the events that poll() reported, or zero for kNowhere.
  short events(std::size_t place) const { return place < fds_.size() ? fds_[place].revents : short{0}; }

 private:
  std::vector<pollfd> fds_;
  std::uint64_t wake_ns_ = kNever;
};

/// The loop's thread calls all functions.
class PolledService {
 public:
  virtual ~PolledService() = default;
  virtual void prepare(PollSet& set) = 0;
  virtual void poll(const PollSet& set, std::uint64_t now_ns) = 0;
  /// Begins the shutdown. The loop continues to poll this service until finished().
  virtual void finish(std::uint64_t /*now_ns*/) {}
  virtual bool finished() const { return true; }
};

}  // namespace sluice
