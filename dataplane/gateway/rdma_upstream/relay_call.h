// SPDX-License-Identifier: Apache-2.0
//
// State of one call passed on to an RPC-over-RDMA server, stored in service::Call::state(). Only the owning reactor
// may access it.
#pragma once

#include <cstdint>
#include <span>

#include "dataplane/gateway/rdma_server/client_call.h"
#include "dataplane/gateway/transition_table.h"
#include "dataplane/service/api/service.h"

namespace sluice::rdma_upstream {

class RelayClient;

struct RelayCall {
  enum class State : std::uint8_t {
    None,         ///< not executed yet, or completed
    Waiting,      ///< for a connection to the server, a place on it, or memory
    Outstanding,  ///< at the server
    Held,         ///< its reply is in `message` until the transport has room for it
    Lost,         ///< can get no reply any more: its client is to be disconnected
  };
  State state;  ///< changed by transition() alone
  service::Call* call;
  const service::Binding* binding;  ///< of its service
  RelayClient* client;
  RelayCall* next;                     ///< in the one list it is in
  rdma_server::ClientCall* at_server;  ///< from Outstanding until it is released; null: none
  std::span<std::byte> message;        ///< Held: the reply, without what was placed

  void transition(State to) noexcept;
};

using RelayCallTransitions = gateway::TransitionTable<RelayCall::State, RelayCall::State::Lost>;
/// Successors of each state of a call that is passed on.
inline constexpr RelayCallTransitions kRelayCallTransitions = [] {
  using enum RelayCall::State;
  return RelayCallTransitions{
      {Waiting},            // None
      {Outstanding, Lost},  // Waiting
      {None, Held, Lost},   // Outstanding
      {None, Lost},         // Held
      {None},               // Lost
  };
}();

inline void RelayCall::transition(State to) noexcept {
  gateway::change_state(kRelayCallTransitions, state, to);
}

/// In order of arrival.
class RelayCallList {
 public:
  bool empty() const noexcept { return first_ == nullptr; }
  RelayCall* front() const noexcept { return first_; }
  std::uint32_t size() const noexcept { return size_; }
  void push_back(RelayCall& call) noexcept {
    call.next = nullptr;
    (last_ != nullptr ? last_->next : first_) = &call;
    last_ = &call;
    ++size_;
  }
  /// Null when it is empty.
  RelayCall* pop_front() noexcept {
    RelayCall* const call = first_;
    if (call == nullptr) return nullptr;
    first_ = call->next;
    if (first_ == nullptr) last_ = nullptr;
    --size_;
    return call;
  }

 private:
  RelayCall* first_ = nullptr;
  RelayCall* last_ = nullptr;
  std::uint32_t size_ = 0;
};

}  // namespace sluice::rdma_upstream
