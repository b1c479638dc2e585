// SPDX-License-Identifier: Apache-2.0
//
// Tables of the agent: its connections, their timers, and the handlers for all states and events.
#include "controlplane/cm/entry_table.h"

#include "controlplane/cm/agent.h"

namespace sluice::cm {
namespace {

template <typename Map>
std::size_t longest(const Map& map, std::size_t most = 0) {
  for (std::size_t i = 0; i < map.bucket_count(); ++i)
    if (map.bucket_size(i) > most) most = map.bucket_size(i);
  return most;
}

}  // namespace

std::size_t EntryTable::longest_chain() const {
  return longest(entries_, longest(by_remote_id_, longest(by_remote_qpn_)));
}

void EntryTable::set_remote(Entry& entry, std::uint32_t remote_id, std::uint32_t remote_qpn) {
  entry.remote_id = remote_id;
  entry.remote_qpn = remote_qpn;
  by_remote_id_[{entry.endpoint.remote, remote_id}] = &entry;
  by_remote_qpn_[{entry.endpoint.remote, remote_qpn}] = &entry;
}

void EntryTable::drop(Index& index, const RemoteKey& key, Id id) {
  const auto at = index.find(key);
  if (at != index.end() && at->second->id == id) index.erase(at);
}

void EntryTable::erase(Entry& entry) {
  static_cast<void>(SLUICE_INVARIANT(find(static_cast<std::uint32_t>(entry.id)) == &entry, table_index));
  static_cast<void>(SLUICE_INVARIANT(entry.timer.deadline_ns() == 0, timer_state));
  drop(by_remote_id_, {entry.endpoint.remote, entry.remote_id}, entry.id);
  release_queue_pair(entry);
  entries_.erase(static_cast<std::uint32_t>(entry.id));
}

void TimerHeap::set(Timer& timer, std::uint64_t deadline_ns) {
  const bool was_set = timer.deadline_ns_ != 0;
  timer.deadline_ns_ = deadline_ns;
  if (!was_set) {
    if (deadline_ns == 0) return;
    heap_.push_back(&timer);
    timer.place_ = heap_.size() - 1;
    return move_up(timer.place_);
  }
  const std::size_t place = timer.place_;
  if (!SLUICE_INVARIANT(place < heap_.size() && heap_[place] == &timer, timer_state)) return;
  if (deadline_ns == 0) {
    Timer* const last = heap_.back();
    heap_.pop_back();
    if (last == &timer) return;
    put(place, last);
  }
  move_up(place);
  move_down(place);
}

void TimerHeap::put(std::size_t place, Timer* timer) {
  heap_[place] = timer;
  timer->place_ = place;
}

void TimerHeap::move_up(std::size_t place) {
  Timer* const timer = heap_[place];
  for (; place > 0; place = (place - 1) / 2) {
    Timer* const parent = heap_[(place - 1) / 2];
    if (parent->deadline_ns_ <= timer->deadline_ns_) break;
    put(place, parent);
  }
  put(place, timer);
}

void TimerHeap::move_down(std::size_t place) {
  Timer* const timer = heap_[place];
  for (std::size_t child = 2 * place + 1; child < heap_.size(); child = 2 * place + 1) {
    if (child + 1 < heap_.size() && heap_[child + 1]->deadline_ns_ < heap_[child]->deadline_ns_) ++child;
    if (timer->deadline_ns_ <= heap_[child]->deadline_ns_) break;
    put(place, heap_[child]);
    place = child;
  }
  put(place, timer);
}

namespace {

constexpr std::uint8_t kTargetAckDelay = 15;

}  // namespace

const char* to_string(State state) noexcept {
  static constexpr const char* kNames[kStates] = {"request sent", "reply received", "request received",
                                                  "reply sent",   "established",    "disconnect sent",
                                                  "time wait"};
  return kNames[static_cast<std::size_t>(state)];
}

// Handlers for each state, in the order of Event. Null marks an unexpected event, which is only counted.
const Agent::Handler Agent::kTable[kStates][kEvents] = {
    // RequestSent
    {nullptr, &Agent::reply_arrived, &Agent::request_rejected, &Agent::wait_longer, nullptr, nullptr, nullptr,
     &Agent::retry_request, nullptr, nullptr, nullptr, nullptr, &Agent::withdraw, nullptr},
    // ReplyReceived
    {nullptr, nullptr, &Agent::request_rejected, nullptr, nullptr, &Agent::peer_disconnects, nullptr,
     &Agent::consumer_too_slow, nullptr, nullptr, &Agent::send_ready, nullptr, &Agent::withdraw, nullptr},
    // RequestReceived
    {&Agent::acknowledge_receipt, nullptr, &Agent::request_rejected, nullptr, nullptr, nullptr, nullptr,
     &Agent::consumer_too_slow, nullptr, &Agent::send_reply, nullptr, &Agent::withdraw, &Agent::withdraw,
     nullptr},
    // ReplySent
    {&Agent::repeat, nullptr, &Agent::reply_rejected, &Agent::wait_longer, &Agent::established,
     &Agent::peer_disconnects, nullptr, &Agent::retry_reply, &Agent::established, nullptr, nullptr, nullptr,
     &Agent::start_disconnect, nullptr},
    // Established: a duplicate reply requests the ready-to-use again
    {nullptr, &Agent::repeat, &Agent::reply_rejected, nullptr, nullptr, &Agent::peer_disconnects, nullptr,
     nullptr, nullptr, nullptr, nullptr, nullptr, &Agent::start_disconnect, nullptr},
    // DisconnectSent
    {nullptr, nullptr, nullptr, nullptr, nullptr, &Agent::answer_disconnect, &Agent::disconnected,
     &Agent::retry_disconnect, nullptr, nullptr, nullptr, nullptr, nullptr, &Agent::abandon},
    // TimeWait
    {nullptr, nullptr, nullptr, nullptr, nullptr, &Agent::answer_disconnect, nullptr, &Agent::release,
     nullptr, nullptr, nullptr, nullptr, nullptr, &Agent::release},
};

void Agent::repeat(Entry& entry, const Input&) {
  send_again(entry);
}

/// Acknowledges a retransmitted request while the consumer has not answered, so that the peer does not need
/// to retransmit it while the own timeout runs (12.6.6).
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
  const std::uint64_t asked = timeout_ns(receipt.service_timeout);
  const std::uint64_t most = config_.consumer_timeout_ns;
  const std::uint64_t deadline_ns = input.now_ns + (asked < most ? asked : most);
  if (deadline_ns > entry.timer.deadline_ns()) timers_.set(entry.timer, deadline_ns);
}

void Agent::request_rejected(Entry& entry, const Input& input) {
  const auto& reject = std::get<ConnectReject>(input.message->body);
  const Id id = entry.id;
  const ConnectReject copy = reject;
  const Refused refused{.why = Refusal::InvalidPathMtu,
                        .path_mtu = entry.path_mtu,
                        .accepted_path_mtu = path_mtu_bytes(copy.path_mtu())};
  const bool active = entry.state == State::RequestSent;
  erase(entry);
  if (active && copy.reason == RejectReason::InvalidPathMtu) host_.on_path_mtu_refused(id, refused);
  host_.on_rejected(id, copy.reason, copy.private_data.bytes);
}

void Agent::reply_arrived(Entry& entry, const Input& input) {
  const auto& reply = std::get<ConnectReply>(input.message->body);
  change_state(entry, State::ReplyReceived);
  entries_.set_remote(entry, reply.local_id, reply.qpn);
  timers_.set(entry.timer, input.now_ns + config_.consumer_timeout_ns);
  PeerParameters peer{.endpoint = entry.endpoint,
                      .qpn = reply.qpn,
                      .send_psn = reply.starting_psn,
                      .path_mtu = entry.path_mtu,
                      .responder_resources = reply.initiator_depth,
                      .initiator_depth = reply.responder_resources,
                      .ack_timeout = config_.ack_timeout,
                      .rnr_retry = reply.rnr_retry_count,
                      .private_data = {}};
  const auto& data = reply.private_data.bytes;
  peer.private_data.assign(data.begin(), data.end());
  host_.on_reply(entry.id, peer);
}

void Agent::send_ready(Entry& entry, const Input&) {
  change_state(entry, State::Established);
  timers_.set(entry.timer, 0);
  ++statistics_.established;
  send(entry, ready_to_use(entry));
}

ReadyToUse Agent::ready_to_use(const Entry& entry) const {
  return {.local_id = static_cast<std::uint32_t>(entry.id), .remote_id = entry.remote_id};
}

ConnectReply Agent::connect_reply(const Entry& entry) const {
  ConnectReply reply{.local_id = static_cast<std::uint32_t>(entry.id),
                     .remote_id = entry.remote_id,
                     .qpn = entry.own.qpn,
                     .starting_psn = entry.own.receive_psn,
                     .responder_resources = entry.own.responder_resources,
                     .initiator_depth = entry.own.initiator_depth,
                     .target_ack_delay = kTargetAckDelay,
                     .rnr_retry_count = entry.own.rnr_retry,
                     .ca_guid = port_.guid};
  reply.private_data.set(entry.own.private_data);
  return reply;
}

void Agent::send_reply(Entry& entry, const Input& input) {
  change_state(entry, State::ReplySent);
  send(entry, connect_reply(entry));
  expect_answer(entry, config_.max_retries, input.now_ns);
}

void Agent::established(Entry& entry, const Input&) {
  change_state(entry, State::Established);
  timers_.set(entry.timer, 0);
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
  enter_ended(entry, State::DisconnectSent, input.now_ns);
  entry.transaction_id = ++next_transaction_;
  send(entry, DisconnectRequest{.local_id = static_cast<std::uint32_t>(entry.id),
                                .remote_id = entry.remote_id,
                                .remote_qpn = entry.remote_qpn});
  expect_answer(entry, config_.max_disconnect_retries, input.now_ns);
  host_.on_disconnected(entry.id);
}

void Agent::disconnected(Entry& entry, const Input& input) {
  enter_time_wait(entry, input.now_ns);
}

/// Builds a reject. The peer finds the connection by the GUID in it if it does not know the gateway's
/// identifier.
ConnectReject Agent::timeout_reject(const Entry& entry, About about) const {
  ConnectReject reject{.local_id = static_cast<std::uint32_t>(entry.id),
                       .remote_id = entry.remote_id,
                       .about = about,
                       .reason = RejectReason::Timeout};
  reject.set_guid(port_.guid);
  return reject;
}

void Agent::retry_request(Entry& entry, const Input& input) {
  if (retry(entry, input.now_ns)) return;
  const Id id = entry.id;
  send(entry, timeout_reject(entry, About::Other));
  erase(entry);
  host_.on_rejected(id, RejectReason::Timeout, {});
}

void Agent::retry_reply(Entry& entry, const Input& input) {
  if (retry(entry, input.now_ns)) return;
  send(entry, timeout_reject(entry, About::Reply));
  host_.on_refused(entry.endpoint, {.why = Refusal::NotConfirmed});
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
  send(entry, timeout_reject(entry, passive ? About::Request : About::Reply));
  if (passive) host_.on_refused(entry.endpoint, {.why = Refusal::NotMadeInTime});
  erase(entry);
  host_.on_rejected(id, RejectReason::Timeout, {});
}

/// Handles a consumer's disconnect before the connection is established.
void Agent::withdraw(Entry& entry, const Input&) {
  if (entry.state == State::ReplyReceived)
    send(entry, ConnectReject{.local_id = static_cast<std::uint32_t>(entry.id),
                              .remote_id = entry.remote_id,
                              .about = About::Reply,
                              .reason = RejectReason::Consumer});
  erase(entry);
}

/// Erases an entry although the peer may not have received a disconnect request. Its later messages for the
/// connection are treated as unknown.
void Agent::abandon(Entry& entry, const Input&) {
  ++statistics_.ended;
  erase(entry);
}

void Agent::release(Entry& entry, const Input&) {
  erase(entry);
}

/// Evicts the oldest entry in TimeWait if the table is full, or otherwise the oldest one in DisconnectSent.
/// These entries hold only an identifier. Returns false if neither exists.
bool Agent::make_place(std::uint64_t now_ns) {
  if (entries_.size() < config_.max_connections) return true;
  const EntryQueue& queue = time_wait_.size() > 0 ? time_wait_ : disconnecting_;
  if (queue.size() == 0) return false;
  evict(queue.oldest().id, now_ns);
  return true;
}

void Agent::evict(std::uint32_t id, std::uint64_t now_ns) {
  ++statistics_.evicted;
  dispatch(static_cast<Id>(id), Event::Evicted, {nullptr, now_ns, 0});
}

/// Evicts the oldest half-open entry, or the source's oldest one if its share is full. Returns the reason if
/// no slot is available, because all of them are held by requests that may still be confirmed.
std::optional<Refusal> Agent::make_half_open_place(const PeerAddress& source, std::uint64_t now_ns) {
  if (half_open_.size_of(source) >= config_.max_half_open_per_source) {
    if (give_way(half_open_.oldest_of(source), now_ns)) return std::nullopt;
    return Refusal::HalfOpenOfClient;
  }
  if (half_open_.size() < config_.max_half_open || give_way(half_open_.oldest(), now_ns)) return std::nullopt;
  return Refusal::HalfOpen;
}

bool Agent::give_way(const EntryQueue::Item& oldest, std::uint64_t now_ns) {
  if (now_ns - oldest.since_ns < config_.half_open_grace_ns) return false;
  const std::uint32_t id = oldest.id;
  entries_.find(id)->retries_left = 0;
  dispatch(static_cast<Id>(id), Event::Timer, {nullptr, now_ns, 0});
  return true;
}

/// Changes to `state`, DisconnectSent or TimeWait, within the share of the source.
void Agent::enter_ended(Entry& entry, State state, std::uint64_t now_ns) {
  const auto id = static_cast<std::uint32_t>(entry.id);
  const PeerAddress& source = entry.endpoint.remote;
  change_state(entry, state);
  disconnecting_.remove(id);
  if (disconnecting_.size_of(source) + time_wait_.size_of(source) >= config_.max_ended_per_source) {
    const EntryQueue& queue = time_wait_.size_of(source) > 0 ? time_wait_ : disconnecting_;
    if (queue.size_of(source) > 0) evict(queue.oldest_of(source).id, now_ns);
  }
  (state == State::TimeWait ? time_wait_ : disconnecting_).add(id, source, now_ns);
}

}  // namespace sluice::cm
