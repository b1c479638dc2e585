// SPDX-License-Identifier: Apache-2.0
//
// One RPC-over-RDMA connection: a link, its session of version 2 and its two roles. The class opens and
// closes them together and dispatches work completions to their owners and received messages to the intake
// of the connection's version. Confined to one reactor. Nothing here allocates after construction.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "dataplane/base/cache_line.h"
#include "dataplane/base/intrusive_lists.h"
#include "dataplane/base/invariant.h"
#include "dataplane/base/owned.h"
#include "dataplane/rpcrdma/intake.h"
#include "dataplane/rpcrdma/link/link.h"
#include "dataplane/rpcrdma/requester/requester.h"
#include "dataplane/rpcrdma/v2/session.h"

namespace sluice::rpcrdma {

/// Pool of requesters for calls in the reverse direction, assigned to connections on demand. Owned by the
/// engine; confined to one reactor.
class ReverseCallers {
 public:
  /// Adds a requester at setup.
  void add(Owned<Requester> requester) {
    free_.push_back(requester.get());
    all_.push_back(std::move(requester));
  }
  /// Returns a free requester, or null if all are assigned.
  Requester* acquire() noexcept {
    if (free_.empty()) return nullptr;
    Requester* const requester = free_.back();
    free_.pop_back();
    return requester;
  }
  void release(Requester& requester) noexcept { free_.push_back(&requester); }
  bool all_free() const noexcept { return free_.size() == all_.size(); }

 private:
  std::vector<Owned<Requester>> all_;
  std::vector<Requester*> free_;  ///< never reallocates: add() has made room for all of them
};

class Connection;

/// Receives each set of properties that can be decoded. `first` is true for the only set that determines
/// properties 1 to 5 (D2-24). Returns false if the sink has no room; the caller retries.
using PropertySink = bool (*)(void* context, Connection& connection, std::span<const std::byte> body,
                              bool first) noexcept;

/// Registered memory of one connection.
struct ConnectionMemory {
  rdma::MemoryRegion receives;  ///< capacity.receives() buffers of receive_bytes, buffer_stride() apart
  rdma::MemoryRegion replies;   ///< capacity.slots() buffers of reply_buffer_bytes, buffer_stride() apart
  rdma::MemoryRegion control;   ///< v2::kControlBuffers buffers of v2::kControlBytes
};

class alignas(kCacheLine) Connection final : public service::Client, private v2::SessionOwner {
 public:
  using State = LinkState;

  /// Called at setup.
  Connection(LinkContext& links, ResponderContext& responders, ReverseCallers& callers, std::uint16_t number,
             const ConnectionCapacity& capacity, const ConnectionMemory& memory);
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // --- Setup and teardown
  /// Takes over a queue pair in State::Init and posts all Receives on it, so that the first call never finds
  /// an empty receive queue (V1-047). `config` is clamped to the capacity. The requester, if any, stays
  /// attached until the connection is closed and must outlive it.
  void open(Owned<rdma::QueuePair> qp, const ConnectionConfig& config, const PeerAddress& peer,
            Requester* requester) noexcept;
  /// Sets the inline threshold for sending on the active side, between open() and established(), from the
  /// peer's answer. Applies to version 1 only (D2-06).
  void set_send_inline_bytes(std::uint32_t bytes) noexcept { link_.set_send_inline_bytes(bytes); }
  /// Called when the queue pair is ReadyToSend.
  void established() noexcept;
  /// Closes the connection. Has no effect if it is already closed.
  void close(CloseReason reason) noexcept { link_.close(reason); }

  std::uint16_t number() const noexcept override { return link_.number(); }
  State state() const noexcept { return link_.state(); }
  bool is_open() const noexcept { return link_.is_open(); }
  CloseReason close_reason() const noexcept { return link_.close_reason(); }
  const WorkFailure& failure() const noexcept { return link_.failure(); }
  const ConnectionConfig& config() const noexcept { return link_.config(); }
  /// Returns the counters of the client's class.
  Counters& counters() noexcept { return link_.counters(); }
  std::uint32_t client_class() const noexcept { return link_.client_class(); }
  void set_client_class(std::uint32_t client_class) noexcept { link_.set_client_class(client_class); }
  const PeerAddress& peer() const noexcept { return link_.peer(); }
  /// Returns the host name of the peer; it is empty until admit().
  const HostName& peer_host() const noexcept { return link_.peer_host(); }
  Responder& responder() noexcept { return responder_; }
  Requester* requester() noexcept { return roles_.requester(); }
  rdma::QueuePair& queue_pair() noexcept { return link_.queue_pair(); }
  bool heard_from_peer() const noexcept { return link_.heard_from_peer(); }
  const Traffic& traffic() const noexcept { return link_.traffic(); }
  /// Returns the bytes of shared memory that the connection holds.
  std::uint64_t shared_bytes() const noexcept { return session_.shared_bytes() + responder_.shared_bytes(); }

  // --- Version, credits and properties
  /// Returns the version of RPC-over-RDMA; zero until the client's first message has settled it.
  std::uint32_t version() const noexcept { return link_.version(); }
  bool speaks_version_2() const noexcept { return link_.speaks_version_2(); }
  /// Returns true on the active side in version 2 until the server has confirmed the version.
  bool negotiating() const noexcept { return link_.negotiating(); }
  const v2::FlowControl& flow_control() const noexcept { return session_.flow(); }
  const v2::Agreement& agreement() const noexcept { return session_.agreement(); }
  /// Returns the properties that the peer has announced, or the defaults.
  const v2::Parameters& peer_parameters() const noexcept { return session_.peer_parameters(); }
  bool heard_properties() const noexcept { return session_.heard_properties(); }
  /// Returns the properties that this end has announced, or the defaults.
  v2::Parameters own_parameters() const noexcept { return session_.own_parameters(); }
  /// Returns the largest Send that the peer accepts now, in bytes.
  std::uint32_t send_bytes() const noexcept { return link_.send_bytes(); }
  /// Sets the number of calls that the peer may have outstanding, clamped to the connection's capacity. The
  /// change takes effect with the next message, and calls in flight stay valid (V1-048, V2-037).
  void set_credits(std::uint32_t credits) noexcept;
  void limit_credits(std::uint32_t limit) noexcept override;
  void disconnect() noexcept override { close(CloseReason::Unanswerable); }
  /// Requires ConnectionConfig::credits_requested and a free requester in the engine's ReverseCallers. The
  /// requester stays with the connection until the connection is closed.
  bool call_back(std::span<const std::byte> call, CallBackDone done, void* context) noexcept override;
  /// Sets the property sink of version 2. The peer's first properties are applied by v2::agree() once the
  /// sink has accepted them.
  void set_property_sink(PropertySink sink, void* context) noexcept {
    property_sink_ = sink;
    property_context_ = context;
  }
  void apply(const v2::Agreement& agreement) noexcept { session_.apply(agreement); }
  /// Sends host authentication, in as many parts as necessary. Returns false if the previous one is still
  /// being sent.
  bool send_host_authentication(std::span<const std::byte> octets) noexcept {
    return session_.send_host_authentication(octets);
  }
  /// Called when the peer has authenticated itself as `host`: gives its calls that name and ends
  /// Version2Config::hold_calls.
  void admit(const HostName& host) noexcept;
  bool holds_calls() const noexcept { return responder_.holds_calls(); }

  // --- Called by the engine
  [[gnu::always_inline]] void on_completion(const rdma::WorkCompletion& wc) noexcept {
    const WrId id = WrId::decode(wc.wr_id);
    SLUICE_INVARIANT_DEBUG(id.connection == link_.number(), table_index);
    if (!link_.serves(id) || wc.status != rdma::WcStatus::Success) [[unlikely]]
      return on_other_completion(wc);
    link_.note_alive();
    if (id.kind == WrKind::Receive) [[likely]]
      return on_received(id.index, wc);
    link_.notify_waiting_senders();  // its completion freed room
    if (id.kind == WrKind::ReplySent) return responder_.on_reply_sent(id.index);
    on_sent(wc);
  }
  /// Runs the timers, about once per millisecond.
  void tick() noexcept;
  /// Runs at the end of a loop iteration: retries senders that found no credit or room, then hands the staged
  /// work requests to the driver.
  void end_turn() noexcept;
  /// Returns true once, when a draining connection has no outstanding work requests left. The connection is
  /// then Closed and may be opened again.
  bool reap() noexcept { return state() == State::Draining && reap_drained(); }
  /// Returns true if the first part of a continued message waits for assembly memory.
  bool waits_for_assembly() const noexcept { return intake_v2_.waits_for_memory(); }

 private:
  bool reap_drained() noexcept;
  void on_link_closed() noexcept override;
  bool no_calls_in_progress() const noexcept override {
    return responder_.idle() && (roles_.requester() == nullptr || roles_.requester()->awaited_replies() == 0);
  }
  bool on_properties(std::span<const std::byte> body, bool first) noexcept override {
    return property_sink_ == nullptr || property_sink_(property_context_, *this, body, first);
  }
  void on_received(std::uint16_t buffer, const rdma::WorkCompletion& wc) noexcept;
  void on_other_received(std::uint16_t buffer, const rdma::WorkCompletion& wc) noexcept;
  template <std::uint32_t kVersion>
  bool take_plain_reply(std::uint16_t buffer, std::span<const std::byte> message) noexcept;
  bool take_plain_version_1(std::uint16_t buffer, std::span<const std::byte> message) noexcept;
  bool take_plain_version_2(std::uint16_t buffer, std::span<const std::byte> message) noexcept;
  void on_other_completion(const rdma::WorkCompletion& wc) noexcept;
  void on_sent(const rdma::WorkCompletion& wc) noexcept;
  void on_failed_completion(const rdma::WorkCompletion& wc, WrId id) noexcept;
  void on_control_sent(std::uint16_t index) noexcept;
  void close_stranger() noexcept;

  // Members that every message uses come first, here and inside the large members.
  Roles roles_;
  IntakeV1 intake_v1_;
  Link link_;
  v2::Session session_;
  Responder responder_;
  IntakeV2 intake_v2_;
  VersionChoice version_;
  PropertySink property_sink_ = nullptr;
  void* property_context_ = nullptr;
  ReverseCallers& callers_;
  std::uint64_t opened_ns_ = 0;                     ///< time of open(), later of established()
  bool requester_borrowed_ = false;                 ///< the requester is returned to callers_ at the end
  std::uint32_t credits_ = 0;                       ///< set by the credit policy
  std::uint32_t credit_limit_ = ~std::uint32_t{0};  ///< set by a service

 public:
  /// Link in the engine's queue of free or closed connections. It comes last because no message uses it.
  QueueLink<Connection> engine_link;
};

using ConnectionQueue = IntrusiveQueue<Connection, &Connection::engine_link>;

}  // namespace sluice::rpcrdma
