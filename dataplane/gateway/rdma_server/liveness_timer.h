// SPDX-License-Identifier: Apache-2.0
//
// Liveness timer of a server that owes answers: decides when to probe it and when to reconnect. Pure
// arithmetic; the caller provides the clock. Single-threaded.
#pragma once

#include <cstdint>

#include "dataplane/base/small_algorithms.h"

namespace sluice::rdma_server {

/// Time in nanoseconds without an answer to outstanding calls after which the server is probed by a NULL
/// call.
inline constexpr std::uint64_t kSilenceNs = 15'000'000'000;
/// Time in nanoseconds without an answer to the probe after which the connection is replaced.
inline constexpr std::uint64_t kProbeAnswerNs = 15'000'000'000;
/// Factor for the probe timeout if the probe could not be sent for lack of a credit, because silence is
/// weaker evidence then.
inline constexpr std::uint64_t kUnaskedPatience = 8;
/// Maximum backoff factor of both times. The factor doubles with each reconnect until the server answers,
/// because every reconnect retransmits all calls to a server that may only be slow.
inline constexpr std::uint64_t kMaxPatience = 16;

class LivenessTimer {
 public:
  enum class Step : std::uint8_t { Wait, Probe, Reconnect };

  /// Restarts the timer because no answer is owed or the connection is new.
  void restart(std::uint64_t now_ns) noexcept {
    since_ns_ = now_ns;
    probed_ = false;
  }
  /// Records any answer of the server.
  void heard(std::uint64_t now_ns) noexcept {
    restart(now_ns);
    patience_ = 1;
  }
  /// Returns the step that is due. Each step is returned once. `asked` is true if the NULL probe has been
  /// sent.
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
