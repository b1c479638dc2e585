// SPDX-License-Identifier: Apache-2.0
//
// The parts of the lock proxy: NLM and NSM on one port over TCP and UDP, IPv4 and IPv6. One thread, its own, on which
// nothing blocks but the journal's writes.
#pragma once

#include <cstdint>
#include <list>
#include <optional>
#include <string>
#include <vector>

#include "controlplane/locks/journal.h"
#include "controlplane/locks/procedures.h"
#include "controlplane/locks/proxy.h"
#include "controlplane/locks/statistics.h"
#include "controlplane/mount/datagrams.h"
#include "controlplane/mount/poll_thread.h"
#include "controlplane/mount/registration.h"
#include "controlplane/mount/sockets.h"
#include "controlplane/mount/tcp_clients.h"
#include "dataplane/base/function.h"

namespace sluice::locks {

struct LockSettings {
  std::uint16_t port = 0;                       ///< zero: any that is free
  std::string rpcbind;                          ///< path of its socket to register there, or empty
  Function<bool(const PeerAddress&)> may_lock;  ///< which clients
  std::string state{};                          ///< file that locks are recorded in, or empty
  ProxySettings proxy;
};

class LockService final : public mount::PolledService {
 public:
  /// Throws SetupError. `statistics` outlives it.
  LockService(const LockSettings& settings, LockStatistics& statistics);

  std::uint16_t port() const { return sockets_.port(); }
  void prepare(mount::PollSet& set) override;
  void turn(const mount::PollSet& set, std::uint64_t now_ns) override;
  void finish(std::uint64_t now_ns) override;
  bool finished() const override;

 private:
  std::vector<mount::Registration> registrations(std::uint32_t program, std::uint32_t version) const;

  std::optional<Journal> journal_;  ///< none: nothing is recorded
  LockProxy proxy_;
  LockProcedures procedures_;
  mount::Sockets sockets_;
  mount::TcpClients clients_;
  std::vector<mount::Datagrams> datagrams_;
  std::list<mount::Registrar> registrars_;
  bool finishing_ = false;
};

/// With its thread.
class LockServer {
 public:
  explicit LockServer(const LockSettings& settings) : service_(settings, statistics_), thread_(service_) {}

  std::uint16_t port() const { return service_.port(); }
  const LockStatistics& statistics() const { return statistics_; }

 private:
  LockStatistics statistics_;
  LockService service_;
  mount::PollThread thread_;
};

}  // namespace sluice::locks
