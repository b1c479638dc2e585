// SPDX-License-Identifier: Apache-2.0
//
// Connection management of softroce devices by the gateway's own agent. Management datagrams go through the
// punt rings, and the data plane creates queue pairs on commands. Single-threaded.

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "controlplane/cm/agent.h"
#include "controlplane/cm/connection_monitor.h"
#include "controlplane/cm/connections.h"
#include "controlplane/cm/outbox.h"
#include "controlplane/cm/random_numbers.h"
#include "controlplane/policy/credit_policy.h"
#include "dataplane/log/log.h"

namespace sluice::cm {
namespace {

static_assert(sizeof(Snapshot) <= segment::kCmStateBytes);

/// Reactor 0 sends and receives all management datagrams (pmd/softroce/softroce.h).
constexpr std::uint32_t kManagementReactor = 0;
constexpr std::uint32_t kPuntsPerPoll = 64;
constexpr std::uint8_t kRnrForEver = 7;
constexpr std::uint8_t kAckTimeout = 17;  // 0.5 s; a silent peer is detected after 4 s

/// The largest number of connections that a client of any class may have.
std::uint32_t most_of_a_client(const std::vector<policy::ClientClass>& classes) {
  std::uint32_t most = 0;
  for (const policy::ClientClass& each : classes) most = std::max(most, each.max_connections_per_client);
  return most;
}

AgentConfig agent_config(const ConnectionContext& context) {
  const segment::ConfigBlock& block = context.block;
  return with_limits({.traffic_class = static_cast<std::uint8_t>(block.traffic_class),
                      .service_level = static_cast<std::uint8_t>(block.priority())},
                     block.all_connections() * block.reactors, most_of_a_client(context.classes));
}

const char* name_of(RejectReason reason) {
  switch (reason) {
    case RejectReason::NoQueuePair:
      return "no_queue_pair";
    case RejectReason::NoResources:
      return "no_resources";
    case RejectReason::Timeout:
      return "timeout";
    case RejectReason::UnsupportedRequest:
      return "unsupported_request";
    case RejectReason::InvalidServiceId:
      return "invalid_service_id";
    case RejectReason::InvalidTransportServiceType:
      return "invalid_transport_service_type";
    case RejectReason::StaleConnection:
      return "stale_connection";
    case RejectReason::InvalidPathMtu:
      return "invalid_path_mtu";
    case RejectReason::Consumer:
      return "consumer";
  }
  return "other";
}

class PuntedConnections final : public Connections, private Agent::Host {
 public:
  explicit PuntedConnections(const ConnectionContext& context);

  bool poll(std::uint64_t now_ns) override;
  void on_command_done(std::uint32_t reactor, const segment::Event& event, std::uint64_t now_ns) override;
  /// Does nothing, because restore() continues the connection.
  void on_answer_to_predecessor(std::uint32_t, const segment::Event&) override {}
  void on_connect_wanted(std::uint32_t reactor, const segment::Event& event, std::uint64_t now_ns) override;
  void restore(std::uint32_t reactor, std::uint32_t number) override;
  void on_open(const SeenConnection& seen, std::uint64_t now_ns) override;
  const AgentStatistics* statistics() const override { return &agent_.statistics(); }

 private:
  void send_mad(const Endpoint& to, std::span<const std::byte, kMadBytes> mad) override;
  void on_request(Id id, const PeerParameters& peer) override;
  void on_refused(const Endpoint& from, const Refused& refused) override;
  void on_path_mtu_refused(Id, const Refused& refused) override { why_refused_ = detail_of(refused); }
  void on_reply(Id id, const PeerParameters& peer) override;
  void on_established(Id id) override;
  void on_rejected(Id id, RejectReason reason, std::span<const std::byte> private_data) override;
  void on_disconnected(Id id) override;
  void disconnect(Id id, std::uint64_t now_ns) override;
  void refuse_unmade(Id id, std::uint64_t now_ns) override;

  segment::Command with_attributes(segment::Command command, Id id, const PeerParameters& peer,
                                   const OwnParameters& own) const;
  void refuse(Id id, RejectReason reason = RejectReason::NoResources);
  void listen_at_new_ports();
  void follow_limits();
  void follow_port();

  Agent agent_;
  std::uint64_t limits_of_generation_;
  std::string why_refused_;  ///< detail for the next on_rejected()
  std::uint64_t now_ns_ = 0;
  RandomNumbers random_;
};

PuntedConnections::PuntedConnections(const ConnectionContext& context)
    : Connections(context),
      agent_(*this, agent_config(context)),
      limits_of_generation_(context.block.generation) {
  for (const std::uint16_t port : ports_) agent_.listen(port);
  follow_port();
}

void PuntedConnections::listen_at_new_ports() {
  for (const std::uint16_t port : new_ports()) {
    agent_.listen(port);
    ports_.push_back(port);
    log::info("Clients may now also connect to port {}", port);
  }
}

/// Applies the limits after a reload, which may change the number of connections per client.
void PuntedConnections::follow_limits() {
  if (limits_of_generation_ == context_.block.generation) return;
  limits_of_generation_ = context_.block.generation;
  agent_.set_half_open_limits(agent_config(context_));
}

/// Applies the properties of the port, which all reactors share.
void PuntedConnections::follow_port() {
  const auto info = context_.layout.reactors[kManagementReactor].info.read();
  if (!info) return;
  const bool known =
      path_mtu_bytes(path_mtu_code(static_cast<std::uint16_t>(info->path_mtu))) == info->path_mtu;
  agent_.set_port({.guid = info->guid,
                   .max_path_mtu = known ? static_cast<std::uint16_t>(info->path_mtu) : std::uint16_t{0}});
}

bool PuntedConnections::poll(std::uint64_t now_ns) {
  now_ns_ = now_ns;
  listen_at_new_ports();
  follow_limits();
  follow_port();
  bool any = false;
  segment::Punt punt;
  for (std::uint32_t i = 0;
       i < kPuntsPerPoll && context_.layout.reactors[kManagementReactor].punt_up.pop(punt); ++i) {
    any = true;
    const rdma::Datagram& datagram = punt.datagram;
    const std::size_t bytes = std::min<std::size_t>(datagram.bytes, datagram.data.size());
    agent_.on_mad({datagram.local, datagram.remote, datagram.remote_link},
                  std::span(datagram.data).first(bytes), now_ns);
  }
  return agent_.advance(now_ns) || any;
}

void PuntedConnections::send_mad(const Endpoint& to, std::span<const std::byte, kMadBytes> mad) {
  segment::Punt punt;
  punt.datagram.local = to.local;
  punt.datagram.remote = to.remote;
  punt.datagram.remote_link = to.link;
  punt.datagram.bytes = kMadBytes;
  std::copy(mad.begin(), mad.end(), punt.datagram.data.begin());
  context_.outbox.send(kManagementReactor, punt);
}

void PuntedConnections::refuse(Id id, RejectReason reason) {
  agent_.reject(id, reason, {}, now_ns_);
}

void PuntedConnections::on_request(Id id, const PeerParameters& peer) {
  Known known{.reactor = place(~0u), .peer = peer.endpoint.remote, .own = {}};
  policy::Verdict verdict{};
  const auto make = admit(id, known, peer.port, peer.private_data, verdict, now_ns_);
  // A limit may be temporary, so it is reported as lack of resources; draining is reported as the consumer's
  // decision.
  if (!make)
    return refuse(id,
                  verdict == policy::Verdict::Draining ? RejectReason::Consumer : RejectReason::NoResources);
  known.own.receive_psn = random_.packet_sequence_number();
  known.own.responder_resources = std::min(peer.responder_resources, kMaxReads);
  known.own.initiator_depth = std::min(peer.initiator_depth, kMaxReads);
  known.own.rnr_retry = kRnrForEver;
  command(known.reactor, with_attributes(*make, id, peer, known.own));
  known_.put(id, std::move(known));
}

void PuntedConnections::on_refused(const Endpoint& from, const Refused& refused) {
  context_.reports.refused(from.remote, refused.why, detail_of(refused));
}

/// Adds the queue pair's attributes, and the state that a new control plane needs to take over the
/// connection.
segment::Command PuntedConnections::with_attributes(segment::Command command, Id id,
                                                    const PeerParameters& peer,
                                                    const OwnParameters& own) const {
  const segment::ConfigBlock& block = context_.block;
  const bool own_class = block.traffic_class != 0;
  const bool own_level = own_class || block.service_level <= segment::kMaxServiceLevel;
  command.attributes = {
      .local = peer.endpoint.local,
      .remote = peer.endpoint.remote,
      .remote_link = peer.endpoint.link,
      .remote_qp = static_cast<rdma::QueuePairNumber>(peer.qpn),
      .send_psn = peer.send_psn,
      .receive_psn = own.receive_psn,
      .path_mtu = peer.path_mtu,
      .responder_resources = own.responder_resources,
      .initiator_depth = own.initiator_depth,
      .ack_timeout = kAckTimeout,
      .retry_count = 7,
      .rnr_retry = kRnrForEver,
      .service_level = own_level ? static_cast<std::uint8_t>(block.priority()) : peer.service_level,
      .traffic_class = own_class ? static_cast<std::uint8_t>(block.traffic_class) : peer.traffic_class};
  if (auto snapshot = agent_.snapshot(id)) {
    snapshot->set_own(own);
    std::memcpy(command.cm_state.data(), &*snapshot, sizeof *snapshot);
  }
  return command;
}

void PuntedConnections::on_connect_wanted(std::uint32_t reactor, const segment::Event& event,
                                          std::uint64_t now_ns) {
  now_ns_ = now_ns;
  Known known{.reactor = reactor,
              .outgoing = true,
              .connection = event.connection,
              .incarnation = event.incarnation,
              .peer = event.peer,
              .own = {.qpn = event.queue_pair,
                      .receive_psn = random_.packet_sequence_number(),
                      .responder_resources = kMaxReads,
                      .initiator_depth = kMaxReads,
                      .rnr_retry = kRnrForEver,
                      .private_data = {}}};
  const std::size_t bytes = std::min<std::size_t>(event.private_data_bytes, rdma::kMaxPrivateData);
  known.own.private_data.assign(event.private_data, event.private_data + bytes);
  PeerAddress remote = event.peer;
  remote.zone = 0;  // the device has one link; a host name may have been resolved with an interface
  const auto id = agent_.connect({event.local, remote, {}}, static_cast<std::uint16_t>(event.port),
                                 static_cast<std::uint16_t>(event.path_mtu), known.own, now_ns);
  if (!id) return report_failure(known);
  known_.put(*id, std::move(known));
}

void PuntedConnections::on_reply(Id id, const PeerParameters& peer) {
  const auto at = known_.find(id);
  if (at == known_.end()) return;
  Known& known = at->second;
  known.own.responder_resources = std::min(peer.responder_resources, kMaxReads);
  known.own.initiator_depth = std::min(peer.initiator_depth, kMaxReads);
  const segment::Command connect = connect_command(id, known, peer.private_data);
  command(known.reactor, with_attributes(connect, id, peer, known.own));
}

void PuntedConnections::on_command_done(std::uint32_t reactor, const segment::Event& event,
                                        std::uint64_t now_ns) {
  now_ns_ = now_ns;
  if (!is_awaited(reactor, event)) return;
  const auto at = known_.find(static_cast<Id>(event.cm_id));
  Known& known = at->second;
  if (known.outgoing) {
    known.made = event.status == segment::CommandStatus::Done && agent_.ready(at->first, now_ns);
    if (known.made) return;
    agent_.disconnect(at->first, now_ns);
    known_.erase(at);
    return;
  }
  if (event.status != segment::CommandStatus::Done) {
    const Id id = at->first;
    known_.erase(at);
    return refuse(id);
  }
  known.made = true;
  known.connection = event.connection;
  known.incarnation = event.incarnation;
  known.own.qpn = event.queue_pair;
  // The peer may have abandoned the request since.
  if (!agent_.accept(at->first, known.own, now_ns)) end(at->first);
}

/// Reports the first packet to the agent. A connection that is already established does not need it.
void PuntedConnections::on_open(const SeenConnection& seen, std::uint64_t now_ns) {
  now_ns_ = now_ns;
  const auto id = static_cast<Id>(seen.cm_id);
  if (!seen.outgoing && agent_.state(id) == State::ReplySent) agent_.packet_arrived(id, now_ns);
}

void PuntedConnections::disconnect(Id id, std::uint64_t now_ns) {
  now_ns_ = now_ns;
  agent_.disconnect(id, now_ns);
}

void PuntedConnections::refuse_unmade(Id id, std::uint64_t now_ns) {
  now_ns_ = now_ns;
  refuse(id);
}

void PuntedConnections::on_established(Id id) {
  const auto at = known_.find(id);
  if (at == known_.end() || !at->second.made) return;
  wanted(at->second.reactor).established(at->second.connection, at->second.incarnation);
}

void PuntedConnections::on_rejected(Id id, RejectReason reason, std::span<const std::byte>) {
  const std::string detail = std::exchange(why_refused_, {});
  const auto at = known_.find(id);
  if (at != known_.end() && at->second.outgoing) {
    context_.reports.server_refused(at->second.peer, name_of(reason), detail);
    report_failure(at->second);
    known_.erase(at);
    return;
  }
  on_disconnected(id);
}

void PuntedConnections::on_disconnected(Id id) {
  end(id);
}

/// Restores a connection. If it is opening, the agent sends the reply that its predecessor prepared.
void PuntedConnections::restore(std::uint32_t reactor, std::uint32_t number) {
  const auto info = context_.layout.reactors[reactor].connections[number].read();
  if (!info || info->state == segment::ConnectionState::Unused || info->queue_pair == 0) return;
  const bool opening = info->state == segment::ConnectionState::Opening;
  // Reactors repeat the request for connections that they open.
  if (info->outgoing != 0 && opening) return;
  if (wanted(reactor).course(number, info->incarnation).end != segment::End::No) return;
  Snapshot snapshot;
  std::memcpy(&snapshot, info->cm_state.data(), sizeof snapshot);
  snapshot.local_qpn = info->queue_pair;
  const auto ours = own_private_data(context_.block);
  if (!agent_.restore(snapshot,
                      {.active = info->outgoing != 0, .confirmed = !opening, .private_data = ours})) {
    // The peer has requested another connection for its queue pair since.
    if (!agent_.state(Id{snapshot.id}))
      wanted(reactor).end(number, info->incarnation, segment::End::PeerGone);
    return;
  }
  known_.put(Id{snapshot.id}, restored(reactor, number, *info));
}

}  // namespace

Owned<Connections> make_punted_connections(const ConnectionContext& context) {
  return make_owned<PuntedConnections>(context);
}

}  // namespace sluice::cm
