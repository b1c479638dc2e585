// SPDX-License-Identifier: Apache-2.0
#include "controlplane/cm/agent.h"

#include <algorithm>

namespace sluice::cm {
namespace {

constexpr std::uint8_t kReliableConnection = 0;
constexpr std::uint8_t kTargetAckDelay = 15;
constexpr std::uint8_t kRoceHopLimit = 64;

std::uint64_t random_seed(std::uint64_t seed) {
  return seed != 0 ? seed : std::uint64_t{std::random_device{}()} << 32 | std::random_device{}();
}

constexpr bool is_half_open(State state) {
  return state == State::RequestReceived || state == State::ReplySent;
}

template <std::size_t N>
std::span<const std::byte> as_span(const PrivateData<N>& data) {
  return data.bytes;
}

}  // namespace

const char* to_string(State state) noexcept {
  static constexpr const char* kNames[kStates] = {"request sent", "reply received", "request received",
                                                  "reply sent",   "established",    "disconnect sent",
                                                  "time wait"};
  return kNames[static_cast<std::size_t>(state)];
}

// Columns in the order of Event. Null: not expected in this state; only counted.
const Agent::Handler Agent::kTable[kStates][kEvents] = {
    // RequestSent
    {nullptr, &Agent::reply_arrived, &Agent::request_rejected, &Agent::wait_longer, nullptr, nullptr, nullptr,
     &Agent::retry_request, nullptr, nullptr, nullptr, nullptr, &Agent::withdraw},
    // ReplyReceived
    {nullptr, nullptr, &Agent::request_rejected, nullptr, nullptr, &Agent::peer_disconnects, nullptr,
     &Agent::consumer_too_slow, nullptr, nullptr, &Agent::send_ready, nullptr, &Agent::withdraw},
    // RequestReceived
    {&Agent::acknowledge_receipt, nullptr, &Agent::request_rejected, nullptr, nullptr, nullptr, nullptr,
     &Agent::consumer_too_slow, nullptr, &Agent::send_reply, nullptr, &Agent::withdraw, &Agent::withdraw},
    // ReplySent
    {&Agent::repeat, nullptr, &Agent::reply_rejected, &Agent::wait_longer, &Agent::established,
     &Agent::peer_disconnects, nullptr, &Agent::retry_reply, &Agent::established, nullptr, nullptr, nullptr,
     &Agent::start_disconnect},
    // Established: a duplicate reply asks for our ready-to-use again
    {nullptr, &Agent::repeat, &Agent::reply_rejected, nullptr, nullptr, &Agent::peer_disconnects, nullptr,
     nullptr, nullptr, nullptr, nullptr, nullptr, &Agent::start_disconnect},
    // DisconnectSent
    {nullptr, nullptr, nullptr, nullptr, nullptr, &Agent::answer_disconnect, &Agent::disconnected,
     &Agent::retry_disconnect, nullptr, nullptr, nullptr, nullptr, nullptr},
    // TimeWait
    {nullptr, nullptr, nullptr, nullptr, nullptr, &Agent::answer_disconnect, nullptr, &Agent::release,
     nullptr, nullptr, nullptr, nullptr, nullptr},
};

Agent::Agent(Host& host, const AgentConfig& config)
    : host_(host), config_(config), random_(random_seed(config.seed)), next_transaction_(random_()) {}

// --- Lookup

Agent::Entry* Agent::find(std::uint32_t id) {
  const auto at = entries_.find(id);
  return at == entries_.end() ? nullptr : &at->second;
}

Agent::Entry* Agent::find_remote(const PeerAddress& remote, std::uint32_t remote_id) {
  const auto at = by_remote_id_.find({remote.bytes, remote_id});
  return at == by_remote_id_.end() ? nullptr : find(at->second);
}

Agent::Entry* Agent::find_queue_pair(const PeerAddress& remote, std::uint32_t qpn) {
  const auto at = by_remote_qpn_.find({remote.bytes, qpn});
  return at == by_remote_qpn_.end() ? nullptr : find(at->second);
}

std::optional<State> Agent::state(Id id) const {
  const auto at = entries_.find(static_cast<std::uint32_t>(id));
  if (at == entries_.end()) return std::nullopt;
  return at->second.state;
}

Agent::Entry& Agent::create(const Endpoint& endpoint) {
  std::uint32_t id = 0;
  while (id == 0 || entries_.count(id) > 0) id = static_cast<std::uint32_t>(random_());
  Entry& entry = entries_[id];
  entry.id = static_cast<Id>(id);
  entry.endpoint = endpoint;
  return entry;
}

void Agent::erase(Entry& entry) {
  const auto id = static_cast<std::uint32_t>(entry.id);
  set_deadline(entry, 0);
  half_open_.remove(id);
  forget_remote(entry);
  entries_.erase(id);
}

// --- What is known of an entry in more than one place

void Agent::change_state(Entry& entry, State state) {
  entry.state = state;
  if (!is_half_open(state)) half_open_.remove(static_cast<std::uint32_t>(entry.id));
  // Its peer may use the queue pair again.
  if (state == State::TimeWait || state == State::DisconnectSent)
    drop(by_remote_qpn_, {entry.endpoint.remote.bytes, entry.remote_qpn}, entry.id);
}

void Agent::set_deadline(Entry& entry, std::uint64_t deadline_ns) {
  const auto id = static_cast<std::uint32_t>(entry.id);
  if (entry.deadline_ns != 0) deadlines_.erase({entry.deadline_ns, id});
  entry.deadline_ns = deadline_ns;
  if (deadline_ns != 0) deadlines_.insert({deadline_ns, id});
}

void Agent::set_remote(Entry& entry, std::uint32_t remote_id, std::uint32_t remote_qpn) {
  entry.remote_id = remote_id;
  entry.remote_qpn = remote_qpn;
  const auto id = static_cast<std::uint32_t>(entry.id);
  by_remote_id_[{entry.endpoint.remote.bytes, remote_id}] = id;
  by_remote_qpn_[{entry.endpoint.remote.bytes, remote_qpn}] = id;
}

void Agent::forget_remote(const Entry& entry) {
  drop(by_remote_id_, {entry.endpoint.remote.bytes, entry.remote_id}, entry.id);
  drop(by_remote_qpn_, {entry.endpoint.remote.bytes, entry.remote_qpn}, entry.id);
}

/// Unless another entry has the key by now.
void Agent::drop(std::map<RemoteKey, std::uint32_t>& index, const RemoteKey& key, Id id) {
  const auto at = index.find(key);
  if (at != index.end() && at->second == static_cast<std::uint32_t>(id)) index.erase(at);
}

// --- In

bool Agent::dispatch(Id id, Event event, const Input& input) {
  Entry* entry = find(static_cast<std::uint32_t>(id));
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
  // The receiver's identifier finds the connection; the sender has to be its peer.
  const auto to = [&](std::uint32_t id, Event event) {
    Entry* entry = find(id);
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
    // A disconnect request for an unknown connection is confirmed: the peer would repeat it otherwise.
    ++statistics_.sent;
    host_.send_mad(from, encode({message.transaction_id,
                                 DisconnectReply{.local_id = end->remote_id, .remote_id = end->local_id}}));
  } else if (const auto* ended = std::get_if<DisconnectReply>(&message.body)) {
    to(ended->remote_id, Event::DisconnectReply);
  }
}

std::optional<RejectReason> Agent::judge(const ConnectRequest& request) const {
  const auto port = port_of(request.service_id);
  if (!port || std::find(ports_.begin(), ports_.end(), *port) == ports_.end())
    return RejectReason::InvalidServiceId;
  if (request.transport_service != kReliableConnection) return RejectReason::InvalidTransportServiceType;
  if (path_mtu_bytes(request.path_mtu) == 0) return RejectReason::InvalidPathMtu;
  if (!decode_ip_addressing(request.private_data.bytes)) return RejectReason::UnsupportedRequest;
  return std::nullopt;
}

void Agent::refuse(const Endpoint& to, const Message& message, RejectReason reason) {
  const auto& request = std::get<ConnectRequest>(message.body);
  ++statistics_.sent;
  host_.send_mad(
      to, encode({message.transaction_id, ConnectReject{.remote_id = request.local_id, .reason = reason}}));
}

void Agent::on_request(const Endpoint& from, const Message& message, std::uint64_t now_ns) {
  ++statistics_.requests;
  const auto& request = std::get<ConnectRequest>(message.body);
  if (Entry* known = find_remote(from.remote, request.local_id);
      known != nullptr && known->transaction_id == message.transaction_id) {
    ++statistics_.duplicate_requests;
    dispatch(known->id, Event::RequestAgain, {&message, now_ns, message.transaction_id});
    return;
  }
  if (const auto reason = judge(request)) {
    ++(*reason == RejectReason::InvalidServiceId ? statistics_.refused_service
                                                 : statistics_.refused_parameters);
    return refuse(from, message, *reason);
  }
  // A queue pair of the peer has one connection: ours is stale, from before the peer restarted (12.9.8.3.1).
  if (Entry* old = find_queue_pair(from.remote, request.qpn)) {
    ++statistics_.stale;
    refuse(from, message, RejectReason::StaleConnection);
    dispatch(old->id, Event::Disconnect, {nullptr, now_ns, 0});
    return;
  }
  if (entries_.size() >= config_.max_connections || !make_half_open_place(now_ns)) {
    ++statistics_.refused_resources;
    return refuse(from, message, RejectReason::NoResources);
  }
  Entry& entry = create(from);
  half_open_.add(static_cast<std::uint32_t>(entry.id), now_ns);
  change_state(entry, State::RequestReceived);
  set_remote(entry, request.local_id, request.qpn);
  entry.transaction_id = message.transaction_id;
  entry.retry_interval_ns = timeout_ns(request.local_response_timeout);
  set_deadline(entry, now_ns + config_.consumer_timeout_ns);
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
                      .private_data = {}};
  const auto own_data = as_span(request.private_data).subspan(IpAddressing::kBytes);
  peer.private_data.assign(own_data.begin(), own_data.end());
  host_.on_request(entry.id, peer);
}

/// False: all places are taken by requests that may still be confirmed.
bool Agent::make_half_open_place(std::uint64_t now_ns) {
  if (half_open_.size() < config_.max_half_open) return true;
  const HalfOpen::Request oldest = half_open_.oldest();
  if (now_ns - oldest.since_ns < config_.half_open_grace_ns) return false;
  find(oldest.id)->retries_left = 0;
  dispatch(static_cast<Id>(oldest.id), Event::Timer, {nullptr, now_ns, 0});
  return true;
}

void Agent::advance(std::uint64_t now_ns) {
  std::vector<std::uint32_t> due;
  for (const auto& [deadline_ns, id] : deadlines_) {
    if (deadline_ns > now_ns) break;
    due.push_back(id);
  }
  for (const std::uint32_t id : due) dispatch(static_cast<Id>(id), Event::Timer, {nullptr, now_ns, 0});
}

// --- Out

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

void Agent::expect_answer(Entry& entry, std::uint64_t now_ns) {
  entry.retries_left = config_.max_retries;
  // The peer's interval may be unusable, so ours is the limit.
  entry.retry_interval_ns =
      std::clamp(entry.retry_interval_ns, std::uint64_t{1'000'000}, timeout_ns(config_.response_timeout));
  set_deadline(entry, now_ns + entry.retry_interval_ns);
}

bool Agent::retry(Entry& entry, std::uint64_t now_ns) {
  if (entry.retries_left == 0) return ++statistics_.timeouts, false;
  --entry.retries_left;
  set_deadline(entry, now_ns + entry.retry_interval_ns);
  send_again(entry);
  return true;
}

void Agent::enter_time_wait(Entry& entry, std::uint64_t now_ns) {
  ++statistics_.ended;
  change_state(entry, State::TimeWait);
  set_deadline(entry, now_ns + config_.time_wait_ns);
}

DisconnectReply Agent::disconnect_reply(const Entry& entry) const {
  return {.local_id = static_cast<std::uint32_t>(entry.id), .remote_id = entry.remote_id};
}

// --- Calls of the consumer

std::optional<Id> Agent::connect(const Endpoint& to, std::uint16_t port, std::uint16_t path_mtu,
                                 const OwnParameters& own, std::uint64_t now_ns) {
  if (entries_.size() >= config_.max_connections) return std::nullopt;
  Entry& entry = create(to);
  change_state(entry, State::RequestSent);
  entry.transaction_id = ++next_transaction_;
  entry.local_qpn = own.qpn;
  entry.path_mtu = path_mtu;
  entry.own = own;
  ConnectRequest request{.local_id = static_cast<std::uint32_t>(entry.id),
                         .service_id = service_id(port),
                         .qpn = own.qpn,
                         .responder_resources = own.responder_resources,
                         .initiator_depth = own.initiator_depth,
                         .remote_response_timeout = config_.response_timeout,
                         .transport_service = kReliableConnection,
                         .starting_psn = own.receive_psn,
                         .local_response_timeout = config_.response_timeout,
                         .retry_count = 7,
                         .path_mtu = path_mtu_code(path_mtu),
                         .rnr_retry_count = own.rnr_retry,
                         .max_cm_retries = config_.max_retries};
  request.primary.local_gid = to.local.bytes;
  request.primary.remote_gid = to.remote.bytes;
  request.primary.hop_limit = kRoceHopLimit;
  request.primary.ack_timeout = config_.ack_timeout;
  request.private_data.set(encode_ip_addressing({0, to.local, to.remote}));
  std::copy_n(own.private_data.begin(),
              std::min(own.private_data.size(), request.private_data.bytes.size() - IpAddressing::kBytes),
              request.private_data.bytes.begin() + IpAddressing::kBytes);
  send(entry, request);
  entry.retry_interval_ns = timeout_ns(config_.response_timeout);
  expect_answer(entry, now_ns);
  return entry.id;
}

bool Agent::accept(Id id, const OwnParameters& own, std::uint64_t now_ns) {
  Entry* entry = find(static_cast<std::uint32_t>(id));
  if (entry == nullptr || entry->state != State::RequestReceived) return false;
  entry->own = own;
  entry->local_qpn = own.qpn;
  return dispatch(id, Event::Accepted, {nullptr, now_ns, 0});
}

bool Agent::reject(Id id, RejectReason reason, std::span<const std::byte> private_data,
                   std::uint64_t now_ns) {
  Entry* entry = find(static_cast<std::uint32_t>(id));
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
  const auto at = entries_.find(static_cast<std::uint32_t>(id));
  if (at == entries_.end()) return std::nullopt;
  const Entry& entry = at->second;
  return Snapshot{.id = static_cast<std::uint32_t>(entry.id),
                  .remote_id = entry.remote_id,
                  .transaction_id = entry.transaction_id,
                  .local_qpn = entry.local_qpn,
                  .remote_qpn = entry.remote_qpn,
                  .endpoint = entry.endpoint};
}

bool Agent::restore(const Snapshot& snapshot) {
  if (snapshot.id == 0 || entries_.count(snapshot.id) > 0) return false;
  Entry& entry = entries_[snapshot.id];
  entry.id = static_cast<Id>(snapshot.id);
  change_state(entry, State::Established);
  entry.endpoint = snapshot.endpoint;
  set_remote(entry, snapshot.remote_id, snapshot.remote_qpn);
  entry.transaction_id = snapshot.transaction_id;
  entry.local_qpn = snapshot.local_qpn;
  entry.retry_interval_ns = timeout_ns(config_.response_timeout);
  return true;
}

// --- Handlers

void Agent::repeat(Entry& entry, const Input&) {
  send_again(entry);
}

/// The consumer has not answered yet: the peer need not repeat its request while our own timeout runs (12.6.6).
void Agent::acknowledge_receipt(Entry& entry, const Input&) {
  ++statistics_.sent;
  host_.send_mad(
      entry.endpoint,
      encode({entry.transaction_id, ReceiptAcknowledgment{.local_id = static_cast<std::uint32_t>(entry.id),
                                                          .remote_id = entry.remote_id,
                                                          .about = About::Request,
                                                          .service_timeout = config_.response_timeout}}));
}

void Agent::wait_longer(Entry& entry, const Input& input) {
  const auto& receipt = std::get<ReceiptAcknowledgment>(input.message->body);
  const std::uint64_t asked = std::min(timeout_ns(receipt.service_timeout), config_.consumer_timeout_ns);
  set_deadline(entry, std::max(entry.deadline_ns, input.now_ns + asked));
}

void Agent::request_rejected(Entry& entry, const Input& input) {
  const auto& reject = std::get<ConnectReject>(input.message->body);
  const Id id = entry.id;
  const ConnectReject copy = reject;
  erase(entry);
  host_.on_rejected(id, copy.reason, copy.private_data.bytes);
}

void Agent::reply_arrived(Entry& entry, const Input& input) {
  const auto& reply = std::get<ConnectReply>(input.message->body);
  change_state(entry, State::ReplyReceived);
  set_remote(entry, reply.local_id, reply.qpn);
  set_deadline(entry, input.now_ns + config_.consumer_timeout_ns);
  PeerParameters peer{.endpoint = entry.endpoint,
                      .qpn = reply.qpn,
                      .send_psn = reply.starting_psn,
                      .path_mtu = entry.path_mtu,
                      .responder_resources = reply.initiator_depth,
                      .initiator_depth = reply.responder_resources,
                      .ack_timeout = config_.ack_timeout,
                      .rnr_retry = reply.rnr_retry_count,
                      .private_data = {}};
  const auto data = as_span(reply.private_data);
  peer.private_data.assign(data.begin(), data.end());
  host_.on_reply(entry.id, peer);
}

void Agent::send_ready(Entry& entry, const Input&) {
  change_state(entry, State::Established);
  set_deadline(entry, 0);
  ++statistics_.established;
  send(entry, ReadyToUse{.local_id = static_cast<std::uint32_t>(entry.id), .remote_id = entry.remote_id});
}

void Agent::send_reply(Entry& entry, const Input& input) {
  change_state(entry, State::ReplySent);
  ConnectReply reply{.local_id = static_cast<std::uint32_t>(entry.id),
                     .remote_id = entry.remote_id,
                     .qpn = entry.own.qpn,
                     .starting_psn = entry.own.receive_psn,
                     .responder_resources = entry.own.responder_resources,
                     .initiator_depth = entry.own.initiator_depth,
                     .target_ack_delay = kTargetAckDelay,
                     .rnr_retry_count = entry.own.rnr_retry};
  reply.private_data.set(entry.own.private_data);
  send(entry, reply);
  expect_answer(entry, input.now_ns);
}

void Agent::established(Entry& entry, const Input&) {
  change_state(entry, State::Established);
  set_deadline(entry, 0);
  entry.has_sent = false;
  ++statistics_.established;
  host_.on_established(entry.id);
}

void Agent::reply_rejected(Entry& entry, const Input& input) {
  enter_time_wait(entry, input.now_ns);
  host_.on_disconnected(entry.id);
}

void Agent::peer_disconnects(Entry& entry, const Input& input) {
  answer_disconnect(entry, input);
  enter_time_wait(entry, input.now_ns);
  host_.on_disconnected(entry.id);
}

void Agent::answer_disconnect(Entry& entry, const Input& input) {
  ++statistics_.sent;
  host_.send_mad(entry.endpoint, encode({input.transaction_id, disconnect_reply(entry)}));
}

void Agent::start_disconnect(Entry& entry, const Input& input) {
  change_state(entry, State::DisconnectSent);
  entry.transaction_id = ++next_transaction_;
  send(entry, DisconnectRequest{.local_id = static_cast<std::uint32_t>(entry.id),
                                .remote_id = entry.remote_id,
                                .remote_qpn = entry.remote_qpn});
  expect_answer(entry, input.now_ns);
  host_.on_disconnected(entry.id);
}

void Agent::disconnected(Entry& entry, const Input& input) {
  enter_time_wait(entry, input.now_ns);
}

void Agent::retry_request(Entry& entry, const Input& input) {
  if (retry(entry, input.now_ns)) return;
  const Id id = entry.id;
  send(entry, ConnectReject{.local_id = static_cast<std::uint32_t>(entry.id),
                            .about = About::Other,
                            .reason = RejectReason::Timeout});
  erase(entry);
  host_.on_rejected(id, RejectReason::Timeout, {});
}

void Agent::retry_reply(Entry& entry, const Input& input) {
  if (retry(entry, input.now_ns)) return;
  send(entry, ConnectReject{.local_id = static_cast<std::uint32_t>(entry.id),
                            .remote_id = entry.remote_id,
                            .about = About::Reply,
                            .reason = RejectReason::Timeout});
  enter_time_wait(entry, input.now_ns);
  host_.on_disconnected(entry.id);
}

void Agent::retry_disconnect(Entry& entry, const Input& input) {
  if (!retry(entry, input.now_ns)) enter_time_wait(entry, input.now_ns);
}

void Agent::consumer_too_slow(Entry& entry, const Input&) {
  ++statistics_.timeouts;
  const Id id = entry.id;
  const bool passive = entry.state == State::RequestReceived;
  send(entry, ConnectReject{.local_id = static_cast<std::uint32_t>(entry.id),
                            .remote_id = entry.remote_id,
                            .about = passive ? About::Request : About::Reply,
                            .reason = RejectReason::Timeout});
  erase(entry);
  host_.on_rejected(id, RejectReason::Timeout, {});
}

/// The consumer disconnects before the connection is established.
void Agent::withdraw(Entry& entry, const Input&) {
  if (entry.state == State::ReplyReceived)
    send(entry, ConnectReject{.local_id = static_cast<std::uint32_t>(entry.id),
                              .remote_id = entry.remote_id,
                              .about = About::Reply,
                              .reason = RejectReason::Consumer});
  erase(entry);
}

void Agent::release(Entry& entry, const Input&) {
  erase(entry);
}

}  // namespace sluice::cm
