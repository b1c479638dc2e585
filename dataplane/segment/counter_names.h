// SPDX-License-Identifier: Apache-2.0
//
// Names of the data plane's counters, published in the segment so that a reader of another release finds the
// counters that both releases have, even at different indices.
//
// The data plane writes its names at start. CounterPlaces belongs to a reading process: one thread updates
// it, and all threads may read it during the update.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace sluice::segment {

enum class CounterFamily : std::uint32_t {
  Transport,
  Reactor,
  Invariant,
  Upstream,
  Ingress,
  SoftRoce,
  Verbs
};
inline constexpr std::size_t kCounterFamilies = 7;
inline constexpr std::size_t kMostCounters = 128;  ///< per family
inline constexpr std::size_t kCounterNameBytes = 40;

struct CounterNames {
  using Name = std::array<char, kCounterNameBytes>;  ///< padded with zeros; empty: no counter
  std::array<std::array<Name, kMostCounters>, kCounterFamilies> names;
  bool operator==(const CounterNames&) const = default;
};

/// Writes the counter names of this release.
void own_counter_names(CounterNames& names) noexcept;

class CounterPlaces {
 public:
  CounterPlaces() noexcept;
  /// Adopts the counter names of a data plane. Called at setup.
  void follow(const CounterNames& theirs);

  /// Returns the data plane's value of counter `own` of this release; zero if the data plane has no counter
  /// of that name.
  template <std::size_t N>
  std::uint64_t value(CounterFamily family, std::size_t own,
                      const std::array<std::atomic<std::uint64_t>, N>& counters) const noexcept {
    const std::uint32_t place =
        places_[static_cast<std::size_t>(family)][own].load(std::memory_order_relaxed);
    return place < N ? counters[place].load(std::memory_order_relaxed) : 0;
  }

 private:
  static constexpr std::uint32_t kNone = ~0u;
  std::array<std::array<std::atomic<std::uint32_t>, kMostCounters>, kCounterFamilies> places_;
};

}  // namespace sluice::segment
