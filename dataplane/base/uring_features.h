// SPDX-License-Identifier: Apache-2.0
//
// Optional io_uring features that the gateways use if the kernel has them. Shown by the admin socket.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace sluice {

enum class UringFeature : std::uint8_t {
  deferred_work,      ///< completes operations when the reactor enters the kernel (Linux 6.1)
  multishot_receive,  ///< receives repeatedly into provided buffers (Linux 6.0)
  registered_ring,    ///< the ring is entered without a reference to its file (Linux 5.18)
};

/// Names of the features, in the order of UringFeature.
inline constexpr std::array<std::string_view, 3> kUringFeatureNames{"deferred_work", "multishot_receive",
                                                                    "registered_ring"};

/// Set of features, as stored in the segment.
class UringFeatures {
 public:
  constexpr UringFeatures() = default;
  constexpr explicit UringFeatures(std::uint32_t bits) : bits_(bits) {}
  static constexpr UringFeatures all() { return UringFeatures((1u << kUringFeatureNames.size()) - 1); }

  constexpr std::uint32_t bits() const { return bits_; }
  constexpr bool has(UringFeature feature) const { return (bits_ & bit(feature)) != 0; }
  constexpr UringFeatures with(UringFeature feature) const { return UringFeatures(bits_ | bit(feature)); }
  constexpr UringFeatures without(UringFeature feature) const { return UringFeatures(bits_ & ~bit(feature)); }
  friend constexpr bool operator==(UringFeatures, UringFeatures) = default;

 private:
  static constexpr std::uint32_t bit(UringFeature feature) { return 1u << static_cast<unsigned>(feature); }
  std::uint32_t bits_ = 0;
};

}  // namespace sluice
