// SPDX-License-Identifier: Apache-2.0
#include "controlplane/mount/mount_service.h"

#include <utility>

namespace sluice::mount {

MountService::MountService(std::uint16_t port, const std::string& rpcbind, std::unique_ptr<Exports> exports,
                           MountStatistics& statistics, events::Journal& journal)
    : exports_(std::move(exports)),
      procedures_(*exports_, statistics, journal),
      sockets_(port, Sockets::Transports::TcpAndUdp, "MOUNT",
               "set mount.port to another one, or mount.enabled = false."),
      clients_(sockets_.listeners(), procedures_, statistics) {
  std::vector<Registration> own;
  for (const Sockets::Socket& socket : sockets_.all()) {
    if (!socket.tcp) datagrams_.emplace_back(socket.fd, socket.family, procedures_);
    own.push_back(
        {.netid = socket.netid(), .address = socket.universal_address(sockets_.port()), .owner = {}});
  }
  if (!rpcbind.empty()) registrar_.emplace(std::move(own), rpcbind, statistics);
}

void MountService::prepare(PollSet& set) {
  if (registrar_) registrar_->prepare(set);
  if (finishing_) return;
  clients_.prepare(set);
  for (Datagrams& each : datagrams_) each.prepare(set);
  exports_->prepare(set);
}

void MountService::turn(const PollSet& set, std::uint64_t now_ns) {
  if (registrar_) registrar_->turn(set, now_ns);
  if (finishing_) return;
  exports_->turn(set, now_ns);
  for (Datagrams& each : datagrams_) each.turn(set, now_ns);
  clients_.turn(set, now_ns);
}

void MountService::finish(std::uint64_t now_ns) {
  finishing_ = true;
  if (registrar_) registrar_->withdraw(now_ns);
}

}  // namespace sluice::mount
