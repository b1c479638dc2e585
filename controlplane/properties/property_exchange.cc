// SPDX-License-Identifier: Apache-2.0
//
// Transport properties of version 2, and the hosts that the configuration allows to authenticate themselves.
#include "controlplane/properties/property_exchange.h"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>

#include "controlplane/cm/outbox.h"
#include "controlplane/config/config.h"
#include "controlplane/events/journal.h"
#include "controlplane/events/kinds.h"
#include "controlplane/properties/host_handshake.h"
#include "controlplane/properties/key_schedule.h"
#include "controlplane/properties/psk.h"
#include "dataplane/rpcrdma/link/config.h"
#include "dataplane/rpcrdma/v2/agreement.h"
#include "dataplane/segment/layout.h"

namespace sluice::properties {
namespace {

constexpr std::uint64_t kCheckIntervalNs = 500'000'000;

}  // namespace

PropertyExchange::PropertyExchange(segment::Layout& layout, const config::Config& config, cm::Outbox& outbox,
                                   std::unique_ptr<HostAuthentication> authentication,
                                   events::Journal& journal)
    : layout_(layout),
      config_(config),
      outbox_(outbox),
      journal_(journal),
      authentication_(std::move(authentication)),
      next_to_check_(config.block.reactors) {}

segment::DesiredStateWriter PropertyExchange::wanted(const Key& of) {
  return segment::DesiredStateWriter(layout_.reactors[of.reactor].wanted);
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
  check_next_reactor();
  return any;
}

void PropertyExchange::on_part(std::uint32_t reactor, const segment::PropertyPart& part) {
  Incoming& incoming = incoming_[reactor];
  if (part.connection >= segment::kMaxConnections) {
    ++statistics_.parts_lost;
    return;
  }
  const Key from{reactor, part.connection, part.incarnation};
  if (part.offset == 0) {
    incoming.from = from;
    incoming.body.clear();
  }
  // The previous control plane may have consumed the first parts.
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
  if (!properties) return;  // not well-formed: the data plane replies to that
  if (first) {
    const auto info = layout_.reactors[from.reactor].connections[from.connection].read();
    want_parameters(from, *properties, info ? info->own_properties.max_send_bytes : 0);
  }
  if (properties->host_authentication) on_authentication(from, *properties->host_authentication);
}

/// Sets the parameters for the peer's properties. `max_send_bytes` is the gateway's own property, or zero if
/// the table does not show it yet.
void PropertyExchange::want_parameters(const Key& of, const rpcrdma::v2::Parameters& peer,
                                       std::uint32_t max_send_bytes) {
  rpcrdma::v2::Parameters own;
  own.max_send_bytes = max_send_bytes > 0 ? max_send_bytes : rpcrdma::kMaxInlineBytes;
  const rpcrdma::v2::Agreement agreed = rpcrdma::v2::agree(own, peer, &statistics_.clamped);
  wanted(of).parameters(of.connection, of.incarnation,
                        {.send_bytes = agreed.send_bytes,
                         .max_segment_bytes = agreed.max_segment_bytes,
                         .max_segments = agreed.max_segments,
                         .reverse = static_cast<std::uint32_t>(agreed.reverse)});
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
  if (!step.answer.empty()) send(from, step.answer);
  switch (step.verdict) {
    case HostHandshake::Verdict::Pending:
      return;
    case HostHandshake::Verdict::Accepted:
      ++statistics_.authenticated;
      journal_.add(events::HostAuthenticated{
          .reactor = from.reactor, .connection = from.connection, .host = std::string(step.peer)});
      admit(from, step.peer);
      peer.ended = true;
      peer.handshake.reset();
      return;
    case HostHandshake::Verdict::Refused:
      ++statistics_.refused;
      report_refusal(from, "failed");
      peer.handshake.reset();
      peer.ended = true;
      close(from);
      return;
  }
}

void PropertyExchange::report_refusal(const Key& connection, const char* reason) {
  const auto info = layout_.reactors[connection.reactor].connections[connection.connection].read();
  const bool there = info && info->incarnation == connection.incarnation;
  journal_.add(events::HostRefused{.reactor = connection.reactor,
                                   .connection = connection.connection,
                                   .peer = there ? to_string(info->peer) : "",
                                   .reason = reason});
}

/// Admits the connection and sets its class in the same update, so that no call is served in another class.
void PropertyExchange::admit(const Key& connection, std::string_view host) {
  std::uint32_t client_class = segment::kKeepClass;
  if (const config::HostEntry* entry = config::find_host(config_, host))
    client_class = config::class_of_host(config_, *entry).value_or(segment::kKeepClass);
  wanted(connection).admit(connection.connection, connection.incarnation, HostName(host), client_class);
}

void PropertyExchange::close(const Key& connection) {
  wanted(connection)
      .end(connection.connection, connection.incarnation, segment::End::Disconnect,
           static_cast<std::uint32_t>(rpcrdma::CloseReason::NotAuthenticated));
}

void PropertyExchange::send(const Key& to, std::span<const std::byte> octets) {
  for (std::size_t sent = 0; sent < octets.size();) {
    segment::PropertyPart part{.connection = to.connection,
                               .incarnation = to.incarnation,
                               .total_bytes = static_cast<std::uint32_t>(octets.size()),
                               .offset = static_cast<std::uint32_t>(sent),
                               .bytes = static_cast<std::uint32_t>(std::min<std::size_t>(
                                   octets.size() - sent, segment::PropertyPart::kBytes))};
    std::copy_n(octets.begin() + static_cast<std::ptrdiff_t>(sent), part.bytes, part.octets.begin());
    outbox_.send(to.reactor, part);
    sent += part.bytes;
  }
}

/// Reconciles with the connection tables. A previous control plane may have consumed messages without
/// answering them, so this function finds connections that are held and properties that have not been
/// evaluated. It also drops the state of closed connections. A round over all tables begins every
/// kCheckIntervalNs. One iteration of the control loop reads the table of one reactor, because the tables
/// have up to 131,072 entries in total.
void PropertyExchange::check_next_reactor() {
  if (next_to_check_ == config_.block.reactors) {
    if (now_ns_ - checked_ns_ < kCheckIntervalNs) return;
    checked_ns_ = now_ns_;
    next_to_check_ = 0;
  }
  check_connections(next_to_check_++);
  if (next_to_check_ == config_.block.reactors) forget_absent_connections();
}

void PropertyExchange::check_connections(std::uint32_t reactor) {
  const auto& table = layout_.reactors[reactor].connections;
  for (std::uint32_t number = 0; number < table.size(); ++number) {
    if (table[number].sequence() == 0) continue;  // never used
    const auto info = table[number].read();
    if (!info || info->state == segment::ConnectionState::Unused || info->outgoing != 0) continue;
    const Key key{reactor, number, info->incarnation};
    if (info->held != 0) check_held(key, now_ns_);
    if (info->heard_properties == 0 || wanted(key).course(number, info->incarnation).parameters) continue;
    const segment::PropertyInfo& peer = info->peer_properties;
    rpcrdma::v2::Parameters heard;
    heard.max_send_bytes = peer.max_send_bytes;
    heard.receive_buffer_bytes = peer.receive_buffer_bytes;
    heard.max_segment_bytes = peer.max_segment_bytes;
    heard.max_segments = peer.max_segments;
    heard.reverse = static_cast<rpcrdma::v2::ReverseSupport>(peer.reverse);
    want_parameters(key, heard, info->own_properties.max_send_bytes);
  }
}

/// Closes a connection that has waited for authentication longer than the timeout.
void PropertyExchange::check_held(const Key& connection, std::uint64_t now_ns) {
  const std::uint64_t limit_ns = std::uint64_t{config_.authentication_timeout_s} * 1'000'000'000;
  Peer& peer = peers_[connection];
  if (peer.since_ns == 0) peer.since_ns = now_ns;
  if (peer.ended || now_ns - peer.since_ns < limit_ns) return;
  peer.ended = true;
  ++statistics_.refused;
  report_refusal(connection, "overdue");
  close(connection);
}

/// Drops the state of connections that two consecutive checks have not found. A single check is not
/// sufficient, because properties of a connection may arrive before the reactor has published it.
void PropertyExchange::forget_absent_connections() {
  for (auto& [key, peer] : peers_) {
    const auto info = layout_.reactors[key.reactor].connections[key.connection].read();
    const bool absent =
        info && (info->state == segment::ConnectionState::Unused || info->incarnation != key.incarnation);
    peer.forgotten = absent && peer.absent;
    peer.absent = absent;
  }
  std::erase_if(peers_, [](const auto& entry) { return entry.second.forgotten; });
}

std::unique_ptr<HostAuthentication> configured_authentication(const config::Config& config) {
  if (config.authentication_method == "none") return nullptr;
  try {
    PskHosts hosts;
    for (const config::HostEntry& host : config.authentication_hosts)
      for (const std::string& file : host.key_files) hosts[host.name].push_back(read_key_file(file));
    return std::make_unique<PskAuthentication>(config.authentication_name, std::move(hosts));
  } catch (const std::runtime_error& error) {
    throw config::ConfigError(std::string(error.what()) + '\n');
  }
}

}  // namespace sluice::properties
