// SPDX-License-Identifier: Apache-2.0
//
// Version 2 on one connection (draft, sections 4.2, 4.3, 5 and 6.3; rows V2-034 to V2-065 and V2-084 to
// V2-095): credits, the order of senders, continued messages, grants, the greeting, and properties. The
// connection owns the session and its link. A connection of version 1 has a session as well, because the
// version may be settled after open(). Confined to one reactor. Nothing here allocates after construction.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "dataplane/base/cache_line.h"
#include "dataplane/base/invariant.h"
#include "dataplane/rpcrdma/link/link.h"
#include "dataplane/rpcrdma/link/received_message.h"
#include "dataplane/rpcrdma/v2/agreement.h"
#include "dataplane/rpcrdma/v2/flow_control.h"
#include "dataplane/rpcrdma/v2/sender.h"

namespace sluice::rpcrdma::v2 {

/// Messages that an end must send first. Changed only by Session::transition().
enum class Opening : std::uint8_t {
  Complete,            ///< nothing to send first: every sender may send
  AwaitingProperties,  ///< properties 1 to 5 must be sent first
  AwaitingCall,        ///< the first call must be sent first, followed by properties (Greeting::Call)
};

inline constexpr std::array<std::uint8_t, 3> kAfterOpening{
    detail::any_of(Opening::AwaitingProperties),  // Complete: on a server, after the client's first message
    detail::any_of(Opening::Complete),            // AwaitingProperties
    detail::any_of(Opening::Complete, Opening::AwaitingProperties),  // AwaitingCall
};

constexpr bool may_follow(Opening from, Opening to) noexcept {
  return detail::follows(kAfterOpening, static_cast<std::uint8_t>(from), static_cast<std::uint8_t>(to));
}

/// Interface of the connection that owns a session and its link.
class SessionOwner : public LinkOwner {
 public:
  /// Returns true if no call is being served and no reply is awaited.
  virtual bool no_calls_in_progress() const noexcept = 0;
  /// Receives each set of properties that can be decoded. `first` is true for the only set that determines
  /// properties 1 to 5 (D2-24). Returns false if there is no room for it; the session then does not use it.
  virtual bool on_properties(std::span<const std::byte> body, bool first) noexcept = 0;

 protected:
  ~SessionOwner() = default;
};

class alignas(kCacheLine) Session {
 public:
  /// Called at setup. `control` holds kControlBuffers buffers of kControlBytes.
  Session(Link& link, SessionOwner& owner, rdma::MemoryRegion control)
      : link_(link), owner_(owner), control_(control) {}
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // --- Setup and teardown
  /// Called when the link has been opened. The caller then calls begin().
  void open() noexcept;
  /// Sets what must be sent first. Called after Link::begin().
  void begin(Opening opening) noexcept;
  /// Called when the version of the link has changed: adapts the link's Receives and largest Send.
  void on_version() noexcept;
  /// Called when the link is Draining.
  void on_closed() noexcept;
  /// Returns true if no control message is outstanding.
  bool drained() const noexcept { return control_.all_free(); }
  /// Sends a grant if nothing has been sent for Version2Config::keep_alive_ns.
  void tick() noexcept;
  /// Account of the memory for continued messages, in LinkContext::assembly.
  SharedMemory::Account& assembly_account() noexcept { return assembly_account_; }
  /// Returns the bytes of shared memory that the connection holds for continued messages.
  std::uint64_t shared_bytes() const noexcept {
    return link_.context().assembly.held_bytes(assembly_account_);
  }

  // --- Credits
  FlowControl& flow() noexcept { return flow_; }
  const FlowControl& flow() const noexcept { return flow_; }
  /// Sets the credits that the peer may have outstanding, for both directions together.
  void set_window(std::uint32_t credits) noexcept;
  /// Returns the credit word of the next message; `freed` Receives, zero or one, are posted before it.
  [[gnu::always_inline]] CreditWord offer(std::uint32_t freed = 0) const noexcept {
    return flow_.offer(link_.receives_after(freed));
  }
  /// Returns the credit word of a message that is staged now, and counts it. Requires may_reply_now().
  [[gnu::always_inline]] CreditWord use_credit() noexcept {
    const CreditWord word = offer();
    flow_.on_send(word);
    SLUICE_INVARIANT_DEBUG(flow_.balance() >= 0, credit_balance);
    return word;
  }
  /// Counts a staged message with this credit word.
  void count_send(CreditWord word) noexcept {
    flow_.on_send(word);
    if (!SLUICE_INVARIANT(flow_.balance() >= -1, credit_balance)) link_.close(CloseReason::InternalError);
  }
  void count_error_send() noexcept { flow_.on_send_error(); }

  // --- Order of senders, and continued messages
  /// Returns true if `sender` may send: a credit is available and no other sender is inside a continued
  /// message. If false, the sender's role is retried when that changes.
  bool may_send_now(Sender sender) noexcept {
    if (may_send_whole(2)) [[likely]]
      return true;
    return may_send_out_of_turn(sender);
  }
  /// Fast check of may_send_now() for a reply that fits one Send. If false, call may_send_now().
  bool may_reply_now() const noexcept { return may_send_whole(1); }
  /// Fast check of may_send_now() for a call that fits one Send. If false, call may_send_now().
  bool may_call_now() const noexcept { return may_send_whole(2); }
  /// Stages parts of a message, starting after the first `sent` bytes, until the rest fits the last part. The
  /// sender stages the last part and then calls end_continued_message(). Returns false if it has to wait; the
  /// sender is then retried.
  bool stage_parts(const ContinuedMessage& message, std::uint64_t& sent, std::uint32_t& posted) noexcept;
  void end_continued_message() noexcept {
    set_sender({});
    link_.notify_waiting_senders();
  }
  /// Handles the completion of a control buffer's Send, including a flushed one. Returns the sender.
  Sender on_control_sent(std::uint16_t index) noexcept;

  // --- Grants and the greeting
  /// Called at the end of an iteration: sends a grant that is due.
  void send_due_grant() noexcept {
    if (grant_goes_now()) send_grant();
  }
  Opening opening() const noexcept { return opening_; }
  void transition(Opening to) noexcept;
  /// Sends properties 1 to 5 if they must be sent first, in one message that every peer can receive (V2-058).
  void greet() noexcept {
    if (opening_ == Opening::AwaitingProperties) send_greeting();
  }
  /// Sends properties as the greeting because the first call does not qualify; the call waits for the next
  /// credit.
  void greet_with_properties() noexcept {
    transition(Opening::AwaitingProperties);
    send_greeting();
    link_.wait_for_notice();
  }
  /// Called when a whole call, or the last part of one, has been staged: it may have been the greeting.
  void on_call_staged() noexcept {
    if (opening_ == Opening::AwaitingCall) [[unlikely]]
      on_greeted();
  }

  // --- Properties
  const Agreement& agreement() const noexcept { return agreement_; }
  /// Applies the agreement, clamped so that it neither exceeds our limits nor reduces Sends below a minimum
  /// (V2-065).
  void apply(const Agreement& agreement) noexcept;
  /// Returns the properties that this end has announced, or the defaults.
  Parameters own_parameters() const noexcept;
  /// Returns the properties that the peer has announced, or the defaults.
  const Parameters& peer_parameters() const noexcept { return peer_parameters_; }
  /// Returns true if the peer's first set has been received.
  bool heard_properties() const noexcept { return heard_properties_; }
  /// Handles a complete set. The first one is applied by agree() once the owner has accepted it. Returns
  /// false if the owner has no room for it. On return of true, `refusal` may hold an error for the sender.
  bool take_properties(std::span<const std::byte> body, const Header& header, Refusal& refusal) noexcept;
  /// Sends host authentication, in as many parts as necessary. Returns false if the previous one is still
  /// being sent, or if no memory is available.
  bool send_host_authentication(std::span<const std::byte> octets) noexcept;
  /// Continues host authentication that had to wait.
  void retry() noexcept {
    if (outgoing_ != nullptr) send_outgoing();
  }

 private:
  bool may_send_whole(std::int32_t least_balance) const noexcept {
    return flow_.balance() - held_back_ >= least_balance;
  }
  bool may_send_out_of_turn(Sender sender) noexcept;
  void set_sender(Sender sender) noexcept {
    sender_ = sender;
    hold_back();
  }
  void hold_back() noexcept {
    const bool free = opening_ == Opening::Complete && sender_.kind == Sender::Kind::None;
    held_back_ = free ? 0 : FlowControl::kMaxBalance;
  }
  void bound_receives() noexcept;
  std::optional<std::uint16_t> begin_control(Sender sender) noexcept;
  bool grant_goes_now() noexcept;
  void send_grant() noexcept;
  void send_greeting() noexcept;
  void on_greeted() noexcept;
  void send_outgoing() noexcept;
  void on_property_part_sent() noexcept;

  // Members that every message of version 2 uses come first.
  Link& link_;
  FlowControl flow_;
  /// Credits that whole messages may not use: none, or all while not every sender may send.
  std::int32_t held_back_ = 0;
  Opening opening_ = Opening::Complete;
  bool grant_put_off_ = false;  ///< a grant was due at the end of the last iteration
  Sender sender_;               ///< the sender inside a continued message
  Agreement agreement_;
  SessionOwner& owner_;
  std::uint64_t granted_ns_ = 0;    ///< when the last grant was staged
  std::uint32_t property_xid_ = 0;  ///< XID of our latest set of properties
  bool heard_properties_ = false;
  Parameters peer_parameters_;
  std::byte* outgoing_ = nullptr;  ///< host authentication being sent, in LinkContext::assembly
  std::uint32_t outgoing_bytes_ = 0;
  std::uint64_t outgoing_sent_ = 0;    ///< bytes of it that are staged
  std::uint32_t outgoing_posted_ = 0;  ///< its Sends that are not complete
  SharedMemory::Account assembly_account_;
  ControlBuffers control_;
};

}  // namespace sluice::rpcrdma::v2
