// SPDX-License-Identifier: Apache-2.0
//
// Registered memory for messages that do not fit the buffers of one connection, shared by the connections of
// an engine. Buffers have two sizes: most messages that need one are a few KiB long, and each connection is
// guaranteed small buffers whatever the others do; of large ones there are few, and they are lent in turn.
// One reactor; only provide() allocates.
#pragma once

#include <cstddef>
#include <cstdint>

#include "dataplane/base/share_ledger.h"
#include "pmd/shared_buffers.h"

namespace sluice::rpcrdma {

/// Small buffers that are lent, unless configured.
inline constexpr std::uint32_t kLentSmall = 32;

struct SharedMemoryConfig {
  std::uint32_t accounts = 1;     ///< most that are open at a time
  std::uint32_t small_bytes = 0;  ///< zero: all buffers are large
  std::uint32_t large_bytes = 0;
  std::uint32_t large = 0;                ///< buffers
  std::uint32_t guaranteed_small = 1;     ///< to each account
  std::uint32_t lent_small = kLentSmall;  ///< beyond what is guaranteed

  std::uint32_t small_buffers() const noexcept {
    return small_bytes > 0 ? guaranteed_small * accounts + lent_small : 0;
  }
};

class SharedMemory {
 public:
  /// Of one connection.
  struct Account {
    ShareAccount small;
    ShareAccount large;
  };

  /// Setup. Each account is guaranteed small buffers, and a large one where there are as many.
  /// Nobody holds more than half of those that are lent, nor of the large ones.
  void provide(rdma::Device& device, const SharedMemoryConfig& config);

  /// Of the largest buffer.
  std::size_t most_bytes() const noexcept { return large_.buffer_bytes(); }
  rdma::Lkey lkey() const noexcept { return lkey_; }
  std::size_t bytes_of(const std::byte* buffer) const noexcept {
    return is_small(buffer) ? small_.buffer_bytes() : large_.buffer_bytes();
  }
  rdma::SharedUse small_use() const noexcept { return small_.use(); }
  rdma::SharedUse large_use() const noexcept { return large_.use(); }
  std::uint64_t held_bytes(const Account& account) const noexcept {
    return std::uint64_t{account.small.held()} * small_.buffer_bytes() +
           std::uint64_t{account.large.held()} * large_.buffer_bytes();
  }
  /// Buffers that nobody holds.
  std::size_t available() const noexcept { return small_.available() + large_.available(); }
  std::size_t buffers() const noexcept {
    return std::size_t{small_.ledger().limits().elements} + large_.ledger().limits().elements;
  }

  /// A buffer of `bytes` or more, at most most_bytes(). Null when the account may have none now: await() it.
  std::byte* acquire(Account& account, std::size_t bytes) noexcept {
    return fits_small(bytes) ? small_.acquire(account.small) : large_.acquire(account.large);
  }
  /// No effect on null.
  void release(std::byte* buffer) noexcept {
    if (buffer != nullptr) (is_small(buffer) ? small_ : large_).release(buffer);
  }

  /// Calls `waiter` once when the account may have such a buffer. No effect if it waits already.
  void await(Account& account, std::size_t bytes, ShareWaiter& waiter) noexcept;
  /// No effect if it does not wait.
  void forget(Account& account, ShareWaiter& waiter) noexcept;
  /// Of a connection that has ended. What it holds is released later.
  void forget_all(Account& account) noexcept;
  bool awaited() const noexcept { return small_.ledger().waiters() + large_.ledger().waiters() > 0; }
  /// Calls those who wait, as far as there are buffers for them. Once in a turn.
  void resume_waiters() noexcept;

 private:
  bool fits_small(std::size_t bytes) const noexcept {
    return small_.buffer_bytes() > 0 && bytes <= small_.buffer_bytes();
  }
  bool is_small(const std::byte* buffer) const noexcept { return buffer < large_begin_; }

  rdma::SharedBuffers small_;
  rdma::SharedBuffers large_;
  rdma::Lkey lkey_{};
  const std::byte* large_begin_ = nullptr;  ///< behind the small ones, in the same region
};

}  // namespace sluice::rpcrdma
