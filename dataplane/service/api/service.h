// SPDX-License-Identifier: Apache-2.0
//
// What an RPC program implements to be served by a reactor, and what it sees of a call.
//
// Threads: a service and its calls belong to one reactor; everything here is called on it, and is message
// path: no allocation, no lock, no system call, no exception, bounded work.
//
// A call goes through
//   place()    only if one eligible argument came as a Read chunk: the service says where its bytes go
//   execute()  the arguments are complete; the service writes the results and completes now, or later by
//              Call::complete()
//   release()  exactly once after either of them was called: the reply is out, or the connection is gone.
//              Memory named by a sink or a result item stays untouched by its owner until then.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <type_traits>

#include "dataplane/base/host_name.h"
#include "dataplane/base/net_address.h"
#include "dataplane/rpc/message.h"
#include "dataplane/service/api/binding.h"
#include "dataplane/xdr/cursor.h"
#include "pmd/work_request.h"

namespace sluice::service {

/// Pieces of registered memory that one call may name, in its sink and all its result items together: 1 MiB
/// in 64 KiB blocks that start unaligned takes 17.
inline constexpr std::size_t kMaxPieces = 48;
/// Result items that one call may name. A call may have as many Write chunks.
inline constexpr std::size_t kMaxResultItems = 16;
inline constexpr std::size_t kCallStateBytes = 128;

/// A DDP-eligible result: `bytes` of data that follow their count word in the results.
struct ResultItem {
  std::uint32_t offset = 0;  ///< in the results written by the service, where the data would stand
  std::uint32_t bytes = 0;   ///< without XDR padding
  std::uint16_t first_piece = 0;
  std::uint16_t pieces = 0;
};

enum class Placement : std::uint8_t {
  Sink,      ///< pull the bytes into the pieces added by Call::add_sink_piece(), which hold them all
  Assemble,  ///< pull them into memory of the transport's; execute() then sees all arguments in one piece
  Reply,     ///< do not pull: the call is answered already (the service has called complete())
  Later,     ///< Call::placed() will tell
};

enum class Execution : std::uint8_t {
  Started,      ///< completed, or will be completed later
  NeedsMemory,  ///< require_results() said no; execute() is called again when there is memory
};

/// The side that opened a connection, for services that keep something for each or call it back (RFC 8167).
/// Lives as long as the reactor; Service::client_gone() says when it stands for somebody else.
class Client {
 public:
  /// Among the connections of the reactor.
  virtual std::uint16_t number() const noexcept = 0;
  /// At most this many calls at once, below what the credit policy grants; ~0: what the policy grants.
  virtual void limit_credits(std::uint32_t limit) noexcept = 0;
  /// Ends the connection, so that its peer repeats on another one what is not answered: for calls of which
  /// the service can say nothing that is true. client_gone() may be called from within. No effect if the
  /// connection has ended already.
  virtual void disconnect() noexcept = 0;

  /// `reply` is the RPC reply message, valid during the call only; empty when there is none.
  using CallBackDone = void (*)(void* context, std::span<const std::byte> reply) noexcept;
  /// A call in the reverse direction: a whole RPC message, which is copied; its XID is replaced. False when
  /// it cannot be sent: nothing more will come of it.
  virtual bool call_back(std::span<const std::byte> call, CallBackDone done, void* context) noexcept = 0;

 protected:
  ~Client() = default;
};

class Call;

/// What Call::reply_room() says of replies that go out in parts.
inline constexpr std::uint64_t kAnyReply = ~std::uint64_t{0};

/// Carries a call for its service: a connection's responder, or the hand-over to another reactor. A service
/// never sees it; it uses the methods of Call. The call's reactor.
class CallHost {
 public:
  /// The service has ended the call. Only the first one of a call counts.
  virtual void on_complete(Call& call, rpc::AcceptStat stat) noexcept = 0;
  /// The results need room for `bytes`, before anything is written. False: there is none now.
  virtual bool on_grow_results(Call& call, std::size_t bytes) noexcept = 0;
  /// What place() left open with Placement::Later.
  virtual void on_placed(Call& call, Placement placement) noexcept = 0;
  /// The service is to be called again when there is room for the results that on_grow_results() refused.
  virtual void on_await_memory(Call& call) noexcept = 0;
  /// See Call::reply_room().
  virtual std::uint64_t reply_room(const Call& call) const noexcept {
    return static_cast<void>(call), kAnyReply;
  }
  /// See Call::message_lkey().
  virtual std::optional<rdma::Lkey> message_lkey(const Call& call) const noexcept {
    return static_cast<void>(call), std::nullopt;
  }
  /// There is a reply of so many bytes, for which the client has no room.
  virtual void on_reply_too_long(Call& call, std::uint64_t bytes) noexcept {
    static_cast<void>(bytes);
    on_complete(call, rpc::AcceptStat::SystemErr);
  }

 protected:
  ~CallHost() = default;
};

/// What most calls need little of: apart from the call, so that what all of them need lies close together.
struct CallStorage {
  std::array<ResultItem, kMaxResultItems> items;
  std::array<rdma::Sge, kMaxPieces> pieces;
  std::uint64_t upstream_ns;  ///< of a call that has its state
  alignas(std::max_align_t) std::array<std::byte, kCallStateBytes> state;
};

/// One RPC being served, as its service sees it. Owned by its host.
class Call {
 public:
  const rpc::CallHeader& header() const noexcept { return header_; }
  const PeerAddress& peer() const noexcept { return *peer_; }
  /// Empty: the peer has not authenticated itself.
  const HostName& peer_host() const noexcept { return *peer_host_; }
  /// Null for calls of another reactor's connections.
  Client* client() const noexcept { return client_; }

  /// The RPC message from its XID on, to where arguments() ends.
  std::span<const std::byte> message() const noexcept { return message_; }
  /// The XDR arguments. In place(), and in execute() after Placement::Sink, they end where the placed item's
  /// data would stand (behind its count word).
  std::span<const std::byte> arguments() const noexcept { return arguments_; }
  /// The same, for a service that passes the call on and changes it first. They are in memory of the transport's,
  /// which has taken what it needs of them. In execute().
  std::span<std::byte> writable_arguments() noexcept {
    return {const_cast<std::byte*>(arguments_.data()), arguments_.size()};
  }
  /// The message that they are the end of, likewise. Nobody reads the header of the message again.
  std::span<std::byte> writable_message() noexcept {
    return {const_cast<std::byte*>(message_.data()), message_.size()};
  }
  /// The message stays in place until release(), in memory with this key, so that it can be sent from there; nothing:
  /// its memory is not registered, or does not stay. In execute().
  std::optional<rdma::Lkey> message_lkey() const noexcept { return host_->message_lkey(*this); }
  /// Bytes of the item that came as a Read chunk: announced in place(), and in the sink when execute() is
  /// called after Placement::Sink. The requester may count up to 3 bytes of XDR padding in (V1-086).
  /// Otherwise zero.
  std::uint32_t placed_bytes() const noexcept { return placed_bytes_; }

  /// place(): appends a piece of the sink. False when there are more than kMaxPieces.
  bool add_sink_piece(const rdma::Sge& piece) noexcept { return add_piece(piece); }

  /// Where the results go; RPC header and transport header are the transport's business. A failed writer at
  /// complete() becomes SYSTEM_ERR.
  xdr::Writer& results() noexcept { return results_; }

  /// Makes room for `bytes` of results not counting items. True at once for what fits the slot's own buffer.
  /// Only before anything was written. False: return Execution::NeedsMemory without side effects.
  bool require_results(std::size_t bytes) noexcept {
    return bytes <= results_.remaining() || host_->on_grow_results(*this, bytes);
  }

  /// Names the data of an eligible result, after its count word was written: add the pieces, then the item.
  /// The results continue behind it without pad; the transport supplies that where it is needed.
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

  /// Before anything is written, and behind require_results(): results() takes the RPC reply message from
  /// behind its XID, verifier and accept_stat included. Whatever it says, end it with AcceptStat::Success.
  void write_whole_reply() noexcept {
    constexpr std::size_t kAhead = rpc::kMinReplyBytes - xdr::kUnit;
    results_ = xdr::Writer({results_.written().data() - kAhead, results_.remaining() + kAhead});
    results_offset_ = xdr::kUnit;
  }

  /// Results that the client wants placed directly: naming more items only makes the reply piecemeal.
  std::uint32_t offered_results() const noexcept { return offered_results_; }

  /// Ends the call. With any status but Success the results and items are dropped. Once per call.
  void complete(rpc::AcceptStat stat) noexcept { host_->on_complete(*this, stat); }
  /// Ends the call with MSG_DENIED, AUTH_ERROR.
  void deny(rpc::AuthStat stat) noexcept {
    auth_error_ = stat;
    host_->on_complete(*this, rpc::AcceptStat::SystemErr);
  }

  /// How long another server had it, for who looks at slow calls.
  void note_upstream_ns(std::uint64_t ns) noexcept {
    if (!has_state_) reset_state();
    storage_->upstream_ns = ns;
  }

  /// Most bytes that an RPC reply message can have to reach the client, eligible items included; kAnyReply
  /// where there is no limit. Linear in the segments that the client offers.
  std::uint64_t reply_room() const noexcept { return host_->reply_room(*this); }
  /// Ends the call: its reply has more than that.
  void reply_too_long(std::uint64_t bytes) noexcept { host_->on_reply_too_long(*this, bytes); }

  /// After Placement::Later: one of the others. Once per call.
  void placed(Placement placement) noexcept { host_->on_placed(*this, placement); }
  /// After execute() has said Started: what Execution::NeedsMemory would have said.
  void await_memory() noexcept { host_->on_await_memory(*this); }

  /// Room for the service's own state from place() to release(); zero at first.
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
  Call() = default;  ///< set_host() comes before a service sees it
  /// The storage is the call's alone, and outlives it.
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
  std::span<const rdma::Sge> pieces() const noexcept { return {storage_->pieces.data(), piece_count_}; }
  std::span<const ResultItem> items() const noexcept { return {storage_->items.data(), item_count_}; }

  // A call that another one stands for: dataplane/service/handover.h.
  /// What the service is asked, and where its results go, are those of `original`. The peer is set apart.
  void copy_request_of(const Call& original) noexcept {
    header_ = original.header_;
    offered_results_ = original.offered_results_;
    message_ = original.message_;
    arguments_ = original.arguments_;
    placed_bytes_ = original.placed_bytes_;
    copy_results_room_of(original);
  }
  void copy_results_room_of(const Call& original) noexcept {
    results_ = original.results_;
    results_offset_ = original.results_offset_;
  }
  /// `original` gets the pieces and items that the service has named, with lkeys that `lkey_of` translates.
  template <typename Translate>
  void copy_pieces_to(Call& original, const Translate& lkey_of) const noexcept {
    for (std::uint16_t i = 0; i < piece_count_; ++i) {
      original.storage_->pieces[i] = storage_->pieces[i];
      original.storage_->pieces[i].lkey = lkey_of(storage_->pieces[i].lkey);
    }
    original.piece_count_ = piece_count_;
    for (std::uint16_t i = 0; i < item_count_; ++i) original.storage_->items[i] = storage_->items[i];
    original.item_count_ = item_count_;
  }
  /// `original` gets what the service has written.
  void copy_results_to(Call& original) const noexcept { original.copy_results_room_of(*this); }

  // What few services ask for comes first, and behind it, in few cache lines, what every call writes: hosts put theirs
  // next to it.
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
  std::uint32_t results_offset_ = rpc::kMinReplyBytes;  ///< of results_ in the reply
  rpc::AuthStat auth_error_ = rpc::AuthStat::Ok;
  std::uint16_t piece_count_ = 0;
  std::uint16_t item_count_ = 0;
  bool has_state_ = false;  ///< the service has asked for its state in this call

 private:
  static constexpr HostName kNobody{};

  void reset_state() noexcept {
    storage_->upstream_ns = 0;
    storage_->state.fill(std::byte{0});
    has_state_ = true;
  }
};

/// What has work in every turn of a reactor's loop, whether there are calls or not.
class Poller {
 public:
  virtual ~Poller() = default;
  /// A bounded slice. True when it found work.
  virtual bool poll(std::uint64_t now_ns) noexcept = 0;
  /// Bytes that it holds for this client of memory that clients share.
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
  /// The connection of a call that is not completed has ended. It still has to be: its reply goes nowhere.
  virtual void call_abandoned(Call& call) noexcept { static_cast<void>(call); }
  /// The connection has ended; call_abandoned() has come for each of its calls.
  virtual void client_gone(Client& client) noexcept { static_cast<void>(client); }
  /// A bounded slice of background work (scrubbing, timers); `now_ns` is monotonic. True when there is more.
  virtual bool background(std::uint64_t now_ns) noexcept { return static_cast<void>(now_ns), false; }
};

}  // namespace sluice::service
