// SPDX-License-Identifier: Apache-2.0
//
// Transport half of a connection, used by its two roles in both versions: the queue pair, room in the send
// queue, Receives, and the close. It also holds the version, because every message reads it. Version 2 has a
// session besides (dataplane/rpcrdma/v2/session.h). The link does not depend on the session or on the roles;
// the connection owns it. Confined to one reactor. Nothing here allocates after construction.
//
// A Receive buffer belongs to the queue pair while posted, then to the slot or request that took its message,
// and is posted again before the answer to that message is sent (V1-052).
#pragma once

#include <cstdint>
#include <span>
#include <utility>

#include "dataplane/base/cache_line.h"
#include "dataplane/base/host_name.h"
#include "dataplane/base/invariant.h"
#include "dataplane/base/net_address.h"
#include "dataplane/base/owned.h"
#include "dataplane/base/small_algorithms.h"
#include "dataplane/rpcrdma/link/config.h"
#include "dataplane/rpcrdma/link/link_context.h"
#include "dataplane/rpcrdma/link/link_state.h"
#include "dataplane/rpcrdma/link/received_message.h"
#include "dataplane/rpcrdma/link/receives.h"
#include "dataplane/rpcrdma/link/wr_id.h"
#include "pmd/queue_pair.h"

namespace sluice::rpcrdma {

struct VersionRules;

/// Capacity of one connection object, equal for all connections of a reactor.
struct ConnectionCapacity {
  std::uint32_t call_slots = 64;
  std::uint32_t requests = 0;               ///< maximum credits requested as requester
  std::uint32_t receive_bytes = 4096;       ///< size of each Receive
  std::uint32_t reply_buffer_bytes = 8192;  ///< reply buffer of each call slot
  std::uint32_t send_depth = 1024;          ///< send queue depth; SendStage::kMaxWrs or more

  std::uint32_t slots() const noexcept { return larger_of(call_slots, kLeastSlots); }
  std::uint32_t receives() const noexcept {
    return pool_size({{"calls of the peer, one for each slot", slots()},
                      {"replies to our calls", requests},
                      {"messages beyond both", kSpareReceives}});
  }
};

/// Bytes transferred over a connection, including directly placed data.
struct Traffic {
  std::uint64_t received = 0;
  std::uint64_t sent = 0;
};

/// The work request whose error has closed a connection; without an error if there was none.
struct WorkFailure {
  rdma::WcStatus status = rdma::WcStatus::Success;
  std::uint32_t vendor_error = 0;
};

/// Interface of the connection that owns the link.
class LinkOwner {
 public:
  /// Called when the link has become Draining.
  virtual void on_link_closed() noexcept = 0;

 protected:
  ~LinkOwner() = default;
};

class alignas(kCacheLine) Link final : private FlushEntry {
 public:
  using State = LinkState;

  /// Called at setup. `receives` holds capacity.receives() buffers.
  Link(LinkContext& context, LinkOwner& owner, std::uint16_t number, const ConnectionCapacity& capacity,
       rdma::MemoryRegion receives);
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  // --- Setup and teardown
  /// Takes over a queue pair in State::Init. `config` is clamped to the capacity. The caller then calls
  /// begin().
  void open(Owned<rdma::QueuePair> qp, const ConnectionConfig& config, const PeerAddress& peer) noexcept;
  /// Sets the initial version. The session is then notified.
  void begin(VersionState version) noexcept;
  void post_first_receives() noexcept;
  /// Called when the queue pair is ReadyToSend.
  void established() noexcept { last_post_ns_ = alive_ns_ = context_.now_ns(); }
  /// Closes the link. Has no effect if it is already closed.
  void close(CloseReason reason) noexcept;
  /// Returns true if a Draining link has no Receives outstanding. The session and the roles check their own
  /// work requests.
  bool drained() const noexcept { return receives_.posted() == 0; }
  /// Destroys the queue pair and changes the state from Draining to Closed.
  void release_queue_pair() noexcept;

  State state() const noexcept { return state_; }
  bool is_open() const noexcept { return state_ == State::Open; }
  CloseReason close_reason() const noexcept { return close_reason_; }
  /// Records the work request whose error closes the connection. Call before close().
  void set_failure(const WorkFailure& failure) noexcept {
    if (is_open()) failure_ = failure;
  }
  const WorkFailure& failure() const noexcept { return failure_; }
  rdma::QueuePair& queue_pair() noexcept { return *qp_; }
  /// Called when a work request has completed successfully, which shows that the peer is alive unless the
  /// request was local.
  void note_alive() noexcept { alive_ns_ = context_.now_ns(); }
  /// Probes a peer that has been idle.
  void probe_if_silent() noexcept;
  void on_probed() noexcept { probing_ = false; }
  bool heard_from_peer() const noexcept { return qp_ != nullptr && qp_->heard_from_peer(); }

  // --- Identity
  std::uint16_t number() const noexcept { return connection; }
  std::uint64_t wr_id(WrKind kind, std::uint16_t index) const noexcept {
    return WrId::encode(wr_id_base_, kind, index);
  }
  /// Returns true if a completion belongs to the current generation of the connection.
  bool owns(WrId id) const noexcept { return id.generation == generation_ && state_ != State::Closed; }
  /// Returns true if a completion belongs to the current generation and the link is open.
  bool serves(WrId id) const noexcept { return id.generation == generation_ && state_ == State::Open; }
  const PeerAddress& peer() const noexcept { return peer_; }
  /// Returns the host name of the peer; it is empty until the peer has authenticated itself.
  const HostName& peer_host() const noexcept { return peer_host_; }
  void set_peer_host(const HostName& host) noexcept { peer_host_ = host; }
  const ConnectionConfig& config() const noexcept { return config_; }
  void set_send_inline_bytes(std::uint32_t bytes) noexcept {
    config_.send_inline_bytes = bytes;
    if (version_ == VersionState::Version1) send_bytes_ = bytes;
  }
  std::uint32_t client_class() const noexcept { return config_.client_class; }
  void set_client_class(std::uint32_t client_class) noexcept;
  /// Returns the counters of the client's class.
  Counters& counters() noexcept { return *counters_; }
  // Counts transferred bytes, both for the connection and in a counter of its class.
  void count_received(std::uint64_t Counters::*counter, std::uint64_t bytes) noexcept {
    counters().*counter += bytes;
    traffic_.received += bytes;
  }
  void count_sent(std::uint64_t Counters::*counter, std::uint64_t bytes) noexcept {
    counters().*counter += bytes;
    traffic_.sent += bytes;
  }
  /// Returns all bytes transferred since open(). RDMA operations count only if this end has posted them.
  const Traffic& traffic() const noexcept { return traffic_; }
  LinkContext& context() noexcept { return context_; }

  // --- Version
  VersionState version_state() const noexcept { return version_; }
  /// Returns the version of RPC-over-RDMA; zero until the client's first message has settled it.
  std::uint32_t version() const noexcept {
    return smaller_of<std::uint32_t>(static_cast<std::uint32_t>(version_), 2);
  }
  /// Returns the shortcut, which begin() determines for version 1 and the intake for version 2.
  Shortcut shortcut() const noexcept { return shortcut_; }
  void set_shortcut(Shortcut shortcut) noexcept { shortcut_ = shortcut; }
  bool speaks_version_2() const noexcept { return is_version_2(version_); }
  /// Returns what the version determines in the general path of calls and replies.
  const VersionRules& rules() const noexcept { return *rules_; }
  bool negotiating() const noexcept { return version_ == VersionState::AwaitingAnswer; }
  /// Changes the version. The session is then notified.
  void transition(VersionState to) noexcept;
  /// Returns the largest Send that the peer accepts now, in bytes. In version 1 it is the inline threshold;
  /// the session sets it in version 2.
  std::uint32_t send_bytes() const noexcept { return send_bytes_; }
  void set_send_bytes(std::uint32_t bytes) noexcept { send_bytes_ = bytes; }

  // --- Receives
  std::span<std::byte> receive_buffer(std::uint16_t index) noexcept { return receives_.buffer(index); }
  void on_receive_completed() noexcept { receives_.on_completed(); }
  /// Returns the number of posted Receives once `freed` more, zero or one, have been posted again.
  std::uint32_t receives_after(std::uint32_t freed) const noexcept {
    return receives_.posted() + receives_.returning(freed);
  }
  /// Limits the Receives in use; Receives::kNoBound: no limit.
  void bound_receives(std::uint32_t most) noexcept { receives_.bound(most); }
  /// Posts a Receive buffer again, before all requests that are staged later (V1-052).
  void repost(std::uint16_t buffer) noexcept;
  /// Inline variant of repost() for the message path.
  [[gnu::always_inline]] void repost_now(std::uint16_t buffer) noexcept {
    SLUICE_INVARIANT_DEBUG(buffer < capacity_.receives(), table_index);
    if (receives_.keep_surplus(buffer)) return;
    const Transmit& transmit = context_.transmit;
    if (transmit.receives_for != this || transmit.receives.count == ReceiveStage::kMaxWrs) [[unlikely]]
      take_receives();
    receives_.stage(buffer, wr_id(WrKind::Receive, buffer), context_.transmit.receives);
  }
  /// Releases everything that an unhandled message holds: its Receive and the memory of its assembled
  /// payload.
  void discard(const ReceivedMessage& message) noexcept;
  /// Posts spare Receives, as far as the limit allows.
  void repost_spares() noexcept;

  // --- Sending
  /// Returns the reactor's stage, holding only requests of this link. The link is processed at the end of the
  /// iteration.
  [[gnu::always_inline]] SendStage& stage() noexcept {
    if (context_.transmit.staged_for != this) [[unlikely]]
      take_stage();
    return context_.transmit.stage;
  }
  /// Returns true if the send queue has room for everything that is staged and `further` work requests.
  bool stage_fits(std::size_t further = 0) noexcept {
    const std::size_t needed = context_.transmit.stage.size() + further;
    SLUICE_INVARIANT_DEBUG(context_.transmit.staged_for == this || context_.transmit.stage.empty(),
                           connection_state);
    if (needed > send_room_) send_room_ = static_cast<std::uint32_t>(qp_->send_room());
    return needed <= send_room_ && needed <= SendStage::kMaxWrs;
  }
  /// Returns true if `work_requests` more requests can be staged. Hands the stage to the driver if that makes
  /// room.
  bool has_room(std::size_t work_requests) noexcept {
    static_cast<void>(stage());
    if (stage_fits(work_requests)) return true;
    flush_stage();
    return stage_fits(work_requests);
  }
  void forget_send_room() noexcept { send_room_ = 0; }
  /// Returns true if a work request of one piece can be staged. The stage then belongs to the link.
  [[gnu::always_inline]] bool has_room_for_one() noexcept {
    SendStage& staged = stage();
    const std::size_t needed = staged.size() + 1;
    if (needed <= send_room_ && needed <= SendStage::kMaxWrs && staged.mark().sges() < SendStage::kMaxSges)
        [[likely]]
      return true;
    return make_room_for_one();
  }
  /// Adds a Send of one piece. Requires has_room_for_one(). Returns the result of SendStage::add_send().
  [[gnu::always_inline]] std::uint16_t stage_one(WrKind kind, std::uint16_t index, rdma::Sge piece) noexcept {
    SLUICE_INVARIANT_DEBUG(context_.transmit.staged_for == this, connection_state);
    return context_.transmit.stage.add_send(wr_id(kind, index), piece);
  }
  /// Appends the next `bytes` of the payload after `from` to the last work request, or all of them. Returns
  /// false if it has no room for the pieces.
  bool append_payload(std::span<const rdma::Sge> payload, std::uint64_t from,
                      std::uint64_t bytes = ~std::uint64_t{0}) noexcept;
  /// Hands the stage to the driver to make room in it.
  void flush_stage() noexcept;
  /// Schedules the link for processing at the end of the loop iteration.
  [[gnu::always_inline]] void touch() noexcept {
    FlushEntry& entry = *this;
    if (!entry.link.linked()) context_.transmit.iteration_end.push_back(entry);
  }
  /// Schedules a retry of waiting senders at the end of the loop iteration.
  void retry_at_turn_end() noexcept {
    retry_ = Retry::AtTurnEnd;
    touch();
  }
  /// Schedules a retry of senders that found no room in the send queue. The retry runs after a work request
  /// of this link has completed.
  void wait_for_send_room() noexcept;
  /// Schedules a retry of waiting senders after the next notify_waiting_senders().
  void wait_for_notice() noexcept {
    if (retry_ == Retry::None) retry_ = Retry::OnNotice;
  }
  /// Called when a condition that senders wait for has changed: a credit, room, a control buffer, or the end
  /// of a continued message.
  void notify_waiting_senders() noexcept {
    if (retry_ == Retry::OnNotice) retry_at_turn_end();
  }
  bool retry_due() const noexcept { return retry_ == Retry::AtTurnEnd; }
  void begin_retry() noexcept { retry_ = Retry::None; }
  /// Schedules the link for the next iteration as well. Called before flush().
  void flush_again() noexcept { flush_again_ = true; }
  /// Runs at the end of an iteration: hands the staged requests to the driver.
  void flush() noexcept;
  /// Returns when requests were last handed to the driver.
  std::uint64_t last_post_ns() const noexcept { return last_post_ns_; }

 private:
  static constexpr std::uint32_t kVersion1 = 1;

  void transition(State to) noexcept;
  void take_stage() noexcept;
  /// Posts what is staged for this link, so that another link can use the stage.
  void give_up_stage() noexcept {
    if (context_.transmit.staged_for != this) return;
    flush_stage();
    context_.transmit.staged_for = nullptr;
  }
  void take_receives() noexcept;
  bool make_room_for_one() noexcept;
  void flush_receives() noexcept {
    if (context_.transmit.receives_for == this) post_receives();
  }
  void post_receives() noexcept;

  // Members that every message uses come first, so that a connection that was idle loads few cache lines.
  LinkContext& context_;
  Counters* counters_;
  std::uint64_t wr_id_base_ = 0;
  std::uint16_t generation_ = 0;  ///< completions of an earlier generation are dropped
  State state_ = State::Closed;
  VersionState version_ = VersionState::Version1;
  Retry retry_ = Retry::None;
  Shortcut shortcut_ = Shortcut::None;
  bool flush_again_ = false;    ///< processed at the end of the next iteration as well
  std::uint64_t alive_ns_ = 0;  ///< when the peer was last known to be alive
  Traffic traffic_;
  std::uint32_t send_room_ = 0;   ///< lower bound; queried again when it is not sufficient
  std::uint32_t send_bytes_ = 0;  ///< largest Send that the peer accepts
  Owned<rdma::QueuePair> qp_;
  Receives receives_;
  ConnectionConfig config_;
  // Members that messages use in the general path, and the end of an iteration.
  alignas(kCacheLine) std::uint64_t last_post_ns_ = 0;
  const VersionRules* rules_;
  const ConnectionCapacity capacity_;
  PeerAddress peer_;
  HostName peer_host_;
  LinkOwner& owner_;
  CloseReason close_reason_ = CloseReason::None;
  WorkFailure failure_;
  bool probing_ = false;  ///< a probe is outstanding
};

}  // namespace sluice::rpcrdma
