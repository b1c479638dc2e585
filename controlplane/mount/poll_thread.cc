// SPDX-License-Identifier: Apache-2.0
#include "controlplane/mount/poll_thread.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include "dataplane/base/setup_error.h"
#include "dataplane/segment/segment.h"

namespace sluice::mount {

PollThread::PollThread(PolledService& service)
    : service_(service), wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (wake_ < 0) throw SetupError("No file descriptor is left for a thread's wake-up: raise LimitNOFILE.");
  thread_ = std::thread([this] { run(); });
}

PollThread::~PollThread() {
  stop_ = true;
  ::eventfd_write(wake_, 1);
  thread_.join();
  ::close(wake_);
}

void PollThread::run() {
  PollSet set;
  const auto turn = [&](bool until_stopped) {
    set.clear();
    if (until_stopped) set.add(wake_, POLLIN);
    service_.prepare(set);
    set.wait(segment::monotonic_ns());
    service_.turn(set, segment::monotonic_ns());
  };
  while (!stop_) turn(true);
  service_.finish(segment::monotonic_ns());
  while (!service_.finished()) turn(false);
}

}  // namespace sluice::mount
