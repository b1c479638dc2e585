// SPDX-License-Identifier: Apache-2.0
//
// InfiniBand connection management (volume 1, 12.9; annex A11) for reliable connections over RoCE, passive
// and active: a table of states and events. It has no socket, clock or thread of its own: datagrams and the
// time come in by calls, datagrams and results go out through its Host. One thread. Nothing that a peer sends
// throws, and the memory that peers can occupy is bounded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "controlplane/cm/agent_statistics.h"
#include "controlplane/cm/connection_state.h"
#include "controlplane/cm/entry_queue.h"
#include "controlplane/cm/entry_table.h"
#include "controlplane/cm/mad.h"
#include "controlplane/cm/random_numbers.h"
#include "controlplane/cm/refused.h"
#include "controlplane/cm/timer_heap.h"

namespace sluice::cm {

struct AgentConfig {
  std::uint64_t seed = 0;  ///< of communication identifiers
  std::uint32_t max_connections = 1024;
  std::uint32_t max_half_open = 128;  ///< wait for the consumer's answer or the peer's confirmation
  /// Of these, from one address: one peer that never confirms leaves places to the others.
  std::uint32_t max_half_open_per_source = 64;
  /// With all places taken, in all or of a source, the oldest of them gives way to a new request when it is
  /// older than this: a peer that is there confirms within its round trip. Younger ones stay, and the new
  /// request is refused.
  std::uint64_t half_open_grace_ns = 250'000'000;
  /// Entries of one source that have ended and wait for a disconnect reply or in TimeWait. Above it, the source's oldest one is
  /// evicted. A request that finds the table full evicts the oldest ended entry of all sources.
  std::uint32_t max_ended_per_source = 256;
  std::uint8_t response_timeout = 17;  ///< 4.096 us * 2^n: how long a peer may take to answer; 0.5 s
  std::uint8_t max_retries = 15;
  std::uint8_t max_disconnect_retries = 3;             ///< of a disconnect request
  std::uint64_t consumer_timeout_ns = 10'000'000'000;  ///< for accept() or reject()
  std::uint64_t time_wait_ns = 1'000'000'000;
  std::uint8_t ack_timeout = 16;   ///< sent to the peer, for its retries: 0.27 s
  std::uint8_t traffic_class = 0;  ///< of the connections that we ask for: DSCP
  std::uint8_t service_level = 0;  ///< of the same
};

/// Properties of the local port that messages carry.
struct LocalPort {
  std::uint64_t guid = 0;          ///< 0: unknown
  std::uint16_t max_path_mtu = 0;  ///< in bytes; 0: unknown, and any is accepted
  bool operator==(const LocalPort&) const = default;
};

class Agent {
 public:
  /// Implemented by the owner. From within, only accept(), reject() and ready() of the agent may be called.
  class Host {
   public:
    virtual ~Host() = default;
    virtual void send_mad(const Endpoint& to, std::span<const std::byte, kMadBytes> mad) = 0;
    /// Passive: call accept() or reject(), now or later.
    virtual void on_request(Id id, const PeerParameters& peer) = 0;
    /// Passive: the agent has refused a request itself, or one that was accepted has come to nothing.
    virtual void on_refused(const Endpoint& /*from*/, const Refused& /*refused*/) {}
    /// Active: connect the queue pair, then call ready(); or call disconnect().
    virtual void on_reply(Id id, const PeerParameters& peer) = 0;
    /// Passive: the peer is ready.
    virtual void on_established(Id id) = 0;
    /// Active: on_rejected() follows. The server does not accept the path MTU.
    virtual void on_path_mtu_refused(Id /*id*/, const Refused& /*refused*/) {}
    /// The connection was not established. The id is invalid from here on.
    virtual void on_rejected(Id id, RejectReason reason, std::span<const std::byte> private_data) = 0;
    /// The connection has ended: move the queue pair to Error. The id is invalid from here on.
    virtual void on_disconnected(Id id) = 0;
  };

  Agent(Host& host, const AgentConfig& config);

  void listen(std::uint16_t port) { ports_.push_back(port); }
  void set_port(const LocalPort& port) { port_ = port; }
  /// Sets max_half_open and max_half_open_per_source; all else of `config` is fixed.
  void set_half_open_limits(const AgentConfig& config) {
    config_.max_half_open = config.max_half_open;
    config_.max_half_open_per_source = config.max_half_open_per_source;
  }
  void on_mad(const Endpoint& from, std::span<const std::byte> mad, std::uint64_t now_ns);
  /// The most timers of one advance(): what it costs, and how many datagrams it sends, has a bound.
  static constexpr std::size_t kTimersPerAdvance = 64;
  /// Timers up to `now_ns`, the earliest first. True when more of them are due: call it again soon.
  bool advance(std::uint64_t now_ns);

  /// No value when there are `max_connections` already.
  std::optional<Id> connect(const Endpoint& to, std::uint16_t port, std::uint16_t path_mtu,
                            const OwnParameters& own, std::uint64_t now_ns);
  // False when the id is not valid, or the connection's state does not allow it.
  bool accept(Id id, const OwnParameters& own, std::uint64_t now_ns);
  bool reject(Id id, RejectReason reason, std::span<const std::byte> private_data, std::uint64_t now_ns);
  bool ready(Id id, std::uint64_t now_ns);
  bool disconnect(Id id, std::uint64_t now_ns);
  /// A packet has arrived on the queue pair. It stands in for a ready-to-use that was lost (12.9.7.2).
  bool packet_arrived(Id id, std::uint64_t now_ns);

  std::optional<Snapshot> snapshot(Id id) const;
  /// Takes over a connection of another agent, and sends again what the peer may not have got. False when it is
  /// known already, or its peer has asked for a connection of the same queue pair meanwhile.
  bool restore(const Snapshot& snapshot, const Progress& progress = {});

  std::optional<State> state(Id id) const;
  std::size_t connections() const { return entries_.size(); }
  const AgentStatistics& statistics() const { return statistics_; }
  /// How many entries the lookups of a message have to compare, at most.
  std::size_t longest_chain() const { return entries_.longest_chain(); }

 private:
  /// What comes with an event.
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
  EntryQueue disconnecting_;  ///< in DisconnectSent
  EntryQueue time_wait_;
  std::uint64_t next_transaction_;
  AgentStatistics statistics_;
};

}  // namespace sluice::cm
