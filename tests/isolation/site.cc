// SPDX-License-Identifier: Apache-2.0
#include "tests/isolation/site.h"

#include <algorithm>
#include <chrono>

namespace sluice::isolation {

namespace {

constexpr std::uint32_t kReceiveBytes = 16u << 10;
constexpr std::uint32_t kSmallBytes = 16u << 10;  ///< the value that the product configures

std::unique_ptr<service::memory::MemoryService> make_files(rdma::Device& device) {
  service::memory::MemoryServiceConfig config{.max_files = 100, .handle_key = {}, .exports = {}};
  config.exports = {{.path = "/export", .root_squash = false, .allowed = {}}};
  return std::make_unique<service::memory::MemoryService>(
      device.allocate_memory(1u << 20), device.allocate_memory(service::memory::kLargeBytes + 64), config,
      &clock_ns);
}

}  // namespace

std::uint64_t clock_ns() noexcept {
  return static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
}

// --- A peer

Peer::Peer(std::shared_ptr<rdma::loopback::Fabric> fabric, const std::string& name, std::uint32_t receives)
    : device_(rdma::loopback::make_device(std::move(fabric), {.name = name})), receives_(receives) {
  raw_ = std::make_unique<RawPeer>(*device_, kReceiveBytes, receives_);
}

Peer::~Peer() {
  vanish();
}

void Peer::connect() {
  vanish();
  raw_->failed = false;
  raw_->inbox.clear();
  raw_->send_completions.clear();
  up_ = lost_ = false;
  turns = sent = 0;
  raw_->owned_qp = raw_->make_queue_pair();
  if (!device_->connection_manager()->connect(*raw_->owned_qp, conformance::kPort, {})) lost_ = true;
}

void Peer::vanish() {
  raw_->owned_qp.reset();
  up_ = false;
}

void Peer::poll() {
  if (!raw_->owned_qp) return;
  ++turns;
  rdma::CmEvent events[4];
  const std::size_t count = device_->connection_manager()->poll_events(events);
  for (const rdma::CmEvent& event : std::span(events, count)) {
    if (event.type == rdma::CmEventType::Established) up_ = true;
    if (event.type == rdma::CmEventType::Rejected || event.type == rdma::CmEventType::Disconnected)
      lost_ = true;
  }
  raw_->poll();
}

// --- The server

Site::Site(const SiteOptions& options)
    : options_(options),
      fabric_(rdma::loopback::Fabric::in_process({.links = 2 * options.connections})),
      device_(rdma::loopback::make_device(fabric_, {.name = "server"})) {
  rpcrdma::EngineConfig config;
  config.max_connections = options.connections;
  config.capacity.call_slots = options.credits;
  config.capacity.requests = options.callers ? 4 : 0;
  // Two large buffers of each kind for each connection, so that no connection has to wait for another.
  config.call_buffers = config.reply_buffers = config.assembly_buffers = 2 * options.connections;
  config.small_buffer_bytes = kSmallBytes;
  engine_ = std::make_unique<rpcrdma::Engine>(*device_, config);
  service_ = std::make_unique<TestService>(*device_);
  engine_->add_service(*service_);
  files_ = make_files(*device_);
  engine_->add_service(*files_);
  for (std::uint32_t i = 0; options.callers && i < options.connections; ++i)
    requesters_.push_back(std::make_unique<rpcrdma::Requester>(
        engine_->requester_context(), *device_,
        rpcrdma::RequesterConfig{
            .requests = 4, .inline_bytes = 1024, .credits_requested = 4, .windows = 0, .reverse = true}));
  device_->connection_manager()->listen(conformance::kPort);
}

Site::~Site() {
  service_->complete_later();
}

std::unique_ptr<Peer> Site::make_peer(const std::string& name, std::uint32_t receives) {
  return std::make_unique<Peer>(fabric_, name, receives);
}

void Site::accept(const rdma::CmEvent& event) {
  rpcrdma::Connection* const connection = engine_->free_connection();
  if (connection == nullptr) {
    ++refused_;
    return device_->connection_manager()->reject(event.id, {});
  }
  rpcrdma::ConnectionConfig config;
  config.credit_grant = options_.credits;
  config.max_version = 2;
  config.progress_timeout_ns = 30 * kSecond;
  config.version2.hold_calls = options_.hold_calls && !victim_next_;
  rpcrdma::Requester* requester = nullptr;
  if (options_.callers && !victim_next_) {
    config.credits_requested = 4;
    const auto unused = std::find_if(requesters_.begin(), requesters_.end(),
                                     [](const auto& one) { return !one->attached(); });
    if (unused != requesters_.end()) requester = unused->get();
  }
  auto qp = device_->create_queue_pair(engine_->queue_pair_limits());
  rdma::QueuePair& queue_pair = *qp;
  connection->open(std::move(qp), config, event.peer_address, requester);
  if (!device_->connection_manager()->accept(event.id, queue_pair, {}))
    return connection->close(rpcrdma::CloseReason::LocalClose);
  connection->established();
  accepted_.push_back({event.id, connection});
  if (victim_next_) victim_ = connection;
}

void Site::on_event(const rdma::CmEvent& event) {
  if (event.type == rdma::CmEventType::ConnectRequest) requests_.push_back(event);
  if (event.type != rdma::CmEventType::Disconnected) return;
  std::erase_if(requests_, [&](const rdma::CmEvent& request) { return request.id == event.id; });
  for (const Accepted& one : accepted_)
    if (one.id == event.id) one.connection->close(rpcrdma::CloseReason::PeerClosed);
}

void Site::accept_next() {
  if (requests_.empty() || !pace_.due(now_ns_)) return;
  const rdma::CmEvent request = requests_.front();
  requests_.erase(requests_.begin());
  const std::uint64_t begin_ns = clock_ns();
  accept(request);
  pace_.made(now_ns_, now_ns_ + (options_.measured ? clock_ns() - begin_ns : 0));
}

void Site::control_pass() {
  rdma::CmEvent events[8];
  const std::size_t count = device_->connection_manager()->poll_events(events);
  for (const rdma::CmEvent& event : std::span(events, count)) on_event(event);
  accept_next();
  while (rpcrdma::Connection* const closed = engine_->take_closed()) {
    if (closed != victim_) ends_.push_back(closed->close_reason());
    std::erase_if(accepted_, [&](const Accepted& one) { return one.connection == closed; });
  }
}

void Site::turn(std::uint64_t ns) {
  const std::uint64_t begin_ns = clock_ns();
  ++turns_;
  engine_->poll(now_ns_ += ns != 0 ? ns : turn_ns_);
  if (turns_ % (options_.measured ? kTurnsPerMeasuredPass : kTurnsPerPass) == 0) control_pass();
  if (options_.measured) turn_ns_ = clock_ns() - begin_ns;
}

std::uint32_t Site::open_connections() const {
  return static_cast<std::uint32_t>(std::count_if(
      accepted_.begin(), accepted_.end(), [](const Accepted& one) { return one.connection->is_open(); }));
}

}  // namespace sluice::isolation
