// SPDX-License-Identifier: Apache-2.0
#include "controlplane/locks/lock_service.h"

#include <algorithm>

#include "dataplane/segment/segment.h"

namespace sluice::locks {

LockService::LockService(const LockSettings& settings, LockStatistics& statistics)
    : journal_(settings.state.empty() ? nullptr : std::make_unique<Journal>(settings.state)),
      proxy_(settings.proxy, statistics, journal_.get()),
      procedures_(proxy_, settings.may_lock, settings.proxy.is_upstream, statistics),
      sockets_(settings.port, mount::Sockets::Transports::TcpAndUdp, "locks (NLM)",
               "set locks.port to another one, or locks.enabled = false."),
      clients_(sockets_.listeners(), procedures_, statistics.sockets, kMaxLockCallBytes) {
  for (const mount::Sockets::Socket& socket : sockets_.all())
    if (!socket.tcp) datagrams_.emplace_back(socket.fd, socket.family, procedures_);
  if (journal_) {
    journal_->load(proxy_.table());
    proxy_.resume(segment::monotonic_ns());
  }
  if (settings.rpcbind.empty()) return;
  registrars_.push_back(std::make_unique<mount::Registrar>(
      registrations(kNlmProgram, kNlmVersion), settings.rpcbind, statistics.sockets,
      mount::ServiceName{
          "NLM",
          "locks of clients go there, and fail. The lock manager of this host's kernel has it "
          "while an NFS version 3 file system is mounted with locks or exported here: end that, "
          "or 'rpcinfo -d 100021 4' if it is gone"}));
  registrars_.push_back(std::make_unique<mount::Registrar>(
      registrations(kNsmProgram, kNsmVersion), settings.rpcbind, statistics.sockets,
      mount::ServiceName{"NSM",
                         "restarts of clients and of the upstream are not noticed, so that locks of a client "
                         "that has crashed stay. Stop this host's rpc.statd, or 'rpcinfo -d 100024 1' if it "
                         "is gone"}));
}

std::vector<mount::Registration> LockService::registrations(std::uint32_t program,
                                                            std::uint32_t version) const {
  std::vector<mount::Registration> all;
  for (const mount::Sockets::Socket& socket : sockets_.all())
    all.push_back({.program = program,
                   .version = version,
                   .netid = socket.netid(),
                   .address = socket.universal_address(sockets_.port()),
                   .owner = {}});
  return all;
}

void LockService::prepare(mount::PollSet& set) {
  for (const auto& registrar : registrars_) registrar->prepare(set);
  if (finishing_) return;
  clients_.prepare(set);
  for (mount::Datagrams& each : datagrams_) each.prepare(set);
  proxy_.prepare(set);
}

void LockService::turn(const mount::PollSet& set, std::uint64_t now_ns) {
  for (const auto& registrar : registrars_) registrar->turn(set, now_ns);
  if (finishing_) return;
  proxy_.turn(set, now_ns);
  if (journal_) journal_->maintain(proxy_.table(), now_ns);
  for (mount::Datagrams& each : datagrams_) each.turn(set, now_ns);
  clients_.turn(set, now_ns);
}

void LockService::finish(std::uint64_t now_ns) {
  finishing_ = true;
  for (const auto& registrar : registrars_) registrar->withdraw(now_ns);
}

bool LockService::finished() const {
  return std::all_of(registrars_.begin(), registrars_.end(),
                     [](const auto& registrar) { return registrar->withdrawn(); });
}

}  // namespace sluice::locks
