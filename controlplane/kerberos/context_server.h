// SPDX-License-Identifier: Apache-2.0
//
// TCP server at which clients establish their RPCSEC_GSS contexts (context_relay.h). The server has its own
// thread, and nothing on it blocks.
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
  /// Binds `port`, or any free port if it is zero. Throws SetupError. `addresses` and `statistics` outlive
  /// this object.
  ContextService(std::uint16_t port, const segment::ConfigBlock& block,
                 const segment::SharedUpstreamAddresses& addresses, mount::MountStatistics& statistics);

  std::uint16_t port() const { return sockets_.port(); }
  void prepare(mount::PollSet& set) override;
  void poll(const mount::PollSet& set, std::uint64_t now_ns) override;

 private:
  ContextRelay relay_;
  mount::Sockets sockets_;
  mount::TcpClients clients_;
};

class ContextServer {
 public:
  /// Binds `port` and starts the thread. `addresses` outlives this object. Throws SetupError if the port is
  /// in use.
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
