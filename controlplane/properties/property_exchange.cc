// SPDX-License-Identifier: Apache-2.0
#include "controlplane/properties/property_exchange.h"

#include <spdlog/spdlog.h>

#include <algorithm>

#include "dataplane/rpcrdma/link/close_reason.h"
#include "dataplane/rpcrdma/link/config.h"
#include "dataplane/rpcrdma/v2/agreement.h"

namespace sluice::properties {
namespace {

constexpr std::uint64_t kCheckIntervalNs = 500'000'000;

}  // namespace

PropertyExchange::PropertyExchange(segment::Layout& layout, const config::Config& config,
                                   std::unique_ptr<HostAuthentication> authentication)
    : layout_(layout), config_(config), authentication_(std::move(authentication)) {}

bool PropertyExchange::command(std::uint32_t reactor, segment::Command command) {
  if (layout_.reactors[reactor].commands.push(command)) return true;
  ++statistics_.commands_lost;
  return false;
}

bool PropertyExchange::poll(std::uint64_t now_ns) {
  now_ns_ = now_ns;
  bool any = false;
  for (std::uint32_t reactor = 0; reactor < config_.block.reactors; ++reactor) {
    segment::PropertyPart part;
    auto& ring = layout_.reactors[reactor].properties_up;
    for (std::uint32_t i = 0; i < ring.capacity() && ring.pop(part); ++i) {
      any = true;
      on_part(reactor, part);
    }
  }
  any |= send_parts();
  if (now_ns - checked_ns_ >= kCheckIntervalNs) {
    checked_ns_ = now_ns;
    check_held_connections(now_ns);
  }
  return any;
}

void PropertyExchange::on_part(std::uint32_t reactor, const segment::PropertyPart& part) {
  Incoming& incoming = incoming_[reactor];
  const Key from{reactor, part.connection, part.cm_id};
  if (part.offset == 0) {
    incoming.from = from;
    incoming.body.clear();
  }
  // A control plane before this one may have read the first parts.
  const bool fits = incoming.from == from && part.offset == incoming.body.size() &&
                    part.bytes <= segment::PropertyPart::kBytes &&
                    part.offset + part.bytes <= std::min(part.total_bytes, rpcrdma::kMaxPropertyBytes);
  if (!fits) {
    ++statistics_.parts_lost;
    return;
  }
  incoming.body.insert(incoming.body.end(), part.octets.begin(), part.octets.begin() + part.bytes);
  if (incoming.body.size() == part.total_bytes) on_set(from, part.first_set != 0, incoming.body);
}

void PropertyExchange::on_set(const Key& from, bool first, std::span<const std::byte> body) {
  ++statistics_.sets;
  const auto properties = rpcrdma::v2::decode_properties(body);
  if (!properties) return;  // not well-formed: the data plane answers that
  if (first) {
    const auto info =
        layout_.reactors[from.reactor].connections[from.connection % segment::kMaxConnections].read();
    rpcrdma::v2::Parameters own;
    own.max_send_bytes = info && info->own_properties.max_send_bytes > 0 ? info->own_properties.max_send_bytes
                                                                         : rpcrdma::kMaxInlineBytes;
    const rpcrdma::v2::Agreement agreed = rpcrdma::v2::agree(own, *properties, &statistics_.clamped);
    command(from.reactor, {.type = segment::CommandType::SetParameters,
                           .cm_id = from.cm_id,
                           .connection = from.connection,
                           .parameters = {.send_bytes = agreed.send_bytes,
                                          .max_segment_bytes = agreed.max_segment_bytes,
                                          .max_segments = agreed.max_segments,
                                          .reverse = static_cast<std::uint32_t>(agreed.reverse)}});
  }
  if (properties->host_authentication) on_authentication(from, *properties->host_authentication);
}

void PropertyExchange::on_authentication(const Key& from, std::span<const std::byte> octets) {
  if (!authentication_) return;  // the peer counts as unauthenticated (V2-062)
  Peer& peer = peers_[from];
  if (peer.ended) return;
  if (!peer.handshake) {
    peer.handshake = authentication_->accept();
    peer.since_ns = now_ns_;
  }
  HostHandshake::Step step = peer.handshake->on_octets(octets);
  if (!step.answer.empty()) downward_.push_back({from, std::move(step.answer)});
  switch (step.verdict) {
    case HostHandshake::Verdict::Pending:
      return;
    case HostHandshake::Verdict::Accepted:
      ++statistics_.authenticated;
      spdlog::info("Host '{}' has authenticated itself on connection {} of reactor {}", step.peer,
                   from.connection, from.reactor);
      // With the ring full, the client's next attempt or its time limit decides.
      peer.ended = admit(from, step.peer);
      peer.handshake.reset();
      return;
    case HostHandshake::Verdict::Refused:
      ++statistics_.refused;
      spdlog::warn("The peer of connection {} of reactor {} failed host authentication", from.connection,
                   from.reactor);
      peer.handshake.reset();
      peer.ended = true;
      close(from);
      return;
  }
}

/// The reactor is told the class with the admission: no call is served in another one.
bool PropertyExchange::admit(const Key& connection, std::string_view host) {
  segment::Command admit{.type = segment::CommandType::Admit,
                         .cm_id = connection.cm_id,
                         .connection = connection.connection,
                         .client_class = segment::kKeepClass,
                         .host = HostName(host)};
  if (const config::HostEntry* entry = config::find_host(config_, host))
    admit.client_class = config::class_of_host(config_, *entry).value_or(segment::kKeepClass);
  return command(connection.reactor, admit);
}

void PropertyExchange::close(const Key& connection) {
  command(connection.reactor, {.type = segment::CommandType::Close,
                               .cm_id = connection.cm_id,
                               .connection = connection.connection,
                               .reason = static_cast<std::uint32_t>(rpcrdma::CloseReason::NotAuthenticated)});
}

/// In order and without a gap; parts that the ring has no room for wait here.
bool PropertyExchange::send_parts() {
  bool any = false;
  while (!downward_.empty()) {
    Downward& down = downward_.front();
    segment::PropertyPart part{.connection = down.to.connection,
                               .cm_id = down.to.cm_id,
                               .total_bytes = static_cast<std::uint32_t>(down.octets.size()),
                               .offset = static_cast<std::uint32_t>(down.sent),
                               .bytes = static_cast<std::uint32_t>(std::min<std::size_t>(
                                   down.octets.size() - down.sent, segment::PropertyPart::kBytes))};
    std::copy_n(down.octets.begin() + static_cast<std::ptrdiff_t>(down.sent), part.bytes,
                part.octets.begin());
    if (!layout_.reactors[down.to.reactor].properties_down.push(part)) return any;
    any = true;
    down.sent += part.bytes;
    if (down.sent == down.octets.size()) downward_.erase(downward_.begin());
  }
  return any;
}

/// Closes connections that are held until authentication for too long, and drops the state of those that have ended. A
/// new control plane finds the held ones here.
void PropertyExchange::check_held_connections(std::uint64_t now_ns) {
  const std::uint64_t limit_ns = std::uint64_t{config_.authentication_timeout_s} * 1'000'000'000;
  for (std::uint32_t reactor = 0; reactor < config_.block.reactors; ++reactor) {
    const auto& table = layout_.reactors[reactor].connections;
    for (std::uint32_t number = 0; number < table.size(); ++number) {
      const auto info = table[number].read();
      if (!info || info->state == segment::ConnectionState::Unused || info->held == 0) continue;
      const Key key{reactor, number, info->cm_id};
      Peer& peer = peers_[key];
      if (peer.since_ns == 0) peer.since_ns = now_ns;
      if (peer.ended || now_ns - peer.since_ns < limit_ns) continue;
      peer.ended = true;
      ++statistics_.refused;
      spdlog::warn("The peer of connection {} of reactor {} did not authenticate itself within {} s", number,
                   reactor, config_.authentication_timeout_s);
      close(key);
    }
  }
  forget_absent_connections();
}

/// At the second look: properties of a connection may be here before the reactor has published it.
void PropertyExchange::forget_absent_connections() {
  for (auto& [key, peer] : peers_) {
    const auto info =
        layout_.reactors[key.reactor].connections[key.connection % segment::kMaxConnections].read();
    const bool absent = info && (info->state == segment::ConnectionState::Unused || info->cm_id != key.cm_id);
    peer.forgotten = absent && peer.absent;
    peer.absent = absent;
  }
  std::erase_if(peers_, [](const auto& entry) { return entry.second.forgotten; });
}

}  // namespace sluice::properties
