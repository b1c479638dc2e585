// SPDX-License-Identifier: Apache-2.0
//
// Way of a received message from the link to a role: the two roles of a connection, the negotiation of its
// version, and the intake of each version. Confined to one reactor.
#pragma once

#include <cstdint>
#include <span>

#include "dataplane/base/fixed_containers.h"
#include "dataplane/rpcrdma/link/link.h"
#include "dataplane/rpcrdma/requester/requester.h"
#include "dataplane/rpcrdma/responder/responder.h"
#include "dataplane/rpcrdma/v2/inbound_sequence.h"
#include "dataplane/rpcrdma/v2/session.h"
#include "dataplane/rpcrdma/wire/v1.h"

namespace sluice::rpcrdma {

/// The two roles of one connection. Dispatches messages to a role by msg_type, never by XID (V1-157).
class Roles {
 public:
  Roles(Link& link, Responder& responder) : link_(link), responder_(responder) {}

  Responder& responder() noexcept { return responder_; }
  const Responder& responder() const noexcept { return responder_; }
  /// Returns the requester, or null if no calls are made on this connection.
  Requester* requester() const noexcept { return requester_; }
  void set_requester(Requester* requester) noexcept { requester_ = requester; }

  bool awaits_reply(rpc::Xid xid) const noexcept {
    return requester_ != nullptr && requester_->is_outstanding(xid);
  }
  /// Hands over a call, or a message that must be refused as one.
  void to_responder(const ReceivedMessage& message, const Refusal& refusal) noexcept {
    if (link_.config().credit_grant > 0) return responder_.on_call(message, refusal);
    ++link_.counters().direction_not_served;  // V1-171
    link_.discard(message);
  }
  void to_requester(const ReceivedMessage& message) noexcept {
    if (requester_ != nullptr) return requester_->on_reply(message);
    ++link_.counters().unknown_xid;
    link_.discard(message);
  }
  /// Handles a message whose direction is unknown. If its XID matches one of our outstanding calls, that call
  /// ends and no error is sent.
  void to_either(const ReceivedMessage& message, const Refusal& refusal) noexcept {
    if (!awaits_reply(message.header.fixed.xid)) return to_responder(message, refusal);
    requester_->on_unusable(message.header.fixed.xid);
    link_.discard(message);
  }

 private:
  Link& link_;
  Responder& responder_;
  Requester* requester_ = nullptr;
};

/// Version negotiation of one connection (draft, section 4.3.3; rows V2-011 to V2-017).
class VersionChoice {
 public:
  VersionChoice(Link& link, v2::Session& session, Roles& roles)
      : link_(link), session_(session), roles_(roles) {}

  /// Selects the initial version. Called when the link has been opened.
  void open() noexcept;
  /// Called when a message of ours has been delivered.
  void on_delivered() noexcept { delivered_ = true; }
  /// Called when the link is closed and all Sends are complete. A server that received the first message and
  /// never answered it is remembered as a version 1 server (V2-015).
  void on_drained() noexcept;
  /// Closes the link if the first answer is late.
  void tick() noexcept;

  /// Returns true if the rules of version 2 apply to a message; the first message settles the version.
  bool is_version_2(std::uint16_t buffer, std::uint32_t bytes) noexcept;
  /// Settles the version that the peer speaks.
  void settle(VersionState version) noexcept;
  /// Called when the server does not speak version 2. The connection continues with version 1 if the server
  /// supports it, and is closed otherwise (V2-014).
  void fall_back(rpc::VersionRange supported) noexcept;

 private:
  void remember_version_1() noexcept;

  Link& link_;
  v2::Session& session_;
  Roles& roles_;
  bool delivered_ = false;      ///< the first message has been delivered
  std::uint64_t asked_ns_ = 0;  ///< when tick() first saw the first message unanswered; 0: not yet
};

/// Intake of version 1: classifies each received message and dispatches it to a role (RFC 8166, section 4).
class IntakeV1 {
 public:
  IntakeV1(Link& link, Roles& roles, VersionChoice& version)
      : link_(link), roles_(roles), version_(version) {}

  /// Handles the completed Receive of a message that does not belong to version 2.
  void arrive(std::uint16_t buffer, std::span<const std::byte> bytes) noexcept;

 private:
  bool usable(const v1::DecodeResult& decoded, const ReceivedMessage& message) noexcept;
  void on_msg(const ReceivedMessage& message) noexcept;

  Link& link_;
  Roles& roles_;
  VersionChoice& version_;
};

/// Intake of version 2: runs the checks in order, assembles continued messages and dispatches each message to
/// a role (draft, sections 4.2 to 6.3; rows V2-018 to V2-052 and V2-084 to V2-098).
class IntakeV2 final : private ShareWaiter {
 public:
  /// A completed Receive of version 2.
  struct Arrived {
    std::uint16_t buffer = 0;
    std::uint32_t bytes = 0;
    rdma::Rkey invalidated{};
  };

  /// Called at setup. `receives` is the maximum number of Receives of the connection.
  IntakeV2(Link& link, v2::Session& session, Roles& roles, VersionChoice& version, std::uint32_t receives)
      : link_(link), session_(session), roles_(roles), version_(version), deferred_(receives + 1) {}

  void open() noexcept;
  /// Called when the link is Draining.
  void on_closed() noexcept;
  /// Handles a completed Receive of version 2. `invalidated` is the handle that this message has invalidated,
  /// or zero.
  void arrive(std::uint16_t buffer, std::uint32_t bytes, rdma::Rkey invalidated) noexcept {
    arrive_other({buffer, bytes, invalidated});
    note_settled();
  }
  /// Handles a message that qualified for the shortcut but that neither role could handle there.
  void on_plain(std::uint16_t buffer, std::span<const std::byte> octets) noexcept;
  /// Closes the link if a continued message makes no progress, and retries the property sink.
  void tick() noexcept;

  bool waits_for_memory() const noexcept { return wait_ == Wait::AssemblyMemory; }

 private:
  /// Reason for deferring messages.
  enum class Wait : std::uint8_t {
    Nothing,
    AssemblyMemory,    ///< the first deferred message begins a sequence and waits for memory
    PropertiesRoom,    ///< the first deferred message is a set of properties and waits for the sink
    JoinedProperties,  ///< a complete set in assembly_ waits for the sink; its messages are consumed
  };
  using Step = v2::InboundSequence::Step;

  void on_share() noexcept override {
    resume();
    note_settled();
  }
  /// Updates the shortcut. Called at the end of every function that can change one of its conditions.
  void note_settled() noexcept {
    if (link_.version_state() == VersionState::Version1) return;  // the connection has fallen back
    const bool settled = link_.is_open() && link_.version_state() == VersionState::Version2 &&
                         link_.config().shortcuts && session_.opening() == v2::Opening::Complete &&
                         session_.flow().peer_limit() != 0 && wait_ == Wait::Nothing && sequence_.idle();
    const ConnectionConfig& config = link_.config();
    const bool serves_calls = !config.active && config.credit_grant > 0;
    link_.set_shortcut(!settled       ? Shortcut::None
                       : serves_calls ? Shortcut::CallsAndReplies
                                      : Shortcut::Replies);
  }
  void resume() noexcept;
  void defer(Arrived arrived) noexcept;
  std::span<const std::byte> message_of(Arrived arrived) noexcept;
  v2::DecodeResult decode(Arrived arrived) noexcept;
  void arrive_other(Arrived arrived) noexcept;
  bool within_credits(bool grant_only) noexcept;
  bool may_have_invalidated(Arrived arrived, bool ends_call) noexcept;
  void take_credits(v2::CreditWord credit) noexcept;
  bool take_without_order(Arrived arrived, const v2::DecodeResult& decoded) noexcept;

  /// Runs steps 5 to 10 of the order of checks. Returns false without side effects if the message has to wait
  /// for memory or for the property sink.
  bool take(Arrived arrived, const v2::DecodeResult& decoded) noexcept;
  bool refuse_before_sequence(Arrived arrived, const v2::DecodeResult& decoded) noexcept;
  bool has_assembly(std::size_t part_bytes) noexcept;
  void await_assembly(std::size_t bytes) noexcept;
  std::span<const std::byte> part_of(Arrived arrived, const v2::Header& header) noexcept;
  Refusal content_refusal(const v2::DecodeResult& decoded) noexcept;
  bool take_part(Arrived arrived, const v2::Header& header, Step step) noexcept;
  void take_message(Arrived arrived, const v2::Header& header, bool assembled) noexcept;
  void hand_over(Arrived arrived, ReceivedMessage& message, bool response) noexcept;
  Refusal payload_refusal(rpc::Xid xid, bool response, std::span<const std::byte> payload) noexcept;
  Refusal reverse_refusal(ReceivedMessage& message) noexcept;
  void take_error(const v2::Header& header) noexcept;

  /// Ends the RPC that the message belongs to: sends an ERROR to the peer for a call, or ends our own RPC for
  /// a reply (D2-07). Consumes the message's Receive.
  void fault(Arrived arrived, rpc::Xid xid, bool response, const v2::Error& error) noexcept;
  void fault(Arrived arrived, const v2::Header& header, const v2::Error& error) noexcept {
    fault(arrived, header.fixed.xid, header.response(), error);
  }
  void break_sequence(Arrived arrived, const v2::Header& header, const v2::Error& error) noexcept;
  void drop_assembly() noexcept;

  Link& link_;
  v2::Session& session_;
  Roles& roles_;
  VersionChoice& version_;
  v2::InboundSequence sequence_;
  std::byte* assembly_ = nullptr;  ///< parts of the sequence in progress
  std::uint32_t assembled_bytes_ = 0;
  std::uint64_t first_part_ns_ = 0;
  std::uint64_t last_part_ns_ = 0;
  std::uint64_t waiting_since_ns_ = 0;  ///< valid for Wait::AssemblyMemory
  Wait wait_ = Wait::Nothing;
  FixedRing<Arrived> deferred_;  ///< the message that take() deferred, and all later ones
};

}  // namespace sluice::rpcrdma
