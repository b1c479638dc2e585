// SPDX-License-Identifier: Apache-2.0
//
// A port over TCP and UDP, IPv4 and IPv6, with its registrations at rpcbind. Single-threaded; runs on the
// service's thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <string>
#include <utility>
#include <vector>

#include "controlplane/onc_rpc/registration.h"
#include "controlplane/onc_rpc/sockets.h"
#include "controlplane/onc_rpc/tcp_clients.h"
#include "dataplane/base/small_algorithms.h"

namespace sluice::onc_rpc {

class Endpoint {
 public:
  /// Binds the port as Sockets does. `handler` and `statistics` outlive this object. Throws SetupError.
  Endpoint(std::uint16_t port, const std::string& what, const std::string& advice, CallHandler& handler,
           ServerStatistics& statistics, std::size_t max_call_bytes)
      : statistics_(statistics),
        sockets_(port, Sockets::Transports::TcpAndUdp, what, advice),
        clients_(sockets_.listeners(), handler, statistics, max_call_bytes) {
    for (const Sockets::Socket& socket : sockets_.all())
      if (!socket.tcp) datagrams_.emplace_back(socket.fd, socket.family, handler);
  }

  /// Registers the addresses of this port for a program. `rpcbind` is the path of rpcbind's socket.
  void register_program(std::uint32_t program, std::uint32_t version, const std::string& rpcbind,
                        ServiceName name) {
    std::vector<Registration> own;
    for (const Sockets::Socket& socket : sockets_.all())
      own.push_back({.program = program,
                     .version = version,
                     .netid = socket.netid(),
                     .address = socket.universal_address(sockets_.port()),
                     .owner = {}});
    add_registrar(std::move(own), rpcbind, std::move(name));
  }
  /// Registers addresses of another port. finish() withdraws them too.
  void add_registrar(std::vector<Registration> own, const std::string& rpcbind, ServiceName name,
                     Registrar::Served served = {}) {
    registrars_.emplace_back(std::move(own), rpcbind, statistics_, std::move(name), std::move(served));
  }

  std::uint16_t port() const { return sockets_.port(); }
  std::size_t clients() const { return clients_.clients(); }
  bool has_family(int family) const {
    return has_match(sockets_.all(), [=](const auto& socket) { return socket.family == family; });
  }

  void prepare(PollSet& set) {
    for (Registrar& registrar : registrars_) registrar.prepare(set);
    if (finishing_) return;
    clients_.prepare(set);
    for (Datagrams& each : datagrams_) each.prepare(set);
  }
  void poll(const PollSet& set, std::uint64_t now_ns) {
    for (Registrar& registrar : registrars_) registrar.poll(set, now_ns);
    if (finishing_) return;
    for (Datagrams& each : datagrams_) each.poll(set, now_ns);
    clients_.poll(set, now_ns);
  }
  /// Begins the shutdown. Only the registrations are served until finished().
  void finish(std::uint64_t now_ns) {
    finishing_ = true;
    for (Registrar& registrar : registrars_) registrar.withdraw(now_ns);
  }
  bool finishing() const { return finishing_; }
  bool finished() const {
    return !has_match(registrars_, [](const Registrar& registrar) { return !registrar.withdrawn(); });
  }

 private:
  ServerStatistics& statistics_;
  Sockets sockets_;
  TcpClients clients_;
  std::vector<Datagrams> datagrams_;
  std::list<Registrar> registrars_;
  bool finishing_ = false;
};

}  // namespace sluice::onc_rpc
