// SPDX-License-Identifier: Apache-2.0
//
// Equal-sized buffers of registered memory that several holders share, and the account that holds each
// buffer. One reactor; only provide() allocates.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "dataplane/base/invariant.h"
#include "dataplane/base/share_ledger.h"
#include "pmd/buffer_pool.h"
#include "pmd/work_request.h"

namespace sluice::rdma {

struct SharedUse {
  std::uint32_t buffers = 0;
  std::uint32_t held = 0;
  std::uint32_t waiting = 0;
};

class SharedBuffers {
 public:
  /// Setup. The pool must have at least as many buffers as `limits` specifies.
  void provide(BufferPool pool, const ShareLimits& limits) {
    pool_ = std::move(pool);
    static_cast<void>(SLUICE_INVARIANT(pool_.available() >= limits.elements, pool_balance));
    ledger_.provide(limits);
    holders_.assign(limits.elements, nullptr);
  }

  /// Returns a buffer, or null if the account may have none now; the account then waits in the ledger.
  std::byte* acquire(ShareAccount& account) noexcept {
    if (!ledger_.take(account)) return nullptr;
    std::byte* const buffer = pool_.acquire();
    SLUICE_INVARIANT_DEBUG(buffer != nullptr && pool_.available() >= ledger_.free(), pool_balance);
    holders_[pool_.number_of(buffer)] = &account;
    return buffer;
  }
  void release(std::byte* buffer) noexcept {
    SLUICE_INVARIANT_DEBUG(pool_.contains(buffer) && holders_[pool_.number_of(buffer)] != nullptr,
                           pool_balance);
    ShareAccount& account = *holders_[pool_.number_of(buffer)];
    pool_.release(buffer);
    ledger_.give_back(account);
    SLUICE_INVARIANT_DEBUG(pool_.available() >= ledger_.free(), pool_balance);
  }
  std::size_t available() const noexcept { return pool_.available(); }
  std::size_t buffer_bytes() const noexcept { return pool_.buffer_bytes(); }
  Lkey lkey() const noexcept { return pool_.lkey(); }
  SharedUse use() const noexcept {
    const std::uint32_t buffers = ledger_.limits().elements;
    return {buffers, buffers - ledger_.free(), ledger_.waiters()};
  }
  ShareLedger& ledger() noexcept { return ledger_; }
  const ShareLedger& ledger() const noexcept { return ledger_; }

 private:
  BufferPool pool_;
  ShareLedger ledger_;
  std::vector<ShareAccount*> holders_;  ///< by buffer index
};

}  // namespace sluice::rdma
