// SPDX-License-Identifier: Apache-2.0
//
// Passes the event channel of the kernel's connections to the data plane, which keeps it open when this
// control plane exits (segment/channels.h). An offer that was lost, or that another data plane received,
// is repeated. Single-threaded.
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
  /// Time after which a missing acknowledgment is logged, once until the data plane has the channel.
  static constexpr std::uint64_t kPatienceNs = 5'000'000'000;

  /// `layout` outlives this object.
  ChannelOffer(const segment::Layout& layout, const std::string& segment);

  /// Repeats the offer if necessary. `descriptor` is the channel's descriptor, which the caller keeps
  /// ownership of. The caller must hold the right to write the segment. Does not block.
  void poll(int descriptor, std::uint64_t now_ns);

  /// Returns the epoch by which connections and the data plane identify the channel. The caller must hold the
  /// right to write the segment.
  std::uint32_t epoch() const noexcept;

 private:
  void complain(int error, std::uint64_t now_ns);

  const segment::Layout& layout_;
  const std::string path_;
  std::uint64_t sent_ns_ = 0;
  std::uint64_t waits_since_ns_ = 0;  ///< start of the wait for a running data plane; zero if there is none
  bool complained_ = false;
};

}  // namespace sluice::cm
