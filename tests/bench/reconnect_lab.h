// SPDX-License-Identifier: Apache-2.0
//
// A control plane's connection management on a segment of eight reactors, with everything around it simulated:
// the reactors that make connections, and clients that connect again after an outage. Time is simulated, but
// each turn of the control plane takes the processor time that it has really taken.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <queue>
#include <random>
#include <string>
#include <unordered_map>
#include <vector>

#include "controlplane/cm/connection_keeper.h"
#include "controlplane/config/describe.h"
#include "tests/bench/worker.h"

namespace sluice::bench {

inline constexpr std::uint32_t kLabReactors = 8;
inline constexpr std::uint64_t kLabMs = 1'000'000;

inline PeerAddress lab_client(std::uint32_t number) {
  return PeerAddress::from_ipv4(10, static_cast<std::uint8_t>(number >> 16),
                                static_cast<std::uint8_t>(number >> 8), static_cast<std::uint8_t>(number));
}

class ReconnectLab {
 public:
  explicit ReconnectLab(std::uint32_t requests_per_second)
      : config_(config::parse("[reactor]\ncount = 8\ncpus = [0, 1, 2, 3, 4, 5, 6, 7]\n"
                              "[transport]\ncredits = 4\nmax_connections = 16384\n"
                              "[device]\ndriver = \"softroce\"\nethdev = \"x\"\naddresses = "
                              "[\"192.0.2.1/24\"]\n[admission]\nmax_requests_per_second = " +
                                  std::to_string(requests_per_second) + "\n[policy]\nmax_credits = 4\n",
                              "bench")) {
    segment::Segment::remove(name_);
    segment_ = segment::Segment::open_or_create(name_);
    credits_ = std::make_unique<policy::CreditKeeper>(layout(), config_.credit_settings());
    keeper_ = std::make_unique<cm::ConnectionKeeper>(layout(), config_, *credits_);
  }
  ~ReconnectLab() { segment::Segment::remove(name_); }
  ReconnectLab(const ReconnectLab&) = delete;
  ReconnectLab& operator=(const ReconnectLab&) = delete;

  segment::Layout& layout() { return segment_->layout(); }
  cm::ConnectionKeeper& keeper() { return *keeper_; }
  std::uint64_t now_ns() const { return now_ns_; }
  void pass(std::uint64_t ns) { now_ns_ += ns; }

  /// Processor time of a turn, by which the clock has moved.
  std::uint64_t turn() {
    const std::uint64_t begun_ns = thread_ns();
    keeper_->poll(now_ns_);
    const std::uint64_t took_ns = thread_ns() - begun_ns;
    now_ns_ += took_ns;
    return took_ns;
  }
  /// False when the ring is full: the datagram is lost.
  template <typename Body>
  bool send(std::uint32_t client, std::uint64_t transaction, const Body& body) {
    segment::Punt punt;
    punt.datagram.local = kServer;
    punt.datagram.remote = lab_client(client);
    punt.datagram.bytes = cm::kMadBytes;
    const auto mad = cm::encode({transaction, body});
    std::copy(mad.begin(), mad.end(), punt.datagram.data.begin());
    return layout().reactors[0].punt_up.push(punt);
  }
  bool ask(std::uint32_t client) {
    cm::ConnectRequest request{.local_id = client + 1,
                               .service_id = cm::service_id(20049),
                               .qpn = 0x1000 + client % 0xFF0000,
                               .initiator_depth = 4,
                               .starting_psn = 7,
                               .local_response_timeout = 20,
                               .path_mtu = 5};
    request.private_data.set(cm::encode_ip_addressing({1, lab_client(client), kServer}));
    return send(client, client + 1, request);
  }
  /// Open connections of these clients in the tables, as a data plane has them.
  void fill(std::uint32_t clients) {
    for (std::uint32_t client = 0; client < clients; ++client) {
      const cm::Snapshot snapshot{.id = client + 1,
                                  .remote_id = client + 1,
                                  .transaction_id = client + 1,
                                  .local_qpn = client + 1,
                                  .remote_qpn = 0x1000 + client,
                                  .endpoint = {kServer, lab_client(client), {}}};
      segment::ConnectionInfo info;
      info.state = segment::ConnectionState::Open;
      info.cm_id = snapshot.id;
      info.queue_pair = snapshot.local_qpn;
      info.peer = lab_client(client);
      std::memcpy(info.cm_state.data(), &snapshot, sizeof snapshot);
      layout().reactors[client % kLabReactors].connections[client / kLabReactors].write(info);
    }
    keeper_->rebuild();
  }

 private:
  const PeerAddress kServer = PeerAddress::from_ipv4(192, 0, 2, 1);
  const std::string name_ = "sluice-bench-reconnect-" + std::to_string(::getpid());
  const config::Config config_;
  std::unique_ptr<segment::Segment> segment_;
  std::unique_ptr<policy::CreditKeeper> credits_;
  std::unique_ptr<cm::ConnectionKeeper> keeper_;
  std::uint64_t now_ns_ = 1'000'000'000'000;
};

/// All clients lose their connections at once, and come back.
class Storm {
 public:
  Storm(std::uint32_t clients, std::uint32_t requests_per_second)
      : lab_(requests_per_second), clients_(clients), start_ns_(lab_.now_ns()) {
    // Their own timers and keep-alives tell them, within kNoticeNs.
    for (std::uint32_t client = 0; client < clients; ++client)
      at(start_ns_ + random_() % kNoticeNs, client, What::Ask);
  }

  /// Seconds until all are connected.
  double run() {
    std::uint64_t wait_ns = kLeastWaitNs;
    while (connected_ < clients_.size() && lab_.now_ns() - start_ns_ < kGiveUpNs) {
      const bool any = let_pass(wait_ns);
      lab_.turn();
      wait_ns = any ? kLeastWaitNs : std::min(2 * wait_ns, kMostWaitNs);
    }
    return static_cast<double>(lab_.now_ns() - start_ns_) * 1e-9;
  }
  /// Jain's index of how many of each 1000 neighbours were connected when half of all were: 1 when all groups
  /// had come as far, near 0 when one group had all.
  double fairness() const { return fairness_; }

 private:
  // As Linux: librdmacm's interval between requests, and the pause of an NFS client that was refused.
  static constexpr std::uint64_t kAskAgainNs = 4'295 * kLabMs;
  static constexpr std::uint64_t kFirstPauseNs = 5'000 * kLabMs;
  static constexpr std::uint64_t kLongestPauseNs = 30'000 * kLabMs;
  static constexpr std::uint64_t kNoticeNs = 5'000 * kLabMs;
  static constexpr std::uint64_t kRoundTripNs = kLabMs / 10;
  static constexpr std::uint64_t kGiveUpNs = 600'000 * kLabMs;
  // Of the control plane's loop, and of a reactor (SetupPace).
  static constexpr std::uint64_t kLeastWaitNs = 2 * kLabMs;
  static constexpr std::uint64_t kMostWaitNs = 16 * kLabMs;
  static constexpr std::uint64_t kSetupNs = kLabMs / 2;
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
  struct Reactor {
    std::deque<segment::Command> commands;
    std::uint64_t free_ns = 0;
    std::uint32_t connections = 0;
  };

  void at(std::uint64_t at_ns, std::uint32_t client, What what) {
    due_.push({at_ns, client, what, clients_[client].tries});
  }
  /// Clients and reactors do what they do meanwhile. True when the control plane has something to do.
  bool let_pass(std::uint64_t ns) {
    const std::uint64_t end_ns = lab_.now_ns() + ns;
    receive(lab_.now_ns());
    while (!due_.empty() && due_.top().at_ns <= end_ns) {
      const Due due = due_.top();
      due_.pop();
      act(due);
    }
    lab_.pass(ns);
    for (std::uint32_t reactor = 0; reactor < kLabReactors; ++reactor) make_connections(reactor, end_ns);
    return lab_.layout().reactors[0].punt_up.size() > 0;
  }
  void act(const Due& due) {
    Client& client = clients_[due.client];
    if (client.connected || (due.what != What::Ask && due.try_number != client.tries)) return;
    if (due.what == What::Confirm) {
      lab_.send(due.client, due.client + 1,
                cm::ReadyToUse{.local_id = due.client + 1, .remote_id = client.their_id});
      return;
    }
    if (due.what == What::Ask) ++client.tries;
    lab_.ask(due.client);
    at(due.at_ns + kAskAgainNs, due.client, What::AskAgain);
  }
  /// What the control plane has sent to clients.
  void receive(std::uint64_t now_ns) {
    segment::Punt punt;
    while (lab_.layout().reactors[0].punt_down.pop(punt)) {
      const auto message = cm::decode(std::span(punt.datagram.data).first(cm::kMadBytes)).message;
      if (const auto* reply = std::get_if<cm::ConnectReply>(&message.body)) {
        clients_[reply->remote_id - 1].their_id = reply->local_id;
        at(now_ns + kRoundTripNs, reply->remote_id - 1, What::Confirm);
      } else if (const auto* reject = std::get_if<cm::ConnectReject>(&message.body)) {
        Client& client = clients_[reject->remote_id - 1];
        ++client.tries;  // what is due of this try is void
        at(now_ns + client.pause_ns + random_() % (client.pause_ns / 10), reject->remote_id - 1, What::Ask);
        client.pause_ns = std::min(2 * client.pause_ns, kLongestPauseNs);
      }
    }
  }
  void make_connections(std::uint32_t number, std::uint64_t now_ns) {
    Reactor& reactor = reactors_[number];
    segment::ReactorArea& area = lab_.layout().reactors[number];
    segment::Command command;
    while (area.commands.pop(command)) reactor.commands.push_back(command);
    while (!reactor.commands.empty() && reactor.free_ns <= now_ns) {
      command = reactor.commands.front();
      reactor.commands.pop_front();
      if (command.type == segment::CommandType::Established) {
        note_connected(command.cm_id);
        continue;
      }
      if (command.type == segment::CommandType::Ended) {
        area.events.push({.type = segment::EventType::ConnectionDown,
                          .cm_id = command.cm_id,
                          .peer = client_of_[command.cm_id]});
        continue;
      }
      if (command.type != segment::CommandType::Establish) continue;
      reactor.free_ns = std::max(reactor.free_ns, now_ns - std::min(now_ns, kLeastWaitNs)) + kSetupNs;
      const std::uint32_t place = reactor.connections++;
      client_of_[command.cm_id] = command.attributes.remote;
      area.events.push({.type = segment::EventType::CommandDone,
                        .id = command.id,
                        .status = segment::CommandStatus::Done,
                        .cm_id = command.cm_id,
                        .connection = place,
                        .queue_pair = 0x100 + place,
                        .peer = {}});
    }
  }
  void note_connected(std::uint32_t cm_id) {
    const PeerAddress& address = client_of_[cm_id];
    const std::uint32_t number = static_cast<std::uint32_t>(address.bytes[13]) << 16 |
                                 static_cast<std::uint32_t>(address.bytes[14]) << 8 | address.bytes[15];
    if (clients_[number].connected) return;
    clients_[number].connected = true;
    if (++connected_ == clients_.size() / 2) fairness_ = fairness_now();
  }
  double fairness_now() const {
    std::vector<double> groups((clients_.size() + kGroup - 1) / kGroup);
    for (std::size_t i = 0; i < clients_.size(); ++i) groups[i / kGroup] += clients_[i].connected ? 1 : 0;
    double sum = 0;
    double squares = 0;
    for (const double group : groups) sum += group, squares += group * group;
    return sum * sum / (static_cast<double>(groups.size()) * squares);
  }

  ReconnectLab lab_;
  std::mt19937 random_{1};
  std::vector<Client> clients_;
  std::array<Reactor, kLabReactors> reactors_;
  std::unordered_map<std::uint32_t, PeerAddress> client_of_;
  std::priority_queue<Due, std::vector<Due>, std::greater<>> due_;
  const std::uint64_t start_ns_;
  std::size_t connected_ = 0;
  double fairness_ = 0;
};

}  // namespace sluice::bench
