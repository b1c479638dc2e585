// SPDX-License-Identifier: Apache-2.0
//
// When a server that owes answers is asked whether it is still there, and when the connection to it is made
// again. Arithmetic only; the clock is the caller's. One thread.
#pragma once

#include <cstdint>

#include "dataplane/base/small_algorithms.h"

namespace sluice::rdma_server {

/// A server that has owed answers for this long, and has given none, is asked by a NULL call.
inline constexpr std::uint64_t kSilenceNs = 15'000'000'000;
/// The connection is made again when that call too has no answer for this long.
inline constexpr std::uint64_t kProbeAnswerNs = 15'000'000'000;
/// Where that call cannot be sent for want of a credit, silence says less: so many times longer.
inline constexpr std::uint64_t kUnaskedPatience = 8;
/// These times double with each such connection, up to this factor, until the server answers: one that is only
/// slow gets the same calls again each time.
inline constexpr std::uint64_t kMaxPatience = 16;

class Silence {
 public:
  enum class Step : std::uint8_t { Wait, Probe, Reconnect };

  /// Nothing is owed, or the connection is new.
  void restart(std::uint64_t now_ns) noexcept {
    since_ns_ = now_ns;
    probed_ = false;
  }
  /// The server has answered any call in any way.
  void heard(std::uint64_t now_ns) noexcept {
    restart(now_ns);
    patience_ = 1;
  }
  /// What to do now; each step is told once. `asked`: the NULL call has been sent.
  Step next(std::uint64_t now_ns, bool asked) noexcept {
    std::uint64_t limit = patience_ * kSilenceNs;
    if (probed_) limit = patience_ * kProbeAnswerNs * (asked ? 1 : kUnaskedPatience);
    if (now_ns - since_ns_ <= limit) return Step::Wait;
    since_ns_ = now_ns;
    probed_ = !probed_;
    if (probed_) return Step::Probe;
    patience_ = smaller_of(2 * patience_, kMaxPatience);
    return Step::Reconnect;
  }

 private:
  std::uint64_t since_ns_ = 0;
  std::uint64_t patience_ = 1;
  bool probed_ = false;
};

}  // namespace sluice::rdma_server
