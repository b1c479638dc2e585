// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/gateway.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "dataplane/tcp/record_stream.h"

namespace sluice::bench {
namespace {

/// Loop iterations at one time after which no periodic work is due.
constexpr int kTurnsUntilNothingIsDue = 16;

constexpr std::uint16_t kPort = 20049;
constexpr std::uint32_t kCredits = 128;
constexpr std::uint32_t kInlineBytes = 4096;
constexpr const char* kUpstream = "upstream";
constexpr service::Route kPrograms[] = {{ulb::kNfsProgram, ulb::kNfs3Version}};

rpcrdma::EngineConfig server_config(const GatewayShape& shape) {
  rpcrdma::EngineConfig config;
  config.max_connections = std::max(2u, 2 * shape.clients);
  config.capacity.call_slots = kCredits;
  config.capacity.requests = kCredits;
  config.call_buffer_bytes = tcp::record_bytes(shape.max_io_bytes);
  config.reply_buffer_bytes = tcp::record_bytes(shape.max_io_bytes);
  // Buffers as in a data plane.
  config.small_buffer_bytes = tcp_upstream::kItemBytes;
  config.lent_call_buffers = tcp_upstream::ReplyBuffers{}.items;
  return config;
}

rpcrdma::EngineConfig client_config(const GatewayShape& shape) {
  rpcrdma::EngineConfig config;
  config.max_connections = std::max(2u, shape.clients);
  config.capacity.call_slots = 2;
  config.capacity.requests = kCredits;
  return config;
}

}  // namespace

Gateway::Gateway(const GatewayShape& shape)
    : fabric_(rdma::loopback::Fabric::in_process({.links = std::max(2u, 2 * shape.clients)})),
      server_device_(rdma::loopback::make_device(fabric_, {.name = "gateway"})),
      client_device_(rdma::loopback::make_device(fabric_, {.name = "client"})),
      server_(*server_device_, server_config(shape)),
      client_(*client_device_, client_config(shape)),
      credits_(server_.connection_count()),
      dialer_(*server_device_, server_) {
  segment::UpstreamAddressTable table{};
  std::strcpy(table[0].name, kUpstream);
  table[0].count = 1;
  table[0].addresses[0].address = PeerAddress::from_ipv4(127, 0, 0, 1);
  addresses_->write(table);
  server_device_->connection_manager()->listen(kPort);
}

Gateway::Gateway(std::uint16_t upstream_port, const GatewayShape& shape) : Gateway(shape) {
  const tcp_upstream::UpstreamsConfig config = upstream_config(upstream_port, shape);
  upstreams_ = std::make_unique<tcp_upstream::Upstreams>(*server_device_, credits_, server_.registry(),
                                                         config, &now_ns);
  serve(config.upstreams.front().config);
  for (std::uint32_t i = 0; i < shape.clients; ++i) connect();
}

Gateway::Gateway(const ForwardedShape& calls, const GatewayShape& shape) : Gateway(shape) {
  rdma_server_ = std::make_unique<RdmaServer>(fabric_, calls);
  relays_.push_back(make_owned<rdma_upstream::Relay>(
      server_, dialer_, credits_,
      rdma_upstream::RelayConfig{.addresses = addresses_.get(),
                                 .server_side = {.connections = shape.clients,
                                                 .calls = kCredits,
                                                 .record_buffers = 64,
                                                 .max_io_bytes = shape.max_io_bytes}},
      &now_ns));
  gateway::UpstreamSettings settings{.name = kUpstream,
                                     .transport = segment::Transport::Rdma,
                                     .port = kRdmaServerPort,
                                     .connections = shape.clients};
  settings.set_programs(kPrograms);
  serve(settings);
  for (std::uint32_t i = 0; i < shape.clients; ++i) connect();
}

void Gateway::serve(const gateway::UpstreamSettings& settings) {
  gateway::UpstreamSlots::Sides over_rdma;
  for (const auto& relay : relays_) over_rdma.push_back(relay.get());
  slots_ = std::make_unique<gateway::UpstreamSlots>(
      std::vector<segment::UpstreamArea*>{area_.get()},
      upstreams_ ? upstreams_->sides() : gateway::UpstreamSlots::Sides{}, std::move(over_rdma));
  slots_->start(0, settings);
}

/// Closes the connections and polls until they have ended, because connections use the relay until then.
Gateway::~Gateway() {
  for (std::uint32_t i = 0; i < server_.connection_count(); ++i)
    server_.connection(static_cast<std::uint16_t>(i)).close(rpcrdma::CloseReason::LocalClose);
  for (int i = 0; i < 100; ++i) poll(now_ns());
}

tcp_upstream::UpstreamsConfig Gateway::upstream_config(std::uint16_t port, const GatewayShape& shape) {
  tcp_upstream::UpstreamSetup setup;
  setup.config.name = kUpstream;
  setup.config.addresses = addresses_.get();
  setup.config.port = port;
  setup.config.connections = shape.upstream_connections;
  setup.config.max_clients = std::max(2u, shape.clients);
  setup.config.credits = kCredits;
  setup.config.replies.max_io_bytes = shape.max_io_bytes;
  setup.config.cache = &cache_;
  setup.config.set_programs(kPrograms);
  setup.area = area_.get();
  return {.upstreams = {setup}};
}

/// Connects one more client.
void Gateway::connect() {
  rdma::ConnectionManager& server_cm = *server_device_->connection_manager();
  rdma::ConnectionManager& client_cm = *client_device_->connection_manager();
  requesters_.push_back(std::make_unique<rpcrdma::Requester>(
      client_.requester_context(), *client_device_,
      rpcrdma::RequesterConfig{.requests = 2 * kCredits, .credits_requested = kCredits}));
  rpcrdma::Connection& connection = *client_.free_connection();
  connection.open(
      client_device_->create_queue_pair(client_.queue_pair_limits()),
      {.send_inline_bytes = kInlineBytes, .credit_grant = 2, .credits_requested = kCredits, .active = true},
      {}, requesters_.back().get());
  client_cm.connect(connection.queue_pair(), kPort, {});
  for (bool up = false; !up;) {
    rdma::CmEvent events[4];
    const std::size_t asked = server_cm.poll_events(events);
    for (const rdma::CmEvent& event : std::span(events, asked)) {
      if (event.type != rdma::CmEventType::ConnectRequest) continue;
      rpcrdma::Connection& accepted = *server_.free_connection();
      accepted.open(server_device_->create_queue_pair(server_.queue_pair_limits()),
                    {.send_inline_bytes = kInlineBytes, .credit_grant = kCredits}, event.peer_address,
                    nullptr);
      server_cm.accept(event.id, accepted.queue_pair(), {});
      accepted.established();
    }
    const std::size_t answered = client_cm.poll_events(events);
    for (const rdma::CmEvent& event : std::span(events, answered))
      up = up || event.type == rdma::CmEventType::Established;
  }
  connection.established();
}

Rate Gateway::run(const ForwardedShape& shape, std::uint32_t depth, double seconds) {
  message_ = call_message(shape);
  rate_.latency_ns.reserve(1u << 20);
  const std::size_t count = depth * requesters_.size();
  const rdma::MemoryRegion data =
      client_device_->allocate_memory(std::max<std::size_t>(count * shape.data_bytes, 1));
  std::vector<Call> calls(count);
  for (std::size_t i = 0; i < count; ++i) {
    calls[i].gateway = this;
    calls[i].client = requesters_[i % requesters_.size()].get();
    calls[i].piece = {data.bytes.data() + i * shape.data_bytes, shape.data_bytes, data.lkey};
    begin(calls[i], shape);
  }
  const std::uint64_t begin = now_ns();
  std::uint64_t now = begin;
  for (std::uint64_t turn = 0; static_cast<double>(now - begin) < seconds * 1e9; ++turn) {
    poll(now);
    if (turn % 16 == 0) now = now_ns();
  }
  rate_.seconds = static_cast<double>(now - begin) / 1e9;
  stopping_ = true;
  while (open_ > 0) poll(now_ns());
  return rate_;
}

void Gateway::begin(Call& call, const ForwardedShape& shape) {
  constexpr std::uint32_t kReplyBytes = 256;
  call.request = {.payload = message_, .max_reply_bytes = kReplyBytes, .completion = &done, .context = &call};
  if (shape.reads()) {
    call.result = {.pieces = {&call.piece, 1}};
    call.request.writes = {&call.result, 1};
  }
  if (shape.writes()) {
    call.argument = {static_cast<rpcrdma::Position>(message_.size()), {&call.piece, 1}};
    call.request.reads = {&call.argument, 1};
  }
  submit(call);
}

void Gateway::submit(Call& call) {
  call.begun_ns = now_ns();
  ++call.gateway->open_;
  if (!call.client->submit(call.request)) throw std::runtime_error("no request slot");
}

void Gateway::done(void* context, const rpcrdma::Reply& reply) noexcept {
  Call& call = *static_cast<Call*>(context);
  if (reply.status() != rpcrdma::CallStatus::Ok || reply.message().size() < kReplyHeaderBytes ||
      xdr::load_u32(reply.message().data() + kStatusAt) != 0)
    std::abort();
  --call.gateway->open_;
  call.gateway->rate_.note(call.begun_ns, now_ns());
  if (!call.gateway->stopping_) submit(call);
}

void Gateway::call_once(const ForwardedShape& shape, const std::function<void(const Turn&)>& around) {
  message_ = call_message(shape);
  Call call{.gateway = this,
            .client = requesters_.front().get(),
            .piece = {},
            .argument = {},
            .result = {},
            .request = {}};
  stopping_ = true;
  const std::uint64_t now = now_ns();
  for (int turn = 0; turn < kTurnsUntilNothingIsDue; ++turn) poll(now);
  begin(call, shape);
  while (open_ > 0) {
    client_.poll(now);
    around([this, now] { poll_reactor(now); });
  }
}

void Gateway::poll(std::uint64_t now) {
  client_.poll(now);
  poll_reactor(now);
}

void Gateway::poll_reactor(std::uint64_t now) {
  server_.poll(now);
  if (upstreams_) upstreams_->poll(now);
  if (relays_.empty()) return;
  dialer_.poll();
  relays_.front()->poll(now);
}

}  // namespace sluice::bench
