// SPDX-License-Identifier: Apache-2.0
#include "controlplane/cm/agent.h"

namespace sluice::cm {
namespace {

constexpr std::uint8_t kReliableConnection = 0;
constexpr std::uint8_t kRoceHopLimit = 64;
/// Retry count for the peer's queue pair when the gateway does not respond. With 7, the maximum, Linux's rxe
/// retries forever.
constexpr std::uint8_t kRetries = 6;

constexpr bool is_half_open(State state) {
  return state == State::RequestReceived || state == State::ReplySent;
}

}  // namespace

Agent::Agent(Host& host, const AgentConfig& config)
    : host_(host),
      config_(config),
      random_(config.seed),
      entries_(config.max_connections, random_.next()),
      half_open_(random_.next()),
      disconnecting_(random_.next()),
      time_wait_(random_.next()),
      next_transaction_(random_.next()) {}

std::optional<State> Agent::state(Id id) const {
  const Entry* entry = entries_.find(static_cast<std::uint32_t>(id));
  if (entry == nullptr) return std::nullopt;
  return entry->state;
}

Entry& Agent::create(const Endpoint& endpoint) {
  std::uint32_t id = 0;
  while (id == 0 || entries_.find(id) != nullptr) id = static_cast<std::uint32_t>(random_.next());
  return entries_.add(id, endpoint);
}

void Agent::erase(Entry& entry) {
  timers_.set(entry.timer, 0);
  for (EntryQueue* queue : {&half_open_, &disconnecting_, &time_wait_})
    queue->remove(static_cast<std::uint32_t>(entry.id));
  entries_.erase(entry);
}

void Agent::change_state(Entry& entry, State state) {
  entry.state = state;
  static_cast<void>(
      SLUICE_INVARIANT(entries_.find(static_cast<std::uint32_t>(entry.id)) == &entry, connection_state));
  if (!is_half_open(state)) half_open_.remove(static_cast<std::uint32_t>(entry.id));
  if (state == State::TimeWait || state == State::DisconnectSent) entries_.release_queue_pair(entry);
}

bool Agent::dispatch(Id id, Event event, const Input& input) {
  Entry* entry = entries_.find(static_cast<std::uint32_t>(id));
  if (entry == nullptr) {
    if (input.message != nullptr) ++statistics_.unknown;
    return false;
  }
  const Handler handler = kTable[static_cast<std::size_t>(entry->state)][static_cast<std::size_t>(event)];
  if (handler == nullptr) {
    if (input.message != nullptr) ++statistics_.unexpected;
    return false;
  }
  (this->*handler)(*entry, input);
  return true;
}

void Agent::on_mad(const Endpoint& from, std::span<const std::byte> mad, std::uint64_t now_ns) {
  ++statistics_.received;
  const DecodeResult decoded = decode(mad);
  if (decoded.status != Decode::Ok) {
    ++statistics_.malformed;
    return;
  }
  const Message& message = decoded.message;
  if (std::holds_alternative<ConnectRequest>(message.body)) return on_request(from, message, now_ns);
  const Input input{&message, now_ns, message.transaction_id};
  // The receiver's identifier selects the connection, and the sender must be its peer.
  const auto to = [&](std::uint32_t id, Event event) {
    Entry* entry = entries_.find(id);
    if (entry != nullptr && entry->endpoint.remote == from.remote) {
      entry->endpoint.link = from.link;
      dispatch(entry->id, event, input);
      return true;
    }
    ++statistics_.unknown;
    return false;
  };
  if (const auto* reply = std::get_if<ConnectReply>(&message.body)) {
    to(reply->remote_id, Event::Reply);
  } else if (const auto* reject = std::get_if<ConnectReject>(&message.body)) {
    to(reject->remote_id, Event::Reject);
  } else if (const auto* receipt = std::get_if<ReceiptAcknowledgment>(&message.body)) {
    to(receipt->remote_id, Event::ReceiptAcknowledged);
  } else if (const auto* ready = std::get_if<ReadyToUse>(&message.body)) {
    to(ready->remote_id, Event::ReadyToUse);
  } else if (const auto* end = std::get_if<DisconnectRequest>(&message.body)) {
    if (to(end->remote_id, Event::DisconnectRequest)) return;
    // A disconnect request for an unknown connection is confirmed, because otherwise the peer would
    // retransmit it.
    ++statistics_.sent;
    host_.send_mad(from, encode({message.transaction_id,
                                 DisconnectReply{.local_id = end->remote_id, .remote_id = end->local_id}}));
  } else if (const auto* ended = std::get_if<DisconnectReply>(&message.body)) {
    to(ended->remote_id, Event::DisconnectReply);
  } else if (const auto* load = std::get_if<LoadAlternatePath>(&message.body)) {
    refuse_path(from, message.transaction_id, *load);
  }
}

/// Rejects an alternate path, which RoCE does not have. Without an answer, the peer would repeat its request.
void Agent::refuse_path(const Endpoint& from, std::uint64_t transaction, const LoadAlternatePath& load) {
  const Entry* entry = entries_.find(load.remote_id);
  const bool known =
      entry != nullptr && entry->endpoint.remote == from.remote && entry->remote_id == load.local_id;
  ++(known ? statistics_.unexpected : statistics_.unknown);
  ++statistics_.sent;
  host_.send_mad(
      from, encode({transaction, AlternatePathResponse{.local_id = load.remote_id,
                                                       .remote_id = load.local_id,
                                                       .status = known ? PathStatus::NotSupported
                                                                       : PathStatus::InvalidConnection}}));
}

std::optional<Refused> Agent::judge(const ConnectRequest& request) const {
  const auto port = port_of(request.service_id);
  bool offered = false;
  for (const std::uint16_t each : ports_) offered = offered || each == port;
  if (!offered) return Refused{.why = Refusal::InvalidServiceId};
  if (request.transport_service != kReliableConnection) return Refused{.why = Refusal::InvalidTransport};
  const std::uint16_t path_mtu = path_mtu_bytes(request.path_mtu);
  const std::uint16_t accepted = port_.max_path_mtu;
  if (path_mtu == 0 || (accepted != 0 && path_mtu > accepted))
    return Refused{.why = Refusal::InvalidPathMtu, .path_mtu = path_mtu, .accepted_path_mtu = accepted};
  if (!decode_ip_addressing(request.private_data.bytes)) return Refused{.why = Refusal::UnsupportedRequest};
  return std::nullopt;
}

void Agent::refuse(const Endpoint& to, const Message& message, const Refused& refused) {
  const auto& request = std::get<ConnectRequest>(message.body);
  ConnectReject reject{.remote_id = request.local_id, .reason = reject_reason(refused.why)};
  if (refused.accepted_path_mtu != 0) reject.set_path_mtu(path_mtu_code(refused.accepted_path_mtu));
  ++statistics_.sent;
  host_.send_mad(to, encode({message.transaction_id, reject}));
  host_.on_refused(to, refused);
}

void Agent::on_request(const Endpoint& from, const Message& message, std::uint64_t now_ns) {
  ++statistics_.requests;
  const auto& request = std::get<ConnectRequest>(message.body);
  if (Entry* known = entries_.find_remote(from.remote, request.local_id);
      known != nullptr && known->transaction_id == message.transaction_id) {
    ++statistics_.duplicate_requests;
    dispatch(known->id, Event::RequestAgain, {&message, now_ns, message.transaction_id});
    return;
  }
  if (const auto refused = judge(request)) {
    ++(refused->why == Refusal::InvalidServiceId ? statistics_.refused_service
                                                 : statistics_.refused_parameters);
    return refuse(from, message, *refused);
  }
  // A queue pair of the peer has a single connection, so the known one is stale: it is from before the peer
  // restarted (12.9.8.3.1).
  if (Entry* old = entries_.find_queue_pair(from.remote, request.qpn)) {
    ++statistics_.stale;
    refuse(from, message, {.why = Refusal::StaleConnection});
    dispatch(old->id, Event::Disconnect, {nullptr, now_ns, 0});
    return;
  }
  auto full = make_half_open_place(from.remote, now_ns);
  if (!full && !make_place(now_ns)) full = Refusal::NoPlace;
  if (full) {
    ++statistics_.refused_resources;
    return refuse(from, message, {.why = *full});
  }
  Entry& entry = create(from);
  half_open_.add(static_cast<std::uint32_t>(entry.id), from.remote, now_ns);
  change_state(entry, State::RequestReceived);
  entries_.set_remote(entry, request.local_id, request.qpn);
  entry.transaction_id = message.transaction_id;
  entry.retry_interval_ns = timeout_ns(request.local_response_timeout);
  timers_.set(entry.timer, now_ns + config_.consumer_timeout_ns);
  PeerParameters peer{.endpoint = from,
                      .port = *port_of(request.service_id),
                      .qpn = request.qpn,
                      .send_psn = request.starting_psn,
                      .path_mtu = path_mtu_bytes(request.path_mtu),
                      .responder_resources = request.initiator_depth,
                      .initiator_depth = request.responder_resources,
                      .ack_timeout = request.primary.ack_timeout,
                      .retry_count = request.retry_count,
                      .rnr_retry = request.rnr_retry_count,
                      .traffic_class = request.primary.traffic_class,
                      .service_level = request.primary.service_level,
                      .private_data = {}};
  const auto own_data = std::span(request.private_data.bytes).subspan(IpAddressing::kBytes);
  peer.private_data.assign(own_data.begin(), own_data.end());
  host_.on_request(entry.id, peer);
}

bool Agent::advance(std::uint64_t now_ns) {
  for (std::size_t handled = 0;; ++handled) {
    Timer* const first = timers_.first();
    if (first == nullptr || first->deadline_ns() > now_ns) return false;
    if (handled == kTimersPerAdvance) return true;
    timers_.set(*first, 0);
    dispatch(static_cast<Id>(first->id()), Event::Timer, {nullptr, now_ns, 0});
  }
}

void Agent::send(Entry& entry, const Body& body) {
  entry.last_sent = encode({entry.transaction_id, body});
  entry.has_sent = true;
  ++statistics_.sent;
  host_.send_mad(entry.endpoint, entry.last_sent);
}

void Agent::send_again(Entry& entry) {
  if (!entry.has_sent) return;
  ++statistics_.sent;
  ++statistics_.retransmissions;
  host_.send_mad(entry.endpoint, entry.last_sent);
}

void Agent::expect_answer(Entry& entry, std::uint32_t retries, std::uint64_t now_ns) {
  entry.retries_left = retries;
  // The peer's interval may be unusable, so the own timeout is the limit.
  constexpr std::uint64_t kLeastNs = 1'000'000;
  const std::uint64_t most_ns = timeout_ns(config_.response_timeout);
  if (entry.retry_interval_ns > most_ns) entry.retry_interval_ns = most_ns;
  if (entry.retry_interval_ns < kLeastNs) entry.retry_interval_ns = kLeastNs;
  timers_.set(entry.timer, now_ns + entry.retry_interval_ns);
}

bool Agent::retry(Entry& entry, std::uint64_t now_ns) {
  if (entry.retries_left == 0) return ++statistics_.timeouts, false;
  --entry.retries_left;
  timers_.set(entry.timer, now_ns + entry.retry_interval_ns);
  send_again(entry);
  return true;
}

void Agent::enter_time_wait(Entry& entry, std::uint64_t now_ns) {
  ++statistics_.ended;
  enter_ended(entry, State::TimeWait, now_ns);
  timers_.set(entry.timer, now_ns + config_.time_wait_ns);
}

DisconnectReply Agent::disconnect_reply(const Entry& entry) const {
  return {.local_id = static_cast<std::uint32_t>(entry.id), .remote_id = entry.remote_id};
}

std::optional<Id> Agent::connect(const Endpoint& to, std::uint16_t port, std::uint16_t path_mtu,
                                 const OwnParameters& own, std::uint64_t now_ns) {
  if (!make_place(now_ns)) return std::nullopt;
  Entry& entry = create(to);
  change_state(entry, State::RequestSent);
  entry.transaction_id = ++next_transaction_;
  entry.local_qpn = own.qpn;
  entry.path_mtu = path_mtu;
  entry.own = own;
  ConnectRequest request{.local_id = static_cast<std::uint32_t>(entry.id),
                         .service_id = service_id(port),
                         .ca_guid = port_.guid,
                         .qpn = own.qpn,
                         .responder_resources = own.responder_resources,
                         .initiator_depth = own.initiator_depth,
                         .remote_response_timeout = config_.response_timeout,
                         .transport_service = kReliableConnection,
                         .starting_psn = own.receive_psn,
                         .local_response_timeout = config_.response_timeout,
                         .retry_count = kRetries,
                         .path_mtu = path_mtu_code(path_mtu),
                         .rnr_retry_count = own.rnr_retry,
                         .max_cm_retries = config_.max_retries};
  request.primary.local_gid = to.local.bytes;
  request.primary.remote_gid = to.remote.bytes;
  request.primary.traffic_class = config_.traffic_class;
  request.primary.hop_limit = kRoceHopLimit;
  request.primary.service_level = config_.service_level;
  request.primary.ack_timeout = config_.ack_timeout;
  request.private_data.set(encode_ip_addressing({0, to.local, to.remote}));
  const auto own_data = std::span(request.private_data.bytes).subspan(IpAddressing::kBytes);
  for (std::size_t i = 0; i < own.private_data.size() && i < own_data.size(); ++i)
    own_data[i] = own.private_data[i];
  send(entry, request);
  entry.retry_interval_ns = timeout_ns(config_.response_timeout);
  expect_answer(entry, config_.max_retries, now_ns);
  return entry.id;
}

bool Agent::accept(Id id, const OwnParameters& own, std::uint64_t now_ns) {
  Entry* entry = entries_.find(static_cast<std::uint32_t>(id));
  if (entry == nullptr || entry->state != State::RequestReceived) return false;
  entry->own = own;
  entry->local_qpn = own.qpn;
  return dispatch(id, Event::Accepted, {nullptr, now_ns, 0});
}

bool Agent::reject(Id id, RejectReason reason, std::span<const std::byte> private_data,
                   std::uint64_t now_ns) {
  Entry* entry = entries_.find(static_cast<std::uint32_t>(id));
  if (entry == nullptr || entry->state != State::RequestReceived) return false;
  ConnectReject reject{.remote_id = entry->remote_id, .reason = reason};
  reject.private_data.set(private_data);
  send(*entry, reject);
  return dispatch(id, Event::Refused, {nullptr, now_ns, 0});
}

bool Agent::ready(Id id, std::uint64_t now_ns) {
  return dispatch(id, Event::Ready, {nullptr, now_ns, 0});
}
bool Agent::disconnect(Id id, std::uint64_t now_ns) {
  return dispatch(id, Event::Disconnect, {nullptr, now_ns, 0});
}
bool Agent::packet_arrived(Id id, std::uint64_t now_ns) {
  return dispatch(id, Event::PacketArrived, {nullptr, now_ns, 0});
}

std::optional<Snapshot> Agent::snapshot(Id id) const {
  const Entry* entry = entries_.find(static_cast<std::uint32_t>(id));
  if (entry == nullptr) return std::nullopt;
  return Snapshot{.id = static_cast<std::uint32_t>(entry->id),
                  .remote_id = entry->remote_id,
                  .transaction_id = entry->transaction_id,
                  .local_qpn = entry->local_qpn,
                  .remote_qpn = entry->remote_qpn,
                  .endpoint = entry->endpoint};
}

bool Agent::restore(const Snapshot& snapshot, const Progress& progress) {
  if (snapshot.id == 0 || entries_.find(snapshot.id) != nullptr ||
      entries_.find_queue_pair(snapshot.endpoint.remote, snapshot.remote_qpn) != nullptr)
    return false;
  Entry& entry = entries_.add(snapshot.id, snapshot.endpoint);
  entries_.set_remote(entry, snapshot.remote_id, snapshot.remote_qpn);
  entry.transaction_id = snapshot.transaction_id;
  entry.local_qpn = snapshot.local_qpn;
  entry.retry_interval_ns = timeout_ns(config_.response_timeout);
  entry.own = {.qpn = snapshot.local_qpn,
               .receive_psn = snapshot.receive_psn,
               .responder_resources = snapshot.responder_resources,
               .initiator_depth = snapshot.initiator_depth,
               .rnr_retry = snapshot.rnr_retry,
               .private_data = {progress.private_data.begin(), progress.private_data.end()}};
  change_state(entry, State::Established);
  if (progress.active) {  // the server repeats its reply until it gets the ready-to-use
    entry.last_sent = encode({entry.transaction_id, ready_to_use(entry)});
    entry.has_sent = true;
  } else if (!progress.confirmed && snapshot.has_own != 0) {
    change_state(entry, State::ReplySent);
    entry.last_sent = encode({entry.transaction_id, connect_reply(entry)});
    entry.has_sent = true;
    entry.retries_left = config_.max_retries;
    constexpr std::uint64_t kAtOnce = 1;
    timers_.set(entry.timer, kAtOnce);
  }
  return true;
}

}  // namespace sluice::cm
