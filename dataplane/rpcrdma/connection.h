// SPDX-License-Identifier: Apache-2.0
//
// One RPC-over-RDMA connection: its Receives, the classification of what arrives, and the two roles. One
// reactor.
//
// A Receive buffer belongs to the queue pair while posted, then to the slot or request its message went to,
// and is posted again before the answer to that message is sent (V1-052). Nothing here allocates after
// construction.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "dataplane/base/fixed_ring.h"
#include "dataplane/rpcrdma/link/config.h"
#include "dataplane/rpcrdma/link/wr_id.h"
#include "dataplane/rpcrdma/responder/responder.h"
#include "dataplane/rpcrdma/shared.h"
#include "dataplane/rpcrdma/v2/agreement.h"
#include "dataplane/rpcrdma/v2/flow_control.h"
#include "dataplane/rpcrdma/v2/inbound_sequence.h"
#include "dataplane/rpcrdma/wire/v1.h"

namespace sluice::rpcrdma {

class Requester;

/// What one connection object can carry at most; set once for all connections of a reactor.
struct ConnectionCapacity {
  std::uint32_t call_slots = 64;
  std::uint32_t requests = 0;               ///< most credits we ask for as requester
  std::uint32_t receive_bytes = 4096;       ///< of each Receive
  std::uint32_t reply_buffer_bytes = 8192;  ///< of each call slot
  std::uint32_t send_depth = 1024;          ///< of the queue pairs; SendStage::kMaxWrs or more

  std::uint32_t slots() const noexcept { return std::max(call_slots, kLeastSlots); }
  std::uint32_t receives() const noexcept { return slots() + requests + kSpareReceives; }
};

/// Version 2: buffers of messages that no slot or request stands behind.
inline constexpr std::size_t kControlBuffers = 32;
inline constexpr std::size_t kControlBytes = 128;

/// Registered memory of one connection.
struct ConnectionMemory {
  rdma::MemoryRegion receives;  ///< capacity.receives() buffers of receive_bytes
  rdma::MemoryRegion replies;   ///< capacity.slots() buffers of reply_buffer_bytes
  rdma::MemoryRegion control;   ///< kControlBuffers of kControlBytes
};

enum class CloseReason : std::uint8_t {
  None,
  PeerClosed,         ///< connection management said so
  LocalClose,         ///< asked for by the control plane or the application
  TransportError,     ///< a work completion with an error
  RemoteAccess,       ///< the peer's memory refused an RDMA Read or Write
  InvalidationError,  ///< memory could not be fenced (RFC 8166, section 4.5.4; V1-143)
  CreditOverrun,      ///< version 2: the peer sent more than it was granted (V2-043)
  NoAnswer,           ///< version 2: the first message was never answered (V2-015)
  SequenceTimeout,    ///< version 2: a continued message that did not go on (V2-095)
  NotAuthenticated,   ///< version 2: the peer did not show who it is (V2-062)
  NoCommonVersion,    ///< version 2: the server speaks none of our versions (V2-014)
};

/// As it stands behind "because".
const char* to_string(CloseReason reason) noexcept;

/// The connection has not come to its end by itself: an error that is counted.
constexpr bool is_failure(CloseReason reason) noexcept {
  return reason != CloseReason::None && reason != CloseReason::PeerClosed &&
         reason != CloseReason::LocalClose;
}

/// Judges a set of properties that can be decoded; `first` is set for the one set that fixes properties 1 to
/// 5 (D2-24). False: there is no room for it now, ask again.
using PropertySink = bool (*)(void* context, Connection& connection, std::span<const std::byte> body,
                              bool first) noexcept;

class Connection final : public service::Client {
 public:
  enum class State : std::uint8_t {
    Closed,    ///< no queue pair
    Open,      ///< Receives posted; serving
    Draining,  ///< ended: waits until everything posted has been flushed
  };

  Connection(Shared& shared, std::uint16_t number, const ConnectionCapacity& capacity,
             const ConnectionMemory& memory);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  std::uint16_t number() const noexcept override { return number_; }
  State state() const noexcept { return state_; }
  bool is_open() const noexcept { return state_ == State::Open; }
  CloseReason close_reason() const noexcept { return close_reason_; }
  const ConnectionConfig& config() const noexcept { return config_; }
  /// Of the client's class.
  Counters& counters() noexcept { return *counters_; }
  std::uint32_t client_class() const noexcept { return config_.client_class; }
  void set_client_class(std::uint32_t client_class) noexcept {
    config_.client_class = std::min(client_class, segment::kMaxClasses - 1);
    counters_ = &shared_.counters[config_.client_class];
    shared_.classes_seen = std::max(shared_.classes_seen, config_.client_class + 1);
  }
  const PeerAddress& peer() const noexcept { return peer_; }
  Responder& responder() noexcept { return responder_; }
  Requester* requester() noexcept { return requester_; }
  rdma::QueuePair& queue_pair() noexcept { return *qp_; }

  /// Takes over a queue pair in State::Init and posts all Receives on it, so that the first call never meets
  /// an empty queue (V1-047). `config` is clamped to the capacity. The requester, if any, is attached until
  /// the connection is closed, and has to live that long.
  void open(std::unique_ptr<rdma::QueuePair> qp, const ConnectionConfig& config, const PeerAddress& peer,
            Requester* requester) noexcept;
  /// Between open() and established(), on the side that connects: the peer's answer says what it receives.
  /// Holds for version 1 only (D2-06).
  void set_send_inline_bytes(std::uint32_t bytes) noexcept { config_.send_inline_bytes = bytes; }
  /// The queue pair is ReadyToSend.
  void established() noexcept;
  /// Ends the connection; harmless if it has ended.
  void close(CloseReason reason) noexcept;

  /// Of RPC-over-RDMA; zero until the client's first message has settled it.
  std::uint32_t version() const noexcept { return version_; }
  /// What this end serves. Version 1 has no way to show who a host is.
  rpc::VersionRange supported_versions() const noexcept {
    return {config_.max_version >= v2::kVersion && config_.version2.hold_calls ? v2::kVersion : v1::kVersion,
            config_.max_version};
  }
  bool speaks_version_2() const noexcept { return version_ == v2::kVersion; }
  /// Version 2, active side: the server has not confirmed the version yet.
  bool negotiating() const noexcept { return negotiation_ == v2::Negotiation::Open; }
  const v2::FlowControl& flow_control() const noexcept { return flow_; }
  const v2::Agreement& agreement() const noexcept { return agreement_; }
  /// What the peer has told, or the defaults.
  const v2::Parameters& peer_parameters() const noexcept { return peer_parameters_; }
  bool heard_properties() const noexcept { return properties_told_; }
  /// What we have told the peer, or its defaults.
  v2::Parameters own_parameters() const noexcept;
  /// Largest Send that the peer takes now.
  std::uint32_t send_bytes() const noexcept {
    return speaks_version_2() ? agreement_.send_bytes : config_.send_inline_bytes;
  }
  /// Calls that the peer may have outstanding: takes effect with the next message, calls in flight stay valid
  /// (V1-048, V2-037). Clamped to what there is room for.
  void set_credits(std::uint32_t credits) noexcept;
  void limit_credits(std::uint32_t limit) noexcept override;
  /// Needs ConnectionConfig::credits_requested, and a requester of Shared::callers, which stays with the
  /// connection until that ends.
  bool call_back(std::span<const std::byte> call, CallBackDone done, void* context) noexcept override;

  // Version 2: properties. Without a sink they are applied here, by v2::agree().
  void set_property_sink(PropertySink sink, void* context) noexcept {
    property_sink_ = sink;
    property_context_ = context;
  }
  void apply(const v2::Agreement& agreement) noexcept;
  /// Sends host authentication, in as many parts as it takes. False when the set before is still on its way.
  bool send_host_authentication(std::span<const std::byte> octets) noexcept;
  /// Ends Version2Config::hold_calls.
  void admit() noexcept;
  bool holds_calls() const noexcept { return held_; }
  /// Timers; about once in a millisecond.
  void tick() noexcept;
  /// There may be assembly memory again for what waits for it.
  void resume_deferred() noexcept;
  /// True once, when a draining connection has nothing out any more; it is Closed then and may be opened
  /// again.
  bool reap() noexcept;

  // For the engine, which keeps the list of draining connections.
  bool take_draining() noexcept { return state_ == State::Draining && !std::exchange(drain_listed_, true); }
  bool close_unreported() const noexcept { return drain_listed_; }
  void close_reported() noexcept { drain_listed_ = false; }

  void on_completion(const rdma::WorkCompletion& wc) noexcept;
  /// End of a turn: hands what was staged to the driver, then lets waiting slots use the room.
  void flush() noexcept;
  bool has_waiting() const noexcept { return waiting_; }
  void retry_waiting() noexcept;

  // For the two roles.
  std::uint64_t wr_id(WrKind kind, std::uint16_t index) const noexcept {
    return WrId{kind, generation_, number_, index}.encode();
  }
  std::span<std::byte> receive_buffer(std::uint16_t index) noexcept {
    return receive_region_.bytes.subspan(std::size_t{index} * capacity_.receive_bytes,
                                         capacity_.receive_bytes);
  }
  bool heard_from_peer() const noexcept { return qp_ != nullptr && qp_->heard_from_peer(); }
  /// Posts a Receive buffer again, before anything that is staged later (V1-052).
  void repost(std::uint16_t buffer) noexcept;
  /// The reactor's stage, holding only requests of this connection.
  SendStage& stage() noexcept;
  /// Whether the send queue has room for all that is staged and `further` work requests.
  bool stage_fits(std::size_t further = 0) noexcept;
  void forget_send_room() noexcept { send_room_ = 0; }
  /// Hands the stage to the driver to make room in it.
  void flush_stage() noexcept;
  void note_waiting() noexcept {
    waiting_ = true;
    touch();
  }
  // Sending in version 2, for the two roles.
  struct Speaker {
    enum class Kind : std::uint8_t { None, Reply, Call, Properties };
    Kind kind = Kind::None;
    std::uint16_t index = 0;
    bool operator==(const Speaker&) const = default;
  };
  /// Whether a message may go out now: a credit is there, and nobody else is in the middle of a continued
  /// message. If not, the speaker's role is asked again (retry_waiting()) when that has changed.
  bool may_speak(Speaker who) noexcept;
  /// The credit word of the next message; `freed` Receives will be posted in front of it.
  v2::CreditWord offer(std::uint32_t freed = 0) const noexcept {
    return flow_.offer(posted_receives_ + staged_receives_ + freed);
  }
  void count_send(v2::CreditWord word) noexcept {
    flow_.on_send(word);
    last_send_ns_ = shared_.now_ns;
  }
  void count_error_send() noexcept { flow_.on_send_error(); }

  /// A message that is longer than a Send (V2-084).
  struct Continued {
    Speaker speaker;
    rpc::Xid xid{};
    v2::HeaderType type = v2::HeaderType::Msg;
    bool response = false;
    std::span<const rdma::Sge> payload;
    std::uint64_t payload_bytes = 0;
    std::size_t last_header_bytes = 0;  ///< of the part with the chunks
  };
  /// Stages parts behind the first `sent` bytes until what is left fits the last part, which is the speaker's
  /// to stage; then it calls end_sequence(). False: it has to wait, and is asked again.
  bool stage_parts(const Continued& message, std::uint64_t& sent, std::uint32_t& posted) noexcept;
  /// Adds what is left behind `from` to the last work request.
  bool append_payload(std::span<const rdma::Sge> payload, std::uint64_t from) noexcept;
  void end_sequence() noexcept {
    speaker_ = {};
    wake_speakers();
  }
  /// What may_speak() depends on has changed.
  void wake_speakers() noexcept {
    if (tx_waiting_) note_waiting();
  }

  /// What has to be said before anything else.
  enum class Opening : std::uint8_t { None, Properties, Call };
  Opening opening() const noexcept { return opening_; }
  /// The first call is not suited as greeting: properties are.
  void greet_with_properties() noexcept {
    opening_ = Opening::Properties;
    send_greeting();
  }
  /// A call has gone out as greeting.
  void greeted() noexcept;

 private:
  /// The engine looks at this connection at the end of the turn.
  void touch() noexcept;
  void classify(std::uint16_t buffer, std::uint32_t bytes) noexcept;
  void classify_msg(const ReceivedMessage& message) noexcept;
  void to_responder(const ReceivedMessage& message, const Refusal& refusal) noexcept;
  void to_requester(const ReceivedMessage& message) noexcept;
  void unknown_direction(const ReceivedMessage& message, const Refusal& refusal) noexcept;
  // Version 2 (connection_v2.cc).
  void open_version_2() noexcept;
  void close_version_2() noexcept;
  /// Whether a message is to be judged by the rules of version 2; the first message settles that.
  bool is_version_2(std::uint16_t buffer, std::uint32_t bytes) noexcept;
  void fix_version(std::uint32_t version) noexcept;
  void fall_back(rpc::VersionRange supported) noexcept;

  /// A completed Receive of version 2.
  struct Arrived {
    std::uint16_t buffer = 0;
    std::uint32_t bytes = 0;
    rdma::Rkey invalidated{};
  };
  void arrive(const Arrived& arrived) noexcept;
  /// False: it has to wait for memory or for the control plane, and nothing has happened yet.
  bool take(const Arrived& arrived, const v2::DecodeResult& decoded) noexcept;
  bool take_part(const Arrived& arrived, const v2::Header& header, v2::InboundSequence::Step step) noexcept;
  void take_message(const Arrived& arrived, const v2::Header& header, bool assembled) noexcept;
  void take_error(const v2::Header& header) noexcept;
  bool take_properties(std::span<const std::byte> body, const v2::Header& header, Refusal& refusal) noexcept;
  /// Ends what the message is about: an ERROR to its sender, or the end of our own RPC (D2-07). The message's
  /// Receive is used up.
  void fault(const Arrived& arrived, rpc::Xid xid, bool response, const v2::Error& error) noexcept;
  void fault(const Arrived& arrived, const v2::Header& header, const v2::Error& error) noexcept {
    fault(arrived, header.fixed.xid, header.response(), error);
  }
  void break_sequence(const Arrived& arrived, const v2::Header& header, const v2::Error& error) noexcept;
  void drop_assembly() noexcept;
  void defer(const Arrived& arrived) noexcept;
  void send_grant() noexcept;
  void send_greeting() noexcept;
  void send_properties() noexcept;
  void on_control_sent(std::uint16_t index) noexcept;
  /// A control buffer and the start of its Send; room in the send queue is there.
  std::optional<std::uint16_t> begin_control(Speaker speaker) noexcept;
  std::span<std::byte> control_buffer(std::uint16_t index) noexcept {
    return control_region_.bytes.subspan(std::size_t{index} * kControlBytes, kControlBytes);
  }
  void on_failed_completion(const rdma::WorkCompletion& wc, WrId id) noexcept;
  void flush_receives() noexcept;

  static constexpr std::size_t kReceiveBatch = 64;

  Shared& shared_;
  Counters* counters_ = &shared_.counters[0];
  const ConnectionCapacity capacity_;
  const std::uint16_t number_;
  std::uint16_t generation_ = 0;
  State state_ = State::Closed;
  CloseReason close_reason_ = CloseReason::None;
  bool waiting_ = false;
  bool drain_listed_ = false;
  bool touched_ = false;     ///< in Shared::touched
  bool tx_waiting_ = false;  ///< somebody waits for a credit, a control buffer or the end of a sequence
  Opening opening_ = Opening::None;
  Speaker speaker_;  ///< in the middle of a continued message
  std::uint32_t version_ = 0;
  v2::FlowControl flow_;
  v2::Agreement agreement_;
  ConnectionConfig config_;
  PeerAddress peer_;
  std::unique_ptr<rdma::QueuePair> qp_;
  rdma::MemoryRegion receive_region_;
  std::size_t send_room_ = 0;  ///< at least this much; asked again when it does not do
  std::uint32_t posted_receives_ = 0;
  std::uint32_t staged_receives_ = 0;
  std::array<rdma::RecvWr, kReceiveBatch> receive_batch_;
  Responder responder_;
  Requester* requester_ = nullptr;
  bool requester_borrowed_ = false;                 ///< from Shared::callers
  std::uint32_t credits_ = 0;                       ///< as set
  std::uint32_t credit_limit_ = ~std::uint32_t{0};  ///< by a service

  // Version 2.
  v2::Negotiation negotiation_ = v2::Negotiation::Fixed;
  v2::Parameters peer_parameters_;
  v2::InboundSequence sequence_;
  std::byte* assembly_ = nullptr;  ///< parts of the sequence in progress
  std::uint32_t assembled_bytes_ = 0;
  std::uint64_t last_part_ns_ = 0;
  std::uint64_t last_send_ns_ = 0;
  std::uint64_t asked_ns_ = 0;                 ///< when the first message was seen to wait for its answer
  FixedRing<Arrived> deferred_;                ///< what take() could not take, and all that came after it
  std::vector<std::uint16_t> spare_receives_;  ///< not posted, since the window is smaller
  std::size_t spare_receive_count_ = 0;

  bool awaits_assembly_ = false;  ///< in Shared::awaiting_assembly
  bool held_ = false;
  bool properties_told_ = false;       ///< the peer's first set has come
  bool undelivered_ = false;           ///< joined properties in assembly_ that the sink has no room for
  rdma::MemoryRegion control_region_;  ///< buffers for grants, properties and headers of parts
  std::array<Speaker, kControlBuffers> control_speakers_;
  std::array<std::uint16_t, kControlBuffers> free_controls_;
  std::size_t free_control_count_ = kControlBuffers;
  std::uint32_t own_xid_ = 0;  ///< of properties

  std::byte* outgoing_ = nullptr;  ///< host authentication on its way, in Shared::assembly_memory
  std::uint32_t outgoing_bytes_ = 0;
  std::uint64_t outgoing_sent_ = 0;
  std::uint32_t outgoing_posted_ = 0;

  PropertySink property_sink_ = nullptr;
  void* property_context_ = nullptr;
};

}  // namespace sluice::rpcrdma
