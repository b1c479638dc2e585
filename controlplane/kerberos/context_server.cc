// SPDX-License-Identifier: Apache-2.0
#include "controlplane/kerberos/context_server.h"

namespace sluice::kerberos {

ContextService::ContextService(std::uint16_t port, const segment::ConfigBlock& block,
                               const segment::SharedUpstreamAddresses& addresses,
                               mount::MountStatistics& statistics)
    : relay_(block, addresses, statistics),
      sockets_(port, mount::Sockets::Transports::Tcp, "Kerberos contexts",
               "a server of this host has the port; clients come to 2049 and to no other. Set kerberos.port "
               "to another one only behind an address translation, or kerberos.enabled = false."),
      clients_(sockets_.listeners(), relay_, statistics, kMaxCallBytes) {}

void ContextService::prepare(mount::PollSet& set) {
  relay_.prepare(set);
  clients_.prepare(set);
}

void ContextService::turn(const mount::PollSet& set, std::uint64_t now_ns) {
  relay_.turn(set, now_ns);
  clients_.turn(set, now_ns);
}

ContextServer::ContextServer(std::uint16_t port, const segment::ConfigBlock& block,
                             const segment::SharedUpstreamAddresses& addresses)
    : service_(port, block, addresses, statistics_), thread_(service_) {}

}  // namespace sluice::kerberos
