// SPDX-License-Identifier: Apache-2.0
//
// TCP server at which clients establish their RPCSEC_GSS contexts (RFC 2203, section 5.2). A client that
// mounts over RDMA establishes its contexts over TCP, at the address that it mounts, in calls of the NULL
// procedure. The relay forwards these calls to the upstream that has the program, because only the upstream
// holds the service keys. All other calls are refused.
//
// Such a call cannot be retransmitted, because its token is valid for one use. If the call is lost, the
// client's connection is closed and the client starts over. The number of calls in progress is bounded by
// the client slots (tcp_clients.h), the size of a reply by rpc_link.h. Nothing blocks, so that other services
// may share the thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "controlplane/mount/statistics.h"
#include "controlplane/onc_rpc/poll_thread.h"
#include "controlplane/onc_rpc/rpc_link.h"
#include "controlplane/onc_rpc/sockets.h"
#include "controlplane/onc_rpc/tcp_clients.h"
#include "dataplane/rpc/message.h"
#include "dataplane/segment/config_block.h"
#include "dataplane/segment/control_tables.h"

namespace sluice::kerberos {

/// Maximum size of a call. Tickets of Active Directory are about ten thousand bytes long.
inline constexpr std::size_t kMaxCallBytes = 64u << 10;
/// Timeout for an upstream's reply.
inline constexpr std::uint64_t kAnswerNs = 20'000'000'000;

/// Forwards the calls to the upstreams. Single-threaded; runs on the service's thread.
class ContextRelay final : public onc_rpc::CallHandler {
 public:
  /// Relays to the upstreams of `block`. `addresses` and `statistics` outlive this object.
  ContextRelay(const segment::ConfigBlock& block, const segment::SharedUpstreamAddresses& addresses,
               ContextStatistics& statistics);

  bool answer(std::span<const std::byte> call, const onc_rpc::Asker& asker, std::size_t max_reply_bytes,
              const Reply& reply) override;
  void prepare(PollSet& set);
  void poll(const PollSet& set, std::uint64_t now_ns);

 private:
  struct Upstream {
    segment::UpstreamConfig config;
    onc_rpc::RpcLink link;
  };

  struct Route {
    Upstream* upstream = nullptr;               ///< upstream that has the program in this version
    std::optional<rpc::VersionRange> versions;  ///< versions of the program at all upstreams
  };

  Route route(std::uint32_t program, std::uint32_t version) const;
  std::span<const std::byte> local_answer(xdr::Writer& writer, rpc::CallDecode decoded,
                                          const rpc::CallHeader& header, const Route& to,
                                          const onc_rpc::Asker& asker);
  void pass_on(Upstream& upstream, std::span<const std::byte> call, rpc::Xid xid, const onc_rpc::Asker& asker,
               const Reply& reply);

  const segment::SharedUpstreamAddresses& addresses_;
  std::vector<std::unique_ptr<Upstream>> upstreams_;
  ContextStatistics& statistics_;
};

/// The relay with its sockets. Single-threaded.
class ContextService final : public PolledService {
 public:
  /// Binds `port`, or any free port if it is zero. Throws SetupError. `addresses` and `statistics` outlive
  /// this object.
  ContextService(std::uint16_t port, const segment::ConfigBlock& block,
                 const segment::SharedUpstreamAddresses& addresses, ContextStatistics& statistics);

  std::uint16_t port() const { return sockets_.port(); }
  void prepare(PollSet& set) override;
  void poll(const PollSet& set, std::uint64_t now_ns) override;

 private:
  ContextRelay relay_;
  onc_rpc::Sockets sockets_;
  onc_rpc::TcpClients clients_;
};

/// The service on a poll thread.
class ContextServer {
 public:
  /// Binds `port` and attaches the service to `thread`. `thread` and `addresses` outlive this object. Throws
  /// SetupError if the port is in use.
  ContextServer(onc_rpc::PollThread& thread, std::uint16_t port, const segment::ConfigBlock& block,
                const segment::SharedUpstreamAddresses& addresses);

  std::uint16_t port() const { return service_.port(); }
  const ContextStatistics& statistics() const { return statistics_; }

 private:
  ContextStatistics statistics_;
  ContextService service_;
  onc_rpc::PollThread::Attachment attachment_;
};

}  // namespace sluice::kerberos
