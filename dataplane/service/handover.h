// SPDX-License-Identifier: Apache-2.0
//
// Calls that reach one reactor and belong to a service of another. The transport's work (RDMA, headers,
// credits) stays with the reactor that has the connection; place(), execute() and release() happen on the
// service's. No lock: two rings of pointers, single producer and single consumer each.
//
//   borrower (has the connection)            owner (has the service)
//   BorrowedService::place/execute  -------> Handover::serve() calls the service
//   Handover::collect()             <------- the answer; the call goes on
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "dataplane/base/spsc_ring.h"
#include "dataplane/service/api/service.h"

namespace sluice::service {

/// Calls of one borrower that one owner may have at once, those being released included.
inline constexpr std::uint32_t kMaxHandedCalls = 4096;
/// Calls served, and answers collected, in one turn.
inline constexpr std::uint32_t kHandoversPerTurn = 64;

class Handover;

/// What the owner sees of a call: a copy of its description, whose results and sink it fills in. It belongs to
/// one reactor at a time: to the owner from the time it is in the ring to_owner until it is in to_borrower.
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

  HandedCall() noexcept : Call(static_cast<CallHost&>(*this), own_storage_) { peer_ = &own_peer_; }

  // Borrower.
  void reset(Handover& handover) noexcept;
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
  Handover* handover_ = nullptr;
  Call* call_ = nullptr;  ///< the borrower's; null once it is released
  Service* service_ = nullptr;
  Step step_ = Step::Place;
  Answer answer_ = Answer::None;
  Placement placement_ = Placement::Reply;  ///< Answer::Placed
  bool serving_ = false;  ///< the service is on the owner's stack: serve() passes its answer on
  rpc::AcceptStat stat_ = rpc::AcceptStat::Success;  ///< Answer::Completed
  std::size_t wanted_bytes_ = 0;                     ///< of results, for which there was no room
};

/// The two rings between one borrower and one owner.
class Handover {
 public:
  struct KeyPair {
    rdma::Lkey owner;
    rdma::Lkey borrower;
  };

  /// Setup. `keys` names every region that the owner's services hand out, as both reactors' devices know it.
  /// None: the reactors share one device.
  explicit Handover(std::vector<KeyPair> keys);

  /// Owner's reactor: serves what has come. True when there was something.
  bool serve() noexcept;
  /// Borrower's reactor: goes on with calls that have been answered. True when there was something.
  bool collect() noexcept;

  /// Borrower: calls that could not be handed over because too many were.
  std::uint64_t refused() const noexcept { return refused_; }

 private:
  friend class BorrowedService;
  friend class HandedCall;
  using CallRing = SpscRing<HandedCall*, kMaxHandedCalls>;

  HandedCall* acquire() noexcept;
  void release(HandedCall& handed) noexcept { free_.push_back(&handed); }
  // Never full: each of the kMaxHandedCalls is in one ring at most.
  void to_owner(HandedCall& handed) noexcept { static_cast<void>(to_owner_->push(&handed)); }
  void to_borrower(HandedCall& handed) noexcept { static_cast<void>(to_borrower_->push(&handed)); }
  void resume(HandedCall& handed) noexcept;
  rdma::Lkey borrowers_key(rdma::Lkey owners) const noexcept;

  const std::vector<KeyPair> keys_;
  std::unique_ptr<CallRing> to_owner_;
  std::unique_ptr<CallRing> to_borrower_;
  std::unique_ptr<HandedCall[]> calls_;
  std::vector<HandedCall*> free_;  ///< borrower's
  std::uint64_t refused_ = 0;
};

/// Stands for a service of another reactor.
class BorrowedService final : public Service {
 public:
  BorrowedService(Handover& handover, Service& real) : handover_(handover), real_(real) {}

  const service::Binding& binding() const noexcept override { return real_.binding(); }
  Placement place(Call& call) noexcept override;
  Execution execute(Call& call) noexcept override;
  void release(Call& call) noexcept override;

 private:
  /// In the call's state.
  struct Ticket {
    HandedCall* handed;
  };
  bool hand_over(Call& call, HandedCall::Step step) noexcept;

  Handover& handover_;
  Service& real_;
};

}  // namespace sluice::service
