// SPDX-License-Identifier: Apache-2.0
//
// Registered memory and memory windows of one device. They survive the removal of the NIC: when it comes
// back, the memory is registered again with the same Lkey, which is the driver's own and mapped to the
// device's.
//
// Only the owning reactor may call. Owns the registrations, the windows and memory from allocate(); memory
// passed to add() must outlive the table. Sizes in bytes. Setup throws SetupError; else null, nullopt or
// false.
#pragma once

#include <infiniband/verbs.h>

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "dataplane/base/invariant.h"
#include "pmd/common/pages.h"
#include "pmd/common/steering_tags.h"
#include "pmd/queue_pair.h"

namespace sluice::rdma::verbs {

/// The owner of a type 2 window chooses the low 8 bits of its rkey (InfiniBand Architecture Specification
/// volume 1, 10.6.7.2.4).
inline constexpr std::uint32_t kKeyBits = 8;
inline constexpr std::uint32_t kKeys = 1u << kKeyBits;
/// Number of low bits of our lkeys that hold the region's index.
inline constexpr std::uint32_t kRegionBits = 12;

class MemoryTable {
 public:
  MemoryTable() = default;
  ~MemoryTable();
  MemoryTable(const MemoryTable&) = delete;
  MemoryTable& operator=(const MemoryTable&) = delete;

  // Setup. These functions throw SetupError.
  MemoryRegion allocate(std::size_t bytes);
  MemoryRegion add(std::span<std::byte> bytes);
  MemoryWindow allocate_window();
  /// Adds a protection domain, in which everything is registered too.
  ProtectionDomain add_domain();
  /// Registers everything in a device's protection domain, in regions of at most `max_region_bytes`, of which
  /// zero means unknown. Memory allocated later lies on the device's NUMA
  /// node. On SetupError nothing is registered.
  void attach(ibv_pd* pd, bool windows, int node, std::uint64_t max_region_bytes);
  /// Deregisters everything, before the protection domain is deallocated.
  void detach() noexcept;

  /// Returns the device's lkey. For an unknown Lkey returns a key that the device rejects.
  std::uint32_t device_lkey(Lkey lkey) const noexcept {
    const Region* region = find(lkey);
    return region != nullptr ? region->device_lkey : kNoKey;
  }
  /// Like device_lkey(lkey), for queue pairs of another domain than the first.
  std::uint32_t device_lkey(Lkey lkey, ProtectionDomain domain) const noexcept {
    const std::uint32_t region = static_cast<std::uint32_t>(lkey) ^ tag_;
    const auto number = static_cast<std::size_t>(domain);
    if (number == 0) return device_lkey(lkey);
    if (number > domains_.size() || region >= domains_[number - 1].regions.size()) return kNoKey;
    return domains_[number - 1].regions[region]->lkey;
  }
  /// Returns a domain of add_domain(), or null if the device is away.
  ibv_pd* domain(ProtectionDomain domain) const noexcept {
    const auto number = static_cast<std::size_t>(domain);
    static_cast<void>(SLUICE_INVARIANT(number > 0 && number <= domains_.size(), table_index));
    return domains_[number - 1].pd;
  }
  /// Reports whether `sge` lies entirely inside the region of its lkey.
  bool covers(const Sge& sge) const noexcept;

  struct Binding {
    ibv_mw* window = nullptr;
    std::uint32_t rkey = 0;
    ibv_mw_bind_info info{};
  };
  /// Assigns a window to `owner`. Returns nullopt if the window is bound already, if the window or region
  /// does not exist, or if `bytes` are not inside the region, which some devices do not check.
  std::optional<Binding> bind(MemoryWindow window, std::span<std::byte> bytes, Lkey lkey, AccessFlags access,
                              const QueuePair& owner) noexcept;
  /// Releases the owner's window with this rkey after it was invalidated.
  void unbind(std::uint32_t rkey, const QueuePair& owner) noexcept;
  /// Reports whether a window with this rkey is bound to `owner`.
  bool bound(std::uint32_t rkey, const QueuePair& owner) const noexcept;
  struct Replacement {
    std::uint32_t window = 0;
    ibv_mw* handle = nullptr;  ///< window to be replaced, then its replacement or null
  };
  /// Setup. Returns the owner's windows, which cannot be bound until replace(). Called when the owner or its
  /// ibv_qp is about to be destroyed.
  std::vector<Replacement> take_bound(const QueuePair& owner);
  void replace(std::span<const Replacement> windows);

 private:
  static constexpr std::uint32_t kNoKey = 0;
  struct Region {
    std::span<std::byte> bytes;
    ibv_mr* handle = nullptr;
    std::uint32_t device_lkey = kNoKey;
  };
  struct Window {
    ibv_mw* handle = nullptr;
    const QueuePair* owner = nullptr;  ///< null if not bound
    std::uint32_t rkey = 0;
    std::bitset<kKeys> drawn;  ///< keys used since the last time all keys were used
  };

  struct Domain {
    ibv_pd* pd = nullptr;
    std::vector<ibv_mr*> regions;  ///< by index in regions_; empty if the device is away
  };

  const Region* find(Lkey lkey) const noexcept;
  ibv_mr* register_in(ibv_pd* pd, std::span<std::byte> bytes) const;
  void register_all(Domain& domain);
  void make_window(Window& window);
  void index_windows();
  Window* window_of(std::uint32_t rkey) noexcept;
  std::uint32_t draw_key(Window& window) noexcept;

  ibv_pd* pd_ = nullptr;
  bool windows_possible_ = false;
  std::uint64_t max_region_bytes_ = 0;
  int node_ = -1;  ///< NUMA node of the device; negative if unknown
  SteeringTags tags_;
  const std::uint32_t tag_ = static_cast<std::uint32_t>(tags_.next())
                             << kRegionBits;  ///< upper bits of our lkeys
  Pages pages_;
  std::vector<Region> regions_;
  std::vector<Domain> domains_;
  std::vector<Window> windows_;
  /// Maps the device's part of an rkey to an index in windows_. Sorted.
  std::vector<std::pair<std::uint32_t, std::uint32_t>> window_index_;
};

}  // namespace sluice::rdma::verbs
