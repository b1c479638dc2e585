// SPDX-License-Identifier: Apache-2.0
//
// Interface between an RPC program and the reactor that serves it.
//
// Threads: a service and its calls belong to one reactor. Everything here is called on that reactor and is
// part of the message path: no allocation, no lock, no system call, no exception, bounded work.
//
// A service is called in this order:
//   place()    only if one eligible argument came as a Read chunk; returns the destination of its bytes
//   execute()  all arguments are complete; the service writes the results and completes the call, now or
//              later, by Call::complete()
//   release()  exactly once if either function was called: the reply has been sent, the connection is closed,
//              or the call of another reactor is complete and its reply has no items
// Memory of a sink or a result item must stay unchanged until release().
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <type_traits>

#include "dataplane/base/host_name.h"
#include "dataplane/base/invariant.h"
#include "dataplane/base/net_address.h"
#include "dataplane/rpc/message.h"
#include "dataplane/service/api/binding.h"
#include "dataplane/xdr/cursor.h"
#include "pmd/work_request.h"

namespace sluice::service {

/// Maximum pieces of registered memory of one call, in its sink and all its result items together. An
/// unaligned transfer of 4 MiB in 64 KiB blocks takes 65, and round-up bytes take one.
inline constexpr std::size_t kMaxPieces = 72;
/// Maximum result items of one call. A call may have as many Write chunks.
inline constexpr std::size_t kMaxResultItems = 16;
/// Maximum size of a service's own state in a call, in bytes. The memory exports name the blocks of 4 MiB in
/// it.
inline constexpr std::size_t kCallStateBytes = 304;

/// A DDP-eligible result: `bytes` of data that follow their count word in the results.
struct ResultItem {
  std::uint32_t offset = 0;  ///< position of the data in the results written by the service
  std::uint32_t bytes = 0;   ///< length without XDR padding
  std::uint16_t first_piece = 0;
  std::uint16_t pieces = 0;
};

enum class Placement : std::uint8_t {
  Sink,      ///< read the bytes into the pieces added by Call::add_sink_piece(), which hold them all
  Assemble,  ///< read them into transport memory; execute() then gets all arguments in one piece
  Reply,     ///< do not read: the service has already answered the call by complete()
  Later,     ///< the service will call Call::placed()
};

enum class Execution : std::uint8_t {
  Started,      ///< completed, or will be completed later
  NeedsMemory,  ///< require_results() returned false; execute() is called again when memory is available
};

/// The peer that opened a connection, for services that keep state per client or call it back (RFC 8167). The
/// object lives as long as the reactor; after Service::client_gone() it may represent another peer.
class Client {
 public:
  /// Returns the number of the connection on its reactor.
  virtual std::uint16_t number() const noexcept = 0;
  /// Limits the client's concurrent calls below what the credit policy grants; ~0 removes the limit.
  virtual void limit_credits(std::uint32_t limit) noexcept = 0;
  /// Closes the connection; the client retransmits its unanswered calls on a new one. For calls whose outcome
  /// is unknown. It may call client_gone(). No effect if the connection is already closed.
  virtual void disconnect() noexcept = 0;

  /// Called with the RPC reply message, valid during that function call only; empty if there is no reply.
  using CallBackDone = void (*)(void* context, std::span<const std::byte> reply) noexcept;
  /// Sends a call in the reverse direction from a complete RPC message, which is copied and whose XID is
  /// replaced. Returns false if it cannot be sent; `done` is then never called.
  virtual bool call_back(std::span<const std::byte> call, CallBackDone done, void* context) noexcept = 0;

 protected:
  ~Client() = default;
};

class Call;

/// Result of Call::reply_room() for replies that can be sent in parts.
inline constexpr std::uint64_t kAnyReply = ~std::uint64_t{0};

/// Host of a call: a connection's responder, or the cross-reactor call. Services do not use it; they use the
/// functions of Call. Called on the call's reactor.
class CallHost {
 public:
  /// Called when the service has ended the call. Only the first completion counts.
  virtual void on_complete(Call& call, rpc::AcceptStat stat) noexcept = 0;
  /// Requests room for `bytes` of results, before anything is written. Returns false if there is none now.
  virtual bool on_grow_results(Call& call, std::size_t bytes) noexcept = 0;
  /// Reports the placement that place() deferred with Placement::Later.
  virtual void on_placed(Call& call, Placement placement) noexcept = 0;
  /// Requests that the service is called again when there is room for the results that on_grow_results()
  /// refused.
  virtual void on_await_memory(Call& call) noexcept = 0;
  /// Implements Call::reply_room().
  virtual std::uint64_t reply_room(const Call& call) const noexcept {
    return static_cast<void>(call), kAnyReply;
  }
  /// Implements Call::message_lkey().
  virtual std::optional<rdma::Lkey> message_lkey(const Call& call) const noexcept {
    return static_cast<void>(call), std::nullopt;
  }
  /// Called when the reply has `bytes`, which exceeds the client's room.
  virtual void on_reply_too_long(Call& call, std::uint64_t bytes) noexcept {
    static_cast<void>(bytes);
    on_complete(call, rpc::AcceptStat::SystemErr);
  }

 protected:
  ~CallHost() = default;
};

/// Storage that few calls use fully, kept apart from the call so that the commonly used fields are close
/// together.
struct CallStorage {
  std::array<ResultItem, kMaxResultItems> items;
  std::array<rdma::Sge, kMaxPieces> pieces;
  std::uint64_t upstream_ns;  ///< valid if the call has state
  alignas(std::max_align_t) std::array<std::byte, kCallStateBytes> state;
};

/// One RPC being served, from the point of view of its service. Owned by its host.
class Call {
 public:
  const rpc::CallHeader& header() const noexcept { return header_; }
  const PeerAddress& peer() const noexcept { return *peer_; }
  /// Returns the authenticated host name of the peer; empty if the peer has not authenticated itself.
  const HostName& peer_host() const noexcept { return *peer_host_; }
  /// Returns the client, or null for calls of another reactor's connections.
  Client* client() const noexcept { return client_; }

  /// Returns the RPC message, from its XID to the end of arguments().
  std::span<const std::byte> message() const noexcept { return message_; }
  /// Returns the XDR arguments. In place(), and in execute() after Placement::Sink, they end before the data
  /// of the placed item (after its count word).
  std::span<const std::byte> arguments() const noexcept { return arguments_; }
  /// Returns the arguments for a service that modifies and forwards the call. They are in transport memory,
  /// and the transport does not read them again. May be called in execute().
  std::span<std::byte> writable_arguments() noexcept {
    return {const_cast<std::byte*>(arguments_.data()), arguments_.size()};
  }
  /// Returns the message that ends with writable_arguments(), for modification. Its header is not read again.
  std::span<std::byte> writable_message() noexcept {
    return {const_cast<std::byte*>(message_.data()), message_.size()};
  }
  /// Returns the key of the memory that holds the message until release(), so that it can be sent from there.
  /// Returns nothing if that memory is not registered or is reused earlier. May be called in execute().
  std::optional<rdma::Lkey> message_lkey() const noexcept { return host_->message_lkey(*this); }
  /// Returns the length of the item that came as a Read chunk, otherwise zero. The item is announced in
  /// place(), and is in the sink when execute() is called after Placement::Sink. The length may include up to
  /// 3 bytes of XDR padding (V1-086).
  std::uint32_t placed_bytes() const noexcept { return placed_bytes_; }

  /// Appends a piece of the sink, in place(). Returns false if there are more than kMaxPieces.
  bool add_sink_piece(const rdma::Sge& piece) noexcept { return add_piece(piece); }

  /// Returns the writer for the results. The transport adds the RPC header and the transport header. If the
  /// writer has failed at complete(), the reply is SYSTEM_ERR.
  xdr::Writer& results() noexcept { return results_; }

  /// Makes room for `bytes` of results, not counting items, before anything is written. Always returns true
  /// if they fit the slot's own buffer. If false, the service returns Execution::NeedsMemory without side
  /// effects.
  bool require_results(std::size_t bytes) noexcept {
    return bytes <= results_.remaining() || host_->on_grow_results(*this, bytes);
  }

  /// Adds the data of an eligible result after its count word was written: first the pieces, then the item.
  /// The results continue after it without padding, which the transport adds where necessary.
  bool add_result_piece(const rdma::Sge& piece) noexcept { return add_piece(piece); }
  bool add_result_item(std::uint32_t bytes) noexcept {
    if (item_count_ == kMaxResultItems) return false;
    std::uint16_t first = 0;
    if (item_count_ > 0) {
      const ResultItem& previous = storage_->items[item_count_ - 1];
      first = static_cast<std::uint16_t>(previous.first_piece + previous.pieces);
    }
    storage_->items[item_count_++] = {static_cast<std::uint32_t>(results_.position()), bytes, first,
                                      static_cast<std::uint16_t>(piece_count_ - first)};
    return true;
  }

  /// Lets results() hold the RPC reply message from the word after its XID, including verifier and
  /// accept_stat. Call it after require_results() and before anything is written. The call must be completed
  /// with AcceptStat::Success, regardless of the reply's status.
  void write_whole_reply() noexcept {
    SLUICE_INVARIANT_DEBUG(results_.position() == 0 && item_count_ == 0, buffer_bounds);
    constexpr std::size_t kAhead = rpc::kMinReplyBytes - xdr::kUnit;
    results_ = xdr::Writer({results_.written().data() - kAhead, results_.remaining() + kAhead});
    results_offset_ = xdr::kUnit;
  }

  /// Returns how many results the client offers chunks for. Naming more items only fragments the reply.
  std::uint32_t offered_results() const noexcept { return offered_results_; }

  /// Ends the call. Results and items are dropped unless the status is Success. Called once per call.
  void complete(rpc::AcceptStat stat) noexcept { host_->on_complete(*this, stat); }
  /// Ends the call with MSG_DENIED, AUTH_ERROR.
  void deny(rpc::AuthStat stat) noexcept {
    auth_error_ = stat;
    host_->on_complete(*this, rpc::AcceptStat::SystemErr);
  }

  /// Records the time spent at the upstream; shown by `sluicectl slow`.
  void note_upstream_ns(std::uint64_t ns) noexcept {
    if (!has_state_) reset_state();
    storage_->upstream_ns = ns;
  }

  /// Returns the maximum length of an RPC reply message to this client, eligible items included, or kAnyReply
  /// if there is no limit. Linear in the segments that the client offers.
  std::uint64_t reply_room() const noexcept { return host_->reply_room(*this); }
  /// Ends the call because its reply has `bytes`, more than reply_room().
  void reply_too_long(std::uint64_t bytes) noexcept { host_->on_reply_too_long(*this, bytes); }

  /// Reports the placement after Placement::Later. Called once per call.
  void placed(Placement placement) noexcept { host_->on_placed(*this, placement); }
  /// Requests another execute() when memory is available, after execute() has returned Started.
  void await_memory() noexcept { host_->on_await_memory(*this); }

  /// Returns true if the service has used its state in this call, which is then not zero.
  bool has_state() const noexcept { return has_state_; }
  /// Returns the service's own state of the call, valid from place() to release() and initially zero.
  template <typename T>
  T& state() noexcept {
    static_assert(sizeof(T) <= kCallStateBytes);
    static_assert(alignof(T) <=
                  alignof(std::max_align_t));  // NOLINT(misc-redundant-expression): not for every T
    static_assert(std::is_trivially_copyable_v<T> && std::is_trivially_destructible_v<T>);
    if (!has_state_) reset_state();
    return *reinterpret_cast<T*>(storage_->state.data());
  }

 protected:
  Call() = default;  ///< set_host() must be called before a service uses the call
  /// The storage belongs to this call alone and must outlive it.
  Call(CallHost& host, CallStorage& storage) noexcept : storage_(&storage), host_(&host) {}
  ~Call() = default;
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  bool add_piece(const rdma::Sge& piece) noexcept {
    if (piece_count_ == kMaxPieces) return false;
    storage_->pieces[piece_count_++] = piece;
    return true;
  }

  void set_host(CallHost& host, CallStorage& storage) noexcept {
    host_ = &host;
    storage_ = &storage;
  }
  std::uint64_t upstream_ns() const noexcept { return has_state_ ? storage_->upstream_ns : 0; }
  std::span<const rdma::Sge> pieces() const noexcept {
    SLUICE_INVARIANT_DEBUG(piece_count_ <= kMaxPieces, table_index);
    return {storage_->pieces.data(), piece_count_};
  }
  std::span<const ResultItem> items() const noexcept {
    SLUICE_INVARIANT_DEBUG(item_count_ <= kMaxResultItems, table_index);
    return {storage_->items.data(), item_count_};
  }

  // Functions for a call that represents another reactor's; see dataplane/service/cross_reactor_call.h.
  /// Room for results in which nothing is written yet.
  struct RoomForResults {
    std::span<std::byte> room;
    std::uint32_t offset;
  };
  static RoomForResults room_of(const Call& call) noexcept {
    const std::span<std::byte> written = call.results_.written();
    return {{written.data(), call.results_.remaining()}, call.results_offset_};
  }
  /// Sets the results of `call`, which were written into its room.
  static void set_results(Call& call, const xdr::Writer& results, std::uint32_t offset) noexcept {
    call.results_ = results;
    call.results_offset_ = offset;
  }
  /// Copies the pieces and items that the service has named to `original`, the first pieces from `first`;
  /// `lkey_of` translates their lkeys.
  template <typename Translate>
  void copy_pieces_to(Call& original, std::span<const rdma::Sge> first, std::uint16_t pieces,
                      std::uint16_t items, const Translate& lkey_of) const noexcept {
    for (std::uint16_t i = 0; i < pieces; ++i) {
      original.storage_->pieces[i] = i < first.size() ? first[i] : storage_->pieces[i];
      original.storage_->pieces[i].lkey = lkey_of(original.storage_->pieces[i].lkey);
    }
    original.piece_count_ = pieces;
    for (std::uint16_t i = 0; i < items; ++i) original.storage_->items[i] = storage_->items[i];
    original.item_count_ = items;
  }

  // Members that few services use come first. The members that every call writes follow in few cache lines,
  // next to the members of the host.
  CallStorage* storage_ = nullptr;
  const PeerAddress* peer_ = nullptr;
  const HostName* peer_host_ = &kNobody;
  Client* client_ = nullptr;
  CallHost* host_ = nullptr;
  rpc::CallHeader header_;
  std::span<const std::byte> message_;
  std::span<const std::byte> arguments_;
  xdr::Writer results_;
  std::uint32_t offered_results_ = 0;
  std::uint32_t placed_bytes_ = 0;
  std::uint32_t results_offset_ = rpc::kMinReplyBytes;  ///< offset of results_ in the reply
  rpc::AuthStat auth_error_ = rpc::AuthStat::Ok;
  std::uint16_t piece_count_ = 0;
  std::uint16_t item_count_ = 0;
  bool has_state_ = false;  ///< the service has used its state in this call

 private:
  static constexpr HostName kNobody{};

  void reset_state() noexcept {
    storage_->upstream_ns = 0;
    storage_->state.fill(std::byte{0});
    has_state_ = true;
  }
};

/// Performs work in every iteration of a reactor's loop, even without calls.
class Poller {
 public:
  virtual ~Poller() = default;
  /// Performs a bounded amount of work. Returns true if there was any.
  virtual bool poll(std::uint64_t now_ns) noexcept = 0;
  /// Returns the bytes of memory shared among clients that it holds for this client.
  virtual std::uint64_t held_bytes(std::uint16_t client) const noexcept {
    return static_cast<void>(client), 0;
  }
};

class Service {
 public:
  virtual ~Service() = default;
  virtual const Binding& binding() const noexcept = 0;

  virtual Placement place(Call& call) noexcept { return static_cast<void>(call), Placement::Assemble; }
  virtual Execution execute(Call& call) noexcept = 0;
  virtual void release(Call& call) noexcept { static_cast<void>(call); }
  /// Called when the connection of an incomplete call is closed. The service must still complete the call;
  /// its reply is dropped.
  virtual void call_abandoned(Call& call) noexcept { static_cast<void>(call); }
  /// Called when the connection is closed, after call_abandoned() for each of its calls.
  virtual void client_gone(Client& client) noexcept { static_cast<void>(client); }
  /// Performs a bounded amount of background work (scrubbing, timers); `now_ns` is monotonic. Returns true if
  /// there is more.
  virtual bool background(std::uint64_t now_ns) noexcept { return static_cast<void>(now_ns), false; }
};

/// Services of one engine that become available and unavailable while it serves calls. Called on the reactor
/// that serves them.
class ServiceRegistry {
 public:
  /// Makes the service known at setup, so that it learns of disconnected clients. The service outlives the
  /// engine, and is not available yet.
  virtual void add_unoffered(Service& service) = 0;
  /// Makes a known service available under its binding, which must not change before withdraw(). `port` is
  /// compared with ConnectionConfig::services_at. Returns false, without effect, if the engine has no room.
  virtual bool offer(Service& service, std::uint32_t port) noexcept = 0;
  /// Makes the service unavailable to further calls, at all ports. Calls in progress are not affected.
  virtual void withdraw(const Service& service) noexcept = 0;

 protected:
  ~ServiceRegistry() = default;
};

}  // namespace sluice::service
