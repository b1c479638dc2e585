// SPDX-License-Identifier: Apache-2.0
//
// One upstream server on one reactor: selects a connection per call, assigns XIDs, matches replies, and
// passes the upstream's own calls to clients. Only the owning reactor may call.
//
// NFS version 4 and RPCSEC_GSS use one upstream connection per client connection, because the server ties
// state, callbacks and security contexts to the connection. All other calls share a few connections: the short
// ones of a client go on one of them, in batches, and its long ones on all in turn. So do long COMPOUNDs of a
// session (NFS 4.1), which has the shared connections beside the one of its client's own.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "dataplane/base/intrusive_queue.h"
#include "dataplane/base/paced_round.h"
#include "dataplane/base/small_algorithms.h"
#include "dataplane/gateway/tcp_upstream/addresses.h"
#include "dataplane/gateway/tcp_upstream/admission.h"
#include "dataplane/gateway/tcp_upstream/credit_limits.h"
#include "dataplane/gateway/tcp_upstream/forwarded_call.h"
#include "dataplane/gateway/tcp_upstream/repeats.h"
#include "dataplane/gateway/tcp_upstream/reverse_calls.h"
#include "dataplane/gateway/tcp_upstream/suspects.h"
#include "dataplane/gateway/tcp_upstream/turn_clock.h"
#include "dataplane/gateway/tcp_upstream/upstream_connection.h"
#include "dataplane/gateway/tcp_upstream/xid_table.h"
#include "dataplane/segment/upstreams.h"
#include "pmd/device.h"

namespace sluice::tcp_upstream {

/// The client of a call is disconnected after this many connections were lost with the call alone on them
/// while other calls were answered.
inline constexpr std::uint8_t kMaxStrikes = 3;
/// A client that has gone waits no longer for the upstream to take the bytes of its calls: their memory and its
/// place among the connections are wanted. The upstream's connection is made again.
inline constexpr std::uint64_t kAbandonedNs = 10'000'000'000;
/// Calls of clients that have gone hold up what these ask on other connections: no longer than this, if the
/// upstream answers others meanwhile.
inline constexpr std::uint64_t kEarlierNs = 30'000'000'000;
/// A client none of whose calls could be sent for so long while some wait is granted half as much, down to one.
inline constexpr std::uint64_t kStuckNs = 500'000'000;
/// Period of halving or doubling credit limits, of looking at silent connections and of publishing gauges.
inline constexpr std::uint64_t kCreditIntervalNs = 200'000'000;
/// Calls of a connection that a turn looks at.
inline constexpr std::uint32_t kCallsInATurn = 64;

/// Calls at an upstream whose place another one takes may be answered for so long.
inline constexpr std::uint64_t kLeaveNs = 30'000'000'000;

/// Dedicated connections that may still be closing while their successors are open.
inline constexpr std::uint32_t kSpareConnections = 16;

struct UpstreamConfig {
  std::string name;
  const segment::SharedUpstreamAddresses* addresses = nullptr;  ///< outlives the upstream
  std::uint16_t port = 0;  ///< at first; later it is found with the addresses
  std::uint32_t shared_connections = 4;
  std::uint32_t max_calls = 1024;     ///< outstanding at once; see numbers()
  std::uint32_t max_clients = 64;     ///< client connections of the reactor
  std::uint64_t call_timeout_ns = 0;  ///< then its client is disconnected; zero: never
  bool privileged_port = false;       ///< bind to a port below 1024
  std::uint32_t credits = 64;         ///< upper bound per client
  service::Withheld withheld{};
  ReplyBuffers replies;
  std::shared_ptr<RequestCache> cache = {};  ///< of all reactors
  std::uint32_t handle_tag = 0;              ///< of its handles of NFS 3 on the clients' side; zero: none
  bool spare = false;                        ///< which upstream it is comes later: UpstreamPlace

  /// Connections of a reactor, shared and dedicated.
  std::uint32_t connections() const noexcept { return shared_connections + max_clients + kSpareConnections; }
  /// Calls that can be outstanding: max_calls, and no fewer than leave each client one.
  std::uint32_t numbers() const noexcept {
    return larger_of(max_calls, std::bit_ceil(least_for_equal_shares(max_clients)));
  }
};

class Upstream {
 public:
  using Counter = segment::UpstreamCounter;

  /// What the upstreams of a reactor share.
  struct Context {
    tcp::Uring& uring;
    rdma::Device& device;
    CreditLimits& credits;
    TurnClock& clock;
  };
  /// Setup: the upstream `number` of those that share the context. The references outlive it.
  Upstream(const UpstreamConfig& config, const Context& context, std::uint32_t number,
           segment::UpstreamArea& area);
  ~Upstream();
  Upstream(const Upstream&) = delete;
  Upstream& operator=(const Upstream&) = delete;

  const UpstreamConfig& config() const noexcept { return config_; }
  /// In each turn until it is true: nothing of the upstream is left here. Before, it gets no calls any more; those that it
  /// has are answered within kLeaveNs, or their clients disconnected.
  bool leave() noexcept;
  /// After leave(): is this upstream from now on, whose counters begin at zero.
  void become(std::string_view name, std::uint16_t port) noexcept;

  // For the services.
  /// ForwardedCall::message is what is sent.
  void submit(ForwardedCall& forwarded) noexcept;
  /// Delivers a reply that was held. False: the transport still has no room.
  bool deliver_held(ForwardedCall& forwarded) noexcept;
  /// The call is about to be completed with its reply: frees its XID, records the latency.
  void answered(ForwardedCall& forwarded) noexcept;
  /// The call needs the memory of its reply no more.
  void release(ForwardedCall& forwarded) noexcept { admission_.release(forwarded); }
  rdma::Lkey reply_lkey(ReplyNeed need) noexcept { return memory().of(need).lkey(); }
  /// The client has gone before its call was completed.
  void abandon(ForwardedCall& forwarded) noexcept;
  void client_gone(service::Client& client) noexcept;

  // For the reactor's loop.
  std::uint64_t held_bytes(std::uint16_t client) const noexcept { return admission_.held_bytes(client); }
  void flush() noexcept;
  /// A bounded slice, however many clients there are.
  void background(std::uint64_t now_ns) noexcept;
  /// Once in a turn, behind everything that ends calls.
  void serve_waiting() noexcept {
    end_unanswerable();
    admission_.serve_waiting();
  }

  // For the admission of calls.
  bool must_wait(ForwardedCall& forwarded) noexcept;
  /// Of a client that waits for a dedicated one: null if none is free now.
  UpstreamConnection* connection_for(const ForwardedCall& forwarded) noexcept;
  bool has_free_connections() const noexcept { return !free_.empty(); }
  /// The call has been admitted, and goes on the connection that connection_for() has given.
  void start(ForwardedCall& forwarded, UpstreamConnection& connection) noexcept;

  // For its connections.
  /// Where they go; null: not known yet.
  const PeerAddress* address() const noexcept { return addresses_.current(); }
  std::uint16_t port() const noexcept { return addresses_.port(); }
  bool has_other_addresses() const noexcept { return addresses_.has_others(); }
  void on_address_failed(const PeerAddress& address) noexcept;
  void on_record(UpstreamConnection& connection, std::span<std::byte> record) noexcept;
  /// Memory for a long record that begins with this XID, out of what its call has: belongs to the connection
  /// until take_back(), or until on_record() takes it. Null: there is no such call, or its reply is not so long.
  std::byte* lend_memory(UpstreamConnection& connection, std::uint32_t xid) noexcept;
  /// The record has ended before it was complete, or nobody wanted it.
  void take_back(UpstreamConnection& connection, std::uint32_t xid, std::byte* memory) noexcept;
  /// A record for which lend_memory() had nothing was skipped.
  void on_unwanted_record(UpstreamConnection& connection, std::uint32_t xid, rpc::MessageType type) noexcept;
  /// The send queue no longer refers to the call's message.
  void on_message_sent(ForwardedCall& forwarded) noexcept;
  /// A record longer than any valid reply was skipped; `xid` is its first word.
  void on_long_record(UpstreamConnection& connection, std::span<const std::byte> xid) noexcept;
  void on_lost(UpstreamConnection& connection, const ForwardedCall* guilty) noexcept;
  void schedule_flush(UpstreamConnection& connection) noexcept;
  std::uint64_t now_ns() const noexcept { return clock_.now_ns(); }
  void count(Counter counter, std::uint64_t amount = 1) noexcept {
    auto& value = area_.counters[static_cast<std::size_t>(counter)];
    value.store(value.load(std::memory_order_relaxed) + amount, std::memory_order_relaxed);
  }
  void on_sending(ForwardedCall& forwarded) noexcept;
  /// That no call on the connection has.
  std::uint32_t new_xid(UpstreamConnection& connection) noexcept;
  /// No effect if it is already.
  void schedule_attention(UpstreamConnection& connection) noexcept;
  /// The call has ended every connection it was sent on.
  void suspect(const ForwardedCall& forwarded) noexcept;

 private:
  void register_client(service::Client& client) noexcept;
  bool assign_xid(ForwardedCall& forwarded, UpstreamConnection& connection) noexcept;
  void replay(ForwardedCall& forwarded) noexcept;
  void unlink(ForwardedCall& forwarded) noexcept;
  void orphan(ForwardedCall& forwarded) noexcept;
  void end_at_upstream(ForwardedCall& forwarded) noexcept;
  void attend_connections(std::uint64_t now_ns) noexcept;
  void recycle(UpstreamConnection& connection) noexcept;
  void look_around(std::uint64_t now_ns) noexcept;
  bool look_at(UpstreamConnection& connection, std::uint64_t now_ns, std::uint32_t& calls) noexcept;
  void look_at_client(std::uint32_t client, std::uint64_t now_ns) noexcept;
  void end_round() noexcept;
  void watch_orphans(std::uint64_t now_ns) noexcept;
  void watch(ForwardedCall& orphan, std::uint64_t now_ns) noexcept;
  void retransmit_if_due(ForwardedCall& forwarded, std::uint64_t now_ns) noexcept;
  void publish_address() noexcept;
  void use_address() noexcept;
  ForwardedCall* find(UpstreamConnection& connection, std::uint32_t xid) noexcept;
  std::span<const std::unique_ptr<UpstreamConnection>> shared_connections() const noexcept {
    return std::span(connections_).first(config_.shared_connections);
  }
  ReplyMemory& memory() noexcept { return admission_.memory(); }
  ForwardedCall* find_awaited(UpstreamConnection& connection, std::uint32_t xid) noexcept;
  void on_reply(UpstreamConnection& connection, std::span<std::byte> record) noexcept;
  void send_on_own(ForwardedCall& forwarded) noexcept;
  void hold(ForwardedCall& forwarded, std::span<const std::byte> record) noexcept;
  void deliver(ForwardedCall& forwarded, std::span<const std::byte> record, bool registered) noexcept;
  void refuse_reply(ForwardedCall& forwarded, std::uint64_t bytes) noexcept;
  void wait_for_results(ForwardedCall& forwarded) noexcept;
  void deliver_or_wait(ForwardedCall& forwarded) noexcept;
  void give_up(ForwardedCall& forwarded) noexcept;
  void end(ForwardedCall& forwarded) noexcept;
  void end_unanswerable() noexcept;
  bool has_calls() const noexcept;
  void end_calls_of(UpstreamConnection& connection) noexcept;
  void part_from_clients() noexcept;
  bool may_go_again(const ForwardedCall& forwarded) noexcept;
  bool is_due(const ForwardedCall& forwarded, std::uint64_t age_ns) const noexcept;
  void end_if_due(ForwardedCall& forwarded, std::uint64_t now_ns) noexcept;
  void no_longer_unsent(ForwardedCall& forwarded) noexcept;
  UpstreamConnection* shared_connection_for(const ForwardedCall& forwarded) noexcept;
  std::uint32_t next_credit_limit(std::uint32_t client, std::uint64_t now_ns) const noexcept;
  void update_credit_limit(std::uint32_t client, std::uint64_t now_ns) noexcept;
  void publish() noexcept;

  UpstreamConfig config_;
  const std::uint32_t number_;
  tcp::Uring& uring_;
  CreditLimits& credits_;
  segment::UpstreamArea& area_;
  TurnClock& clock_;

  Addresses addresses_;
  std::vector<std::unique_ptr<UpstreamConnection>> connections_;  ///< shared ones first
  std::vector<UpstreamConnection*> own_;                          ///< dedicated ones, by client number
  std::vector<UpstreamConnection*> free_;                         ///< to be dedicated
  std::vector<UpstreamConnection*> dirty_;
  /// Those that needs_attention(), each of them once in kTickNs.
  IntrusiveQueue<UpstreamConnection, &UpstreamConnection::attended_link> attended_;
  std::uint32_t attended_count_ = 0;
  std::uint32_t leaving_count_ = 0;  ///< dedicated ones whose client has gone
  PacedRound attention_round_{kTickNs};

  XidTable xids_;        ///< but those that calls keep
  Admission admission_;  ///< of calls AwaitingXid
  Repeats repeats_;

  ForwardedCallList unanswerable_;  ///< of clients that are to be disconnected, or have gone
  Suspects suspects_;
  ReverseCalls reverse_calls_;

  struct ClientEntry {
    service::Client* client = nullptr;  ///< null until the client's first call
    std::uint32_t credit_limit = kNoLimit;
    std::uint32_t unsent = 0;         ///< calls
    std::uint64_t moved_ns = 0;       ///< when one of them was sent last, or the first of them came
    std::uint32_t long_messages = 0;  ///< sent on shared connections
    bool sessions_stay = false;       ///< on the client's own connection: the upstream takes them on no other
  };
  std::vector<ClientEntry> clients_;  ///< by number
  /// What a round over all connections and clients has found so far.
  struct Found {
    std::uint32_t up = 0;
    std::uint32_t connecting = 0;
    std::uint32_t waiting = 0;      ///< calls for their connection
    std::uint32_t outstanding = 0;  ///< calls
    Admission::Waiting waiting_for_pools{};
    std::uint32_t lowest_credit_limit = kNoLimit;
  };
  PacedRound round_{kCreditIntervalNs};
  std::uint32_t next_looked_at_ = 0;  ///< connection, and client
  bool among_calls_ = false;          ///< some of its calls are still to be looked at
  Found found_;
  PacedRound orphans_round_{kCreditIntervalNs};
  std::uint64_t leaving_since_ns_ = 0;  ///< zero: it is not
  bool parted_ = false;                 ///< leaving, it has no calls and no clients any more
};

}  // namespace sluice::tcp_upstream
