// SPDX-License-Identifier: Apache-2.0
//
// Establishes the RPCSEC_GSS contexts of clients (RFC 2203, section 5.2): a client that mounts by RDMA does that
// over TCP, at the address that it mounts, in calls of the NULL procedure. They are passed on to the upstream that
// has the program, whose keys the gateway does not have; everything else is refused.
//
// Such a call cannot be repeated, since its token is good for one use: if it is lost the client's connection ends,
// so that the client begins again. What may wait is bounded by the places of clients (tcp_clients.h), and a reply by
// rpc_link.h. One thread, the service's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "controlplane/mount/call_handler.h"
#include "controlplane/mount/poll_set.h"
#include "controlplane/mount/rpc_link.h"
#include "controlplane/mount/statistics.h"
#include "dataplane/rpc/message.h"
#include "dataplane/segment/config_block.h"
#include "dataplane/segment/upstream_addresses.h"

namespace sluice::kerberos {

/// Tickets of Active Directory are some ten thousand bytes long.
inline constexpr std::size_t kMaxCallBytes = 64u << 10;
/// For an upstream's answer.
inline constexpr std::uint64_t kAnswerNs = 20'000'000'000;

class ContextRelay final : public mount::CallHandler {
 public:
  /// For the upstreams of `block`. The others outlive it.
  ContextRelay(const segment::ConfigBlock& block, const segment::SharedUpstreamAddresses& addresses,
               mount::MountStatistics& statistics);

  bool answer(std::span<const std::byte> call, const mount::Asker& asker, std::size_t max_reply_bytes,
              const Reply& reply) override;
  void prepare(mount::PollSet& set);
  void turn(const mount::PollSet& set, std::uint64_t now_ns);

 private:
  struct Upstream {
    segment::UpstreamConfig config;
    mount::RpcLink link;
  };

  struct Route {
    Upstream* upstream = nullptr;               ///< that has the program in this version
    std::optional<rpc::VersionRange> versions;  ///< of the program, at all upstreams
  };

  Route route(std::uint32_t program, std::uint32_t version) const;
  std::span<const std::byte> local_answer(xdr::Writer& writer, rpc::CallDecode decoded,
                                          const rpc::CallHeader& header, const Route& to,
                                          const mount::Asker& asker);
  void pass_on(Upstream& upstream, std::span<const std::byte> call, rpc::Xid xid, const mount::Asker& asker,
               const Reply& reply);

  const segment::SharedUpstreamAddresses& addresses_;
  std::vector<std::unique_ptr<Upstream>> upstreams_;
  mount::MountStatistics& statistics_;
};

}  // namespace sluice::kerberos
