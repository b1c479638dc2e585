// SPDX-License-Identifier: Apache-2.0
//
// The environment of a control plane's connection management: reactors that set up connections, apply their
// desired state and publish their actual state (dataplane/segment/desired_state.h), and clients that
// reconnect after an outage. The caller supplies the time. One thread.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <queue>
#include <random>
#include <variant>
#include <vector>

#include "controlplane/cm/connection_state.h"
#include "controlplane/cm/mad.h"
#include "dataplane/segment/segment.h"

namespace sluice::bench {

inline constexpr std::uint32_t kFleetReactors = segment::kMaxReactors;
inline constexpr std::uint64_t kMs = 1'000'000;

inline PeerAddress fleet_client(std::uint32_t number) {
  return PeerAddress::from_ipv4(10, static_cast<std::uint8_t>(number >> 16),
                                static_cast<std::uint8_t>(number >> 8), static_cast<std::uint8_t>(number));
}
inline std::uint32_t number_of(const PeerAddress& client) {
  return static_cast<std::uint32_t>(client.bytes[13]) << 16 |
         static_cast<std::uint32_t>(client.bytes[14]) << 8 | client.bytes[15];
}

/// All reactors; reactor 0 has the management datagrams.
class SimulatedReactors {
 public:
  /// Callback for the client of a connection that is up.
  using OnUp = std::function<void(std::uint32_t client)>;

  SimulatedReactors(segment::Layout& layout, OnUp on_up) : layout_(layout), on_up_(std::move(on_up)) {
    for (OfReactor& of : reactors_)
      for (std::uint32_t place = segment::kMaxConnections; place-- > 0;) of.free.push_back(place);
  }

  /// Advances to `now_ns`. Returns true if the control plane has an event to read.
  bool advance(std::uint64_t now_ns) {
    bool any = false;
    for (std::uint32_t reactor = 0; reactor < kFleetReactors; ++reactor) {
      follow(reactor);
      make(reactor, now_ns);
      any |= area(reactor).events.size() > 0;
    }
    return any;
  }
  /// Publishes open connections of these clients, each with the state that a control plane takes over.
  void fill(std::uint32_t clients) {
    for (std::uint32_t client = 0; client < clients; ++client) {
      const std::uint32_t reactor = client % kFleetReactors;
      const cm::Snapshot snapshot{.id = client + 1,
                                  .remote_id = client + 1,
                                  .transaction_id = client + 1,
                                  .local_qpn = client + 1,
                                  .remote_qpn = 0x1000 + client,
                                  .endpoint = {kServer, fleet_client(client), {}}};
      segment::ConnectionInfo info;
      info.state = segment::ConnectionState::Open;
      info.cm_id = snapshot.id;
      info.peer = fleet_client(client);
      info.queue_pair = snapshot.local_qpn;
      std::memcpy(info.cm_state.data(), &snapshot, sizeof snapshot);
      show(reactor, take_place(reactor), info);
    }
  }
  /// Removes all connections together, as after a failure of the network.
  void lose_all() {
    for (std::uint32_t reactor = 0; reactor < kFleetReactors; ++reactor)
      for (std::uint32_t place = 0; place < segment::kMaxConnections; ++place) hide(reactor, place);
  }
  std::uint32_t connections() const { return connections_; }

  static inline const PeerAddress kServer = PeerAddress::from_ipv4(192, 0, 2, 1);

 private:
  /// Time to set up a connection. A reactor sets up 2,000 connections per second, to leave time for calls
  /// (SetupPace), and catches up at most kCatchUpNs.
  static constexpr std::uint64_t kSetupNs = kMs / 2;
  static constexpr std::uint64_t kCatchUpNs = 2 * kMs;

  struct OfReactor {
    std::deque<segment::Command> commands;
    std::vector<std::uint32_t> free;
    std::array<segment::AppliedState, segment::kMaxConnections> followed{};
    std::uint64_t free_ns = 0;
  };
  /// Applies the desired state like a reactor.
  struct Reconciler {
    SimulatedReactors& reactors;
    std::uint32_t reactor;
    std::uint32_t place;
    void set_parameters(const segment::Parameters&) noexcept {}
    void admit(const HostName&) noexcept {}
    void set_grant(const segment::Grant& grant) noexcept {
      reactors.area(reactor).use[place].granted.store(grant.credits, std::memory_order_relaxed);
    }
    void set_established() noexcept { reactors.established(reactor, place); }
    void set_draining(bool) noexcept {}
    void set_traced(bool) noexcept {}
    void end(segment::End, std::uint32_t) noexcept { reactors.hide(reactor, place); }
  };

  segment::ReactorArea& area(std::uint32_t reactor) { return layout_.reactors[reactor]; }

  std::uint32_t take_place(std::uint32_t reactor) {
    const std::uint32_t place = reactors_[reactor].free.back();
    reactors_[reactor].free.pop_back();
    return place;
  }
  segment::ConnectionInfo show(std::uint32_t reactor, std::uint32_t place, segment::ConnectionInfo info) {
    if (info.incarnation == 0) {
      info.incarnation = ++area(reactor).incarnations;
      reactors_[reactor].followed[place] = {};
      area(reactor).use[place].followed_course = 0;
      area(reactor).use[place].followed_grant = 0;
      area(reactor).use[place].granted = 0;
      area(reactor).use[place].open = segment::ConnectionUse::kOfClient;
      ++connections_;
    }
    area(reactor).connections[place].write(info);
    return info;
  }
  void hide(std::uint32_t reactor, std::uint32_t place) {
    const auto info = area(reactor).connections[place].read();
    if (!info || info->state == segment::ConnectionState::Unused) return;
    area(reactor).connections[place].write({});
    area(reactor).use[place].open = 0;
    reactors_[reactor].free.push_back(place);
    --connections_;
    area(reactor).events.push(
        {.type = segment::EventType::ConnectionDown, .connection = place, .peer = info->peer});
  }
  void established(std::uint32_t reactor, std::uint32_t place) {
    auto info = area(reactor).connections[place].read();
    if (!info || info->state != segment::ConnectionState::Opening) return;
    info->state = segment::ConnectionState::Open;
    show(reactor, place, *info);
    area(reactor).events.push(
        {.type = segment::EventType::ConnectionUp, .connection = place, .peer = info->peer});
    on_up_(number_of(info->peer));
  }
  void follow(std::uint32_t reactor) {
    std::uint32_t place = 0;
    while (area(reactor).wanted.hints.pop(place)) {
      const auto info = area(reactor).connections[place].read();
      if (!info || info->state == segment::ConnectionState::Unused) continue;
      segment::AppliedState& followed = reactors_[reactor].followed[place];
      segment::follow(area(reactor).wanted, place, info->incarnation, followed,
                      Reconciler{*this, reactor, place});
      area(reactor).use[place].followed_course.store(followed.course, std::memory_order_relaxed);
      area(reactor).use[place].followed_grant.store(followed.grant, std::memory_order_relaxed);
    }
  }
  void make(std::uint32_t reactor, std::uint64_t now_ns) {
    OfReactor& of = reactors_[reactor];
    segment::Command command;
    while (area(reactor).commands.pop(command))
      if (command.type == segment::CommandType::Accept) of.commands.push_back(command);
    while (!of.commands.empty() && of.free_ns <= now_ns && !of.free.empty()) {
      command = of.commands.front();
      of.commands.pop_front();
      of.free_ns = std::max(of.free_ns, now_ns - std::min(now_ns, kCatchUpNs)) + kSetupNs;
      const std::uint32_t place = take_place(reactor);
      segment::ConnectionInfo info;
      info.state = segment::ConnectionState::Opening;
      info.cm_id = command.cm_id;
      info.peer = command.attributes.remote;
      info.queue_pair = 0x100 + place;
      info.cm_state = command.cm_state;
      info = show(reactor, place, info);
      area(reactor).events.push({.type = segment::EventType::CommandDone,
                                 .id = command.id,
                                 .status = segment::CommandStatus::Done,
                                 .cm_id = command.cm_id,
                                 .connection = place,
                                 .incarnation = info.incarnation,
                                 .queue_pair = info.queue_pair,
                                 .peer = {}});
    }
  }

  segment::Layout& layout_;
  const OnUp on_up_;
  std::array<OfReactor, kFleetReactors> reactors_;
  std::uint32_t connections_ = 0;
};

/// Clients and their messages.
class SimulatedClients {
 public:
  SimulatedClients(segment::Layout& layout, std::uint32_t clients) : layout_(layout), clients_(clients) {}

  /// Loses all connections at `now_ns`. The clients' timers and keep-alives detect it within kNoticeNs.
  void outage(std::uint64_t now_ns) {
    for (std::uint32_t client = 0; client < clients_.size(); ++client)
      at(now_ns + random_() % kNoticeNs, client, What::Ask);
  }
  /// Advances to `now_ns`. Returns true if the control plane has a datagram to read.
  bool advance(std::uint64_t now_ns) {
    receive(now_ns);
    while (!due_.empty() && due_.top().at_ns <= now_ns) {
      const Due due = due_.top();
      due_.pop();
      act(due);
    }
    return layout_.reactors[0].punt_up.size() > 0;
  }
  void on_up(std::uint32_t client) {
    if (client >= clients_.size() || clients_[client].connected) return;
    clients_[client].connected = true;
    if (++connected_ == clients_.size() / 2) fairness_ = fairness_now();
  }
  std::size_t connected() const { return connected_; }
  std::size_t size() const { return clients_.size(); }
  /// Returns Jain's index of the number of connected clients in each group of 1000 neighbours, when half of
  /// all were connected: 1 if all groups had the same number, near 0 if one group had all.
  double fairness() const { return fairness_; }
  /// Returns false if the ring is full and the datagram is lost.
  bool ask(std::uint32_t client) {
    cm::ConnectRequest request{.local_id = client + 1,
                               .service_id = cm::service_id(20049),
                               .qpn = 0x1000 + client % 0xFF0000,
                               .initiator_depth = 4,
                               .starting_psn = 7,
                               .local_response_timeout = 20,
                               .path_mtu = 5};
    request.private_data.set(cm::encode_ip_addressing({1, fleet_client(client), SimulatedReactors::kServer}));
    return send(client, request);
  }

 private:
  // Values of Linux: librdmacm's interval between requests, and the pause of an NFS client that was refused.
  static constexpr std::uint64_t kAskAgainNs = 4'295 * kMs;
  static constexpr std::uint64_t kFirstPauseNs = 5'000 * kMs;
  static constexpr std::uint64_t kLongestPauseNs = 30'000 * kMs;
  static constexpr std::uint64_t kNoticeNs = 5'000 * kMs;
  static constexpr std::uint64_t kRoundTripNs = kMs / 10;
  static constexpr std::uint32_t kGroup = 1000;

  enum class What : std::uint8_t { Ask, AskAgain, Confirm };
  struct Due {
    std::uint64_t at_ns;
    std::uint32_t client;
    What what;
    std::uint32_t try_number;
    bool operator>(const Due& other) const { return at_ns > other.at_ns; }
  };
  struct Client {
    bool connected = false;
    std::uint32_t tries = 0;  ///< each begins with Ask
    std::uint32_t their_id = 0;
    std::uint64_t pause_ns = kFirstPauseNs;
  };

  template <typename Body>
  bool send(std::uint32_t client, const Body& body) {
    segment::Punt punt;
    punt.datagram.local = SimulatedReactors::kServer;
    punt.datagram.remote = fleet_client(client);
    punt.datagram.bytes = cm::kMadBytes;
    const auto mad = cm::encode({client + 1, body});
    std::copy(mad.begin(), mad.end(), punt.datagram.data.begin());
    return layout_.reactors[0].punt_up.push(punt);
  }
  void at(std::uint64_t at_ns, std::uint32_t client, What what) {
    due_.push({at_ns, client, what, clients_[client].tries});
  }
  void act(const Due& due) {
    Client& client = clients_[due.client];
    if (client.connected || (due.what != What::Ask && due.try_number != client.tries)) return;
    if (due.what == What::Confirm) {
      send(due.client, cm::ReadyToUse{.local_id = due.client + 1, .remote_id = client.their_id});
      return;
    }
    if (due.what == What::Ask) ++client.tries;
    ask(due.client);
    at(due.at_ns + kAskAgainNs, due.client, What::AskAgain);
  }
  void receive(std::uint64_t now_ns) {
    segment::Punt punt;
    while (layout_.reactors[0].punt_down.pop(punt)) {
      const auto message = cm::decode(std::span(punt.datagram.data).first(cm::kMadBytes)).message;
      if (const auto* reply = std::get_if<cm::ConnectReply>(&message.body)) {
        if (reply->remote_id - 1 >= clients_.size()) continue;
        clients_[reply->remote_id - 1].their_id = reply->local_id;
        at(now_ns + kRoundTripNs, reply->remote_id - 1, What::Confirm);
      } else if (const auto* reject = std::get_if<cm::ConnectReject>(&message.body)) {
        if (reject->remote_id - 1 >= clients_.size()) continue;
        Client& client = clients_[reject->remote_id - 1];
        ++client.tries;  // cancels the pending steps of this try
        at(now_ns + client.pause_ns + random_() % (client.pause_ns / 10), reject->remote_id - 1, What::Ask);
        client.pause_ns = std::min(2 * client.pause_ns, kLongestPauseNs);
      }
    }
  }
  double fairness_now() const {
    std::vector<double> groups((clients_.size() + kGroup - 1) / kGroup);
    for (std::size_t i = 0; i < clients_.size(); ++i) groups[i / kGroup] += clients_[i].connected ? 1 : 0;
    double sum = 0;
    double squares = 0;
    for (const double group : groups) sum += group, squares += group * group;
    return sum * sum / (static_cast<double>(groups.size()) * squares);
  }

  segment::Layout& layout_;
  std::mt19937_64 random_{1};
  std::vector<Client> clients_;
  std::priority_queue<Due, std::vector<Due>, std::greater<>> due_;
  std::size_t connected_ = 0;
  double fairness_ = 0;
};

}  // namespace sluice::bench
