// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/client.h"

#include <bit>
#include <ctime>
#include <utility>

#include "controlplane/properties/key_schedule.h"
#include "controlplane/properties/psk.h"
#include "dataplane/base/small_algorithms.h"
#include "dataplane/rpcrdma/v2/agreement.h"

namespace sluice::bench {
namespace {

/// Number of polls of the device between two polls of connection management.
constexpr std::uint32_t kTurnsPerCm = 1024;
/// Idle time before a connection is probed. Nothing else detects that a server was killed after it had
/// acknowledged all calls.
constexpr std::uint64_t kProbeAfterNs = 10'000'000'000;
/// Interval of checks for a server that was killed, because such a server sends nothing.
constexpr std::uint64_t kLookNs = 100'000'000;
/// Number of idle polls per clock read, because reading the clock costs as much as a poll without work.
constexpr std::uint32_t kIdleTurnsPerClock = 16;
constexpr std::uint32_t kLongBufferBytes = 128 * 1024;
constexpr std::uint32_t kMaxLongBuffers = 32;

/// Minimum number of credits in version 2. A reply may arrive in parts, each of which consumes a Receive, and
/// the server should not have to wait for credits.
constexpr std::uint32_t kLeastWindow = 64;

std::uint32_t credits_of(const ClientConfig& config) {
  return config.version >= 2 ? larger_of(config.depth, kLeastWindow) : config.depth;
}

rpcrdma::EngineConfig engine_config(const ClientConfig& config) {
  rpcrdma::EngineConfig engine;
  engine.max_connections = config.connections;
  engine.capacity = {.call_slots = 0, .requests = credits_of(config), .receive_bytes = config.inline_bytes};
  engine.call_buffers = engine.reply_buffers = 1;
  return engine;
}

std::unique_ptr<properties::HostHandshake> handshake(const ClientConfig& config) {
  std::vector<properties::PskKey> keys;
  for (const std::string& file : config.psk_files) keys.push_back(properties::read_key_file(file));
  return std::make_unique<properties::PskClient>(config.host_name, std::move(keys));
}

ClientError lost(const Session& session, const std::string& reason) {
  const bool authenticating =
      session.handshake && session.verdict == properties::HostHandshake::Verdict::Pending;
  return ClientError(
      "The connection was lost" + std::string(authenticating ? " during host authentication" : "") +
      ", because " + reason +
      (authenticating ? ". Check whether the server has this --host-name with a key of --psk." : "."));
}

}  // namespace

std::uint64_t now_ns() noexcept {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(now.tv_nsec);
}

Client::Client(rdma::Device& device, rdma::ConnectionManager& manager, const ClientConfig& config)
    : device_(device),
      manager_(manager),
      config_(config),
      engine_(device, engine_config(config)),
      sessions_(config.connections) {
  for (Session& session : sessions_) start(session);
  const std::uint64_t deadline = now_ns() + static_cast<std::uint64_t>(config.timeout_s * 1e9);
  for (Session& session : sessions_) {
    while (!ready(session)) {
      turns_ = 0;
      poll();
      if (session.rejected)
        throw ClientError("The server refused the connection on port " + std::to_string(config.port) +
                          ". Check the port, and the limits of its admission policy.");
      if (now_ns() > deadline)
        throw ClientError("The server does not answer on port " + std::to_string(config.port) +
                          ". Check whether its control plane runs, which admits connections.");
    }
  }
}

bool Client::ready(Session& session) {
  using Verdict = properties::HostHandshake::Verdict;
  if (!session.requester->connected() || session.connection->negotiating()) return false;
  if (!session.handshake) return true;
  if (session.connection->version() < rpcrdma::v2::kVersion)
    throw ClientError("The server supports only version 1, which has no host authentication.");
  if (session.verdict == Verdict::Refused)
    throw ClientError("Host authentication failed, because the server does not have the key of --psk.");
  if (!session.unsent.empty()) authenticate(session, std::move(session.unsent));
  return session.verdict == Verdict::Accepted && session.unsent.empty();
}

/// Sends host authentication, or stores it until the connection can send it. The reply to the previous
/// message may arrive before the completion of that message.
void Client::authenticate(Session& session, std::vector<std::byte> octets) {
  if (session.connection->send_host_authentication(octets)) octets.clear();
  session.unsent = std::move(octets);
}

bool Client::on_properties(void* context, rpcrdma::Connection& connection, std::span<const std::byte> body,
                           bool first) noexcept {
  auto& session = *static_cast<Session*>(context);
  const auto properties = rpcrdma::v2::decode_properties(body);
  if (!properties) return true;
  if (first) {
    connection.apply(rpcrdma::v2::agree(connection.own_parameters(), *properties));
    if (session.handshake) authenticate(session, session.handshake->begin());
  }
  if (session.handshake && properties->host_authentication) {
    auto step = session.handshake->on_octets(*properties->host_authentication);
    session.verdict = step.verdict;
    if (!step.answer.empty()) authenticate(session, std::move(step.answer));
  }
  return true;
}

Client::~Client() {
  close();
}

/// Closes the client and throws. Closing ends outstanding calls while their callers still exist.
void Client::give_up(const ClientError& error) {
  close();
  throw error;
}

void Client::close() {
  if (std::exchange(closed_, true)) return;
  for (Session& session : sessions_) {
    if (session.connection == nullptr) continue;
    session.connection->close(rpcrdma::CloseReason::LocalClose);
    if (session.cm_id) manager_.disconnect(*session.cm_id);
  }
  constexpr int kTurnsToDrain = 100'000;
  rdma::CmEvent events[8];
  for (int i = 0; i < kTurnsToDrain; ++i) {
    engine_.poll(now_ns());
    manager_.poll_events(events);  // sends the disconnect request
    bool closed = true;
    for (const Session& session : sessions_)
      closed = closed && (session.connection == nullptr ||
                          session.connection->state() == rpcrdma::Connection::State::Closed);
    if (closed) return;
  }
}

void Client::start(Session& session) {
  session.requester = std::make_unique<rpcrdma::Requester>(
      engine_.requester_context(), device_,
      rpcrdma::RequesterConfig{.requests = std::bit_ceil(config_.depth * 2),
                               .inline_bytes = config_.inline_bytes,
                               .credits_requested = credits_of(config_),
                               .windows = config_.depth * 4,
                               .long_buffers = bounded(config_.depth, 4u, kMaxLongBuffers),
                               .long_buffer_bytes = kLongBufferBytes});
  session.connection = engine_.free_connection();
  auto qp = device_.create_queue_pair(engine_.queue_pair_limits());
  rdma::QueuePair& queue_pair = *qp;
  // The size limit of our Sends arrives with the reply. The default applies until then (RFC 8797).
  session.connection->open(std::move(qp),
                           {.receive_inline_bytes = config_.inline_bytes,
                            .credit_grant = 0,
                            .credits_requested = credits_of(config_),
                            .active = true,
                            .probe_after_ns = kProbeAfterNs,
                            .max_version = config_.version},
                           {}, session.requester.get());
  if (!config_.psk_files.empty()) session.handshake = handshake(config_);
  session.connection->set_property_sink(&on_properties, &session);
  const auto ours = rpcrdma::encode_private_data({.remote_invalidation = false,
                                                  .send_bytes = config_.inline_bytes,
                                                  .receive_bytes = config_.inline_bytes});
  session.cm_id = manager_.connect(queue_pair, config_.port, ours);
  if (!session.cm_id)
    throw ClientError(
        "No connection can be started, because all links of the device are in use. End other clients first.");
}

void Client::look_for_server() {
  if (now_ns_ - sampled_ns_ < kLookNs) return;
  sampled_ns_ = now_ns_;
  device_.handle_events();
}

void Client::poll_cm() {
  look_for_server();
  rdma::CmEvent events[8];
  const std::size_t count = manager_.poll_events(events);
  for (const rdma::CmEvent& event : std::span(events, count))
    for (Session& session : sessions_) {
      if (session.cm_id != event.id) continue;
      if (event.type == rdma::CmEventType::Rejected) session.rejected = true;
      if (event.type == rdma::CmEventType::Disconnected)
        give_up(lost(session, "the server closed it (its counters show the reason)"));
      if (event.type == rdma::CmEventType::Established) {
        session.peer = rpcrdma::decode_private_data({event.private_data, event.private_data_bytes});
        session.connection->set_send_inline_bytes(
            rpcrdma::send_inline_bytes(session.peer, config_.inline_bytes));
        session.connection->established();
      }
    }
}

std::size_t Client::poll() {
  if (turns_-- == 0) {
    turns_ = kTurnsPerCm;
    give_up_if_lost();  // the manager must not act on a lost queue pair
    poll_cm();
  }
  const std::size_t count = engine_.poll(now_ns_);
  if (count > 0 || turns_ % kIdleTurnsPerClock == 0) now_ns_ = now_ns();
  if (count == 0) give_up_if_lost();
  return count;
}

void Client::give_up_if_lost() {
  for (const Session& session : sessions_)
    if (session.connection->state() != rpcrdma::Connection::State::Open)
      give_up(lost(session, to_string(session.connection->close_reason())));
}

Client::Answer Client::call(const rpcrdma::Request& request, std::vector<std::uint32_t> item_counts) {
  struct Waiting {
    bool done = false;
    Answer answer;
    std::vector<std::uint32_t> counts;
  } waiting;
  waiting.counts = std::move(item_counts);
  rpcrdma::Request waited = request;
  waited.context = &waiting;
  waited.completion = [](void* context, const rpcrdma::Reply& reply) noexcept {
    auto& w = *static_cast<Waiting*>(context);
    w.done = true;
    w.answer.status = reply.status();
    w.answer.message.assign(reply.message().begin(), reply.message().end());
    for (std::size_t i = 0; i < w.counts.size(); ++i) w.answer.items.push_back(reply.item(i, w.counts[i]));
  };
  if (!sessions_[0].requester->submit(waited)) throw ClientError("All request slots are in use.");
  const std::uint64_t deadline = now_ns() + static_cast<std::uint64_t>(config_.timeout_s * 1e9);
  while (!waiting.done) {
    poll();
    if (now_ns_ > deadline) give_up(ClientError("The server did not answer a call in time."));
  }
  return waiting.answer;
}

CallBuilder::CallBuilder(std::uint32_t program, std::uint32_t version, std::uint32_t procedure, bool auth_sys)
    : writer_(buffer_) {
  std::array<std::byte, 64> body;
  xdr::Writer credential(body);
  rpc::encode_auth_sys(credential, {.machine_name = "sluice-bench"});
  rpc::CallHeader header{
      .program = program, .version = version, .procedure = procedure, .credential = {}, .verifier = {}};
  if (auth_sys) header.credential = {rpc::AuthFlavor::Sys, credential.written()};
  rpc::encode_call(writer_, header);
}

}  // namespace sluice::bench
