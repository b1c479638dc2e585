// SPDX-License-Identifier: Apache-2.0
//
// One RPC-over-RDMA connection: its Receives, the classification of what arrives, and the two roles. One
// reactor.
//
// A Receive buffer belongs to the queue pair while posted, then to the slot or request its message went to,
// and is posted again before the answer to that message is sent (V1-052). Nothing here allocates after
// construction.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "dataplane/rpcrdma/config.h"
#include "dataplane/rpcrdma/responder.h"
#include "dataplane/rpcrdma/shared.h"
#include "dataplane/rpcrdma/wr_id.h"

namespace sluice::rpcrdma {

class Requester;

/// What one connection object can carry at most; set once for all connections of a reactor.
struct ConnectionCapacity {
  std::uint32_t call_slots = 64;
  std::uint32_t requests = 0;               ///< most credits we ask for as requester
  std::uint32_t receive_bytes = 4096;       ///< of each Receive
  std::uint32_t reply_buffer_bytes = 8192;  ///< of each call slot
  std::uint32_t send_depth = 1024;          ///< of the queue pairs; SendStage::kMaxWrs or more

  std::uint32_t receives() const noexcept { return call_slots + requests + kSpareReceives; }
};

enum class CloseReason : std::uint8_t {
  None,
  PeerClosed,         ///< connection management said so
  LocalClose,         ///< asked for by the control plane or the application
  TransportError,     ///< a work completion with an error
  RemoteAccess,       ///< the peer's memory refused an RDMA Read or Write
  InvalidationError,  ///< memory could not be fenced (RFC 8166, section 4.5.4; V1-143)
};

class Connection {
 public:
  enum class State : std::uint8_t {
    Closed,    ///< no queue pair
    Open,      ///< Receives posted; serving
    Draining,  ///< ended: waits until everything posted has been flushed
  };

  Connection(Shared& shared, rdma::Device& device, std::uint16_t number, const ConnectionCapacity& capacity);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  std::uint16_t number() const noexcept { return number_; }
  State state() const noexcept { return state_; }
  bool is_open() const noexcept { return state_ == State::Open; }
  CloseReason close_reason() const noexcept { return close_reason_; }
  const ConnectionConfig& config() const noexcept { return config_; }
  const rdma::PeerAddress& peer() const noexcept { return peer_; }
  Responder& responder() noexcept { return responder_; }
  Requester* requester() noexcept { return requester_; }
  rdma::QueuePair& queue_pair() noexcept { return *qp_; }

  /// Takes over a queue pair in State::Init and posts all Receives on it, so that the first call never meets
  /// an empty queue (V1-047). `config` is clamped to the capacity. The requester, if any, is attached until
  /// the connection is closed, and has to live that long.
  void open(std::unique_ptr<rdma::QueuePair> qp, const ConnectionConfig& config,
            const rdma::PeerAddress& peer, Requester* requester) noexcept;
  /// Between open() and established(), on the side that connects: the peer's answer says what it receives.
  void set_send_inline_bytes(std::uint32_t bytes) noexcept { config_.send_inline_bytes = bytes; }
  /// The queue pair is ReadyToSend.
  void established() noexcept;
  /// Ends the connection; harmless if it has ended.
  void close(CloseReason reason) noexcept;
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
  /// Classifies a message again that had to wait for a slot.
  void reconsider(std::uint16_t buffer, std::uint32_t bytes) noexcept { classify(buffer, bytes); }

 private:
  /// The engine looks at this connection at the end of the turn.
  void touch() noexcept;
  void classify(std::uint16_t buffer, std::uint32_t bytes) noexcept;
  void classify_msg(const ReceivedMessage& message) noexcept;
  void to_responder(const ReceivedMessage& message, Refusal refusal) noexcept;
  void to_requester(const ReceivedMessage& message) noexcept;
  void unknown_direction(const ReceivedMessage& message, Refusal refusal) noexcept;
  void on_failed_completion(const rdma::WorkCompletion& wc, WrId id) noexcept;
  void flush_receives() noexcept;

  static constexpr std::size_t kReceiveBatch = 64;

  Shared& shared_;
  const ConnectionCapacity capacity_;
  const std::uint16_t number_;
  std::uint16_t generation_ = 0;
  State state_ = State::Closed;
  CloseReason close_reason_ = CloseReason::None;
  bool waiting_ = false;
  bool drain_listed_ = false;
  bool touched_ = false;  ///< in Shared::touched
  ConnectionConfig config_;
  rdma::PeerAddress peer_;
  std::unique_ptr<rdma::QueuePair> qp_;
  rdma::MemoryRegion receive_region_;
  std::size_t send_room_ = 0;  ///< at least this much; asked again when it does not do
  std::uint32_t posted_receives_ = 0;
  std::uint32_t staged_receives_ = 0;
  std::array<rdma::RecvWr, kReceiveBatch> receive_batch_;
  Responder responder_;
  Requester* requester_ = nullptr;
};

}  // namespace sluice::rpcrdma
