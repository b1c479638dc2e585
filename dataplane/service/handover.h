// SPDX-License-Identifier: Apache-2.0
//
// Calls that reach one reactor and belong to a service of another. The transport's work (RDMA, headers,
// credits) stays with the reactor that has the connection; place(), execute() and release() happen on the
// service's. No lock: two rings of pointers, single producer and single consumer each.
//
// What is in the rings at once is limited. The clients of the borrower have shares of it, and a call beyond
// them waits for its client's turn.
//
//   borrower (has the connection)            owner (has the service)
//   BorrowedService::place/execute  -------> Handover::serve() calls the service
//   Handover::collect()             <------- the answer; the call goes on
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "dataplane/base/fixed_array.h"
#include "dataplane/base/owned.h"
#include "dataplane/base/share_ledger.h"
#include "dataplane/base/spsc_ring.h"
#include "dataplane/service/api/service.h"

namespace sluice::service {

/// Calls of one borrower that one owner may have at once, those being released included.
inline constexpr std::uint32_t kMaxHandedCalls = 4096;
/// Calls served, and answers collected, in one turn.
inline constexpr std::uint32_t kHandoversPerTurn = 64;

class Handover;

/// What the owner sees of a call: a copy of its description, whose results and sink it fills in. It belongs
/// to one reactor at a time: to the owner from the time it is in the ring to_owner until it is in
/// to_borrower.
class HandedCall final : public Call, private CallHost {
 public:
  enum class Step : std::uint8_t { Place, Execute, Release };
  /// What the owner's service has said in this step.
  enum class Answer : std::uint8_t {
    None,  ///< nothing yet: it will say later
    Placed,
    Completed,
    NeedsMemory,
    Released,
  };

  HandedCall() noexcept : Call(static_cast<CallHost&>(*this), own_storage_) {
    peer_ = &own_peer_;
    peer_host_ = &own_peer_host_;
  }

  // Borrower.
  void reset(Handover& handover, ShareAccount& account) noexcept;
  ShareAccount& account() noexcept { return *account_; }
  /// `call` asks for this step of `service`.
  void ask(Call& call, Service& service, Step step) noexcept;
  /// `call` is over: nothing of it is touched any more.
  void ask_release() noexcept;
  /// The same step once more, with the room for results that the borrower's call has got.
  void ask_again() noexcept;
  Answer answer() const noexcept { return answer_; }
  /// Gives the borrower's call what the service did. `lkey_of` translates the owner's lkeys.
  template <typename Translate>
  void give_back(const Translate& lkey_of) noexcept;

  // Owner.
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
  Handover* handover_ = nullptr;
  ShareAccount* account_ = nullptr;  ///< of its client
  Call* call_ = nullptr;             ///< the borrower's; null once it is released
  Service* service_ = nullptr;
  Step step_ = Step::Place;
  Answer answer_ = Answer::None;
  Placement placement_ = Placement::Reply;  ///< Answer::Placed
  bool serving_ = false;  ///< the service is on the owner's stack: serve() passes its answer on
  rpc::AcceptStat stat_ = rpc::AcceptStat::Success;  ///< Answer::Completed
  std::size_t wanted_bytes_ = 0;                     ///< of results, for which there was no room
};

/// Of a call of the borrower's, in the call's state.
struct HandoverTicket {
  HandedCall* handed;  ///< null: it has none yet
  Call* call;
  Service* service;
  HandedCall::Step step;
  bool waiting;  ///< for `handed`
  HandoverTicket* next;
  HandoverTicket* previous;
};

/// The two rings between one borrower and one owner.
class Handover {
 public:
  struct KeyPair {
    rdma::Lkey owner;
    rdma::Lkey borrower;
  };

  /// Setup. `keys` names every region that the owner's services hand out, as both reactors' devices know it.
  /// None: the reactors share one device. `clients` are the connections of the borrower.
  Handover(std::vector<KeyPair> keys, std::uint32_t clients);

  /// Owner's reactor: serves what has come. True when there was something.
  bool serve() noexcept;
  /// Borrower's reactor: goes on with calls that have been answered. True when there was something.
  bool collect() noexcept;

  /// Borrower: calls that had to wait because too many were handed over.
  std::uint64_t waits() const noexcept { return waits_; }
  /// Borrower: calls that wait now.
  std::uint32_t waiting() const noexcept { return waiting_; }
  /// Borrower, for tests: every ticket is back.
  bool balanced() const noexcept { return waiting_ == 0 && tickets_.free() == tickets_.limits().elements; }

 private:
  friend class BorrowedService;
  friend class HandedCall;
  using CallRing = SpscRing<HandedCall*, kMaxHandedCalls>;

  /// The share of one client of the borrower, and its calls that wait, in their order.
  class ClientShare final : public ShareWaiter {
   public:
    void on_share() noexcept override { handover->serve_waiting(*this); }

    Handover* handover = nullptr;
    ShareAccount account;
    HandoverTicket* first = nullptr;
    HandoverTicket* last = nullptr;
  };

  ClientShare& share_of(const Call& call) noexcept { return shares_[call.client()->number()]; }
  void hand_over(Call& call, Service& service, HandedCall::Step step) noexcept;
  void send(HandoverTicket& ticket, ClientShare& share) noexcept;
  void serve_waiting(ClientShare& share) noexcept;
  void push_waiting(ClientShare& share, HandoverTicket& ticket) noexcept;
  void remove_waiting(ClientShare& share, HandoverTicket& ticket) noexcept;
  void let_go(Call& call) noexcept;
  void client_gone(const Client& client) noexcept;
  void release(HandedCall& handed) noexcept;
  // Never full: each of the kMaxHandedCalls is in one ring at most.
  void to_owner(HandedCall& handed) noexcept { static_cast<void>(to_owner_->push(&handed)); }
  void to_borrower(HandedCall& handed) noexcept { static_cast<void>(to_borrower_->push(&handed)); }
  void resume(HandedCall& handed) noexcept;
  rdma::Lkey borrowers_key(rdma::Lkey owners) const noexcept;

  const std::vector<KeyPair> keys_;
  Owned<CallRing> to_owner_;
  Owned<CallRing> to_borrower_;
  FixedArray<HandedCall> calls_;
  // The borrower's.
  std::vector<HandedCall*> free_;
  ShareLedger tickets_;             ///< of what is in free_
  FixedArray<ClientShare> shares_;  ///< by number of the client
  std::uint64_t waits_ = 0;
  std::uint32_t waiting_ = 0;
};

/// Stands for a service of another reactor.
class BorrowedService final : public Service {
 public:
  BorrowedService(Handover& handover, Service& real) : handover_(handover), real_(real) {}

  const service::Binding& binding() const noexcept override { return real_.binding(); }
  Placement place(Call& call) noexcept override;
  Execution execute(Call& call) noexcept override;
  void release(Call& call) noexcept override;
  void client_gone(Client& client) noexcept override;

 private:
  Handover& handover_;
  Service& real_;
};

}  // namespace sluice::service
