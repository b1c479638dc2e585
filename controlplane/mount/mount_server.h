// SPDX-License-Identifier: Apache-2.0
//
// MOUNT version 3 over TCP and UDP, IPv4 and IPv6 (RFC 1813, appendix I). NFSv3 clients get the root handle
// here before they connect over RDMA. The server has its own thread, and nothing on it blocks.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "controlplane/mount/exports.h"
#include "controlplane/mount/mount_service.h"
#include "controlplane/mount/poll_thread.h"
#include "controlplane/mount/statistics.h"
#include "dataplane/base/function.h"

namespace sluice::events {
class Journal;
}

namespace sluice::mount {

/// Creates the exports; called once.
using MakeExports = Function<std::unique_ptr<Exports>(MountStatistics&)>;

class MountServer {
 public:
  /// Binds `port`, or any free port if it is zero, and starts the thread. `rpcbind` is the path of rpcbind's
  /// socket for the registration, or empty; a missing rpcbind is not an error. `nfs` is registered as well.
  /// `journal` outlives this object. Throws SetupError if the port is in use.
  MountServer(std::uint16_t port, const std::string& rpcbind, const MakeExports& make_exports,
              events::Journal& journal, const std::optional<NfsListener>& nfs = {});

  std::uint16_t port() const { return service_.port(); }
  const MountStatistics& statistics() const { return statistics_; }

 private:
  MountStatistics statistics_;
  MountService service_;
  PollThread thread_;  ///< its destructor withdraws the registration, for which rpcbind has kWithdrawNs
};

}  // namespace sluice::mount
