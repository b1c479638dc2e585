// SPDX-License-Identifier: Apache-2.0
//
// Buffers in which the parts of version 2 messages are joined, and who waits for one. One reactor.
#pragma once

#include <cstddef>
#include <utility>

#include "dataplane/base/intrusive_queue.h"
#include "pmd/buffer_pool.h"

namespace sluice::rpcrdma {

/// Waits for a buffer of AssemblyMemory.
class AssemblyWaiter {
 public:
  virtual void on_assembly_memory() noexcept = 0;

  QueueLink<AssemblyWaiter> assembly_link;

 protected:
  ~AssemblyWaiter() = default;
};

class AssemblyMemory {
 public:
  /// Setup.
  void provide(rdma::BufferPool pool) { pool_ = std::move(pool); }

  rdma::BufferPool& pool() noexcept { return pool_; }
  const rdma::BufferPool& pool() const noexcept { return pool_; }
  /// Null when all are in use: await() one.
  std::byte* acquire() noexcept { return pool_.acquire(); }
  /// No effect on null.
  void release(std::byte* buffer) noexcept {
    if (buffer != nullptr) pool_.release(buffer);
  }

  /// `waiter` is called when there is a buffer again, in the order of asking. No effect if it waits already.
  void await(AssemblyWaiter& waiter) noexcept {
    if (!waiting_.contains(waiter)) waiting_.push_back(waiter);
  }
  /// `waiter` waits no more. No effect if it does not.
  void forget(AssemblyWaiter& waiter) noexcept { Queue::unlink(waiter); }
  bool awaited() const noexcept { return !waiting_.empty(); }
  bool awaited_by(const AssemblyWaiter& waiter) const noexcept { return waiting_.contains(waiter); }

  /// Calls those who wait, as long as there are buffers.
  void resume_waiters() noexcept {
    while (!waiting_.empty() && pool_.available() > 0) waiting_.pop_front()->on_assembly_memory();
  }

 private:
  using Queue = IntrusiveQueue<AssemblyWaiter, &AssemblyWaiter::assembly_link>;

  rdma::BufferPool pool_;
  Queue waiting_;
};

}  // namespace sluice::rpcrdma
