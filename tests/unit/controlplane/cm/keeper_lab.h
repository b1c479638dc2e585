// SPDX-License-Identifier: Apache-2.0
//
// A control plane's connection keeper on its own segment. The test plays the reactor and the peers.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <variant>

#include "controlplane/cm/connection_controller.h"
#include "controlplane/cm/mad.h"
#include "controlplane/cm/outbox.h"
#include "controlplane/config/config.h"
#include "controlplane/events/journal.h"
#include "controlplane/policy/credit_controller.h"
#include "controlplane/tasks/arena.h"
#include "dataplane/segment/segment.h"
#include "tests/unit/controlplane/lab.h"

namespace sluice {

inline const PeerAddress kServer = PeerAddress::from_ipv4(192, 0, 2, 1);

class Keepers : public ::testing::Test {
 protected:
  void start(const std::string& more) {
    config_ = lab::configuration(more);
    take_over();
  }
  /// Starts a successor of the control plane.
  void take_over(bool draining = false) {
    outbox_ = std::make_unique<cm::Outbox>(layout());
    credits_ = std::make_unique<policy::CreditController>(layout(), config_.credit_settings());
    keeper_ =
        std::make_unique<cm::ConnectionController>(layout(), config_, *credits_, *outbox_, journal_, tasks_);
    keeper_->set_draining(draining);
    keeper_->take_over();
  }
  segment::ReactorArea& area() { return layout().reactors[0]; }
  /// Publishes a connection as the reactor does after it has created it.
  void show(std::uint32_t number, const segment::ConnectionInfo& info) {
    area().connections[number].write(info);
  }
  void hide(std::uint32_t number) { show(number, {}); }
  /// Polls until each entry has been visited.
  void look_everywhere(std::uint64_t now_ns) {
    for (std::uint32_t i = 0; i <= keeper_->watch().connections() / cm::kEntriesPerLook; ++i)
      keeper_->poll(now_ns);
  }
  segment::Layout& layout() { return segment_.layout(); }

  lab::TestSegment segment_{"keeper"};
  config::Config config_;
  events::Journal journal_{[](const events::Event&) {}};
  tasks::Arena tasks_{{}};
  std::unique_ptr<cm::Outbox> outbox_;
  std::unique_ptr<policy::CreditController> credits_;
  std::unique_ptr<cm::ConnectionController> keeper_;
};

/// Connection requests that arrive from the network.
class Requests : public Keepers {
 protected:
  void ask(const PeerAddress& from, std::uint64_t now_ns, std::uint16_t port = 20049) {
    cm::ConnectRequest request{.local_id = ++asked_,
                               .service_id = cm::service_id(port),
                               .qpn = 0x100 + asked_,
                               .initiator_depth = 4,
                               .starting_psn = 7,
                               .path_mtu = 5};
    request.private_data.set(cm::encode_ip_addressing({1, from, kServer}));
    segment::Punt punt;
    punt.datagram.local = kServer;
    punt.datagram.remote = from;
    punt.datagram.bytes = cm::kMadBytes;
    const auto mad = cm::encode({asked_, request});
    std::copy(mad.begin(), mad.end(), punt.datagram.data.begin());
    ASSERT_TRUE(layout().reactors[0].punt_up.push(punt));
    keeper_->poll(now_ns);
  }
  /// Returns the reason of the newest rejection; nothing if there is none.
  std::optional<cm::RejectReason> rejected() {
    segment::Punt punt;
    std::optional<cm::RejectReason> reason;
    while (layout().reactors[0].punt_down.pop(punt)) {
      const auto [status, message] = cm::decode(std::span(punt.datagram.data).first(cm::kMadBytes));
      if (status == cm::Decode::Ok && std::holds_alternative<cm::ConnectReject>(message.body))
        reason = std::get<cm::ConnectReject>(message.body).reason;
    }
    return reason;
  }
  std::optional<segment::Command> establish() {
    segment::Command command;
    std::optional<segment::Command> found;
    while (layout().reactors[0].commands.pop(command))
      if (command.type == segment::CommandType::Accept && command.cm_id != 0) found = command;
    return found;
  }
  /// Completes the last requested connection up to the agent's reply. The reactor publishes it as `number`.
  std::optional<cm::ConnectReply> make(std::uint32_t number, const PeerAddress& peer, std::uint64_t now_ns) {
    const auto command = establish();
    if (!command) return std::nullopt;
    tell(made(number, *command, peer), now_ns);
    segment::Punt punt;
    std::optional<cm::ConnectReply> reply;
    while (area().punt_down.pop(punt)) {
      const auto [status, message] = cm::decode(std::span(punt.datagram.data).first(cm::kMadBytes));
      if (!std::holds_alternative<cm::ConnectReply>(message.body)) continue;
      reply = std::get<cm::ConnectReply>(message.body);
      transaction_ = message.transaction_id;
    }
    return reply;
  }
  /// Publishes the connection of an Accept and returns the event with which the reactor reports it.
  segment::Event made(std::uint32_t number, const segment::Command& command, const PeerAddress& peer) {
    const segment::ConnectionInfo info{.state = segment::ConnectionState::Opening,
                                       .cm_id = command.cm_id,
                                       .incarnation = ++area().incarnations,
                                       .peer = peer,
                                       .queue_pair = 0x100 + number,
                                       .cm_state = command.cm_state};
    show(number, info);
    return {.type = segment::EventType::CommandDone,
            .id = command.id,
            .cm_id = command.cm_id,
            .connection = number,
            .incarnation = info.incarnation,
            .queue_pair = info.queue_pair,
            .peer = {}};
  }
  void tell(const segment::Event& event, std::uint64_t now_ns) {
    ASSERT_TRUE(area().events.push(event));
    keeper_->poll(now_ns);
  }
  template <typename Body>
  void say(const Body& body, const PeerAddress& from, std::uint64_t now_ns) {
    segment::Punt punt;
    punt.datagram.local = kServer;
    punt.datagram.remote = from;
    punt.datagram.bytes = cm::kMadBytes;
    const auto mad = cm::encode({transaction_, body});
    std::copy(mad.begin(), mad.end(), punt.datagram.data.begin());
    ASSERT_TRUE(area().punt_up.push(punt));
    keeper_->poll(now_ns);
  }
  /// Establishes a connection at both sides.
  cm::ConnectReply connect(std::uint32_t number, const PeerAddress& peer, std::uint64_t now_ns) {
    ask(peer, now_ns);
    const auto reply = make(number, peer, now_ns);
    EXPECT_TRUE(reply) << number;
    if (!reply) return {};
    say(cm::ReadyToUse{.local_id = asked_, .remote_id = reply->local_id}, peer, now_ns);
    EXPECT_TRUE(segment_.course(number).established) << number;
    return *reply;
  }
  void fill(auto& ring) {
    while (ring.push({})) {
    }
  }
  void fill_rings() {
    fill(area().commands);
    fill(area().wanted.hints);
    fill(area().punt_down);
  }

  std::uint64_t transaction_ = 0;
  std::uint32_t asked_ = 0;
};

}  // namespace sluice
