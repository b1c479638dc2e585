// SPDX-License-Identifier: Apache-2.0
//
// One call on its way through an upstream, in the room that the call gives its service. One reactor.
#pragma once

#include <cstdint>

#include "dataplane/service/api/service.h"

namespace sluice::forward {

class UpstreamConnection;
class Upstream;
class ForwardService;

struct ForwardedCall {
  enum class State : std::uint8_t {
    None,      ///< with no upstream: not executed yet, or over
    Queued,    ///< waits for a number, since as many as may be are outstanding
    Numbered,  ///< waits for its connection, or for room in its queue
    Sent,      ///< in the connection's queue or on the wire: waits for its reply
    Held,      ///< has its reply, which waits: for memory, or for the end of its own Send
  };
  State state;
  bool own_connection;  ///< it has to take that of its client
  bool keeps_xid;       ///< RPCSEC_GSS signs the XID
  bool wanted;          ///< somebody waits for the reply
  bool referenced;      ///< the send queue names the call's memory
  bool resent;
  std::uint8_t strikes;  ///< connections that were lost with this call alone on them
  bool has_record;       ///< `memory` is of ReplyMemory::records, else of ReplyMemory::items
  std::uint32_t xid;
  std::uint32_t number;
  std::uint32_t record_bytes;  ///< Held
  service::Call* call;
  ForwardService* service;
  UpstreamConnection* connection;
  ForwardedCall* next;
  ForwardedCall* previous;
  std::byte* memory;  ///< of the reply, until the call is released
  std::uint64_t begun_ns;
  std::uint64_t sent_ns;
};

/// In order of arrival.
class ForwardedCallList {
 public:
  bool empty() const noexcept { return first_ == nullptr; }
  ForwardedCall* first() const noexcept { return first_; }
  std::uint32_t size() const noexcept { return size_; }
  void push_back(ForwardedCall& exchange) noexcept {
    exchange.next = nullptr;
    exchange.previous = last_;
    (last_ != nullptr ? last_->next : first_) = &exchange;
    last_ = &exchange;
    ++size_;
  }
  void remove(ForwardedCall& exchange) noexcept {
    (exchange.previous != nullptr ? exchange.previous->next : first_) = exchange.next;
    (exchange.next != nullptr ? exchange.next->previous : last_) = exchange.previous;
    exchange.next = exchange.previous = nullptr;
    --size_;
  }

 private:
  ForwardedCall* first_ = nullptr;
  ForwardedCall* last_ = nullptr;
  std::uint32_t size_ = 0;
};

}  // namespace sluice::forward
