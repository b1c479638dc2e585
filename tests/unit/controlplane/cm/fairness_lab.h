// SPDX-License-Identifier: Apache-2.0
//
// Connection management in virtual time, with the limits that the control plane gives the agent. The peers
// are a source that never answers and a client that connects once a second. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <utility>
#include <variant>
#include <vector>

#include "controlplane/cm/agent.h"

namespace sluice::cm::lab {

inline constexpr std::uint64_t kMs = 1'000'000;
inline constexpr std::uint64_t kSecond = 1000 * kMs;
inline constexpr std::uint16_t kPort = 20049;
inline constexpr std::uint32_t kPerClient = 16;
inline constexpr PeerAddress kServer = PeerAddress::from_ipv4(192, 0, 2, 1);
inline constexpr PeerAddress kNewcomer = PeerAddress::from_ipv4(192, 0, 2, 2);
inline constexpr PeerAddress kHostile = PeerAddress::from_ipv4(192, 0, 2, 3);

/// Consumer of a server that accepts each request immediately, and the peers that send requests.
class Gateway final : public Agent::Host {
 public:
  explicit Gateway(std::uint32_t connections)
      : agent(*this, with_limits({.seed = 5}, connections, kPerClient)) {
    agent.listen(kPort);
  }

  void send_mad(const Endpoint& to, std::span<const std::byte, kMadBytes> mad) override {
    const Message message = decode(mad).message;
    if (std::holds_alternative<DisconnectRequest>(message.body)) {
      ++disconnect_requests;
      if (to.remote == kHostile && !hostile_answers) return;
    }
    answers_.emplace_back(to.remote, message);
  }
  void on_request(Id id, const PeerParameters&) override { asked_.push_back(id); }
  void on_refused(const Endpoint& from, const Refused&) override {
    ++(from.remote == kNewcomer ? refused : other);
  }
  void on_reply(Id, const PeerParameters&) override {}
  void on_established(Id id) override { up.push_back(id); }
  void on_rejected(Id, RejectReason, std::span<const std::byte>) override {}
  void on_disconnected(Id) override {}

  /// Sends a request, and delivers all messages that result from it.
  void ask(const PeerAddress& from) {
    request(from);
    settle();
  }
  /// Sends a request and does not confirm its reply.
  void request(const PeerAddress& from) {
    ++number_;
    ConnectRequest request{.local_id = number_,
                           .service_id = service_id(kPort),
                           .qpn = number_,
                           .local_response_timeout = 20,
                           .path_mtu = 5};
    request.private_data.set(encode_ip_addressing({1, from, kServer}));
    deliver(from, {number_, request});
    for (; !asked_.empty(); asked_.pop_front())
      not_accepted += agent.accept(asked_.front(), {.qpn = number_, .private_data = {}}, now) ? 0u : 1u;
  }
  /// Ends the most recently established connection.
  void end_last() {
    agent.disconnect(up.back(), now);
    up.pop_back();
    settle();
  }
  void pass_to(std::uint64_t then_ns) {
    for (now = then_ns; agent.advance(now);) settle();
    settle();
  }

  std::uint64_t now = kMs;
  bool hostile_answers = false;
  std::uint32_t refused = 0;  ///< requests of the newcomer
  std::uint32_t other = 0;
  std::uint32_t disconnect_requests = 0;
  std::uint32_t not_accepted = 0;  ///< requests that the consumer received and could not accept
  std::vector<Id> up;

 private:
  void deliver(const PeerAddress& from, const Message& message) {
    agent.on_mad({kServer, from, {}}, encode(message), now);
  }
  void settle() {
    for (; !answers_.empty(); answers_.pop_front()) {
      const auto [peer, message] = answers_.front();
      if (const auto* reply = std::get_if<ConnectReply>(&message.body))
        deliver(peer, {message.transaction_id,
                       ReadyToUse{.local_id = reply->remote_id, .remote_id = reply->local_id}});
      else if (const auto* end = std::get_if<DisconnectRequest>(&message.body))
        deliver(peer, {message.transaction_id,
                       DisconnectReply{.local_id = end->remote_id, .remote_id = end->local_id}});
    }
  }

  std::uint32_t number_ = 0;
  std::deque<Id> asked_;
  std::deque<std::pair<PeerAddress, Message>> answers_;

 public:
  Agent agent;
};

struct Load {
  std::uint32_t connections;  ///< the configured limit
  std::uint32_t connected;    ///< connections of other peers, for the whole time
  std::uint64_t per_second;   ///< requests of the hostile source
  bool answers;               ///< the hostile source answers DREQ
};

/// Passes 100 seconds of virtual time. The newcomer sends a request once a second, the hostile source at the
/// rate of `load`. Both end each connection immediately.
inline void pass_beside(Gateway& gateway, const Load& load) {
  gateway.hostile_answers = load.answers;
  for (std::uint32_t i = 0; i < load.connected; ++i)
    gateway.ask(PeerAddress::from_ipv4(10, 0, 0, static_cast<std::uint8_t>(i)));
  std::uint64_t next_newcomer_ns = kSecond;
  const std::uint64_t step_ns = kSecond / load.per_second;
  for (std::uint64_t at_ns = step_ns; at_ns <= 100 * kSecond; at_ns += step_ns) {
    gateway.pass_to(at_ns);
    const std::size_t before = gateway.up.size();
    gateway.ask(kHostile);
    if (gateway.up.size() > before) gateway.end_last();
    if (at_ns < next_newcomer_ns) continue;
    next_newcomer_ns += kSecond;
    gateway.ask(kNewcomer);
    if (gateway.up.size() > before) gateway.end_last();
  }
}

}  // namespace sluice::cm::lab
