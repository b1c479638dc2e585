// SPDX-License-Identifier: Apache-2.0
//
// Extension of systemd's start timeout. Registering a few hundred GiB with a device takes minutes in system
// calls that return late. No effect outside a systemd unit.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

namespace sluice::process {

/// Interval between two extensions, and the time that each of them allows.
inline constexpr std::chrono::seconds kExtensionInterval{10};
inline constexpr std::chrono::seconds kExtension{60};
/// Maximum duration of a start. A longer start counts as hung and is no longer extended.
inline constexpr std::chrono::hours kLongestStart{1};

/// Extends the start timeout periodically during its lifetime, in a separate thread. The main thread creates
/// and destroys it before the reactors run.
class StartExtension {
 public:
  explicit StartExtension(std::chrono::milliseconds interval = kExtensionInterval);
  ~StartExtension();
  StartExtension(const StartExtension&) = delete;
  StartExtension& operator=(const StartExtension&) = delete;

 private:
  void run(std::chrono::milliseconds interval);

  std::mutex mutex_;
  std::condition_variable changed_;
  bool started_ = false;  ///< start is complete; guarded by mutex_
  std::thread thread_;
};

}  // namespace sluice::process
