// SPDX-License-Identifier: Apache-2.0
#include "dataplane/rpcrdma/link/shared_memory.h"

#include "dataplane/base/small_algorithms.h"
#include "pmd/device.h"

namespace sluice::rpcrdma {
std::uint32_t SharedMemoryConfig::small_buffers() const noexcept {
  return small_bytes > 0 ? guaranteed_small * accounts + lent_small : 0;
}

void SharedMemory::provide(rdma::Device& device, const SharedMemoryConfig& config) {
  const std::uint32_t small = config.small_buffers();
  const std::size_t all_small = std::size_t{small} * config.small_bytes;
  const rdma::MemoryRegion region =
      device.allocate_memory(all_small + std::size_t{config.large} * config.large_bytes);
  lkey_ = region.lkey;
  large_begin_ = region.bytes.data() + all_small;
  if (small > 0)
    small_.provide({{region.bytes.first(all_small), lkey_}, config.small_bytes},
                   {.elements = small,
                    .accounts = config.accounts,
                    .guaranteed = config.guaranteed_small,
                    .most = config.guaranteed_small + config.lent_small / 2});
  large_.provide({{region.bytes.subspan(all_small), lkey_}, config.large_bytes},
                 {.elements = config.large,
                  .accounts = config.accounts,
                  .guaranteed = config.large >= config.accounts ? 1u : 0u,
                  .most = larger_of((config.large + 1) / 2, smaller_of(config.large, 2u))});
}

void SharedMemory::await(Account& account, std::size_t bytes, ShareWaiter& waiter) noexcept {
  if (fits_small(bytes))
    small_.ledger().await(account.small, waiter);
  else
    large_.ledger().await(account.large, waiter);
}

void SharedMemory::forget(Account& account, ShareWaiter& waiter) noexcept {
  small_.ledger().forget(account.small, waiter);
  large_.ledger().forget(account.large, waiter);
}

void SharedMemory::forget_all(Account& account) noexcept {
  small_.ledger().forget_all(account.small);
  large_.ledger().forget_all(account.large);
}

void SharedMemory::resume_waiters() noexcept {
  if (!awaited()) return;
  small_.ledger().resume(small_.ledger().limits().elements);
  large_.ledger().resume(large_.ledger().limits().elements);
}

}  // namespace sluice::rpcrdma
