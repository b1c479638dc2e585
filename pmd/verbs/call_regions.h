// SPDX-License-Identifier: Apache-2.0
//
// Regions that are registered for one call each, on a device without memory windows. The set-up thread
// registers and deregisters them, because both are system calls. The reactor requests each step and handles
// its result in a later poll().
//
// Threads: the reactor that owns the device calls everything except carry_out(). The handed-over part of a
// region belongs to the set-up thread from the request of a step until its result was handled. Setup throws
// SetupError. Sizes in bytes.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "dataplane/base/invariant.h"
#include "dataplane/base/setup_error.h"
#include "pmd/memory.h"
#include "pmd/verbs/states.h"

namespace sluice::rdma::verbs {

class VerbsQueuePair;

/// Maximum number of regions for calls of one device.
inline constexpr std::uint32_t kMaxCallRegions = 16384;

class CallRegions {
 public:
  /// Setup. Adds a region to the table.
  MemoryWindow allocate() {
    if (regions_.size() == kMaxCallRegions)
      throw SetupError("An RDMA device without memory windows registers at most " +
                       std::to_string(kMaxCallRegions) +
                       " regions for calls. Configure fewer connections or fewer calls per connection.");
    regions_.reserve(kMaxCallRegions);  // the set-up thread must not see a region move
    regions_.emplace_back();
    return {static_cast<std::uint32_t>(regions_.size() - 1)};
  }
  std::size_t size() const noexcept { return regions_.size(); }
  /// Returns the number of steps whose results were not handled.
  std::uint32_t pending() const noexcept { return pending_; }

  struct Registration {
    ibv_pd* pd = nullptr;
    std::span<std::byte> bytes;
    AccessFlags access = 0;
    std::uint64_t wr_id = 0;
  };
  /// Assigns a free region to `owner`, which requests its registration. Returns false if it is in use.
  bool begin(MemoryWindow window, VerbsQueuePair& owner, const Registration& registration) noexcept {
    Region* const region = find(window);
    if (region == nullptr || !region->state.is(CallRegionState::Free)) return false;
    static_cast<void>(SLUICE_INVARIANT(region->owner == nullptr && region->handle == nullptr, table_index));
    region->state.transition(CallRegionState::Registering);
    region->owner = &owner;
    region->wr_id = registration.wr_id;
    region->registration = registration;
    ++pending_;
    return true;
  }
  /// Lets `owner` request the deregistration of its region. Returns false if the region is not its own or not
  /// registered.
  bool end(MemoryWindow window, const VerbsQueuePair& owner, std::uint64_t wr_id, bool signaled) noexcept {
    Region* const region = find(window);
    if (region == nullptr || region->owner != &owner || !region->state.is(CallRegionState::Registered))
      return false;
    region->state.transition(CallRegionState::Deregistering);
    region->wr_id = wr_id;
    region->signaled = signaled;
    ++pending_;
    return true;
  }
  /// Calls `request` with the index of each region of a queue pair that has ended, unless its deregistration
  /// was requested before.
  template <typename Request>
  void end_all(const VerbsQueuePair& owner, const Request& request) noexcept {
    for (std::uint32_t i = 0; i < regions_.size(); ++i) {
      Region& region = regions_[i];
      if (region.owner != &owner) continue;
      if (region.state.is(CallRegionState::Registered)) {
        region.state.transition(CallRegionState::Deregistering);
        region.signaled = false;
      } else if (region.state.is(CallRegionState::Registering)) {
        region.state.transition(CallRegionState::Abandoned);
      } else {
        continue;
      }
      ++pending_;
      request(static_cast<std::uint16_t>(i));
    }
  }
  /// Reports whether a region of `owner` is registered or has a pending step.
  bool holds(const VerbsQueuePair& owner) const noexcept {
    for (const Region& region : regions_)
      if (region.owner == &owner) return true;
    return false;
  }

  /// Result of a step, for the owner's work completion.
  struct Result {
    VerbsQueuePair* owner = nullptr;
    std::uint64_t wr_id = 0;
    std::uint32_t rkey = 0;
    bool completes = false;  ///< a work completion is due
  };
  Result on_registered(std::uint16_t index, bool done) noexcept {
    Region& region = finished(index);
    Result result{.owner = region.owner, .wr_id = region.wr_id, .completes = true};
    if (region.state.is(CallRegionState::Abandoned)) {  // handed over again
      region.state.transition(CallRegionState::Deregistering);
      region.signaled = false;
    } else if (done) {
      result.rkey = region.handle->rkey;
      region.state.transition(CallRegionState::Registered);
    } else {
      release(region);
    }
    return result;
  }
  Result on_deregistered(std::uint16_t index) noexcept {
    Region& region = finished(index);
    const Result result{.owner = region.owner, .wr_id = region.wr_id, .completes = region.signaled};
    release(region);
    return result;
  }

  // Executed by the set-up thread.
  /// Registers the region. Returns false if the device refuses.
  bool register_now(std::uint16_t index) noexcept {
    Region& region = regions_[index];
    static_cast<void>(SLUICE_INVARIANT(region.handle == nullptr, table_index));
    int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_RELAXED_ORDERING;
    if (region.registration.access & kRemoteRead) access |= IBV_ACCESS_REMOTE_READ;
    if (region.registration.access & kRemoteWrite) access |= IBV_ACCESS_REMOTE_WRITE;
    region.handle = ibv_reg_mr(region.registration.pd, region.registration.bytes.data(),
                               region.registration.bytes.size(), access);
    return region.handle != nullptr;
  }
  /// Deregisters the region, if it was registered. Returns false if the device refuses, which ends the
  /// connection but leaves the region in the device.
  bool deregister_now(std::uint16_t index) noexcept {
    Region& region = regions_[index];
    const bool done = region.handle == nullptr || ibv_dereg_mr(region.handle) == 0;
    region.handle = nullptr;
    return done;
  }

 private:
  struct Region {
    CallRegionMachine state;
    VerbsQueuePair* owner = nullptr;  ///< null if Free
    std::uint64_t wr_id = 0;          ///< of the pending step
    bool signaled = false;            ///< the pending deregistration has a work completion
    // Handed over.
    Registration registration;
    ibv_mr* handle = nullptr;
  };

  Region* find(MemoryWindow window) noexcept {
    return window.number < regions_.size() ? &regions_[window.number] : nullptr;
  }
  Region& finished(std::uint16_t index) noexcept {
    static_cast<void>(SLUICE_INVARIANT(index < regions_.size() && pending_ > 0, table_index));
    --pending_;
    return regions_[index];
  }
  void release(Region& region) noexcept {
    static_cast<void>(SLUICE_INVARIANT(region.owner != nullptr, table_index));
    region.state.transition(CallRegionState::Free);
    region.owner = nullptr;
  }

  std::vector<Region> regions_;
  std::uint32_t pending_ = 0;
};

}  // namespace sluice::rdma::verbs
