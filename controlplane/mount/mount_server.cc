// SPDX-License-Identifier: Apache-2.0
#include "controlplane/mount/mount_server.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include "dataplane/segment/segment.h"

namespace sluice::mount {

MountServer::MountServer(std::uint16_t port, const std::string& rpcbind, const MakeExports& make_exports)
    : service_(port, rpcbind, make_exports(statistics_), statistics_),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (wake_ < 0) throw SetupError("No file descriptor is left for MOUNT: raise LimitNOFILE.");
  thread_ = std::thread([this] { run(); });
}

MountServer::~MountServer() {
  stop_ = true;
  ::eventfd_write(wake_, 1);
  thread_.join();
  ::close(wake_);
}

void MountServer::run() {
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
