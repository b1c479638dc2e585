// SPDX-License-Identifier: Apache-2.0
//
// What the two roles of a connection need of it: its queue pair, room in the send queue, Receives, and in
// version 2 credits, turns of senders and continued messages. It knows no role; its owner is the connection.
// One reactor. Nothing here allocates after construction.
//
// A Receive buffer belongs to the queue pair while posted, then to the slot or request its message went to,
// and is posted again before the answer to that message is sent (V1-052).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>

#include "dataplane/base/cache_line.h"
#include "dataplane/base/host_name.h"
#include "dataplane/base/invariant.h"
#include "dataplane/base/net_address.h"
#include "dataplane/base/owned.h"
#include "dataplane/base/small_algorithms.h"
#include "dataplane/rpcrdma/link/close_reason.h"
#include "dataplane/rpcrdma/link/config.h"
#include "dataplane/rpcrdma/link/link_context.h"
#include "dataplane/rpcrdma/link/link_state.h"
#include "dataplane/rpcrdma/link/received_message.h"
#include "dataplane/rpcrdma/link/receives.h"
#include "dataplane/rpcrdma/link/sender.h"
#include "dataplane/rpcrdma/link/wr_id.h"
#include "dataplane/rpcrdma/v2/agreement.h"
#include "dataplane/rpcrdma/v2/flow_control.h"
#include "pmd/queue_pair.h"

namespace sluice::rpcrdma {

/// What one connection object can carry at most; set once for all connections of a reactor.
struct ConnectionCapacity {
  std::uint32_t call_slots = 64;
  std::uint32_t requests = 0;               ///< most credits we ask for as requester
  std::uint32_t receive_bytes = 4096;       ///< of each Receive
  std::uint32_t reply_buffer_bytes = 8192;  ///< of each call slot
  std::uint32_t send_depth = 1024;          ///< of the queue pairs; SendStage::kMaxWrs or more

  std::uint32_t slots() const noexcept { return larger_of(call_slots, kLeastSlots); }
  std::uint32_t receives() const noexcept {
    return pool_size({{"calls of the peer, one for each slot", slots()},
                      {"replies to our calls", requests},
                      {"messages beyond both", kSpareReceives}});
  }
};

/// Bytes that went over a connection, with what was placed directly.
struct Traffic {
  std::uint64_t received = 0;
  std::uint64_t sent = 0;
};

/// The connection that has a link and the two roles.
class LinkOwner {
 public:
  /// The link is Draining from now on.
  virtual void on_link_closed() noexcept = 0;
  /// No call is being served, and no reply is awaited.
  virtual bool no_calls_in_progress() const noexcept = 0;

 protected:
  ~LinkOwner() = default;
};

class alignas(kCacheLine) Link final : private TurnEntry {
 public:
  using State = LinkState;

  /// Setup: `receives` holds capacity.receives() buffers, `control` kControlBuffers of kControlBytes.
  Link(LinkContext& context, LinkOwner& owner, std::uint16_t number, const ConnectionCapacity& capacity,
       rdma::MemoryRegion receives, rdma::MemoryRegion control);
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  // --- Life
  /// Takes over a queue pair in State::Init. `config` is clamped to the capacity. begin() comes next.
  void open(Owned<rdma::QueuePair> qp, const ConnectionConfig& config, const PeerAddress& peer) noexcept;
  /// The version to begin with, and what has to be sent first.
  void begin(VersionState version, Opening opening) noexcept;
  void post_first_receives() noexcept;
  /// The queue pair is ReadyToSend.
  void established() noexcept { last_post_ns_ = alive_ns_ = context_.now_ns(); }
  /// Ends the link; harmless if it has ended.
  void close(CloseReason reason) noexcept;
  /// Draining, and nothing is out any more but what the roles know of.
  bool drained() const noexcept { return receives_.posted() == 0 && control_.all_free(); }
  /// Draining becomes Closed: the queue pair is destroyed.
  void release_queue_pair() noexcept;

  State state() const noexcept { return state_; }
  bool is_open() const noexcept { return state_ == State::Open; }
  CloseReason close_reason() const noexcept { return close_reason_; }
  rdma::QueuePair& queue_pair() noexcept { return *qp_; }
  /// A work request has completed well: but for what is local, the peer was there.
  void note_alive() noexcept { alive_ns_ = context_.now_ns(); }
  /// Asks a peer that has been silent whether it is still there.
  void probe_if_silent() noexcept;
  void on_probed() noexcept { probing_ = false; }
  bool heard_from_peer() const noexcept { return qp_ != nullptr && qp_->heard_from_peer(); }

  // --- What it is
  std::uint16_t number() const noexcept { return connection; }
  std::uint64_t wr_id(WrKind kind, std::uint16_t index) const noexcept {
    return WrId::encode(wr_id_base_, kind, index);
  }
  /// Of this life of the connection.
  bool owns(WrId id) const noexcept { return id.generation == generation_ && state_ != State::Closed; }
  /// The same of one that is open.
  bool serves(WrId id) const noexcept { return id.generation == generation_ && state_ == State::Open; }
  const PeerAddress& peer() const noexcept { return peer_; }
  /// Empty until the peer has authenticated itself.
  const HostName& peer_host() const noexcept { return peer_host_; }
  void set_peer_host(const HostName& host) noexcept { peer_host_ = host; }
  const ConnectionConfig& config() const noexcept { return config_; }
  void set_send_inline_bytes(std::uint32_t bytes) noexcept { config_.send_inline_bytes = bytes; }
  std::uint32_t client_class() const noexcept { return config_.client_class; }
  void set_client_class(std::uint32_t client_class) noexcept;
  /// Of the client's class.
  Counters& counters() noexcept { return *counters_; }
  // Bytes that went over it, also in a counter of its class.
  void count_received(std::uint64_t Counters::*counter, std::uint64_t bytes) noexcept {
    counters().*counter += bytes;
    traffic_.received += bytes;
  }
  void count_sent(std::uint64_t Counters::*counter, std::uint64_t bytes) noexcept {
    counters().*counter += bytes;
    traffic_.sent += bytes;
  }
  /// All of them since open(); the RDMA operations are ours.
  const Traffic& traffic() const noexcept { return traffic_; }
  LinkContext& context() noexcept { return context_; }
  SharedMemory::Account& assembly_account() noexcept { return assembly_account_; }
  /// Of memory that connections share.
  std::uint64_t shared_bytes() const noexcept { return context_.assembly.held_bytes(assembly_account_); }

  // --- The version
  VersionState version_state() const noexcept { return version_; }
  /// Of RPC-over-RDMA; zero until the client's first message has settled it.
  std::uint32_t version() const noexcept {
    return smaller_of<std::uint32_t>(static_cast<std::uint32_t>(version_), 2);
  }
  /// As the intake of version 2 has set it.
  Shortcut shortcut() const noexcept { return shortcut_; }
  void set_shortcut(Shortcut shortcut) noexcept { shortcut_ = shortcut; }
  bool speaks_version_2() const noexcept { return version_ >= VersionState::AwaitingAnswer; }
  bool negotiating() const noexcept { return version_ == VersionState::AwaitingAnswer; }
  void transition(VersionState to) noexcept;
  /// What this end serves. Version 1 has no way to show who a host is.
  rpc::VersionRange supported_versions() const noexcept {
    return {config_.max_version >= v2::kVersion && config_.version2.hold_calls ? v2::kVersion : kVersion1,
            config_.max_version};
  }
  const v2::Agreement& agreement() const noexcept { return agreement_; }
  /// Nothing lifts a limit of ours, or lets the message path run in pieces without end (V2-065).
  void apply(const v2::Agreement& agreement) noexcept;
  /// What we have announced to the peer, or its defaults.
  v2::Parameters own_parameters() const noexcept;
  /// Largest Send that the peer takes now.
  std::uint32_t send_bytes() const noexcept { return send_bytes(speaks_version_2()); }
  /// The same, where the version is known.
  std::uint32_t send_bytes(bool version_2) const noexcept {
    return version_2 ? agreement_.send_bytes : config_.send_inline_bytes;
  }

  // --- Receives
  std::span<std::byte> receive_buffer(std::uint16_t index) noexcept { return receives_.buffer(index); }
  void on_receive_completed() noexcept { receives_.on_completed(); }
  /// Posts a Receive buffer again, before anything that is staged later (V1-052).
  void repost(std::uint16_t buffer) noexcept;
  /// The same, where every message comes by.
  [[gnu::always_inline]] void repost_now(std::uint16_t buffer) noexcept {
    if (receives_.keep_surplus(buffer)) return;
    const Transmit& transmit = context_.transmit;
    if (transmit.receives_for != this || transmit.receives.count == ReceiveStage::kMaxWrs) [[unlikely]]
      take_receives();
    receives_.stage(buffer, wr_id(WrKind::Receive, buffer), context_.transmit.receives);
  }
  /// Gives back all that a message holds which nobody takes: its Receive, and the memory of its assembled payload.
  void discard(const ReceivedMessage& message) noexcept;
  /// Posts those that may be used again.
  void repost_spares() noexcept;

  // --- Sending
  /// The reactor's stage, holding only requests of this link. Whoever has it has something to do at the end of the turn.
  [[gnu::always_inline]] SendStage& stage() noexcept {
    if (context_.transmit.staged_for != this) [[unlikely]]
      take_stage();
    return context_.transmit.stage;
  }
  /// Whether the send queue has room for all that is staged and `further` work requests.
  bool stage_fits(std::size_t further = 0) noexcept {
    const std::size_t needed = context_.transmit.stage.size() + further;
    if (needed > send_room_) send_room_ = qp_->send_room();
    return needed <= send_room_ && needed <= SendStage::kMaxWrs;
  }
  /// Whether so many work requests can be staged; hands the stage to the driver if that makes room in it.
  bool has_room(std::size_t work_requests) noexcept {
    static_cast<void>(stage());
    if (stage_fits(work_requests)) return true;
    flush_stage();
    return stage_fits(work_requests);
  }
  void forget_send_room() noexcept { send_room_ = 0; }
  /// Whether a work request of one piece can be staged. If so, the stage is the link's.
  [[gnu::always_inline]] bool has_room_for_one() noexcept {
    SendStage& staged = stage();
    const std::size_t needed = staged.size() + 1;
    if (needed <= send_room_ && needed <= SendStage::kMaxWrs && staged.mark().sges() < SendStage::kMaxSges)
        [[likely]]
      return true;
    return make_room_for_one();
  }
  /// Adds a Send of one piece; has_room_for_one() was true. Returns what SendStage::add_send() does.
  [[gnu::always_inline]] std::uint16_t stage_one(WrKind kind, std::uint16_t index, rdma::Sge piece) noexcept {
    return context_.transmit.stage.add_send(wr_id(kind, index), piece);
  }
  /// Hands the stage to the driver to make room in it.
  void flush_stage() noexcept;
  /// There is something to do at the end of the turn.
  [[gnu::always_inline]] void touch() noexcept {
    TurnEntry& entry = *this;
    if (!entry.link.linked()) context_.transmit.turn_end.push_back(entry);
  }
  /// Who could not send is asked again at the end of the turn.
  void retry_at_turn_end() noexcept {
    retry_ = Retry::AtTurnEnd;
    touch();
  }
  /// Who found no room in the send queue is asked again when a work request of this link has completed.
  void wait_for_send_room() noexcept;
  bool retry_due() const noexcept { return retry_ == Retry::AtTurnEnd; }
  void begin_retry() noexcept { retry_ = Retry::None; }
  /// End of a turn: hands what was staged to the driver, after a grant that is due.
  void flush() noexcept;

  // --- Credits of version 2
  v2::FlowControl& flow() noexcept { return flow_; }
  const v2::FlowControl& flow() const noexcept { return flow_; }
  /// Credits that the peer may use at once, of both directions together.
  void set_window(std::uint32_t credits) noexcept;
  /// The credit word of the next message; `freed` Receives, none or one, come back in front of it.
  [[gnu::always_inline]] v2::CreditWord offer(std::uint32_t freed = 0) const noexcept {
    return flow_.offer(receives_.posted() + receives_.returning(freed));
  }
  /// The credit word of a message that is staged now; may_reply_now() was true.
  [[gnu::always_inline]] v2::CreditWord use_credit() noexcept {
    const v2::CreditWord word = offer();
    flow_.on_send(word);
    return word;
  }
  /// A message with this credit word is staged.
  void count_send(v2::CreditWord word) noexcept {
    flow_.on_send(word);
    if (!SLUICE_INVARIANT(flow_.balance() >= -1, credit_balance)) close(CloseReason::InternalError);
  }
  void count_error_send() noexcept { flow_.on_send_error(); }
  /// When something was last handed to the driver.
  std::uint64_t last_post_ns() const noexcept { return last_post_ns_; }

  // --- Turns of senders in version 2 (sending.cc)
  /// Needs a credit and no other sender inside a continued message. On false, the sender's role is asked
  /// again when that has changed.
  bool may_send_now(Sender sender) noexcept {
    if (may_send_whole(2)) [[likely]]
      return true;
    return may_send_out_of_turn(sender);
  }
  /// The same of a reply in one piece. On false, may_send_now() has the answer.
  bool may_reply_now() const noexcept { return may_send_whole(1); }
  /// The same of a call in one piece.
  bool may_call_now() const noexcept { return may_send_whole(2); }
  /// What may_send_now() depends on has changed.
  void notify_waiting_senders() noexcept {
    if (retry_ == Retry::OnNotice) retry_at_turn_end();
  }
  /// Stages parts behind the first `sent` bytes until what is left fits the last part, which is the sender's
  /// to stage; then it calls end_continued_message(). False: it has to wait, and is asked again.
  bool stage_parts(const ContinuedMessage& message, std::uint64_t& sent, std::uint32_t& posted) noexcept;
  /// Adds what is left behind `from` to the last work request.
  bool append_payload(std::span<const rdma::Sge> payload, std::uint64_t from) noexcept;
  void end_continued_message() noexcept {
    set_sender({});
    notify_waiting_senders();
  }
  /// A control buffer, and the start of its Send. Nothing: there is no room, and the sender is asked again.
  std::optional<std::uint16_t> begin_control(Sender sender) noexcept;
  std::span<std::byte> control_buffer(std::uint16_t index) noexcept { return control_.buffer(index); }
  rdma::Sge control_piece(std::uint16_t index, std::size_t bytes) noexcept {
    return control_.piece(index, bytes);
  }
  /// The Send of a control buffer has completed, or was flushed. Returns whose it was.
  Sender on_control_sent(std::uint16_t index) noexcept;
  /// Of the latest set of properties of ours, and of the next one.
  rpc::Xid property_xid() const noexcept { return static_cast<rpc::Xid>(property_xid_); }
  rpc::Xid next_property_xid() noexcept { return static_cast<rpc::Xid>(++property_xid_); }

  Opening opening() const noexcept { return opening_; }
  void transition(Opening to) noexcept;
  /// Properties 1 to 5, in one message that every peer can receive (V2-058).
  void send_greeting() noexcept;
  /// The first call cannot be the greeting: properties are, and the call waits for the next credit.
  void greet_with_properties() noexcept {
    transition(Opening::AwaitingProperties);
    send_greeting();
    wait_for_notice();
  }
  /// A call has gone out as greeting.
  void on_greeted() noexcept;
  void send_grant() noexcept;

 private:
  static constexpr std::uint32_t kVersion1 = 1;

  void transition(State to) noexcept;
  bool may_send_whole(std::int32_t least_balance) const noexcept {
    return flow_.balance() - held_back_ >= least_balance;
  }
  void set_sender(Sender sender) noexcept {
    sender_ = sender;
    hold_back();
  }
  void hold_back() noexcept {
    const bool free = opening_ == Opening::Complete && sender_.kind == Sender::Kind::None;
    held_back_ = free ? 0 : v2::FlowControl::kMaxBalance;
  }
  void take_stage() noexcept;
  void give_up_stage() noexcept;
  void take_receives() noexcept;
  bool make_room_for_one() noexcept;
  bool may_send_out_of_turn(Sender sender) noexcept;
  bool grant_goes_now() noexcept;
  void flush_receives() noexcept;
  void bound_receives() noexcept;
  void wait_for_notice() noexcept {
    if (retry_ == Retry::None) retry_ = Retry::OnNotice;
  }

  // What every message needs comes first, so that a connection that has been quiet takes few cache lines.
  LinkContext& context_;
  Counters* counters_;
  std::uint64_t wr_id_base_ = 0;
  std::uint16_t generation_ = 0;  ///< completions of an earlier life are dropped
  State state_ = State::Closed;
  VersionState version_ = VersionState::Version1;
  Opening opening_ = Opening::Complete;
  Retry retry_ = Retry::None;
  Shortcut shortcut_ = Shortcut::None;
  bool grant_put_off_ = false;  ///< it was due at the end of the last turn
  std::uint64_t alive_ns_ = 0;  ///< when the peer was last known to be there
  Traffic traffic_;
  std::size_t send_room_ = 0;  ///< at least this much; asked again when it does not do
  Owned<rdma::QueuePair> qp_;
  Receives receives_;
  ConnectionConfig config_;
  // Version 2 needs a line of its own.
  alignas(kCacheLine) v2::FlowControl flow_;
  /// Credits that no message in one piece may use: none, or all while not everybody may send.
  std::int32_t held_back_ = 0;
  v2::Agreement agreement_;
  std::uint64_t last_post_ns_ = 0;
  Sender sender_;  ///< inside a continued message
  const ConnectionCapacity capacity_;
  PeerAddress peer_;
  HostName peer_host_;
  LinkOwner& owner_;
  CloseReason close_reason_ = CloseReason::None;
  bool probing_ = false;  ///< a probe is out
  std::uint32_t property_xid_ = 0;
  SharedMemory::Account assembly_account_;
  ControlBuffers control_;
};

}  // namespace sluice::rpcrdma
