// SPDX-License-Identifier: Apache-2.0
//
// The parts of the MOUNT service. One thread.
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
  /// Binds `port`; zero: any that is free. `rpcbind`: path of its socket to register there, or empty. `nfs` is
  /// registered there as well. Throws SetupError. `statistics` and `journal` outlive it.
  MountService(std::uint16_t port, const std::string& rpcbind, std::unique_ptr<Exports> exports,
               MountStatistics& statistics, events::Journal& journal,
               const std::optional<NfsListener>& nfs = {});
  MountService(const MountService&) = delete;
  MountService& operator=(const MountService&) = delete;

  std::uint16_t port() const { return sockets_.port(); }
  std::size_t clients() const { return clients_.clients(); }
  void prepare(PollSet& set) override;
  void turn(const PollSet& set, std::uint64_t now_ns) override;

  /// The end: only the registrations are left, until finished().
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
