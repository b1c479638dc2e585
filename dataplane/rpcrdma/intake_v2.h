// SPDX-License-Identifier: Apache-2.0
//
// Intake of version 2: runs the checks in order, assembles continued messages and dispatches each message to
// a role (draft, sections 4.2 to 6.3; rows V2-018 to V2-052 and V2-084 to V2-098). Confined to one reactor.
#pragma once

#include <cstdint>

#include "dataplane/base/fixed_containers.h"
#include "dataplane/rpcrdma/link/link.h"
#include "dataplane/rpcrdma/properties.h"
#include "dataplane/rpcrdma/roles.h"
#include "dataplane/rpcrdma/v2/inbound_sequence.h"
#include "dataplane/rpcrdma/version_choice.h"

namespace sluice::rpcrdma {

class IntakeV2 final : private ShareWaiter {
 public:
  /// A completed Receive of version 2.
  struct Arrived {
    std::uint16_t buffer = 0;
    std::uint32_t bytes = 0;
    rdma::Rkey invalidated{};
  };

  /// Called at setup. `receives` is the maximum number of Receives of the connection.
  IntakeV2(Link& link, Roles& roles, VersionChoice& version, Properties& properties, std::uint32_t receives)
      : link_(link), roles_(roles), version_(version), properties_(properties), deferred_(receives + 1) {}

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
    const bool settled = link_.is_open() && link_.version_state() == VersionState::Version2 &&
                         link_.opening() == Opening::Complete && link_.flow().peer_limit() != 0 &&
                         wait_ == Wait::Nothing && sequence_.idle();
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
  Roles& roles_;
  VersionChoice& version_;
  Properties& properties_;
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
