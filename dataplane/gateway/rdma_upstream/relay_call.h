// SPDX-License-Identifier: Apache-2.0
//
// State of one call forwarded to an RPC-over-RDMA server, stored in service::Call::state(). Accessible only
// on the owning reactor.
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
    Waiting,      ///< waits for a connection to the server, a free call on it, or memory
    Outstanding,  ///< sent to the server
    Held,         ///< the reply waits in `message` until the transport has room for it
    Lost,         ///< no reply is possible; the client is being disconnected
  };
  State state;  ///< changed only by transition()
  service::Call* call;
  const service::Binding* binding;  ///< binding of the call's service
  RelayClient* client;
  RelayCall* next;                     ///< next call in the only list that contains this call
  rdma_server::ClientCall* at_server;  ///< set from Outstanding until release; otherwise null
  std::span<std::byte> message;        ///< the reply without placed data, while in Held

  void transition(State to) noexcept;
};

using RelayCallTransitions = gateway::TransitionTable<RelayCall::State, RelayCall::State::Lost>;
/// Successors of each state of a forwarded call.
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

/// FIFO of calls, in order of arrival.
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
  /// Removes and returns the first call, or returns null if the list is empty.
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
