// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/gateway/tcp_upstream/forward_lab.h"

#include <arpa/inet.h>
#include <unistd.h>

#include <chrono>

namespace sluice::tcp_upstream_test {
namespace {

constexpr std::uint32_t kCallBacks = 8;

rpcrdma::EngineConfig client_engine() {
  rpcrdma::EngineConfig config;
  config.max_connections = 2;
  config.capacity.call_slots = kCallBacks;
  config.capacity.requests = 64;
  return config;
}

rpcrdma::EngineConfig server_engine(const ForwardOptions& options) {
  rpcrdma::EngineConfig config;
  config.max_connections = 8;
  config.capacity.call_slots = options.credits;
  config.capacity.requests = rpcrdma::kCallBacksAtOnce;
  config.reply_buffers = options.reply_buffers;
  config.call_buffer_bytes = tcp::record_bytes(options.max_io_bytes);
  config.reply_buffer_bytes = tcp::record_bytes(options.max_io_bytes);
  config.callers = options.callers;
  return config;
}

}  // namespace

std::uint64_t ForwardLab::clock() noexcept {
  if (stopped_ns != 0) return stopped_ns;
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(now).count()) +
         skipped_ns;
}

LabClient::LabClient(std::shared_ptr<rdma::loopback::Fabric> fabric, const ForwardOptions& options,
                     int number)
    : device(rdma::loopback::make_device(std::move(fabric), {.name = "client" + std::to_string(number)})),
      engine(*device, client_engine()),
      reverse(*device),
      requester(engine.requester_context(), *device,
                {.requests = 64, .credits_requested = 64, .long_buffer_bytes = 2u << 20}),
      region(device->allocate_memory(16u << 20)) {
  engine.add_service(reverse);
  connection = engine.free_connection();
  connection->open(device->create_queue_pair(engine.queue_pair_limits()),
                   {.send_inline_bytes = 4096,
                    .credit_grant = kCallBacks,
                    .credits_requested = 64,
                    .active = true,
                    .max_version = options.version},
                   PeerAddress::from_ipv4(10, 0, 0, 1), &requester);
}

std::span<std::byte> LabClient::memory(std::size_t bytes) {
  const auto part = region.bytes.subspan(region_used, bytes);
  region_used += xdr::padded(bytes);
  return part;
}

void LabClient::completed(void* context, const rpcrdma::Reply& reply) noexcept {
  const Ticket& ticket = *static_cast<Ticket*>(context);
  Outcome outcome{.status = reply.status(),
                  .message = Bytes(reply.message().begin(), reply.message().end()),
                  .items = {}};
  for (std::size_t i = 0; i < ticket.item_counts.size(); ++i)
    outcome.items.push_back(reply.item(i, ticket.item_counts[i]));
  ticket.client->finished[ticket.index] = std::move(outcome);
}

std::size_t LabClient::submit(rpcrdma::Request request, std::vector<std::uint32_t> item_counts) {
  const std::size_t index = finished.size();
  finished.emplace_back();
  tickets_.push_back({this, index, std::move(item_counts)});
  request.completion = &completed;
  request.context = &tickets_.back();
  EXPECT_TRUE(requester.submit(request).has_value());
  return index;
}

void LabClient::disconnect() {
  connection->close(rpcrdma::CloseReason::LocalClose);
  reverse.complete_later();  // answers of held callbacks, without effect
}

ForwardLab::ForwardLab(ForwardOptions chosen) : options(std::move(chosen)) {
  fabric = rdma::loopback::Fabric::in_process({.links = 8});
  device = rdma::loopback::make_device(fabric, {.name = "gateway"});
  engine = std::make_unique<rpcrdma::Engine>(*device, server_engine(options));
  set_addresses(options.addresses);
  tcp_upstream::UpstreamsConfig config{.upstreams = {setup_of(upstream, options.routes, options.tag, *area)},
                                       .uring = options.uring};
  if (!options.hung_routes.empty()) {
    hung = std::make_unique<FakeUpstream>();
    config.upstreams.push_back(setup_of(*hung, options.hung_routes, options.hung_tag, *hung_area));
    config.upstreams.back().number = 1;
    config.upstreams.back().config.listen_port = options.hung_port;
  }
  credits = std::make_unique<tcp_upstream::CreditLimits>(engine->connection_count());
  upstreams =
      std::make_unique<tcp_upstream::Upstreams>(*device, *credits, engine->registry(), config, &clock);
  std::vector<segment::UpstreamArea*> areas = {area.get()};
  if (hung) areas.push_back(hung_area.get());
  slots =
      std::make_unique<gateway::UpstreamSlots>(areas, upstreams->sides(), gateway::UpstreamSlots::Sides{});
  for (const tcp_upstream::UpstreamSetup& setup : config.upstreams)
    if (setup.number == 0 || !options.hung_is_spare) slots->start(setup.number, setup.config);
  device->connection_manager()->listen(conformance::kPort);
  if (options.hung_port != 0) device->connection_manager()->listen(options.hung_port);
}

tcp_upstream::UpstreamSetup ForwardLab::setup_of(const FakeUpstream& server,
                                                 const std::vector<tcp_upstream::Route>& routes,
                                                 std::uint32_t tag, segment::UpstreamArea& counters) {
  tcp_upstream::UpstreamSetup setup;
  setup.config.name = kName;
  setup.config.addresses = addresses.get();
  setup.config.port = server.port();
  setup.config.connections = options.shared_connections;
  setup.config.most_connections = options.most_connections;
  setup.config.max_calls = options.max_calls;
  setup.config.max_clients = engine->connection_count();
  setup.config.call_timeout_ns = options.call_timeout_ns;
  setup.config.privileged_port = options.privileged_port;
  setup.config.withheld = options.withheld;
  setup.config.credits = options.credits;
  setup.config.replies = {
      .records = options.record_buffers, .items = options.item_buffers, .max_io_bytes = options.max_io_bytes};
  caches.push_back(
      make_owned<tcp_upstream::DuplicateRequestCache>(options.cache_entries, setup.config.max_clients));
  setup.config.cache = caches.back().get();
  setup.config.handle_tag = tag;
  setup.config.set_programs(routes);
  setup.area = &counters;
  return setup;
}

void ForwardLab::set_addresses(const std::vector<segment::UpstreamAddress>& list, std::uint16_t port) {
  std::strcpy(table_[0].name, kName);
  table_[0].port = port;
  table_[0].count = static_cast<std::uint32_t>(list.size());
  std::copy(list.begin(), list.end(), table_[0].addresses.begin());
  table_[1] = table_[0];
  std::strcpy(table_[1].name, kNewcomer);
  addresses->write(table_);
}

void ForwardLab::bring(std::uint32_t tag, std::uint16_t port) {
  gateway::UpstreamSettings settings{
      .name = kName, .port = hung->port(), .handle_tag = tag, .listen_port = port};
  settings.set_programs(options.hung_routes);
  slots->slot(1).offer(settings);
  EXPECT_FALSE(slots->slot(1).settled());
  turn();
  EXPECT_TRUE(slots->slot(1).settled());
}

ForwardLab::~ForwardLab() {
  start_clock();
}

LabClient& ForwardLab::add_client(std::uint16_t port) {
  clients.push_back(std::make_unique<LabClient>(fabric, options, static_cast<int>(clients.size())));
  LabClient& client = *clients.back();
  rdma::ConnectionManager& cm = *client.device->connection_manager();
  client.cm_id = cm.connect(client.connection->queue_pair(), port, {});
  await_established(cm);
  client.connection->established();
  return client;
}

std::unique_ptr<conformance::RawPeer> ForwardLab::add_raw_peer(std::uint32_t receives) {
  const std::string name = "raw" + std::to_string(raw_devices.size());
  raw_devices.push_back(rdma::loopback::make_device(fabric, {.name = name}));
  rdma::Device& raw_device = *raw_devices.back();
  auto peer = std::make_unique<conformance::RawPeer>(raw_device, 4096, receives);
  peer->owned_qp = peer->make_queue_pair();
  rdma::ConnectionManager& cm = *raw_device.connection_manager();
  EXPECT_TRUE(cm.connect(*peer->owned_qp, conformance::kPort, {}).has_value());
  await_established(cm);
  raw_peers.push_back(peer.get());
  return peer;
}

void ForwardLab::await_established(rdma::ConnectionManager& cm) {
  bool up = false;
  EXPECT_TRUE(until([&] {
    accept_clients();
    rdma::CmEvent events[4];
    const std::size_t count = cm.poll_events(events);
    for (const rdma::CmEvent& event : std::span(events, count))
      up = up || event.type == rdma::CmEventType::Established;
    return up;
  }));
}

LongWrite::LongWrite(LabClient& client, std::uint32_t bytes)
    : data(client.memory(bytes)), piece(client.piece(data)) {
  Bytes arguments = opaque(pattern(32, 5));
  append(arguments, words({0, 0, bytes, 2, bytes}));
  call = nfs3(ulb::kNfs3Write, arguments);
  item = {.position = rpcrdma::Position{static_cast<std::uint32_t>(call.size())}, .pieces = {&piece, 1}};
}

void ForwardLab::accept_clients() {
  rdma::ConnectionManager& cm = *device->connection_manager();
  rdma::CmEvent events[4];
  const std::size_t count = cm.poll_events(events);
  for (const rdma::CmEvent& event : std::span(events, count)) {
    if (event.type != rdma::CmEventType::ConnectRequest) continue;
    rpcrdma::Connection* connection = engine->free_connection();
    ASSERT_NE(connection, nullptr);
    auto qp = device->create_queue_pair(engine->queue_pair_limits());
    rdma::QueuePair& queue_pair = *qp;
    connection->open(std::move(qp),
                     {.send_inline_bytes = 4096,
                      .credit_grant = options.credits,
                      .credits_requested = rpcrdma::kCallBacksAtOnce,
                      .services_at = event.port == conformance::kPort ? std::uint16_t{0} : event.port,
                      .progress_timeout_ns = options.progress_timeout_ns,
                      .max_version = 2},
                     PeerAddress::from_ipv4(10, 0, 0, options.one_host ? 1 : ++accepted_), nullptr);
    ASSERT_TRUE(cm.accept(event.id, queue_pair, {}));
    connection->established();
  }
}

void ForwardLab::disconnect(LabClient& client) {
  client.disconnect();
  EXPECT_TRUE(until([&] { return client.connection->state() == rpcrdma::Connection::State::Closed; }));
}

void ForwardLab::reconnect(LabClient& client) {
  while (client.engine.take_closed() != nullptr) {
  }
  rdma::ConnectionManager& cm = *client.device->connection_manager();
  client.connection->open(client.device->create_queue_pair(client.engine.queue_pair_limits()),
                          client.connection->config(), {}, &client.requester);
  client.cm_id = cm.connect(client.connection->queue_pair(), conformance::kPort, {});
  ASSERT_TRUE(client.cm_id);
  await_established(cm);
  client.connection->established();
}

void ForwardLab::turn() {
  const std::uint64_t now_ns = clock();
  for (const auto& client : clients) client->poll(now_ns);
  for (conformance::RawPeer* peer : raw_peers) peer->poll();
  engine->poll(now_ns);
  while (const rpcrdma::Connection* const closed = engine->take_closed())
    ends.push_back(closed->close_reason());
  slots->poll(0);
  upstreams->poll(now_ns);
  upstream.poll();
  if (hung) hung->poll();
  if (beside) beside();
}

testing::AssertionResult ForwardLab::until(const std::function<bool()>& reached) {
  constexpr int kTurns = 200'000;
  constexpr int kTurnsBeforeSleep = 2000;
  for (int i = 0; i < kTurns; ++i) {
    if (reached()) return testing::AssertionSuccess();
    turn();
    if (i > kTurnsBeforeSleep) ::usleep(50);
  }
  return testing::AssertionFailure() << "it never came to this";
}

void ForwardLab::turns(int count) {
  for (int i = 0; i < count; ++i) {
    turn();
    ::usleep(10);
  }
}

Outcome ForwardLab::call(LabClient& client, rpcrdma::Request request,
                         std::vector<std::uint32_t> item_counts) {
  const std::size_t index = client.submit(std::move(request), std::move(item_counts));
  EXPECT_TRUE(until([&] { return client.finished[index].has_value(); }));
  return client.finished[index].value_or(Outcome{});
}

Bytes call_of(std::uint32_t program, std::uint32_t version, std::uint32_t procedure, const Bytes& arguments) {
  Bytes call = conformance::rpc_call(0, program, version, procedure);
  append(call, arguments);
  return call;
}

Bytes nfs3(std::uint32_t procedure, const Bytes& arguments) {
  return call_of(ulb::kNfsProgram, 3, procedure, arguments);
}

Bytes opaque(std::span<const std::byte> data) {
  Bytes bytes = words({static_cast<std::uint32_t>(data.size())});
  append(bytes, data);
  bytes.resize(xdr::padded(bytes.size()));
  return bytes;
}

}  // namespace sluice::tcp_upstream_test
