// SPDX-License-Identifier: Apache-2.0
//
// The MOUNT service with all its parts. Single-threaded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "controlplane/mount/datagrams.h"
#include "controlplane/mount/exports.h"
#include "controlplane/mount/poll_thread.h"
#include "controlplane/mount/procedures.h"
#include "controlplane/mount/registration.h"
#include "controlplane/mount/sockets.h"
#include "controlplane/mount/statistics.h"
#include "controlplane/mount/tcp_clients.h"

namespace sluice::events {
class Journal;
}

namespace sluice::mount {

class MountService final : public PolledService {
 public:
  /// Binds `port`, or any free port if it is zero. `rpcbind` is the path of rpcbind's socket for the
  /// registration, or empty. `nfs` is registered as well. `statistics` and `journal` outlive this object.
  /// Throws SetupError.
  MountService(std::uint16_t port, const std::string& rpcbind, std::unique_ptr<Exports> exports,
               MountStatistics& statistics, events::Journal& journal,
               const std::optional<NfsListener>& nfs = {});
  MountService(const MountService&) = delete;
  MountService& operator=(const MountService&) = delete;

  std::uint16_t port() const { return sockets_.port(); }
  std::size_t clients() const { return clients_.clients(); }
  void prepare(PollSet& set) override;
  void poll(const PollSet& set, std::uint64_t now_ns) override;

  /// Begins the shutdown. Only the registrations are served until finished().
  void finish(std::uint64_t now_ns) override;
  bool finished() const override;

 private:
  const std::unique_ptr<Exports> exports_;
  Procedures procedures_;
  Sockets sockets_;
  TcpClients clients_;
  std::vector<Datagrams> datagrams_;
  std::list<Registrar> registrars_;
  bool finishing_ = false;
};

}  // namespace sluice::mount
