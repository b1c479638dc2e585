// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <csignal>

namespace sluice::bench {

/// While it lives, the first SIGINT or SIGTERM ends the load early, which then reports what it has done; the
/// second one ends the process.
class Interruptible {
 public:
  Interruptible() {
    told_ = 0;
    struct sigaction action = {};
    action.sa_handler = [](int) { told_ = 1; };
    action.sa_flags = SA_RESTART | static_cast<int>(SA_RESETHAND);
    ::sigaction(SIGINT, &action, &interrupt_);
    ::sigaction(SIGTERM, &action, &terminate_);
  }
  ~Interruptible() {
    ::sigaction(SIGINT, &interrupt_, nullptr);
    ::sigaction(SIGTERM, &terminate_, nullptr);
  }
  Interruptible(const Interruptible&) = delete;
  Interruptible& operator=(const Interruptible&) = delete;

  [[nodiscard]] bool told_to_end() const { return told_ != 0; }

 private:
  static inline volatile std::sig_atomic_t told_ = 0;
  struct sigaction interrupt_ = {};
  struct sigaction terminate_ = {};
};

}  // namespace sluice::bench
