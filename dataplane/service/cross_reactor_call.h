// SPDX-License-Identifier: Apache-2.0
//
// Cross-reactor calls: calls that arrive on one reactor for a service of another. Transport work (RDMA,
// headers, credits) stays on the reactor that has the connection; place(), execute() and release() run on the
// service's reactor. Lock-free: two rings of pointers, each with a single producer and a single consumer.
//
// The number of calls in the rings is limited. Each client of the caller has a share, and calls beyond it
// wait until the client's calls return. What crosses is three cache lines, two of the caller and one of the
// owner, besides the message and the results; the next step of a call writes one of the caller's again.
//
//   caller (reactor with the connection)     owner (reactor with the service)
//   RemoteService::place/execute  ------->   CrossReactorCall::serve() calls the service
//   CrossReactorCall::collect()             <------- the answer; the call continues
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "dataplane/base/cache_line.h"
#include "dataplane/base/fixed_containers.h"
#include "dataplane/base/invariant.h"
#include "dataplane/base/owned.h"
#include "dataplane/base/share_ledger.h"
#include "dataplane/base/spsc_ring.h"
#include "dataplane/service/api/service.h"

namespace sluice::service {

/// Maximum calls of one caller at one owner, including those being released.
inline constexpr std::uint32_t kMaxRemoteCalls = 4096;
/// Maximum calls served, and answers collected, per loop iteration.
inline constexpr std::uint32_t kRemoteCallsPerPoll = 64;

class CrossReactorCall;

/// A step of a call at its service.
enum class RemoteStep : std::uint8_t { Place, Execute, Release };

/// Answer of the owner's service in a step.
enum class RemoteAnswer : std::uint8_t {
  None,  ///< no answer yet; the service answers later
  Placed,
  Completed,
  NeedsMemory,
  Released,
};

/// Description of one step of a call: a cache line that the caller writes and the owner reads.
struct alignas(kCacheLine) RemoteRequest {
  Service* service = nullptr;
  const std::byte* message = nullptr;
  const std::byte* arguments = nullptr;
  std::byte* results = nullptr;
  std::uint32_t message_bytes = 0;
  std::uint32_t argument_bytes = 0;
  std::uint32_t results_bytes = 0;
  std::uint32_t results_offset = 0;
  std::uint32_t offered_results = 0;
  std::uint32_t placed_bytes = 0;
  RemoteStep step = RemoteStep::Place;
  bool first = false;     ///< the first step of this call, for which the header is new
  bool has_host = false;  ///< the peer is authenticated, and its name is valid
};

/// Header of a call, which is the same in all of its steps: a cache line like RemoteRequest.
struct alignas(kCacheLine) RemoteHeader {
  const std::byte* credential = nullptr;
  const std::byte* verifier = nullptr;
  rpc::AuthFlavor credential_flavor{};
  rpc::AuthFlavor verifier_flavor{};
  std::uint16_t credential_bytes = 0;
  std::uint16_t verifier_bytes = 0;
  rpc::Xid xid{};
  std::uint32_t program = 0;
  std::uint32_t version = 0;
  std::uint32_t procedure = 0;
  PeerAddress peer;
};

/// Answer of the owner's service: a cache line that the owner writes and the caller reads.
struct alignas(kCacheLine) RemoteResult {
  /// Number of pieces in this line; further ones stay where the service has put them.
  static constexpr std::size_t kPieces = 2;

  std::array<rdma::Sge, kPieces> first_pieces;
  std::uint64_t wanted_bytes = 0;  ///< valid for NeedsMemory: results that found no room
  std::uint32_t results_bytes = 0;
  std::uint32_t results_offset = 0;
  rpc::AcceptStat stat = rpc::AcceptStat::Success;  ///< valid for Completed
  std::uint16_t auth_error = 0;                     ///< rpc::AuthStat, valid for Completed
  std::uint8_t pieces = 0;
  std::uint8_t items = 0;
  Placement placement = Placement::Reply;  ///< valid for Placed
  RemoteAnswer answer = RemoteAnswer::None;
  bool results_failed = false;
  bool released = false;  ///< the service has released the call, because the reply names none of its memory
};
static_assert(kMaxPieces <= 255 && kMaxResultItems <= 255);
static_assert(sizeof(RemoteRequest) == kCacheLine && sizeof(RemoteHeader) == kCacheLine &&
              sizeof(RemoteResult) == kCacheLine);

/// A call at the owner, and the cache lines that cross. One reactor at a time may access the lines and the
/// pieces: the owner from entry into the ring to_owner until entry into to_caller, the caller otherwise. The
/// call itself is the owner's.
class RemoteCall final : public Call, private CallHost {
 public:
  RemoteCall() noexcept : Call(static_cast<CallHost&>(*this), own_storage_) {
    peer_ = &own_peer_;
    peer_host_ = &own_peer_host_;
  }

  /// Sets the rings that the call always crosses. Called at setup.
  void set_rings(CrossReactorCall& rings) noexcept { rings_ = &rings; }

  // Functions of the caller.
  void reset(ShareAccount& account) noexcept;
  ShareAccount& account() noexcept { return *account_; }
  /// Requests a step of `service` for `call`.
  void ask(Call& call, Service& service, RemoteStep step) noexcept;
  /// Requests the release of a call that has ended. The call is not accessed afterwards.
  void ask_release() noexcept;
  /// Repeats the step, with the room for results that the caller's call has acquired.
  void ask_again() noexcept;
  RemoteAnswer answer() const noexcept { return result_.answer; }
  Call& callers_call() noexcept { return *call_; }
  /// Copies the service's results to the caller's call, and returns the answer. `lkey_of` translates the
  /// owner's lkeys.
  template <typename Translate>
  RemoteResult give_back(const Translate& lkey_of) noexcept;

  // Functions of the owner.
  void serve() noexcept;

 private:
  void on_complete(Call& call, rpc::AcceptStat stat) noexcept override;
  bool on_grow_results(Call& call, std::size_t bytes) noexcept override;
  void on_placed(Call& call, Placement placement) noexcept override;
  void on_await_memory(Call& call) noexcept override;
  void set_results_room_of(const Call& call) noexcept;
  void read_request() noexcept;
  void set_answer(RemoteAnswer answer) noexcept;
  void send_answer() noexcept;

  // Lines of the caller.
  RemoteRequest request_;
  RemoteHeader header_line_;
  HostName host_;
  // Lines of the owner.
  RemoteResult result_;
  // Members of the caller.
  alignas(kCacheLine) ShareAccount* account_ = nullptr;  ///< account of the client
  Call* call_ = nullptr;                                 ///< call of the caller; null once released
  bool first_ = false;                                   ///< the next step is the first one of the call
  // Members of the owner.
  alignas(kCacheLine) CrossReactorCall* rings_ = nullptr;
  PeerAddress own_peer_;
  HostName own_peer_host_;
  RemoteAnswer own_answer_ = RemoteAnswer::None;
  bool serving_ = false;  ///< the service is on the owner's stack, so serve() sends the answer
  CallStorage own_storage_;
};

/// Ticket of a caller's call, stored in the call's state.
struct CallTicket {
  RemoteCall* remote;  ///< null: not assigned yet, or released
  Call* call;
  Service* service;
  RemoteStep step;
  bool waiting;  ///< the call waits for `remote`
  CallTicket* next;
  CallTicket* previous;
};

/// The two rings between one caller and one owner.
class CrossReactorCall {
 public:
  struct KeyPair {
    rdma::Lkey owner;
    rdma::Lkey caller;
  };

  /// Called at setup. `keys` holds the keys of every region that the owner's services use, for both reactors'
  /// devices. Empty: the reactors share one device. `clients` is the number of connections of the caller.
  CrossReactorCall(std::vector<KeyPair> keys, std::uint32_t clients);

  /// Serves calls on the owner's reactor. Returns true if there were any.
  bool serve() noexcept;
  /// Collects answers on the caller's reactor and continues their calls. Returns true if there were any.
  bool collect() noexcept;

  /// Returns how many calls of the caller had to wait because the limit was reached.
  std::uint64_t waits() const noexcept { return waits_; }
  /// Returns how many calls of the caller are waiting.
  std::uint32_t waiting() const noexcept { return waiting_; }
  /// Returns true if the caller holds all tickets. For tests.
  bool balanced() const noexcept { return waiting_ == 0 && tickets_.free() == tickets_.limits().elements; }

 private:
  friend class RemoteService;
  friend class RemoteCall;
  using CallRing = SpscRing<RemoteCall*, kMaxRemoteCalls>;

  /// Share of one client of the caller, and its waiting calls in order.
  class ClientShare final : public ShareWaiter {
   public:
    void on_share() noexcept override { rings->serve_waiting(*this); }

    CrossReactorCall* rings = nullptr;
    ShareAccount account;
    CallTicket* first = nullptr;
    CallTicket* last = nullptr;
  };

  ClientShare& share_of(const Call& call) noexcept {
    SLUICE_INVARIANT_DEBUG(call.client()->number() < shares_.size(), table_index);
    return shares_[call.client()->number()];
  }
  void submit(Call& call, Service& service, RemoteStep step) noexcept;
  void send(CallTicket& ticket, ClientShare& share) noexcept;
  void serve_waiting(ClientShare& share) noexcept;
  void push_waiting(ClientShare& share, CallTicket& ticket) noexcept;
  void remove_waiting(ClientShare& share, CallTicket& ticket) noexcept;
  void withdraw(Call& call) noexcept;
  void client_gone(const Client& client) noexcept;
  void release(RemoteCall& remote) noexcept;
  // The rings are never full: each of the kMaxRemoteCalls calls is in at most one ring.
  void to_owner(RemoteCall& remote) noexcept {
    const bool pushed = to_owner_->push(&remote);
    SLUICE_INVARIANT_DEBUG(pushed, ring_index);
  }
  void to_caller(RemoteCall& remote) noexcept {
    const bool pushed = to_caller_->push(&remote);
    SLUICE_INVARIANT_DEBUG(pushed, ring_index);
  }
  void resume(RemoteCall& remote) noexcept;
  rdma::Lkey callers_key(rdma::Lkey owners) const noexcept;

  const std::vector<KeyPair> keys_;
  Owned<CallRing> to_owner_;
  Owned<CallRing> to_caller_;
  FixedArray<RemoteCall> calls_;
  // State of the caller.
  std::vector<RemoteCall*> free_;
  ShareLedger tickets_;             ///< shares of free_
  FixedArray<ClientShare> shares_;  ///< indexed by client number
  std::uint64_t waits_ = 0;
  std::uint32_t waiting_ = 0;
};

/// Proxy for a service of another reactor.
class RemoteService final : public Service {
 public:
  RemoteService(CrossReactorCall& rings, Service& real) : rings_(rings), real_(real) {}

  const service::Binding& binding() const noexcept override { return real_.binding(); }
  Placement place(Call& call) noexcept override;
  Execution execute(Call& call) noexcept override;
  void release(Call& call) noexcept override;
  void client_gone(Client& client) noexcept override;

 private:
  CrossReactorCall& rings_;
  Service& real_;
};

}  // namespace sluice::service
