// SPDX-License-Identifier: Apache-2.0
//
// Passes the channel of the kernel's connections to the data plane, which keeps it open when this control plane ends
// (segment/kept_channel.h). What is lost, or goes with a data plane, is passed again. One thread.
#pragma once

#include <cstdint>
#include <string>

namespace sluice::segment {
struct Layout;
}

namespace sluice::cm {

class ChannelOffer {
 public:
  static constexpr std::uint64_t kRepeatNs = 200'000'000;
  /// Then it is said in the log, once until it has been taken.
  static constexpr std::uint64_t kPatienceNs = 5'000'000'000;

  /// The layout outlives it.
  ChannelOffer(const segment::Layout& layout, const std::string& segment);

  /// In a turn of the owner. `descriptor` is the channel's, and stays the caller's. Does not block.
  void poll(int descriptor, std::uint64_t now_ns);

  /// By which connections and the data plane know the channel. In a turn of the owner.
  std::uint32_t epoch() const noexcept;

 private:
  void complain(int error, std::uint64_t now_ns);

  const segment::Layout& layout_;
  const std::string path_;
  std::uint64_t sent_ns_ = 0;
  std::uint64_t waits_since_ns_ = 0;  ///< for a data plane that is there. Zero: for none
  bool complained_ = false;
};

}  // namespace sluice::cm
