// SPDX-License-Identifier: Apache-2.0
//
// Names of the data plane's counters, in the segment: a reader of another release finds those that both know, wherever
// they are.
//
// The data plane writes its names at start. CounterPlaces belongs to a reading process; its threads may all read it
// while one brings it up to date.
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
inline constexpr std::size_t kMostCounters = 128;  ///< of a family
inline constexpr std::size_t kCounterNameBytes = 40;

struct CounterNames {
  using Name = std::array<char, kCounterNameBytes>;  ///< zeros behind it; empty: no counter
  std::array<std::array<Name, kMostCounters>, kCounterFamilies> names;
  bool operator==(const CounterNames&) const = default;
};

/// Those of this release.
void own_counter_names(CounterNames& names) noexcept;

class CounterPlaces {
 public:
  CounterPlaces() noexcept;
  /// For a data plane with these names. Setup.
  void follow(const CounterNames& theirs);

  /// Counter `own` of this release, of the data plane's counters; zero: it has none of that name.
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
