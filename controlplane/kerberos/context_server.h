// SPDX-License-Identifier: Apache-2.0
//
// The TCP port at which clients establish their RPCSEC_GSS contexts (context_relay.h). It has a thread of its own,
// on which nothing blocks.
#pragma once

#include <cstdint>

#include "controlplane/kerberos/context_relay.h"
#include "controlplane/mount/poll_thread.h"
#include "controlplane/mount/sockets.h"
#include "controlplane/mount/statistics.h"
#include "controlplane/mount/tcp_clients.h"

namespace sluice::kerberos {

class ContextService final : public mount::PolledService {
 public:
  /// Binds `port`; zero: any that is free. Throws SetupError. `addresses` and `statistics` outlive it.
  ContextService(std::uint16_t port, const segment::ConfigBlock& block,
                 const segment::SharedUpstreamAddresses& addresses, mount::MountStatistics& statistics);

  std::uint16_t port() const { return sockets_.port(); }
  void prepare(mount::PollSet& set) override;
  void turn(const mount::PollSet& set, std::uint64_t now_ns) override;

 private:
  ContextRelay relay_;
  mount::Sockets sockets_;
  mount::TcpClients clients_;
};

class ContextServer {
 public:
  /// Binds `port` and starts the thread. `addresses` outlive it. Throws SetupError when the port is taken.
  ContextServer(std::uint16_t port, const segment::ConfigBlock& block,
                const segment::SharedUpstreamAddresses& addresses);

  std::uint16_t port() const { return service_.port(); }
  const mount::MountStatistics& statistics() const { return statistics_; }

 private:
  mount::MountStatistics statistics_;
  ContextService service_;
  mount::PollThread thread_;
};

}  // namespace sluice::kerberos
