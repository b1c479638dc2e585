// SPDX-License-Identifier: Apache-2.0
//
// MOUNT version 3 over TCP and UDP, IPv4 and IPv6 (RFC 1813, appendix I): NFSv3 clients get the root handle here
// before they connect by RDMA. It has a thread of its own, on which nothing blocks.
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

/// Makes the exports; called once.
using MakeExports = Function<std::unique_ptr<Exports>(MountStatistics&)>;

class MountServer {
 public:
  /// Binds `port` (zero: any that is free) and starts the thread. `rpcbind`: path of its socket to register
  /// there if it runs, or empty. `nfs` is registered there as well. Throws SetupError when the port is taken.
  /// `journal` outlives it.
  MountServer(std::uint16_t port, const std::string& rpcbind, const MakeExports& make_exports,
              events::Journal& journal, const std::optional<NfsListener>& nfs = {});

  std::uint16_t port() const { return service_.port(); }
  const MountStatistics& statistics() const { return statistics_; }

 private:
  MountStatistics statistics_;
  MountService service_;
  PollThread thread_;  ///< at its end the registration is withdrawn, for which rpcbind has kWithdrawNs
};

}  // namespace sluice::mount
