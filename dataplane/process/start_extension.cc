// SPDX-License-Identifier: Apache-2.0
#include "dataplane/process/start_extension.h"

#include <systemd/sd-daemon.h>

#include <string>

namespace sluice::process {

StartExtension::StartExtension(std::chrono::milliseconds interval)
    : thread_([this, interval] { run(interval); }) {}

StartExtension::~StartExtension() {
  {
    const std::lock_guard lock(mutex_);
    started_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void StartExtension::run(std::chrono::milliseconds interval) {
  const std::string extension =
      "EXTEND_TIMEOUT_USEC=" + std::to_string(std::chrono::microseconds(kExtension).count());
  const auto end = std::chrono::steady_clock::now() + kLongestStart;
  std::unique_lock lock(mutex_);
  while (!started_ && std::chrono::steady_clock::now() < end) {
    ::sd_notify(0, extension.c_str());
    changed_.wait_for(lock, interval, [this] { return started_; });
  }
}

}  // namespace sluice::process
