// SPDX-License-Identifier: Apache-2.0
//
// InfiniBand connection management (volume 1, 12.9; annex A11) for reliable connections over RoCE, passive
// and active, as a table of states and events. The agent uses no socket, clock or thread: datagrams and the
// time are passed to its functions, and it sends datagrams and results through its Host. Single-threaded.
// Input from a peer never causes an exception, and the memory that peers can occupy is bounded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "controlplane/cm/connection_state.h"
#include "controlplane/cm/entry_table.h"
#include "controlplane/cm/mad.h"
#include "controlplane/cm/random_numbers.h"
#include "controlplane/policy/admission.h"
#include "dataplane/base/small_algorithms.h"

namespace sluice::cm {

using policy::Refusal;

constexpr RejectReason reject_reason(Refusal refusal) noexcept {
  constexpr RejectReason kReasons[] = {
#define SLUICE_REFUSAL(enumerator, name, reason, text) RejectReason::reason,
      SLUICE_REFUSALS(SLUICE_REFUSAL)
#undef SLUICE_REFUSAL
  };
  return kReasons[static_cast<std::size_t>(refusal)];
}

/// A refused connection request, with the reason of its reject on the wire.
struct Refused {
  Refusal why{};
  std::uint16_t path_mtu = 0;           ///< requested path MTU for InvalidPathMtu; zero for an invalid code
  std::uint16_t accepted_path_mtu = 0;  ///< largest accepted path MTU for InvalidPathMtu; zero if unknown
};

/// Returns a sentence for an event with the requested and accepted values. Empty for reasons without values.
std::string detail_of(const Refused& refused);

struct AgentConfig {
  std::uint64_t seed = 0;  ///< seed for communication identifiers
  std::uint32_t max_connections = 1024;
  std::uint32_t max_half_open = 128;  ///< limit of requests without the consumer's or the peer's answer
  /// Limit of half-open connections from one address, so that a peer that never confirms leaves slots to
  /// others.
  std::uint32_t max_half_open_per_source = 64;
  /// Minimum age for the eviction of a half-open connection. If all slots are in use, in total or of a
  /// source, a new request evicts the oldest one if it is older than this, because a live peer confirms
  /// within its round trip. Otherwise the new request is refused.
  std::uint64_t half_open_grace_ns = 250'000'000;
  /// Limit of entries per source that wait for a disconnect reply or are in TimeWait. Above it, the source's
  /// oldest one is evicted. A request that finds the table full evicts the oldest ended entry of all sources.
  std::uint32_t max_ended_per_source = 256;
  std::uint8_t response_timeout = 17;  ///< time for a peer to answer, 4.096 us * 2^n: 0.5 s
  std::uint8_t max_retries = 15;
  std::uint8_t max_disconnect_retries = 3;             ///< retransmissions of a disconnect request
  std::uint64_t consumer_timeout_ns = 10'000'000'000;  ///< time for accept() or reject()
  std::uint64_t time_wait_ns = 1'000'000'000;
  std::uint8_t ack_timeout = 16;   ///< sent to the peer for its retransmissions: 0.27 s
  std::uint8_t traffic_class = 0;  ///< DSCP and ECN bits of outgoing connections
  std::uint8_t service_level = 0;  ///< service level of outgoing connections
};

/// Properties of the local port that messages carry.
struct LocalPort {
  std::uint64_t guid = 0;          ///< zero if unknown
  std::uint16_t max_path_mtu = 0;  ///< in bytes; zero if unknown, and any value is accepted
  bool operator==(const LocalPort&) const = default;
};

class Agent {
 public:
  /// Implemented by the owner. Callbacks may only call accept(), reject() and ready() of the agent.
  class Host {
   public:
    virtual ~Host() = default;
    virtual void send_mad(const Endpoint& to, std::span<const std::byte, kMadBytes> mad) = 0;
    /// Passive: a request has arrived. The owner calls accept() or reject(), immediately or later.
    virtual void on_request(Id id, const PeerParameters& peer) = 0;
    /// Passive: the agent has refused a request, or an accepted request has failed.
    virtual void on_refused(const Endpoint& /*from*/, const Refused& /*refused*/) {}
    /// Active: a reply has arrived. The owner connects the queue pair and calls ready(), or calls
    /// disconnect().
    virtual void on_reply(Id id, const PeerParameters& peer) = 0;
    /// Passive: the peer is ready.
    virtual void on_established(Id id) = 0;
    /// Active: the server does not accept the path MTU. on_rejected() follows.
    virtual void on_path_mtu_refused(Id /*id*/, const Refused& /*refused*/) {}
    /// The connection was not established. The id becomes invalid.
    virtual void on_rejected(Id id, RejectReason reason, std::span<const std::byte> private_data) = 0;
    /// The connection has ended. The owner moves the queue pair to Error. The id becomes invalid.
    virtual void on_disconnected(Id id) = 0;
  };

  Agent(Host& host, const AgentConfig& config);

  void listen(std::uint16_t port) { ports_.push_back(port); }
  void set_port(const LocalPort& port) { port_ = port; }
  /// Sets max_half_open and max_half_open_per_source. The other limits of `config` are fixed.
  void set_half_open_limits(const AgentConfig& config) {
    config_.max_half_open = config.max_half_open;
    config_.max_half_open_per_source = config.max_half_open_per_source;
  }
  void on_mad(const Endpoint& from, std::span<const std::byte> mad, std::uint64_t now_ns);
  /// Limit of timers that one advance() handles, which bounds its duration and the number of datagrams that
  /// it sends.
  static constexpr std::size_t kTimersPerAdvance = 64;
  /// Handles timers up to `now_ns`, the earliest first. Returns true if more of them are due.
  bool advance(std::uint64_t now_ns);

  /// Sends a connection request. Returns no value if the table is full.
  std::optional<Id> connect(const Endpoint& to, std::uint16_t port, std::uint16_t path_mtu,
                            const OwnParameters& own, std::uint64_t now_ns);
  // These functions return false if the id is not valid or the state of the connection does not allow the
  // call.
  bool accept(Id id, const OwnParameters& own, std::uint64_t now_ns);
  bool reject(Id id, RejectReason reason, std::span<const std::byte> private_data, std::uint64_t now_ns);
  bool ready(Id id, std::uint64_t now_ns);
  bool disconnect(Id id, std::uint64_t now_ns);
  /// Reports a packet on the queue pair. It replaces a ready-to-use that was lost (12.9.7.2).
  bool packet_arrived(Id id, std::uint64_t now_ns);

  std::optional<Snapshot> snapshot(Id id) const;
  /// Takes over a connection of another agent, and sends messages again that the peer may not have received.
  /// Returns false if the connection is known already, or if its peer has requested a new connection of the
  /// queue pair since.
  bool restore(const Snapshot& snapshot, const Progress& progress = {});

  std::optional<State> state(Id id) const;
  std::size_t connections() const { return entries_.size(); }
  const AgentStatistics& statistics() const { return statistics_; }
  /// Returns the maximum number of entries that the lookups of a message have to compare.
  std::size_t longest_chain() const { return entries_.longest_chain(); }

 private:
  /// Input of a handler.
  struct Input {
    const Message* message = nullptr;
    std::uint64_t now_ns = 0;
    std::uint64_t transaction_id = 0;
  };
  using Handler = void (Agent::*)(Entry&, const Input&);
  static const Handler kTable[kStates][kEvents];

  bool dispatch(Id id, Event event, const Input& input);
  Entry& create(const Endpoint& endpoint);
  void on_request(const Endpoint& from, const Message& message, std::uint64_t now_ns);
  std::optional<Refused> judge(const ConnectRequest& request) const;
  void refuse_path(const Endpoint& from, std::uint64_t transaction, const LoadAlternatePath& load);
  void refuse(const Endpoint& to, const Message& message, const Refused& refused);
  ConnectReject timeout_reject(const Entry& entry, About about) const;
  bool make_place(std::uint64_t now_ns);
  std::optional<Refusal> make_half_open_place(const PeerAddress& source, std::uint64_t now_ns);
  bool give_way(const EntryQueue::Item& oldest, std::uint64_t now_ns);

  void change_state(Entry& entry, State state);
  ConnectReply connect_reply(const Entry& entry) const;
  ReadyToUse ready_to_use(const Entry& entry) const;
  void send(Entry& entry, const Body& body);
  void send_again(Entry& entry);
  void expect_answer(Entry& entry, std::uint32_t retries, std::uint64_t now_ns);
  void enter_ended(Entry& entry, State state, std::uint64_t now_ns);
  void enter_time_wait(Entry& entry, std::uint64_t now_ns);
  void evict(std::uint32_t id, std::uint64_t now_ns);
  void erase(Entry& entry);
  DisconnectReply disconnect_reply(const Entry& entry) const;

  // Handlers of the table.
  void repeat(Entry& entry, const Input& input);
  void acknowledge_receipt(Entry& entry, const Input& input);
  void request_rejected(Entry& entry, const Input& input);
  void reply_arrived(Entry& entry, const Input& input);
  void wait_longer(Entry& entry, const Input& input);
  void established(Entry& entry, const Input& input);
  void reply_rejected(Entry& entry, const Input& input);
  void peer_disconnects(Entry& entry, const Input& input);
  void answer_disconnect(Entry& entry, const Input& input);
  void disconnected(Entry& entry, const Input& input);
  void retry_request(Entry& entry, const Input& input);
  void retry_reply(Entry& entry, const Input& input);
  void retry_disconnect(Entry& entry, const Input& input);
  void consumer_too_slow(Entry& entry, const Input& input);
  void abandon(Entry& entry, const Input& input);
  void release(Entry& entry, const Input& input);
  void send_reply(Entry& entry, const Input& input);
  void send_ready(Entry& entry, const Input& input);
  void start_disconnect(Entry& entry, const Input& input);
  void withdraw(Entry& entry, const Input& input);
  bool retry(Entry& entry, std::uint64_t now_ns);

  Host& host_;
  AgentConfig config_;
  RandomNumbers random_;
  std::vector<std::uint16_t> ports_;
  LocalPort port_;
  EntryTable entries_;
  TimerHeap timers_;
  EntryQueue half_open_;
  EntryQueue disconnecting_;  ///< entries in DisconnectSent
  EntryQueue time_wait_;
  std::uint64_t next_transaction_;
  AgentStatistics statistics_;
};

/// Minimum number of half-open slots for one source, and for all others beside a source that has used up its
/// share.
inline constexpr std::uint32_t kLeastHalfOpen = 8;

/// Sets the limits for `connections` connections of all reactors, of which one client may have `per_client`.
/// The table has twice this number of slots, because connections that have ended stay in it for some seconds.
inline AgentConfig with_limits(AgentConfig config, std::uint32_t connections, std::uint32_t per_client) {
  config.max_connections = 2 * connections;
  // Each unconfirmed request holds a queue pair, so at most half of the slots are for unconfirmed requests. A
  // client may open all of its connections at the same time (nconnect), and leaves kLeastHalfOpen slots to
  // other clients.
  const std::uint32_t of_source = smaller_of(per_client, connections);
  config.max_half_open = larger_of(bounded(connections / 2, kLeastHalfOpen, AgentConfig{}.max_half_open),
                                   of_source + kLeastHalfOpen);
  config.max_half_open_per_source = larger_of(larger_of(config.max_half_open / 2, kLeastHalfOpen), of_source);
  // A client may close all of its connections at the same time.
  config.max_ended_per_source = larger_of(connections / 2, per_client);
  return config;
}

}  // namespace sluice::cm
