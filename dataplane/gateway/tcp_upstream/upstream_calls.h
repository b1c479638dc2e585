// SPDX-License-Identifier: Apache-2.0
//
// The calls at one upstream on one reactor, from a call's submission to its end: they wait for their admission, get an
// XID and a connection, and are completed with their reply, or end without one. Only the owning reactor may call;
// only the constructor allocates.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "dataplane/gateway/tcp_upstream/admission.h"
#include "dataplane/gateway/tcp_upstream/repeats.h"
#include "dataplane/gateway/tcp_upstream/reverse_calls.h"
#include "dataplane/gateway/tcp_upstream/upstream_connections.h"

namespace sluice::tcp_upstream {

/// Timeout of an orphan: after it, the orphan does not delay other calls of its client, provided that the
/// upstream answers other calls.
inline constexpr std::uint64_t kEarlierNs = 30'000'000'000;

/// Time after which the connection is reset if the upstream has not accepted the bytes of a call of a
/// disconnected client, whose memory is needed for other clients.
inline constexpr std::uint64_t kAbandonedNs = 10'000'000'000;

class UpstreamCalls {
 public:
  using Counter = segment::UpstreamCounter;

  /// Setup. `shared` and `connections` outlive it.
  UpstreamCalls(UpstreamShared& shared, rdma::Device& device, UpstreamConnections& connections);

  // Services call the next three.
  /// Sends ForwardedCall::message as soon as the call is admitted.
  void submit(ForwardedCall& forwarded) noexcept;
  /// Delivers a reply that was held. False: the transport still has no room.
  bool deliver_held(ForwardedCall& forwarded) noexcept;
  /// Ends a call whose client disconnected before the call was completed.
  void abandon(ForwardedCall& forwarded) noexcept;

  // Upstream calls all others.
  Admission& admission() noexcept { return admission_; }
  const Admission& admission() const noexcept { return admission_; }
  Repeats& repeats() noexcept { return repeats_; }
  /// Returns whether calls wait, are outstanding, or have become orphans.
  bool any() const noexcept {
    return admission_.waiting() > 0 || admission_.outstanding() > 0 || !repeats_.orphans().none();
  }
  void client_gone(std::uint16_t client) noexcept;
  /// Forgets the suspects, because another upstream replaces this one.
  void forget_suspects() noexcept { suspects_ = {}; }
  /// Completes the calls that end without a reply, and admits waiting calls. It is called once in a turn,
  /// after everything that ends calls.
  void serve_waiting() noexcept;
  /// Admits calls whose client's earlier calls have ended. It is called once in a turn.
  void serve_behind_earlier(std::uint64_t now_ns) noexcept;
  /// Admits calls that wait for a dedicated connection.
  void serve_without_connection() noexcept;
  /// Takes the records that the connection has received.
  void take_records(UpstreamConnection& connection) noexcept;
  /// Changes the state of a call whose message the send queue has released.
  void on_message_sent(ForwardedCall& forwarded) noexcept;
  /// Ends or requeues the calls of connections that have been closed.
  void settle_closed() noexcept;
  /// Closes the connection and ends its calls; those to which the send queue refers end when it is closed.
  void end_calls_of(UpstreamConnection& connection) noexcept;
  /// Ends a call that has lasted too long.
  void end_if_due(ForwardedCall& forwarded, std::uint64_t now_ns) noexcept;
  /// Retransmits the call of a client that waits for it: on its shared connection, or on a new dedicated one.
  void retransmit_if_due(ForwardedCall& forwarded, std::uint64_t now_ns) noexcept;
  /// Checks whether an orphan delays its client for too long.
  void watch(ForwardedCall& orphan, std::uint64_t now_ns) noexcept;

 private:
  Admission::Lack admit(Admission::Queue& queue) noexcept;
  void start(ForwardedCall& forwarded, UpstreamConnection& connection) noexcept;
  void replay(ForwardedCall& forwarded) noexcept;
  ForwardedCall* find(UpstreamConnection& connection, std::uint32_t xid) noexcept;
  ForwardedCall* find_awaited(UpstreamConnection& connection, std::uint32_t xid) noexcept;

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
  void deliver(ForwardedCall& forwarded, std::span<const std::byte> record, bool registered) noexcept;
  bool complete(ForwardedCall& forwarded, std::span<const std::byte> record, bool registered) noexcept;
  void refuse_reply(ForwardedCall& forwarded, std::uint64_t bytes) noexcept;
  void wait_for_results(ForwardedCall& forwarded) noexcept;
  void answered(ForwardedCall& forwarded) noexcept;

  UpstreamShared& shared_;
  UpstreamConnections& connections_;
  Admission admission_;  ///< of calls in a state of awaits_admission()
  Repeats repeats_;
  Suspects suspects_;
  ReverseCalls reverse_calls_;
  ForwardedCallList unanswerable_;  ///< of clients that are disconnected or will be
  /// The upstream refuses the sessions of these clients, by number, on shared connections.
  std::vector<bool> sessions_stay_;
};

}  // namespace sluice::tcp_upstream
