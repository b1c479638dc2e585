// SPDX-License-Identifier: Apache-2.0
#include "tests/conformance/mesh.h"

#include <algorithm>

#include "tests/conformance/raw_call.h"

namespace sluice::conformance {
namespace {

constexpr std::uint32_t kLargest = 60'000;  ///< bytes of a call's data
constexpr std::uint64_t kTurnNs = 1000;
constexpr std::uint64_t kProgressNs = 30'000'000'000;

}  // namespace

Mesh::Mesh(bool handed_over) : fabric_(rdma::loopback::Fabric::in_process({.links = 2 * kLegs})) {
  for (const Side side : {kClient, kServer}) {
    Half& half = sides_[side];
    half.device = rdma::loopback::make_device(fabric_, {.name = side == kClient ? "client" : "server"});
    rpcrdma::EngineConfig engine;
    engine.max_connections = 2 * kLegs;
    engine.capacity.call_slots = 8;
    engine.capacity.requests = kRequests;
    engine.call_buffers = engine.reply_buffers = engine.assembly_buffers = 2;  // fewer than connections
    engine.small_buffer_bytes = 16u << 10;
    half.engine = std::make_unique<rpcrdma::Engine>(*half.device, engine);
    half.service = std::make_unique<TestService>(*half.device);
    if (side == kServer && handed_over) {
      rings_ = std::make_unique<service::CrossReactorCall>(std::vector<service::CrossReactorCall::KeyPair>{},
                                                           engine.max_connections);
      remote_service_ = std::make_unique<service::RemoteService>(*rings_, *half.service);
      half.engine->add_service(*remote_service_);
    } else {
      half.engine->add_service(*half.service);
    }
    half.memory = half.device->allocate_memory(1u << 20);
    for (End& end : half.ends)
      end.requester =
          std::make_unique<rpcrdma::Requester>(half.engine->requester_context(), *half.device,
                                               rpcrdma::RequesterConfig{.requests = kRequests,
                                                                        .credits_requested = 8,
                                                                        .windows = 32,
                                                                        .long_buffers = 2,
                                                                        .reverse = side == kServer,
                                                                        .reverse_chunks = true});
  }
  sides_[kServer].device->connection_manager()->listen(kPort);
}

Mesh::~Mesh() = default;

rpcrdma::ConnectionConfig Mesh::config_of(Side side, std::uint32_t version) const {
  rpcrdma::ConnectionConfig config;
  config.active = side == kClient;
  config.max_version = version;
  config.send_inline_bytes = 4096;
  config.credit_grant = 8;
  config.credits_requested = 8;
  config.progress_timeout_ns = kProgressNs;
  config.probe_after_ns = kProgressNs / 2;
  config.version2.parameters.reverse = rpcrdma::v2::ReverseSupport::General;
  return config;
}

// --- Connections

void Mesh::connect(std::uint32_t leg, std::uint32_t version) {
  Half& client = sides_[kClient];
  End& end = client.ends[leg];
  rpcrdma::Connection* const connection = client.engine->free_connection();
  if (end.requester->attached() || connection == nullptr) return;
  connection->open(client.device->create_queue_pair(client.engine->queue_pair_limits()),
                   config_of(kClient, version), PeerAddress::from_ipv4(10, 0, 0, 2), end.requester.get());
  end.connection = connection;
  const std::byte number{static_cast<unsigned char>(leg)};
  end.id = client.device->connection_manager()->connect(connection->queue_pair(), kPort, {&number, 1});
  if (!end.id) connection->close(rpcrdma::CloseReason::LocalClose);
}

void Mesh::accept(const rdma::CmEvent& event) {
  Half& server = sides_[kServer];
  rdma::ConnectionManager& cm = *server.device->connection_manager();
  End& end = server.ends[static_cast<std::size_t>(event.private_data[0]) % kLegs];
  rpcrdma::Connection* const connection = server.engine->free_connection();
  if (connection == nullptr || end.requester->attached()) return cm.reject(event.id, {});
  connection->open(server.device->create_queue_pair(server.engine->queue_pair_limits()),
                   config_of(kServer, 2), event.peer_address, end.requester.get());
  end.connection = connection;
  end.id = event.id;
  if (!cm.accept(event.id, connection->queue_pair(), {}))
    return connection->close(rpcrdma::CloseReason::PeerClosed);
  connection->established();
}

void Mesh::on_event(Side side, const rdma::CmEvent& event) {
  if (event.type == rdma::CmEventType::ConnectRequest) return accept(event);
  for (End& end : sides_[side].ends) {
    if (end.id != event.id || end.connection == nullptr) continue;
    if (event.type == rdma::CmEventType::Established)
      end.connection->established();
    else
      end.connection->close(rpcrdma::CloseReason::PeerClosed);
  }
}

void Mesh::manage(Side side) {
  rdma::CmEvent events[4];
  const std::size_t count = sides_[side].device->connection_manager()->poll_events(events);
  for (const rdma::CmEvent& event : std::span(events, count)) on_event(side, event);
}

void Mesh::take_closed(Side side) {
  while (rpcrdma::Connection* const closed = sides_[side].engine->take_closed())
    for (End& end : sides_[side].ends)
      if (end.connection == closed) end.connection = nullptr, end.id.reset();
}

void Mesh::close(std::uint32_t leg, Side side) {
  End& end = sides_[side].ends[leg];
  if (end.connection == nullptr) return;
  if (end.id) sides_[side].device->connection_manager()->disconnect(*end.id);
  end.connection->close(rpcrdma::CloseReason::LocalClose);
}

void Mesh::lose(std::uint32_t leg, Side side) {
  End& end = sides_[side].ends[leg];
  if (end.connection != nullptr && end.connection->is_open()) end.connection->queue_pair().to_error();
}

void Mesh::set_credits(std::uint32_t leg, std::uint32_t credits) {
  End& end = sides_[kServer].ends[leg];
  if (end.connection != nullptr && end.connection->is_open()) end.connection->set_credits(credits);
}

// --- Calls

void Mesh::completed(void* context, const rpcrdma::Reply&) noexcept {
  ++static_cast<Ticket*>(context)->ended;
}

bool Mesh::submit(std::uint32_t leg, Side side, Shape shape, std::uint32_t bytes) {
  Half& half = sides_[side];
  End& end = half.ends[leg];
  bytes %= kLargest;
  const rdma::Sge piece{half.memory.bytes.data(), kLargest, half.memory.lkey};
  const rpcrdma::WriteItem writes[] = {{.pieces = {&piece, 1}}, {.pieces = {&piece, 1}}};
  const rdma::Sge argument{half.memory.bytes.data() + kLargest, std::max(bytes, 1u), half.memory.lkey};
  const rpcrdma::ReadItem read{.position = rpcrdma::Position{44}, .pieces = {&argument, 1}};
  Bytes payload;
  rpcrdma::Request request{.payload = {}, .max_reply_bytes = 64};
  switch (shape) {
    case Shape::Null:
      payload = test_call(0, TestService::kNull);
      break;
    case Shape::List:
      payload = test_call(0, TestService::kList, {bytes});
      request.max_reply_bytes = bytes + 64;
      request.repeatable = true;
      break;
    case Shape::Name:
      payload = test_call(0, TestService::kName, {bytes});
      payload.resize(payload.size() + xdr::padded(bytes));
      break;
    case Shape::Source:
      payload = test_call(0, TestService::kSource, {bytes});
      request.writes = {writes, 1};
      break;
    case Shape::Sink:
      payload = test_call(0, TestService::kSink, {argument.length, 7});
      request.reads = {&read, 1};
      break;
    case Shape::Later:
      payload = test_call(0, TestService::kLater);
      break;
    case Shape::Pair:
      payload = test_call(0, TestService::kPair, {bytes, bytes / 2});
      request.writes = writes;
      break;
  }
  request.payload = payload;
  end.tickets.push_back(std::make_unique<Ticket>());
  Ticket& ticket = *end.tickets.back();
  request.completion = &completed;
  request.context = &ticket;
  const auto xid = end.requester->submit(request);
  if (xid)
    ticket.xid = *xid;
  else if (ticket.ended == 0)
    end.tickets.pop_back();
  return xid.has_value();
}

std::uint32_t Mesh::under_way(std::uint32_t leg, Side side) const {
  const auto& tickets = sides_[side].ends[leg].tickets;
  return static_cast<std::uint32_t>(
      std::count_if(tickets.begin(), tickets.end(), [](const auto& ticket) { return ticket->ended == 0; }));
}

void Mesh::cancel(std::uint32_t leg, Side side, std::uint32_t which) {
  End& end = sides_[side].ends[leg];
  std::vector<const Ticket*> under_way;
  for (const auto& ticket : end.tickets)
    if (ticket->ended == 0) under_way.push_back(ticket.get());
  if (!under_way.empty()) static_cast<void>(end.requester->cancel(under_way[which % under_way.size()]->xid));
}

// --- Time

void Mesh::turn(Side side) {
  manage(side);
  sides_[side].engine->poll(now_ns_ += kTurnNs);
  if (side == kServer && rings_) {
    rings_->serve();
    rings_->collect();
  }
  take_closed(side);
}

void Mesh::turns(std::uint32_t count) {
  for (std::uint32_t i = 0; i < count; ++i)
    for (const Side side : {kClient, kServer}) turn(side);
}

// --- The end

std::string Mesh::finish() {
  constexpr std::uint32_t kTurnsToSettle = 400;
  turns(kTurnsToSettle);
  for (Half& half : sides_)
    for (End& end : half.ends) end.requester->cancel_all();
  turns(kTurnsToSettle);
  if (std::string text = complaint_of_credits(); !text.empty()) return text;
  for (std::uint32_t leg = 0; leg < kLegs; ++leg)
    for (const Side side : {kClient, kServer}) close(leg, side);
  // Calls that the service still holds keep their connection open. Some of them arrive only now.
  for (int i = 0; i < 4; ++i) {
    turns(kTurnsToSettle / 4);
    for (const Side side : {kClient, kServer}) complete_later(side);
  }
  turns(kTurnsToSettle);
  for (const Side side : {kClient, kServer})
    if (std::string text = complaint(side); !text.empty()) return text;
  for (Half& half : sides_)
    for (End& end : half.ends) end.tickets.clear();
  return {};
}

/// The credits left to one end equal the credits that the other end has granted.
std::string Mesh::complaint_of_credits() const {
  for (std::uint32_t leg = 0; leg < kLegs; ++leg)
    for (const Side side : {kClient, kServer}) {
      const auto* const own = sides_[side].ends[leg].connection;
      const auto* const peer = sides_[1 - side].ends[leg].connection;
      if (own == nullptr || peer == nullptr || !own->is_open() || !peer->is_open()) continue;
      if (!own->speaks_version_2() || !peer->speaks_version_2()) continue;
      const auto balance = own->flow_control().balance();
      const auto unused = peer->flow_control().unused();
      if (balance != unused)
        return "one end of leg " + std::to_string(leg) + " has " + std::to_string(balance) +
               " credits, and the other has granted " + std::to_string(unused);
    }
  return {};
}

std::string Mesh::complaint(Side side) const {
  const Half& half = sides_[side];
  const std::string who = side == kClient ? "client: " : "server: ";
  if (!half.engine->all_closed()) return who + "a connection has not come to its end";
  if (side == kServer && rings_ && !rings_->balanced()) return who + "a ticket is missing";
  if (!half.engine->memory_balanced()) return who + "memory or a call slot is missing";
  for (const End& end : half.ends) {
    if (end.requester->attached()) return who + "a requester is attached to a connection that has ended";
    if (!end.requester->balanced()) return who + "a request, a window or a buffer of a requester is missing";
    for (const auto& ticket : end.tickets)
      if (ticket->ended != 1) return who + "a call has ended " + std::to_string(ticket->ended) + " times";
  }
  return {};
}

}  // namespace sluice::conformance
