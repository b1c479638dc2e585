// SPDX-License-Identifier: Apache-2.0
//
// The calls at one upstream on one reactor, from submission to end. A call waits for its admission, gets an
// XID and a connection, and is completed with its reply or ends without one. Only the owning reactor may
// call; only the constructor allocates.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "dataplane/gateway/tcp_upstream/admission.h"
#include "dataplane/gateway/tcp_upstream/duplicate_requests.h"
#include "dataplane/gateway/tcp_upstream/reverse_calls.h"
#include "dataplane/gateway/tcp_upstream/upstream_connections.h"

namespace sluice::tcp_upstream {

/// Timeout in nanoseconds of an orphan. After it, the orphan does not delay other calls of its client,
/// provided that the upstream answers other calls.
inline constexpr std::uint64_t kEarlierNs = 30'000'000'000;

/// Age in nanoseconds at which a call of a disconnected client resets its connection if the upstream has not
/// accepted all bytes of the call, because other clients need its memory.
inline constexpr std::uint64_t kAbandonedNs = 10'000'000'000;

class UpstreamCalls {
 public:
  using Counter = segment::UpstreamCounter;

  /// Setup. `shared` and `connections` outlive this object.
  UpstreamCalls(UpstreamShared& shared, rdma::Device& device, UpstreamConnections& connections);

  // Services call the next three functions.
  /// Sends ForwardedCall::message as soon as the call is admitted.
  void submit(ForwardedCall& forwarded) noexcept;
  /// Delivers a held reply. Returns false if the transport still has no room for the results.
  bool deliver_held(ForwardedCall& forwarded) noexcept;
  /// Ends a call whose client disconnected before the call was completed.
  void abandon(ForwardedCall& forwarded) noexcept;

  // Upstream calls all other functions.
  Admission& admission() noexcept { return admission_; }
  const Admission& admission() const noexcept { return admission_; }
  DuplicateRequests& repeats() noexcept { return repeats_; }
  /// Returns whether calls wait, are outstanding, or have become orphans.
  bool any() const noexcept {
    return admission_.waiting() > 0 || admission_.outstanding() > 0 || !repeats_.orphans().none();
  }
  void client_gone(std::uint16_t client) noexcept;
  /// Forgets the suspects, because another upstream replaces this one.
  void forget_suspects() noexcept { suspects_ = {}; }
  /// Completes the calls that end without a reply, and admits waiting calls. Called once per loop iteration,
  /// after all steps that end calls.
  void serve_waiting() noexcept {
    if (!unanswerable_.empty()) complete_unanswerable();
    if (admission_.waiting() > 0) admit_waiting();
  }
  /// Admits calls whose client's earlier calls have ended. Called once per loop iteration.
  void serve_behind_earlier(std::uint64_t now_ns) noexcept {
    for (std::uint32_t due = admission_.due_behind_earlier(now_ns); due > 0; --due)
      if (Admission::Queue* const queue = admission_.next_behind_earlier()) admit(*queue);
  }
  /// Admits calls that wait for a dedicated connection.
  void serve_without_connection() noexcept;
  /// Handles the records that the connection has received.
  void take_records(UpstreamConnection& connection) noexcept;
  /// Changes the state of a call whose message the send queue has released.
  void on_message_sent(ForwardedCall& forwarded) noexcept;
  /// Ends or requeues the calls of connections that have been closed.
  void settle_closed() noexcept {
    while (UpstreamConnection* const connection = connections_.work.closed.pop_front()) settle(*connection);
  }
  /// Closes the connection and ends its calls. Calls to which the send queue refers end when the connection
  /// is closed.
  void end_calls_of(UpstreamConnection& connection) noexcept;
  /// Ends a call that exceeds its time limit.
  void end_if_due(ForwardedCall& forwarded, std::uint64_t now_ns) noexcept;
  /// Retransmits an overdue call whose client is still connected, either on its shared connection or on a new
  /// dedicated connection.
  void retransmit_if_due(ForwardedCall& forwarded, std::uint64_t now_ns) noexcept;
  /// Checks whether an orphan delays its client for too long.
  void watch(ForwardedCall& orphan, std::uint64_t now_ns) noexcept;

 private:
  void complete_unanswerable() noexcept;
  void admit_waiting() noexcept;
  void settle(UpstreamConnection& connection) noexcept;
  Admission::Lack admit(Admission::Queue& queue) noexcept;
  void start(ForwardedCall& forwarded, UpstreamConnection& connection) noexcept;
  void replay(ForwardedCall& forwarded) noexcept;
  /// Returns the call or the orphan on the connection that has this XID, or null.
  ForwardedCall* find(UpstreamConnection& connection, std::uint32_t xid) noexcept {
    ForwardedCall* const forwarded = shared_.xids.find(xid);
    if (forwarded != nullptr && forwarded->connection == &connection) return forwarded;
    return connection.find_kept(xid);
  }
  ForwardedCall* find_awaited(UpstreamConnection& connection, std::uint32_t xid) noexcept {
    ForwardedCall* const found = find(connection, xid);
    return found != nullptr && found->awaits_reply() ? found : nullptr;
  }

  void unlink(ForwardedCall& forwarded) noexcept;
  void end(ForwardedCall& forwarded) noexcept;
  void end_at_upstream(ForwardedCall& forwarded) noexcept;
  void orphan(ForwardedCall& forwarded) noexcept;
  void give_up(ForwardedCall& forwarded) noexcept;
  bool may_go_again(const ForwardedCall& forwarded) noexcept;
  void requeue(UpstreamConnection& connection, const ForwardedCall* guilty) noexcept;

  void on_record(UpstreamConnection& connection) noexcept;
  void on_reply(UpstreamConnection& connection, std::span<std::byte> record) noexcept;
  std::byte* memory_for(UpstreamConnection& connection) noexcept;
  void take_memory_back(UpstreamConnection& connection) noexcept;
  void on_skipped(UpstreamConnection& connection, UpstreamConnection::Arrival arrival) noexcept;
  void send_on_own(ForwardedCall& forwarded) noexcept;
  void hold(ForwardedCall& forwarded, std::span<const std::byte> record) noexcept;
  void keep_until_room(ForwardedCall& forwarded, std::span<const std::byte> record) noexcept;
  bool complete(ForwardedCall& forwarded, std::span<const std::byte> record, bool registered) noexcept;
  void refuse_reply(ForwardedCall& forwarded, std::uint64_t bytes) noexcept;
  void wait_for_results(ForwardedCall& forwarded) noexcept;
  void answered(ForwardedCall& forwarded) noexcept;

  UpstreamShared& shared_;
  UpstreamConnections& connections_;
  Admission admission_;  ///< contains the calls for which awaits_admission() is true
  DuplicateRequests repeats_;
  PoisonCalls suspects_;
  ReverseCalls reverse_calls_;
  ForwardedCallList unanswerable_;  ///< calls that end without a reply and disconnect their clients
  /// Flag per client number, set if the upstream refuses the client's sessions on shared connections.
  std::vector<bool> sessions_stay_;
};

}  // namespace sluice::tcp_upstream
