// SPDX-License-Identifier: Apache-2.0
//
// Cross-reactor calls: calls that arrive on one reactor for a service of another. Transport work (RDMA,
// headers, credits) stays on the reactor that has the connection; place(), execute() and release() run on the
// service's reactor. Lock-free: two rings of pointers, each with a single producer and a single consumer.
//
// The number of calls in the rings is limited. Each client of the caller has a share, and calls beyond it
// wait until the client's calls return.
//
//   caller (reactor with the connection)     owner (reactor with the service)
//   RemoteService::place/execute  ------->   CrossReactorCall::serve() calls the service
//   CrossReactorCall::collect()             <------- the answer; the call continues
#pragma once

#include <array>
#include <cstdint>
#include <vector>

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

/// The owner's view of a call: a copy of its description, whose results and sink the owner fills in. One
/// reactor at a time may access it: the owner from entry into the ring to_owner until entry into to_caller,
/// the caller otherwise.
class RemoteCall final : public Call, private CallHost {
 public:
  enum class Step : std::uint8_t { Place, Execute, Release };
  /// Answer of the owner's service in this step.
  enum class Answer : std::uint8_t {
    None,  ///< no answer yet; the service answers later
    Placed,
    Completed,
    NeedsMemory,
    Released,
  };

  RemoteCall() noexcept : Call(static_cast<CallHost&>(*this), own_storage_) {
    peer_ = &own_peer_;
    peer_host_ = &own_peer_host_;
  }

  // Functions of the caller.
  void reset(CrossReactorCall& rings, ShareAccount& account) noexcept;
  ShareAccount& account() noexcept { return *account_; }
  /// Requests a step of `service` for `call`.
  void ask(Call& call, Service& service, Step step) noexcept;
  /// Requests the release of a call that has ended. The call is not accessed afterwards.
  void ask_release() noexcept;
  /// Repeats the step, with the room for results that the caller's call has acquired.
  void ask_again() noexcept;
  Answer answer() const noexcept { return answer_; }
  /// Copies the service's answer to the caller's call. `lkey_of` translates the owner's lkeys.
  template <typename Translate>
  void give_back(const Translate& lkey_of) noexcept;

  // Functions of the owner.
  void serve() noexcept;

 private:
  void on_complete(Call& call, rpc::AcceptStat stat) noexcept override;
  bool on_grow_results(Call& call, std::size_t bytes) noexcept override;
  void on_placed(Call& call, Placement placement) noexcept override;
  void on_await_memory(Call& call) noexcept override;
  void set_answer(Answer answer) noexcept;

  CallStorage own_storage_;
  PeerAddress own_peer_;
  HostName own_peer_host_;
  CrossReactorCall* rings_ = nullptr;
  ShareAccount* account_ = nullptr;  ///< account of the client
  Call* call_ = nullptr;             ///< call of the caller; null once released
  Service* service_ = nullptr;
  Step step_ = Step::Place;
  Answer answer_ = Answer::None;
  Placement placement_ = Placement::Reply;  ///< valid for Answer::Placed
  bool serving_ = false;  ///< the service is on the owner's stack, so serve() sends the answer
  rpc::AcceptStat stat_ = rpc::AcceptStat::Success;  ///< valid for Answer::Completed
  std::size_t wanted_bytes_ = 0;                     ///< results that found no room
};

/// Ticket of a caller's call, stored in the call's state.
struct CallTicket {
  RemoteCall* remote;  ///< null: not assigned yet
  Call* call;
  Service* service;
  RemoteCall::Step step;
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
  void submit(Call& call, Service& service, RemoteCall::Step step) noexcept;
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
