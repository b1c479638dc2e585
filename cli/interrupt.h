// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <csignal>
#include <cstddef>

namespace sluice::cli {

/// Requests the end at the first SIGINT, SIGTERM or SIGHUP during the lifetime of the object, so that the
/// program reports the results that it has. The second signal ends the process. A signal that was ignored
/// when the process was started (nohup) remains ignored.
class Interruptible {
 public:
  Interruptible() {
    told_ = 0;
    struct sigaction action = {};
    action.sa_handler = [](int) { told_ = 1; };
    action.sa_flags = SA_RESTART | static_cast<int>(SA_RESETHAND);
    for (std::size_t i = 0; i < kSignals.size(); ++i) {
      ::sigaction(kSignals[i], &action, &before_[i]);
      if (before_[i].sa_handler == SIG_IGN) ::sigaction(kSignals[i], &before_[i], nullptr);
    }
  }
  ~Interruptible() {
    for (std::size_t i = 0; i < kSignals.size(); ++i) ::sigaction(kSignals[i], &before_[i], nullptr);
  }
  Interruptible(const Interruptible&) = delete;
  Interruptible& operator=(const Interruptible&) = delete;

  [[nodiscard]] bool told_to_end() const { return told_ != 0; }

 private:
  static inline volatile std::sig_atomic_t told_ = 0;
  static constexpr std::array kSignals{SIGINT, SIGTERM, SIGHUP};
  std::array<struct sigaction, kSignals.size()> before_ = {};
};

}  // namespace sluice::cli
