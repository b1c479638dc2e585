// SPDX-License-Identifier: Apache-2.0
//
// Packet sequence numbers of a requester (InfiniBand 9.7.2, 9.7.7.2): unacknowledged <= next <= end, modulo
// 2^24. A plain value owned by the queue pair; only its reactor may call.
//
// PSNs from the peer are checked with contains() first. A method returns false, with no effect, only after a
// bug of ours; the queue pair then goes to Error.
#pragma once

#include <cstdint>

#include "dataplane/base/invariant.h"
#include "pmd/softroce/wire.h"

namespace sluice::rdma::softroce {

class PsnWindow {
 public:
  /// Resets the window for a new connection. At most `max_packets` are outstanding, fewer than 2^23.
  void open(std::uint32_t psn, std::uint32_t max_packets) noexcept {
    unacknowledged_ = next_ = end_ = psn & kPsnMask;
    max_packets_ = max_packets;
    static_cast<void>(SLUICE_INVARIANT(max_packets <= kPsnMask / 2, psn_window));
  }

  std::uint32_t unacknowledged() const noexcept { return unacknowledged_; }  ///< oldest
  std::uint32_t next() const noexcept { return next_; }                      ///< to send
  std::uint32_t end() const noexcept { return end_; }                        ///< one above the highest sent

  bool outstanding() const noexcept { return unacknowledged_ != end_; }
  bool retransmitting() const noexcept { return next_ != end_; }
  /// Returns the number of packets from the oldest unacknowledged one to the next one to send.
  std::uint32_t in_flight() const noexcept { return (next_ - unacknowledged_) & kPsnMask; }
  /// Reports whether the packet was sent and is not acknowledged.
  bool contains(std::uint32_t psn) const noexcept {
    return psn_distance(psn, end_) > 0 && psn_distance(unacknowledged_, psn) >= 0;
  }

  /// Records that `packets` were sent, starting with the PSN next().
  [[nodiscard]] bool sent(std::uint32_t packets) noexcept {
    if (!SLUICE_INVARIANT(in_flight() + packets <= max_packets_, psn_window)) return false;
    next_ = psn_add(next_, packets);
    if (psn_distance(end_, next_) > 0) end_ = next_;
    SLUICE_INVARIANT_DEBUG(ordered(), psn_window);
    return true;
  }
  /// Records that the peer has received everything before `psn`.
  [[nodiscard]] bool acknowledge_before(std::uint32_t psn) noexcept {
    if (!SLUICE_INVARIANT(psn_distance(unacknowledged_, psn) >= 0 && psn_distance(psn, end_) >= 0,
                          psn_window))
      return false;
    if (psn_distance(next_, psn) > 0) next_ = psn;
    unacknowledged_ = psn;
    SLUICE_INVARIANT_DEBUG(ordered(), psn_window);
    return true;
  }
  /// Retransmits from the oldest unacknowledged packet.
  void go_back() noexcept { next_ = unacknowledged_; }
  /// Returns whether the three indices are in order and at most max_packets are outstanding.
  bool ordered() const noexcept {
    return in_flight() <= ((end_ - unacknowledged_) & kPsnMask) &&
           ((end_ - unacknowledged_) & kPsnMask) <= max_packets_;
  }

 private:
  std::uint32_t unacknowledged_ = 0;
  std::uint32_t next_ = 0;
  std::uint32_t end_ = 0;
  std::uint32_t max_packets_ = 0;
};

}  // namespace sluice::rdma::softroce
