// SPDX-License-Identifier: Apache-2.0
//
// Server for Kerberos contexts: forwards their calls to upstreams.
#include "controlplane/mount/kerberos_contexts.h"

#include <algorithm>
#include <array>

#include "controlplane/mount/exports.h"

namespace sluice::kerberos {
namespace {

constexpr std::uint32_t kNullProcedure = 0;
/// Maximum size of a reply that the gateway generates itself.
constexpr std::size_t kShortReplyBytes = rpc::kMinReplyBytes + 2 * xdr::kUnit;

/// Returns the TCP port for context establishment. Linux clients establish contexts over TCP even if the
/// server is mounted over RDMA. `port` is the upstream's configured port, which a reload may have changed.
std::uint16_t context_port(segment::Transport transport, std::uint32_t port) {
  constexpr std::uint16_t kNfsPort = 2049;
  return transport == segment::Transport::Rdma ? kNfsPort : static_cast<std::uint16_t>(port);
}

}  // namespace

ContextRelay::ContextRelay(const segment::ConfigBlock& block,
                           const segment::SharedUpstreamAddresses& addresses, ContextStatistics& statistics)
    : addresses_(addresses), statistics_(statistics) {
  for (std::uint32_t i = 0; i < block.upstream_count; ++i)
    upstreams_.emplace_back(std::make_unique<Upstream>())->config = block.upstreams[i];
}

ContextRelay::Route ContextRelay::route(std::uint32_t program, std::uint32_t version) const {
  Route found;
  for (const auto& upstream : upstreams_) {
    if (upstream->config.listen_port != 0) continue;  // the call does not show which one is meant
    for (std::uint32_t i = 0; i < upstream->config.route_count; ++i) {
      const segment::RouteConfig& route = upstream->config.routes[i];
      if (route.program != program) continue;
      if (route.version == version) found.upstream = upstream.get();
      if (!found.versions) found.versions = {route.version, route.version};
      found.versions->low = std::min(found.versions->low, route.version);
      found.versions->high = std::max(found.versions->high, route.version);
    }
  }
  return found;
}

/// Encodes the reply to a call that is not forwarded. Returns an empty span if the call is to be forwarded to
/// `to`.
std::span<const std::byte> ContextRelay::local_answer(xdr::Writer& writer, rpc::CallDecode decoded,
                                                      const rpc::CallHeader& header, const Route& to,
                                                      const onc_rpc::Asker& asker) {
  if (decoded == rpc::CallDecode::RpcMismatch) {
    rpc::encode_rpc_mismatch(writer, header.xid);
  } else if (decoded == rpc::CallDecode::BadCred) {
    rpc::encode_auth_error(writer, header.xid, rpc::AuthStat::BadCred);
  } else if (decoded == rpc::CallDecode::BadVerf) {
    rpc::encode_auth_error(writer, header.xid, rpc::AuthStat::BadVerf);
  } else if (!to.versions) {
    rpc::encode_accepted(writer, header.xid, {}, rpc::AcceptStat::ProgUnavail);
  } else if (to.upstream == nullptr) {
    rpc::encode_prog_mismatch(writer, header.xid, {}, *to.versions);
  } else if (header.procedure != kNullProcedure) {
    rpc::encode_accepted(writer, header.xid, {}, rpc::AcceptStat::ProcUnavail);
  } else if (!mount::allowed(to.upstream->config.allowed, to.upstream->config.allowed_count, asker.address)) {
    count(statistics_.denied);
    rpc::encode_auth_error(writer, header.xid, rpc::AuthStat::RejectedCred);
  } else if (header.credential.flavor != rpc::AuthFlavor::RpcSecGss) {
    rpc::encode_accepted(writer, header.xid, {}, rpc::AcceptStat::Success);
  }
  return writer.written();
}

bool ContextRelay::answer(std::span<const std::byte> call, const onc_rpc::Asker& asker,
                          std::size_t /*max_reply_bytes*/, const Reply& reply) {
  xdr::Reader reader(call);
  rpc::CallHeader header;
  const rpc::CallDecode decoded = rpc::decode_call(reader, header);
  if (decoded == rpc::CallDecode::Truncated || decoded == rpc::CallDecode::NotACall) {
    count(statistics_.malformed);
    return false;
  }
  count(statistics_.calls);
  const Route to = decoded == rpc::CallDecode::Ok ? route(header.program, header.version) : Route{};
  std::array<std::byte, kShortReplyBytes> room;
  xdr::Writer writer(room);
  if (const auto message = local_answer(writer, decoded, header, to, asker); !message.empty())
    reply(message);
  else if (to.upstream != nullptr)
    pass_on(*to.upstream, call, header.xid, asker, reply);
  return true;
}

void ContextRelay::pass_on(Upstream& upstream, std::span<const std::byte> call, rpc::Xid xid,
                           const onc_rpc::Asker& asker, const Reply& reply) {
  count(statistics_.questions);
  const segment::UpstreamConfig& config = upstream.config;
  if (const auto at = segment::answering_endpoint(addresses_, config.name))  // else the last server stays
    upstream.link.set_server(onc_rpc::server_at(at->address, context_port(config.transport, at->port),
                                                config.privileged_port != 0));
  upstream.link.pass_on(call, asker.now_ns, asker.now_ns + kAnswerNs,
                        [this, xid, reply](onc_rpc::Failure failure, std::span<const std::byte> message) {
                          if (failure != onc_rpc::Failure::None) {
                            count(failure == onc_rpc::Failure::TimedOut ? statistics_.questions_timed_out
                                                                        : statistics_.questions_failed);
                            return reply({});
                          }
                          std::vector<std::byte> answer(message.begin(), message.end());
                          xdr::store_u32(answer.data(), static_cast<std::uint32_t>(xid));
                          reply(answer);
                        });
}

void ContextRelay::prepare(PollSet& set) {
  for (const auto& upstream : upstreams_) upstream->link.prepare(set);
}

void ContextRelay::poll(const PollSet& set, std::uint64_t now_ns) {
  for (const auto& upstream : upstreams_) upstream->link.poll(set, now_ns);
}

ContextService::ContextService(std::uint16_t port, const segment::ConfigBlock& block,
                               const segment::SharedUpstreamAddresses& addresses,
                               ContextStatistics& statistics)
    : relay_(block, addresses, statistics),
      sockets_(port, onc_rpc::Sockets::Transports::Tcp, "Kerberos contexts",
               "A server of this host uses the port, and clients use only 2049. Set kerberos.port to another "
               "port only behind an address translation, or set kerberos.enabled = false."),
      clients_(sockets_.listeners(), relay_, statistics.sockets, kMaxCallBytes) {}

void ContextService::prepare(PollSet& set) {
  relay_.prepare(set);
  clients_.prepare(set);
}

void ContextService::poll(const PollSet& set, std::uint64_t now_ns) {
  relay_.poll(set, now_ns);
  clients_.poll(set, now_ns);
}

ContextServer::ContextServer(onc_rpc::PollThread& thread, std::uint16_t port,
                             const segment::ConfigBlock& block,
                             const segment::SharedUpstreamAddresses& addresses)
    : service_(port, block, addresses, statistics_), attachment_(thread, service_) {}

}  // namespace sluice::kerberos
