// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/gateway/rdma_upstream/relay_lab.h"

namespace sluice::rdma_upstream_test {
namespace {

constexpr const char* kName = "server";
constexpr std::uint16_t kRelayPort = conformance::kPort + 1;
constexpr std::uint32_t kClients = 6;
constexpr std::uint32_t kCredits = 15;  ///< credits of a client; the relay makes one additional call

rpcrdma::EngineConfig engine_config(const RelayOptions& options) {
  rpcrdma::EngineConfig config;
  config.max_connections = kClients + options.connections;
  config.capacity.call_slots = kCredits;
  config.capacity.requests = options.calls;
  config.call_buffer_bytes = tcp::record_bytes(options.max_io_bytes);
  config.reply_buffer_bytes = tcp::record_bytes(options.max_io_bytes);
  config.reply_buffers = options.reply_buffers;
  config.callers = kClients;
  return config;
}

}  // namespace

RelaySide::RelaySide(std::shared_ptr<rdma::loopback::Fabric> fabric, const RelayOptions& options, Clock clock)
    : DialingSide(std::move(fabric), {.name = "relay",
                                      .version = options.server_version,
                                      .calls = options.calls,
                                      .engine = engine_config(options)}),
      limits(engine.connection_count()),
      credits_(kCredits) {
  if (options.knows_address) set_address();
  relay = std::make_unique<rdma_upstream::Relay>(
      engine, *this, limits,
      rdma_upstream::RelayConfig{.addresses = addresses.get(),
                                 .server_side = {.connections = options.connections,
                                                 .calls = options.calls,
                                                 .record_buffers = options.record_buffers,
                                                 .item_buffers = options.item_buffers,
                                                 .max_io_bytes = options.max_io_bytes,
                                                 .call_timeout_ns = options.call_timeout_ns,
                                                 .withheld = options.withheld}},
      clock);
  slots = std::make_unique<gateway::UpstreamSlots>(std::vector<segment::UpstreamArea*>{area.get()},
                                                   gateway::UpstreamSlots::Sides{},
                                                   gateway::UpstreamSlots::Sides{relay.get()});
  settings = {.name = kName,
              .transport = segment::Transport::Rdma,
              .port = 20049,
              .connections = options.connections,
              .call_timeout_ns = options.call_timeout_ns,
              .withheld = options.withheld};
  constexpr service::Route kPrograms[] = {{ulb::kNfsProgram, 3}, {ulb::kNfsProgram, 4}, {0x20000123, 1}};
  settings.set_programs(kPrograms);
  if (!options.spare) slots->start(0, settings);
  device->connection_manager()->listen(kRelayPort);
}

void RelaySide::set_address(std::uint8_t last, std::uint16_t port) {
  segment::UpstreamAddressTable table{};
  std::strcpy(table[0].name, kName);
  table[0].port = port;
  table[0].count = 1;
  table[0].addresses[0].address = PeerAddress::from_ipv4(10, 0, 0, last);
  addresses->write(table);
}

void RelaySide::on_connect_request(rdma::CmId id) {
  rpcrdma::Connection* const connection = engine.free_connection();
  ASSERT_NE(connection, nullptr);
  auto owned = device->create_queue_pair(engine.queue_pair_limits());
  rdma::QueuePair& queue_pair = *owned;
  const auto number = static_cast<std::uint8_t>(accepted.size() + 1);
  connection->open(std::move(owned),
                   {.send_inline_bytes = 4096,
                    .credit_grant = credits_,
                    .credits_requested = rpcrdma::kCallBacksAtOnce,
                    .max_version = 2},
                   PeerAddress::from_ipv4(10, 0, 1, number), nullptr);
  ASSERT_TRUE(device->connection_manager()->accept(id, queue_pair, {}));
  connection->established();
  accepted.push_back(connection);
}

void RelaySide::poll(std::uint64_t now_ns) {
  poll_connections(now_ns);
  slots->poll(now_ns);
  relay->poll(now_ns);
}

RelayLab::RelayLab(RelayOptions chosen)
    : options(chosen),
      forward({.record_buffers = 32,
               .max_io_bytes = options.max_io_bytes,
               .reply_buffers = 16,
               .withheld = options.withheld_by_server}),
      side(forward.fabric, chosen, &tcp_upstream_test::ForwardLab::clock) {
  forward.beside = [this] { turn(); };
}

RelayLab::~RelayLab() {
  forward.beside = nullptr;
}

void RelayLab::turn() {
  forward.accept_clients();
  const std::uint64_t now_ns = tcp_upstream_test::ForwardLab::clock();
  side.poll(now_ns);
  for (const auto& client : clients) client->poll(now_ns);
}

LabClient& RelayLab::add_client() {
  const int number = 100 + static_cast<int>(clients.size());
  const tcp_upstream_test::ForwardOptions version{.version = options.client_version};
  clients.push_back(std::make_unique<LabClient>(forward.fabric, version, number));
  LabClient& client = *clients.back();
  rdma::ConnectionManager& cm = *client.device->connection_manager();
  client.cm_id = cm.connect(client.connection->queue_pair(), kRelayPort, {});
  bool up = false;
  EXPECT_TRUE(until([&] {
    rdma::CmEvent events[4];
    for (const rdma::CmEvent& event : std::span(events, cm.poll_events(events)))
      up = up || event.type == rdma::CmEventType::Established;
    return up;
  }));
  client.connection->established();
  return client;
}

Outcome RelayLab::call(LabClient& client, const rpcrdma::Request& request,
                       std::vector<std::uint32_t> item_counts) {
  const std::size_t index = client.submit(request, std::move(item_counts));
  EXPECT_TRUE(until([&] { return client.finished[index].has_value(); }));
  return client.finished[index].value_or(Outcome{});
}

bool RelayLab::balanced() const {
  for (const rpcrdma::Connection* connection : side.accepted)
    if (side.relay->held_bytes(connection->number()) > 0) return false;
  return side.area->outstanding.load() == 0 && side.area->waiting.load() == 0;
}

}  // namespace sluice::rdma_upstream_test
