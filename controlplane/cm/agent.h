// SPDX-License-Identifier: Apache-2.0
//
// InfiniBand connection management (volume 1, 12.9; annex A11) for reliable connections over RoCE, passive
// and active: a table of states and events. It has no socket, clock or thread of its own: datagrams and the
// time come in by calls, datagrams and results go out through its Host. One thread. Nothing that a peer sends
// throws, and the memory that peers can occupy is bounded.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "controlplane/cm/half_open.h"
#include "controlplane/cm/mad.h"
#include "dataplane/base/net_address.h"
#include "pmd/queue_pair.h"

namespace sluice::cm {

enum class State : std::uint8_t {
  RequestSent,      ///< active: waits for the peer's reply or reject
  ReplyReceived,    ///< active: waits for the consumer to make its queue pair ready
  RequestReceived,  ///< passive: waits for the consumer's accept or reject
  ReplySent,        ///< passive: waits for ready-to-use, or a packet on the queue pair
  Established,      ///< waits for either side to disconnect
  DisconnectSent,   ///< waits for the disconnect reply
  TimeWait,         ///< waits until no message of the connection can be in flight
};
inline constexpr std::size_t kStates = 7;
const char* to_string(State state) noexcept;

enum class Event : std::uint8_t {
  RequestAgain,
  Reply,
  Reject,
  ReceiptAcknowledged,
  ReadyToUse,
  DisconnectRequest,
  DisconnectReply,
  Timer,
  PacketArrived,  ///< on the queue pair
  Accepted,       ///< this and the following: calls of the consumer
  Ready,
  Refused,
  Disconnect,
};
inline constexpr std::size_t kEvents = 13;

/// Our communication identifier, never zero.
enum class Id : std::uint32_t {};

/// Addresses of a connection's datagrams. `link` is that of the hop from which the last one arrived;
/// all zero when not known.
struct Endpoint {
  PeerAddress local;
  PeerAddress remote;
  LinkAddress link{};
};

/// The peer's values for the consumer's queue pair.
struct PeerParameters {
  Endpoint endpoint;
  std::uint16_t port = 0;  ///< of the service; requests only
  std::uint32_t qpn = 0;
  std::uint32_t send_psn = 0;  ///< of the first packet that we send
  std::uint16_t path_mtu = 1024;
  std::uint8_t responder_resources = 0;  ///< RDMA Reads the peer will have outstanding at us, at most
  std::uint8_t initiator_depth = 0;      ///< RDMA Reads we may have outstanding at the peer
  std::uint8_t ack_timeout = 0;
  std::uint8_t retry_count = 7;
  std::uint8_t rnr_retry = 7;
  std::vector<std::byte> private_data;  ///< the consumer's own part
};

/// Values of the consumer's own queue pair.
struct OwnParameters {
  std::uint32_t qpn = 0;
  std::uint32_t receive_psn = 0;  ///< of the first packet that the peer is to send
  std::uint8_t responder_resources = 16;
  std::uint8_t initiator_depth = 16;
  std::uint8_t rnr_retry = 7;
  std::vector<std::byte> private_data;
};

/// What another agent needs to take an established connection over.
/// Trivially copyable, for the connection table.
struct Snapshot {
  std::uint32_t id = 0;
  std::uint32_t remote_id = 0;
  std::uint64_t transaction_id = 0;
  std::uint32_t local_qpn = 0;
  std::uint32_t remote_qpn = 0;
  Endpoint endpoint;
};

struct AgentConfig {
  std::uint64_t seed = 0;  ///< of communication identifiers
  std::uint32_t max_connections = 1024;
  std::uint32_t max_half_open = 128;  ///< wait for the consumer's answer or the peer's confirmation
  /// With all places of these taken, the oldest gives way to a new request when it is older than this: a
  /// peer that is there confirms within its round trip. Younger ones stay, and the new request is refused.
  std::uint64_t half_open_grace_ns = 250'000'000;
  std::uint8_t response_timeout = 17;  ///< 4.096 us * 2^n: how long a peer may take to answer; 0.5 s
  std::uint8_t max_retries = 15;
  std::uint64_t consumer_timeout_ns = 10'000'000'000;  ///< for accept() or reject()
  std::uint64_t time_wait_ns = 1'000'000'000;
  std::uint8_t ack_timeout = 16;  ///< sent to the peer, for its retries: 0.27 s
};

struct AgentStatistics {
#define SLUICE_CM_STATISTICS(X)                                                   \
  X(received, "datagrams received")                                               \
  X(sent, "datagrams sent")                                                       \
  X(malformed, "datagrams that are no connection-management message")             \
  X(unexpected, "messages that their connection's state does not expect")         \
  X(unknown, "messages for connections that are not known")                       \
  X(requests, "connection requests")                                              \
  X(duplicate_requests, "connection requests that came again")                    \
  X(stale, "requests for a queue pair that another connection has")               \
  X(refused_service, "requests for a service that is not offered")                \
  X(refused_parameters, "requests whose parameters are invalid or not supported") \
  X(refused_resources, "requests above a limit on connections")                   \
  X(retransmissions, "messages sent again")                                       \
  X(timeouts, "messages that were never answered")                                \
  X(established, "connections established")                                       \
  X(ended, "connections ended")
#define SLUICE_CM_FIELD(name, help) std::uint64_t name = 0;
  SLUICE_CM_STATISTICS(SLUICE_CM_FIELD)
#undef SLUICE_CM_FIELD
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
    /// Active: connect the queue pair, then call ready(); or call disconnect().
    virtual void on_reply(Id id, const PeerParameters& peer) = 0;
    /// Passive: the peer is ready.
    virtual void on_established(Id id) = 0;
    /// The connection was not established. The id is invalid from here on.
    virtual void on_rejected(Id id, RejectReason reason, std::span<const std::byte> private_data) = 0;
    /// The connection has ended: move the queue pair to Error. The id is invalid from here on.
    virtual void on_disconnected(Id id) = 0;
  };

  Agent(Host& host, const AgentConfig& config);

  void listen(std::uint16_t port) { ports_.push_back(port); }
  void on_mad(const Endpoint& from, std::span<const std::byte> mad, std::uint64_t now_ns);
  /// Timers up to `now_ns`.
  void advance(std::uint64_t now_ns);

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
  /// Takes over an established connection of another agent. False when it is known already.
  bool restore(const Snapshot& snapshot);

  std::optional<State> state(Id id) const;
  std::size_t connections() const { return entries_.size(); }
  const AgentStatistics& statistics() const { return statistics_; }

 private:
  struct Entry {
    Id id{};
    State state = State::RequestReceived;
    Endpoint endpoint;
    std::uint32_t remote_id = 0;
    std::uint64_t transaction_id = 0;
    std::uint32_t local_qpn = 0;
    std::uint32_t remote_qpn = 0;
    std::uint16_t path_mtu = 0;
    std::uint8_t ack_timeout = 0;
    OwnParameters own;
    std::array<std::byte, kMadBytes> last_sent{};  ///< repeated when asked for again, or not answered
    bool has_sent = false;
    std::uint32_t retries_left = 0;
    std::uint64_t retry_interval_ns = 0;
    std::uint64_t deadline_ns = 0;  ///< zero: none
  };
  /// What comes with an event.
  struct Input {
    const Message* message = nullptr;
    std::uint64_t now_ns = 0;
    std::uint64_t transaction_id = 0;
  };
  using Handler = void (Agent::*)(Entry&, const Input&);
  static const Handler kTable[kStates][kEvents];

  bool dispatch(Id id, Event event, const Input& input);
  Entry* find(std::uint32_t id);
  Entry* find_remote(const PeerAddress& remote, std::uint32_t remote_id);
  Entry* find_queue_pair(const PeerAddress& remote, std::uint32_t qpn);
  Entry& create(const Endpoint& endpoint);
  void on_request(const Endpoint& from, const Message& message, std::uint64_t now_ns);
  std::optional<RejectReason> judge(const ConnectRequest& request) const;
  void refuse(const Endpoint& to, const Message& message, RejectReason reason);
  bool make_half_open_place(std::uint64_t now_ns);

  void change_state(Entry& entry, State state);
  /// Zero: none.
  void set_deadline(Entry& entry, std::uint64_t deadline_ns);
  void set_remote(Entry& entry, std::uint32_t remote_id, std::uint32_t remote_qpn);
  void forget_remote(const Entry& entry);
  using RemoteKey = std::pair<std::array<std::uint8_t, 16>, std::uint32_t>;
  static void drop(std::map<RemoteKey, std::uint32_t>& index, const RemoteKey& key, Id id);
  void send(Entry& entry, const Body& body);
  void send_again(Entry& entry);
  void expect_answer(Entry& entry, std::uint64_t now_ns);
  void enter_time_wait(Entry& entry, std::uint64_t now_ns);
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
  void release(Entry& entry, const Input& input);
  void send_reply(Entry& entry, const Input& input);
  void send_ready(Entry& entry, const Input& input);
  void start_disconnect(Entry& entry, const Input& input);
  void withdraw(Entry& entry, const Input& input);
  bool retry(Entry& entry, std::uint64_t now_ns);

  Host& host_;
  const AgentConfig config_;
  std::mt19937_64 random_;
  std::vector<std::uint16_t> ports_;
  std::map<std::uint32_t, Entry> entries_;
  std::map<RemoteKey, std::uint32_t> by_remote_id_;   ///< entries' ids; so are the next two
  std::map<RemoteKey, std::uint32_t> by_remote_qpn_;  ///< of connections that are not at their end
  std::set<std::pair<std::uint64_t, std::uint32_t>> deadlines_;
  HalfOpen half_open_;
  std::uint64_t next_transaction_;
  AgentStatistics statistics_;
};

}  // namespace sluice::cm
