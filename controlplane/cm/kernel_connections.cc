// SPDX-License-Identifier: Apache-2.0
//
// Connections of the verbs driver: connection management by the kernel through librdmacm, with queue pairs in
// the data plane. Single-threaded.

#include <algorithm>
#include <cstring>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "controlplane/cm/connection_monitor.h"
#include "controlplane/cm/connections.h"
#include "controlplane/cm/rdma_cm.h"
#include "controlplane/tasks/arena.h"
#include "dataplane/base/setup_error.h"
#include "dataplane/log/log.h"
#include "dataplane/segment/channels.h"
#include "dataplane/segment/heartbeat.h"
#include "dataplane/segment/layout.h"

namespace sluice::cm {
namespace {

/// Interval between checks for devices that were removed or are available again.
constexpr std::uint64_t kCheckIntervalNs = 200'000'000;

RdmaCmOptions options_of(const segment::ConfigBlock& block) {
  RdmaCmOptions options{.traffic_class = static_cast<std::uint8_t>(block.traffic_class), .service_level = {}};
  if (block.service_level <= segment::kMaxServiceLevel)
    options.service_level = static_cast<std::uint8_t>(block.service_level);
  return options;
}

class KernelConnections final : public Connections, private RdmaCm::Host {
 public:
  explicit KernelConnections(const ConnectionContext& context);

  bool poll(std::uint64_t now_ns) override;
  void on_command_done(std::uint32_t reactor, const segment::Event& event, std::uint64_t now_ns) override;
  void on_connect_wanted(std::uint32_t reactor, const segment::Event& event, std::uint64_t now_ns) override;
  void restore(std::uint32_t reactor, std::uint32_t number) override;
  void on_open(const SeenConnection& seen, std::uint64_t now_ns) override;
  const AgentStatistics* statistics() const override { return manager_ ? &manager_->statistics() : &none_; }
  bool needs_new_process() const override { return device_removed_; }

 private:
  void on_request(Id id, const RdmaCmPeer& peer) override;
  void on_refused(const PeerAddress& peer) override {
    context_.reports.refused(peer, policy::Refusal::NoAttributes);
  }
  void on_reply(Id id, const RdmaCmPeer& peer) override;
  void on_established(Id id) override;
  void on_rejected(Id id, const std::string& why, std::span<const std::byte> private_data) override;
  void on_disconnected(Id id) override;
  void disconnect(Id id, std::uint64_t now_ns) override;
  void refuse_unmade(Id id, std::uint64_t now_ns) override;

  static std::unique_ptr<RdmaCm> open(RdmaCm::Host& host, const segment::ConfigBlock& block,
                                      const std::vector<std::uint16_t>& ports);
  void listen_at_new_ports();
  void watch_ends();
  void open_again();
  void on_opened(std::shared_ptr<RdmaCm> manager);
  segment::Command with_state(segment::Command command, const RdmaCmPeer& peer) const;
  std::uint32_t reactors_of(const RdmaCmPeer& peer) const;

  std::shared_ptr<RdmaCm> manager_;  ///< null until there is a device
  const AgentStatistics none_;
  ChannelOffer channel_offer_;
  bool opening_ = false;  ///< a task is opening the device
  bool device_removed_ = false;
  std::set<std::uint16_t> ports_taken_;  ///< new ports that another server uses
  std::uint64_t now_ns_ = 0;
  std::uint64_t checked_ns_ = 0;
};

KernelConnections::KernelConnections(const ConnectionContext& context)
    : Connections(context), channel_offer_(context.layout, context.segment) {
  try {
    manager_ = open(*this, context.block, ports_);
  } catch (const SetupError& error) {
    if (!segment::alive(context.layout.data_plane, segment::monotonic_ns())) throw;
    log::warn("{}", error.what());
  }
}

std::unique_ptr<RdmaCm> KernelConnections::open(RdmaCm::Host& host, const segment::ConfigBlock& block,
                                                const std::vector<std::uint16_t>& ports) {
  auto manager = std::make_unique<RdmaCm>(host, options_of(block));
  for (const std::uint16_t port : ports) manager->listen(port);
  return manager;
}

/// Listens on new ports. A port that is in use is retried at the next check, and logged once.
void KernelConnections::listen_at_new_ports() {
  for (const std::uint16_t port : new_ports()) {
    try {
      manager_->listen(port);
    } catch (const SetupError& error) {
      if (ports_taken_.insert(port).second) log::warn("{}", error.what());
      continue;
    }
    ports_.push_back(port);
    log::info("Clients may now also connect to port {}", port);
  }
}

void KernelConnections::watch_ends() {
  if (const std::size_t ends = manager_->stuck(now_ns_); ends > 0)
    log::warn(
        "The kernel has not released a connection that ended over {} s ago, and {} others wait behind it. "
        "The kernel's log (dmesg) shows the reason",
        RdmaCm::kLongNs / 1'000'000'000, ends - 1);
}

/// Opens the device in a task, because the kernel opens every RDMA device of the machine for it.
void KernelConnections::open_again() {
  auto work = [this, block = context_.block, ports = ports_]() -> tasks::Arena::Done {
    std::shared_ptr<RdmaCm> made;
    try {
      made = open(*this, block, ports);
    } catch (const SetupError&) {  // the next attempt may find a device
    }
    return [this, made] { on_opened(made); };
  };
  opening_ = context_.tasks.start(std::move(work));
}

void KernelConnections::on_opened(std::shared_ptr<RdmaCm> manager) {
  opening_ = false;
  if (!manager) return;
  manager_ = std::move(manager);
  log::info("The RDMA device is available, and connections are accepted");
}

/// Adds the queue pair's attributes, and the epoch of the channel that keeps the connection when this process
/// exits.
segment::Command KernelConnections::with_state(segment::Command command, const RdmaCmPeer& peer) const {
  command.attributes = peer.attributes;
  const segment::KeptConnection kept{.epoch = channel_offer_.epoch()};
  std::memcpy(command.cm_state.data(), &kept, sizeof kept);
  return command;
}

bool KernelConnections::poll(std::uint64_t now_ns) {
  now_ns_ = now_ns;
  if (now_ns - checked_ns_ >= kCheckIntervalNs) {
    checked_ns_ = now_ns;
    if (manager_) {
      device_removed_ = manager_->device_removed();
      listen_at_new_ports();
      watch_ends();
    } else if (!opening_) {
      open_again();
    }
  }
  if (!manager_) return false;
  channel_offer_.poll(manager_->kept_channel(), now_ns);
  return manager_->poll();
}

/// Returns the reactors that poll the device and port of the request, as a bit mask.
std::uint32_t KernelConnections::reactors_of(const RdmaCmPeer& peer) const {
  const segment::ConfigBlock& block = context_.block;
  std::uint32_t among = 0;
  for (std::uint32_t reactor = 0; reactor < block.reactors; ++reactor) {
    const segment::VerbsPort* port = block.verbs_port(reactor);
    if (port == nullptr || (peer.device == port->device && peer.device_port == port->port))
      among |= 1u << reactor;
  }
  return among;
}

void KernelConnections::on_request(Id id, const RdmaCmPeer& peer) {
  const std::uint32_t reactor = place(reactors_of(peer));
  if (reactor >= context_.block.reactors) {
    const std::string port = peer.device + '/' + std::to_string(peer.device_port);
    context_.reports.refused(peer.attributes.remote, policy::Refusal::NoReactor,
                             "no reactor polls " + port + ". Add it to devices in [device]");
    return manager_->reject(id, {});
  }
  Known known{.reactor = reactor, .peer = peer.attributes.remote, .own = {}};
  policy::Verdict verdict{};
  auto make = admit(id, known, peer.port, peer.private_data, verdict, now_ns_);
  if (!make) return manager_->reject(id, {});
  command(reactor, with_state(*make, peer));
  known_.put(id, std::move(known));
}

void KernelConnections::on_connect_wanted(std::uint32_t reactor, const segment::Event& event, std::uint64_t) {
  Known known{.reactor = reactor,
              .outgoing = true,
              .connection = event.connection,
              .incarnation = event.incarnation,
              .peer = event.peer,
              .own = {.qpn = event.queue_pair, .private_data = {}}};
  const std::size_t bytes = std::min<std::size_t>(event.private_data_bytes, rdma::kMaxPrivateData);
  if (!manager_) return report_failure(known);
  const auto id = manager_->connect(event.local, event.peer, static_cast<std::uint16_t>(event.port),
                                    event.queue_pair, {event.private_data, bytes});
  if (!id) return report_failure(known);
  known_.put(*id, std::move(known));
}

void KernelConnections::on_reply(Id id, const RdmaCmPeer& peer) {
  const auto at = known_.find(id);
  if (at == known_.end()) return manager_->disconnect(id);
  const segment::Command connect = connect_command(id, at->second, peer.private_data);
  command(at->second.reactor, with_state(connect, peer));
}

void KernelConnections::on_command_done(std::uint32_t reactor, const segment::Event& event, std::uint64_t) {
  if (!is_awaited(reactor, event)) return;
  const auto at = known_.find(static_cast<Id>(event.cm_id));
  Known& known = at->second;
  const Id id = at->first;
  const bool done = event.status == segment::CommandStatus::Done;
  if (known.outgoing) {
    known.made = done && manager_->ready(id);
    if (known.made) return;
    known_.erase(at);
    return manager_->disconnect(id);
  }
  if (!done) {
    known_.erase(at);
    return manager_->reject(id, {});
  }
  known.made = true;
  known.connection = event.connection;
  known.incarnation = event.incarnation;
  known.own.qpn = event.queue_pair;
  // The peer may have abandoned the request since.
  if (!manager_->accept(id, event.queue_pair, known.own.private_data)) end(id);
}

void KernelConnections::on_open(const SeenConnection& seen, std::uint64_t) {
  if (manager_) manager_->packet_arrived(static_cast<Id>(seen.cm_id));
}

void KernelConnections::disconnect(Id id, std::uint64_t) {
  if (manager_) manager_->disconnect(id);
}

void KernelConnections::refuse_unmade(Id id, std::uint64_t) {
  if (manager_) manager_->reject(id, {});
}

void KernelConnections::on_established(Id id) {
  const auto at = known_.find(id);
  if (at == known_.end() || !at->second.made) return;
  wanted(at->second.reactor).established(at->second.connection, at->second.incarnation);
}

void KernelConnections::on_rejected(Id id, const std::string& why, std::span<const std::byte>) {
  const auto at = known_.find(id);
  if (at == known_.end()) return;
  context_.reports.server_refused(at->second.peer, why);
  report_failure(at->second);
  known_.erase(at);
}

void KernelConnections::on_disconnected(Id id) {
  const auto at = known_.find(id);
  if (at == known_.end()) return manager_->disconnect(id);
  const bool made = at->second.made;
  end(id);
  if (!made) manager_->disconnect(id);
}

/// Restores a connection whose kernel state the data plane has kept.
void KernelConnections::restore(std::uint32_t reactor, std::uint32_t number) {
  const auto info = context_.layout.reactors[reactor].connections[number].read();
  // Reactors repeat the request for connections that they open.
  if (!info || info->state != segment::ConnectionState::Open || info->queue_pair == 0) return;
  known_.put(static_cast<Id>(info->cm_id), restored(reactor, number, *info));
}

}  // namespace

Owned<Connections> make_kernel_connections(const ConnectionContext& context) {
  return make_owned<KernelConnections>(context);
}

ChannelOffer::ChannelOffer(const segment::Layout& layout, const std::string& segment)
    : layout_(layout), path_(segment::kept_socket_of(segment)) {}

std::uint32_t ChannelOffer::epoch() const noexcept {
  return segment::epoch_of(layout_.control_plane.owner.load(std::memory_order_relaxed));
}

void ChannelOffer::poll(int descriptor, std::uint64_t now_ns) {
  if (layout_.kept_epoch.load(std::memory_order_relaxed) == epoch()) {
    waits_since_ns_ = 0;
    complained_ = false;
    return;
  }
  if (now_ns - sent_ns_ < kRepeatNs) return;
  sent_ns_ = now_ns;
  const segment::KeptChannel offer{.epoch = epoch()};
  const int error = segment::send_datagram(path_, std::as_bytes(std::span(&offer, 1)), descriptor);
  complain(error, now_ns);
}

void ChannelOffer::complain(int error, std::uint64_t now_ns) {
  if (!segment::alive(layout_.data_plane, now_ns)) {
    waits_since_ns_ = 0;
    return;
  }
  if (waits_since_ns_ == 0) waits_since_ns_ = now_ns;
  if (complained_ || now_ns - waits_since_ns_ < kPatienceNs) return;
  complained_ = true;
  log::warn(
      "Connections will end with this control plane, because the data plane has not accepted their channel "
      "at {} ({}). The users of both planes have to be in the group of that socket",
      path_, error == 0 ? "no answer" : std::strerror(error));
}

}  // namespace sluice::cm
