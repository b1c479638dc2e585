// SPDX-License-Identifier: Apache-2.0
#include "controlplane/cm/connections.h"

#include <algorithm>

#include "controlplane/cm/connection_monitor.h"
#include "controlplane/cm/outbox.h"
#include "controlplane/policy/credit_controller.h"
#include "controlplane/policy/credit_policy.h"

namespace sluice::cm {

Connections::Connections(const ConnectionContext& context)
    : context_(context),
      ports_(context.block.listen_ports()),
      known_(std::size_t{context.block.all_connections()} * context.block.reactors) {}

void Connections::command(std::uint32_t reactor, segment::Command command) {
  command.id = next_command_++;
  context_.outbox.send(reactor, command);
}

void Connections::end(Id id) {
  const auto at = known_.find(id);
  if (at == known_.end()) return;
  const Known& known = at->second;
  if (known.made) {  // known_ forgets it when it disappears from its table
    wanted(known.reactor).end(known.connection, known.incarnation, segment::End::PeerGone);
    return;
  }
  if (known.outgoing) {
    report_failure(known);
  } else {
    // If the command was sent already, its answer is not awaited.
    context_.outbox.withdraw(known.reactor, static_cast<std::uint32_t>(id));
    context_.book.failed(known.reactor, static_cast<std::uint32_t>(id));
  }
  known_.erase(at);
}

bool Connections::is_awaited(std::uint32_t reactor, const segment::Event& event) {
  const auto at = known_.find(static_cast<Id>(event.cm_id));
  if (at != known_.end() && !at->second.made && at->second.reactor == reactor) return true;
  if (event.status != segment::CommandStatus::Done || event.incarnation == 0 ||
      event.connection >= segment::kMaxConnections)
    return false;
  // The request was made by a previous control plane, or has been abandoned since. Its peer got no reply and
  // repeats the request. A connection to a server does not need this.
  const auto info = context_.layout.reactors[reactor].connections[event.connection].read();
  if (info && info->incarnation == event.incarnation && info->outgoing != 0) return false;
  wanted(reactor).end(event.connection, event.incarnation, segment::End::PeerGone);
  return false;
}

void Connections::on_appeared(std::uint32_t reactor, std::uint32_t number, const SeenConnection& seen) {
  if (seen.outgoing || seen.queue_pair == 0 || known_.contains(static_cast<Id>(seen.cm_id))) return;
  wanted(reactor).end(number, seen.incarnation, segment::End::PeerGone);
}

void Connections::on_gone(std::uint32_t reactor, const SeenConnection& seen, std::uint64_t now_ns) {
  auto id = static_cast<Id>(seen.cm_id);
  // A connection to a server that ended before it was established has no local identifier in the table.
  if (seen.outgoing && seen.cm_id == 0) id = known_.dialed(reactor, seen.queue_pair).value_or(id);
  const auto at = known_.find(id);
  if (at == known_.end() || at->second.reactor != reactor || at->second.incarnation != seen.incarnation)
    return;
  known_.erase(at);
  disconnect(id, now_ns);
}

void Connections::forget_unmade(std::uint64_t now_ns) {
  std::vector<Id> unmade;
  for (const auto& [id, known] : known_) {
    if (known.made || known.outgoing) continue;
    unmade.push_back(id);
    context_.reports.refused(known.peer, policy::Refusal::DataPlaneReplaced);
  }
  for (const Id id : unmade) {
    known_.erase(id);
    refuse_unmade(id, now_ns);
  }
}

namespace {

/// Returns whether a counter of reactors is time in polls that found work.
constexpr bool is_busy_time(std::string_view counter) {
  return counter == "device_ns" || counter == "calls_ns" || counter == "services_ns" ||
         counter == "upstreams_ns";
}

constexpr int busy_times() {
  int count = 0;
  for (const segment::CounterInfo& counter : segment::kReactorCounters)
    count += is_busy_time(counter.name) ? 1 : 0;
  return count;
}
static_assert(busy_times() == 4, "each name is that of a counter");

}  // namespace

std::uint32_t Connections::place(std::uint32_t among) {
  std::uint64_t all = 0;
  for (std::uint32_t reactor = 0; reactor < context_.block.reactors; ++reactor) all += known_.load(reactor);
  std::uint32_t best = segment::kMaxReactors;
  double least = 0;
  for (std::uint32_t reactor = 0; reactor < context_.block.reactors; ++reactor) {
    if ((among >> reactor & 1) == 0) continue;
    const std::uint32_t count = known_.load(reactor);
    const bool full = count >= context_.block.max_connections;
    const double expected = loads_.expected(reactor, count, all) + (full ? segment::kMaxReactors : 0);
    if (best != segment::kMaxReactors && expected >= least) continue;
    best = reactor;
    least = expected;
  }
  if (best != segment::kMaxReactors) loads_.placed(best);
  return best;
}

void Connections::measure_reactors(std::uint64_t now_ns) {
  if (!loads_.is_due(now_ns)) return;
  ReactorLoads::PerReactor busy_ns{};
  std::uint64_t all = 0;
  for (std::uint32_t reactor = 0; reactor < context_.block.reactors; ++reactor) {
    for (std::size_t i = 0; i < segment::kReactorCounterCount; ++i)
      if (is_busy_time(segment::kReactorCounters[i].name))
        busy_ns[reactor] += context_.layout.reactors[reactor].counters[i].load(std::memory_order_relaxed);
    all += known_.load(reactor);
  }
  loads_.measure(now_ns, busy_ns, all);
}

std::array<std::byte, rpcrdma::kPrivateDataBytes> own_private_data(const segment::ConfigBlock& block) {
  return rpcrdma::encode_private_data(
      {.remote_invalidation = false, .send_bytes = block.inline_bytes, .receive_bytes = block.inline_bytes});
}

std::optional<segment::Command> judge(const ConnectionContext& context, std::uint32_t reactor,
                                      const PeerAddress& peer, std::uint32_t port,
                                      std::span<const std::byte> private_data, policy::Verdict& verdict,
                                      std::uint64_t now_ns) {
  const segment::ConfigBlock& block = context.block;
  const policy::CreditController::Start start = context.credits.start_of(reactor, peer);
  verdict =
      context.admission.judge(peer, context.classes[start.client_class].max_connections_per_client, now_ns);
  if (verdict != policy::Verdict::Admit) {
    context.reports.refused(peer, verdict);
    return std::nullopt;
  }
  const std::uint32_t inline_bytes = block.inline_bytes;
  segment::Command command{.services_at = block.services_at(port),
                           .credits = block.credits,
                           .first_grant = start.credits,
                           .client_class = start.client_class,
                           .receive_inline_bytes = inline_bytes,
                           .send_inline_bytes = rpcrdma::send_inline_bytes(
                               rpcrdma::decode_private_data(private_data), inline_bytes)};
  const auto ours = own_private_data(block);
  std::copy(ours.begin(), ours.end(), command.private_data);
  command.private_data_bytes = ours.size();
  return command;
}

std::vector<std::uint16_t> Connections::new_ports() const {
  const segment::ConfigBlock& block = context_.block;
  if (context_.layout.generation_applied.load() != block.generation) return {};
  std::vector<std::uint16_t> ports = block.listen_ports();
  std::erase_if(ports, [this](std::uint16_t port) {
    return std::find(ports_.begin(), ports_.end(), port) != ports_.end();
  });
  return ports;
}

std::optional<segment::Command> Connections::admit(Id id, Known& known, std::uint32_t port,
                                                   std::span<const std::byte> private_data,
                                                   policy::Verdict& verdict, std::uint64_t now_ns) {
  auto command = judge(context_, known.reactor, known.peer, port, private_data, verdict, now_ns);
  if (!command) return command;
  context_.book.admitted(known.reactor, static_cast<std::uint32_t>(id), known.peer);
  known.own.private_data.assign(command->private_data, command->private_data + command->private_data_bytes);
  command->type = segment::CommandType::Accept;
  command->cm_id = static_cast<std::uint32_t>(id);
  return command;
}

segment::Command Connections::connect_command(Id id, const Known& known,
                                              std::span<const std::byte> private_data) const {
  return {.type = segment::CommandType::Connect,
          .cm_id = static_cast<std::uint32_t>(id),
          .connection = known.connection,
          .queue_pair = known.own.qpn,
          .send_inline_bytes = rpcrdma::send_inline_bytes(rpcrdma::decode_private_data(private_data),
                                                          context_.block.inline_bytes)};
}

void Connections::report_failure(const Known& known) {
  command(known.reactor, {.type = segment::CommandType::ConnectFailed,
                          .connection = known.connection,
                          .queue_pair = known.own.qpn});
}

namespace {

/// Connections that the driver manages. Reactors report the driver's requests, which are admitted or refused
/// here.
class DriverConnections final : public Connections {
 public:
  using Connections::Connections;

  void on_connect_request(std::uint32_t reactor, const segment::Event& event, std::uint64_t now_ns) override;

  // The driver handles everything else.
  bool poll(std::uint64_t) override { return false; }
  void on_command_done(std::uint32_t, const segment::Event&, std::uint64_t) override {}
  bool awaits(const segment::Event&) const override { return true; }
  void on_answer_to_predecessor(std::uint32_t, const segment::Event&) override {}
  void restore(std::uint32_t, std::uint32_t) override {}
  void on_appeared(std::uint32_t, std::uint32_t, const SeenConnection&) override {}
  void on_open(const SeenConnection&, std::uint64_t) override {}

 private:
  void disconnect(Id, std::uint64_t) override {}
  void refuse_unmade(Id, std::uint64_t) override {}
};

void DriverConnections::on_connect_request(std::uint32_t reactor, const segment::Event& event,
                                           std::uint64_t now_ns) {
  policy::Verdict verdict{};
  const std::size_t bytes = std::min<std::size_t>(event.private_data_bytes, rdma::kMaxPrivateData);
  auto answer =
      judge(context_, reactor, event.peer, event.port, {event.private_data, bytes}, verdict, now_ns);
  if (answer) {
    context_.book.admitted(reactor, event.cm_id, event.peer);
    answer->type = segment::CommandType::Accept;
    answer->attributes.remote = event.peer;
  } else {
    answer.emplace().type = segment::CommandType::Reject;
  }
  answer->cm_id = event.cm_id;
  command(reactor, *answer);
}

}  // namespace

Owned<Connections> make_driver_connections(const ConnectionContext& context) {
  return make_owned<DriverConnections>(context);
}

}  // namespace sluice::cm
