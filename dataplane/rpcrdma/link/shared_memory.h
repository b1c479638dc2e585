// SPDX-License-Identifier: Apache-2.0
//
// Registered memory for messages that do not fit the buffers of one connection, shared by the connections of
// an engine. Buffers have two sizes. Most messages that need one are a few KiB long, and each connection is
// guaranteed small buffers regardless of the load of others. There are few large buffers, and they are
// assigned round robin. Confined to one reactor; only provide() allocates.
#pragma once

#include <cstddef>
#include <cstdint>

#include "dataplane/base/invariant.h"
#include "dataplane/base/share_ledger.h"
#include "pmd/shared_buffers.h"

namespace sluice::rpcrdma {

/// Default number of small buffers beyond the guaranteed ones.
inline constexpr std::uint32_t kLentSmall = 32;

struct SharedMemoryConfig {
  std::uint32_t accounts = 1;     ///< maximum number of open accounts
  std::uint32_t small_bytes = 0;  ///< zero: all buffers are large
  std::uint32_t large_bytes = 0;
  std::uint32_t large = 0;                ///< number of large buffers
  std::uint32_t guaranteed_small = 1;     ///< small buffers guaranteed to each account
  std::uint32_t lent_small = kLentSmall;  ///< small buffers beyond the guaranteed ones

  std::uint32_t small_buffers() const noexcept {
    return small_bytes > 0 ? guaranteed_small * accounts + lent_small : 0;
  }
};

class SharedMemory {
 public:
  /// Account of one connection.
  struct Account {
    ShareAccount small;
    ShareAccount large;
  };

  /// Allocates the memory at setup. Each account is guaranteed small buffers, and a large one if there are as
  /// many large buffers as accounts. No account holds more than half of the lent small buffers, nor of the
  /// large ones.
  void provide(rdma::Device& device, const SharedMemoryConfig& config);

  /// Returns the size of the largest buffer.
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
  /// Returns the number of free buffers.
  std::size_t available() const noexcept { return small_.available() + large_.available(); }
  std::size_t buffers() const noexcept {
    return std::size_t{small_.ledger().limits().elements} + large_.ledger().limits().elements;
  }

  /// Acquires a buffer of `bytes` or more, at most most_bytes(). Returns null if the account may have none
  /// now; call await() then.
  std::byte* acquire(Account& account, std::size_t bytes) noexcept {
    SLUICE_INVARIANT_DEBUG(bytes <= most_bytes(), buffer_bounds);
    return fits_small(bytes) ? small_.acquire(account.small) : large_.acquire(account.large);
  }
  /// Releases a buffer. No effect on null.
  void release(std::byte* buffer) noexcept {
    if (buffer != nullptr) (is_small(buffer) ? small_ : large_).release(buffer);
  }

  /// Calls `waiter` once when the account may have a buffer of that size. No effect if it already waits.
  void await(Account& account, std::size_t bytes, ShareWaiter& waiter) noexcept;
  /// Cancels await(). No effect if `waiter` does not wait.
  void forget(Account& account, ShareWaiter& waiter) noexcept;
  /// Cancels all waiters of a closed connection. The buffers that it holds are released later.
  void forget_all(Account& account) noexcept;
  bool awaited() const noexcept { return small_.ledger().waiters() + large_.ledger().waiters() > 0; }
  /// Calls waiters, as far as buffers are available. Called once per loop iteration.
  void resume_waiters() noexcept {
    if (!awaited()) return;
    small_.ledger().resume(small_.ledger().limits().elements);
    large_.ledger().resume(large_.ledger().limits().elements);
  }

 private:
  bool fits_small(std::size_t bytes) const noexcept {
    return small_.buffer_bytes() > 0 && bytes <= small_.buffer_bytes();
  }
  bool is_small(const std::byte* buffer) const noexcept { return buffer < large_begin_; }

  rdma::SharedBuffers small_;
  rdma::SharedBuffers large_;
  rdma::Lkey lkey_{};
  const std::byte* large_begin_ = nullptr;  ///< end of the small buffers, in the same region
};

}  // namespace sluice::rpcrdma
