// SPDX-License-Identifier: Apache-2.0
#include "tests/conformance/lab.h"

#include <algorithm>
#include <numeric>

#include "tests/conformance/message_record.h"

namespace sluice::conformance {

namespace {

constexpr std::size_t kSourceBytes = 1u << 20;
constexpr std::uint32_t kStatusNoData = 5;
bool calls_are_handed_over = false;

constexpr service::ProcedureBinding kTestProcedures[] = {
    {0, 0},  // NULL
    {1, 0},  // SINK
    {0, 1},  // SOURCE
    {0, 2},  // PAIR
    {0, 0},  // LIST
    {0, 0},  // NAME
    {0, 0},  // LATER
    {2, 0},  // TWO_SINKS
};

std::uint32_t byte_sum(std::span<const std::byte> bytes) {
  return std::accumulate(bytes.begin(), bytes.end(), 0u,
                         [](std::uint32_t sum, std::byte b) { return sum + static_cast<std::uint32_t>(b); });
}

/// Polls `left` and `right` until both have been idle for a while.
template <typename Left, typename Right>
void turn_until_quiet(int turns, Left&& left, Right&& right) {
  constexpr int kQuietTurns = 8;
  for (int quiet = 0; turns > 0 && quiet < kQuietTurns; --turns) {
    const bool moved = left() | right();
    quiet = moved ? 0 : quiet + 1;
  }
}

}  // namespace

// --- The test program

constexpr std::string_view kTestNames[] = {"null", "sink", "source", "pair",
                                           "list", "name", "later",  "two_sinks"};

TestService::TestService(rdma::Device& device, std::uint32_t program, service::UnusableChunks unusable)
    : binding_{.program = program,
               .version = 1,
               .procedures = kTestProcedures,
               .unusable = unusable,
               .name = "test",
               .procedure_names = program == kTestProgram ? std::span<const std::string_view>(kTestNames)
                                                          : std::span<const std::string_view>{}},
      source_(device.allocate_memory(kSourceBytes)),
      sink_(device.allocate_memory(kSourceBytes)) {
  fill_pattern(source_.bytes, 1);
}

service::Placement TestService::place(service::Call& call) noexcept {
  ++places;
  if (!use_sink || call.header().procedure != kSink) return service::Placement::Assemble;
  xdr::Reader args(call.arguments());
  const std::uint32_t count = args.u32();
  if (!args.ok() || args.remaining() != 0 || count > call.placed_bytes() ||
      call.placed_bytes() > xdr::padded(count)) {
    call.complete(rpc::AcceptStat::GarbageArgs);
    return service::Placement::Reply;
  }
  // The sink has two pieces, so that the data crosses their boundary.
  const std::uint32_t first = call.placed_bytes() / 2;
  if (first > 0) call.add_sink_piece({sink_.bytes.data(), first, sink_.lkey});
  call.add_sink_piece({sink_.bytes.data() + 4096 + first, call.placed_bytes() - first, sink_.lkey});
  return service::Placement::Sink;
}

void TestService::add_data_result(service::Call& call, std::uint32_t from, std::uint32_t bytes) {
  call.results().u32(bytes);
  const std::uint32_t half = bytes / 2;
  if (half > 0) call.add_result_piece({source_.bytes.data() + from, half, source_.lkey});
  if (bytes - half > 0)
    call.add_result_piece({source_.bytes.data() + from + half, bytes - half, source_.lkey});
  call.add_result_item(bytes);
}

service::Execution TestService::run_pair(service::Call& call, xdr::Reader& args) {
  const std::uint32_t sizes[2] = {args.u32(), args.u32()};
  if (!args.ok() || sizes[0] > kSourceBytes / 2 || sizes[1] > kSourceBytes / 2) {
    call.complete(rpc::AcceptStat::GarbageArgs);
    return service::Execution::Started;
  }
  for (std::uint32_t i = 0; i < 2; ++i) {
    call.results().u32(sizes[i] > 0 ? 0 : kStatusNoData);
    if (sizes[i] > 0) add_data_result(call, i * static_cast<std::uint32_t>(kSourceBytes / 2), sizes[i]);
  }
  call.complete(rpc::AcceptStat::Success);
  return service::Execution::Started;
}

service::Execution TestService::execute(service::Call& call) noexcept {
  xdr::Reader args(call.arguments());
  xdr::Writer& results = call.results();
  const std::uint32_t procedure = call.header().procedure;
  auto outcome = rpc::AcceptStat::Success;
  switch (procedure) {
    case kNull:
      break;
    case kSink: {
      if (use_sink && call.placed_bytes() > 0) {
        const std::uint32_t count = args.u32();
        const std::uint32_t first = call.placed_bytes() / 2;
        last_data.assign(sink_.bytes.data(), sink_.bytes.data() + first);
        last_data.insert(last_data.end(), sink_.bytes.data() + 4096 + first,
                         sink_.bytes.data() + 4096 + call.placed_bytes());
        last_data.resize(count);
        results.u32(count);
        results.u32(byte_sum(last_data));
        results.u32(0);
        break;
      }
      const auto data = args.opaque(kSourceBytes);
      const std::uint32_t trailer = args.remaining() > 0 ? args.u32() : 0;
      if (!args.ok() || args.remaining() != 0) {
        outcome = rpc::AcceptStat::GarbageArgs;
        break;
      }
      last_data.assign(data.begin(), data.end());
      results.u32(static_cast<std::uint32_t>(data.size()));
      results.u32(byte_sum(data));
      results.u32(trailer);
      break;
    }
    case kSource: {
      const std::uint32_t bytes = args.u32();
      if (!args.ok() || bytes > kSourceBytes) {
        outcome = rpc::AcceptStat::GarbageArgs;
        break;
      }
      results.u32(0);
      add_data_result(call, 0, bytes);
      results.u32(kStatusNoData);
      break;
    }
    case kPair:
      executed.push_back(procedure);
      return run_pair(call, args);
    case kList: {
      const std::uint32_t bytes = args.u32();
      if (!args.ok()) {
        outcome = rpc::AcceptStat::GarbageArgs;
        break;
      }
      if (!call.require_results(xdr::padded(bytes) + 4)) return service::Execution::NeedsMemory;
      call.results().opaque(source_.bytes.first(std::min<std::size_t>(bytes, kSourceBytes)));
      break;
    }
    case kName: {
      const auto name = args.opaque(kSourceBytes);
      if (!args.ok() || args.remaining() != 0) {
        outcome = rpc::AcceptStat::GarbageArgs;
        break;
      }
      last_data.assign(name.begin(), name.end());
      results.u32(static_cast<std::uint32_t>(name.size()));
      break;
    }
    case kLater:
      executed.push_back(procedure);
      later_.push_back(&call);
      return service::Execution::Started;
    case kTwoSinks: {
      const auto first = args.opaque(kSourceBytes);
      const std::uint32_t between = args.u32();
      const auto second = args.opaque(kSourceBytes);
      if (!args.ok() || args.remaining() != 0) {
        outcome = rpc::AcceptStat::GarbageArgs;
        break;
      }
      last_data.assign(first.begin(), first.end());
      for (const std::uint32_t word : {static_cast<std::uint32_t>(first.size()), byte_sum(first), between,
                                       static_cast<std::uint32_t>(second.size()), byte_sum(second)})
        results.u32(word);
      break;
    }
    default:
      outcome = rpc::AcceptStat::ProcUnavail;
  }
  executed.push_back(procedure);
  call.complete(outcome);
  return service::Execution::Started;
}

void TestService::complete_later(rpc::AcceptStat stat) {
  std::vector<service::Call*> calls;
  calls.swap(later_);
  for (service::Call* call : calls) call->complete(stat);
}

void TestService::complete_oldest() {
  service::Call* const call = later_.front();
  later_.erase(later_.begin());
  call->complete(rpc::AcceptStat::Success);
}

// --- The raw peer

void RawPeer::adopt(rdma::QueuePair& qp) {
  RawEndpoint::adopt(qp);
  connection_ = MessageRecord::of_this_run().next_connection();
}

void RawPeer::on_message(bool sent, std::span<const std::byte> bytes) {
  MessageRecord::of_this_run().add(connection_, sent, bytes);
}

// --- Our engine as server

void hand_calls_over() noexcept {
  calls_are_handed_over = true;
}

ServerLab::ServerLab(LabOptions lab_options) : options(std::move(lab_options)) {
  fabric = rdma::loopback::Fabric::in_process({.links = 8});
  device = std::make_unique<LoggedDevice>(rdma::loopback::make_device(fabric, {.name = "server"}), log,
                                          options.remote_invalidation);
  raw_device = rdma::loopback::make_device(fabric, {.name = "raw"});
  options.engine.max_connections = options.server_connections;
  engine = std::make_unique<rpcrdma::Engine>(*device, options.engine);
  service = std::make_unique<TestService>(*device);
  lenient = std::make_unique<TestService>(*device, kTestProgram + 1, service::UnusableChunks::Ignore);
  if (calls_are_handed_over) {
    rings = std::make_unique<service::CrossReactorCall>(std::vector<service::CrossReactorCall::KeyPair>{},
                                                        options.engine.max_connections);
    for (TestService* real : {service.get(), lenient.get()}) {
      remote_services.push_back(std::make_unique<service::RemoteService>(*rings, *real));
      engine->add_service(*remote_services.back());
    }
  } else {
    engine->add_service(*service);
    engine->add_service(*lenient);
  }
  device->connection_manager()->listen(kPort);
  connect();
}

bool ServerLab::turn() {
  engine->poll(now_ns += 1000);
  return rings && (rings->serve() | rings->collect());
}

ServerLab::~ServerLab() {
  peer->owned_qp.reset();
}

void ServerLab::connect() {
  peer = std::make_unique<RawPeer>(*raw_device, options.raw_receive_bytes, options.raw_receives);
  peer->owned_qp = peer->make_queue_pair();
  rdma::ConnectionManager& cm = *device->connection_manager();
  rdma::ConnectionManager& raw_cm = *raw_device->connection_manager();
  ASSERT_TRUE(raw_cm.connect(*peer->owned_qp, kPort, {}).has_value());
  bool up = false;
  for (int i = 0; i < 100 && !up; ++i) {
    rdma::CmEvent events[4];
    const std::size_t count = cm.poll_events(events);
    for (const rdma::CmEvent& event : std::span(events, count)) {
      if (event.type != rdma::CmEventType::ConnectRequest) continue;
      connection = engine->free_connection();
      ASSERT_NE(connection, nullptr);
      auto qp = device->create_queue_pair(engine->queue_pair_limits());
      rdma::QueuePair& qp_ref = *qp;
      connection->open(std::move(qp), options.connection, event.peer_address, requester_for_next_connection);
      ASSERT_TRUE(cm.accept(event.id, qp_ref, {}));
      connection->established();
    }
    const std::size_t raw_count = raw_cm.poll_events(events);
    for (const rdma::CmEvent& event : std::span(events, raw_count))
      up = up || event.type == rdma::CmEventType::Established;
  }
  ASSERT_TRUE(up);
  settle();
}

void ServerLab::reconnect() {
  peer->owned_qp.reset();
  settle();
  while (engine->take_closed() != nullptr) {
  }
  ASSERT_EQ(connection->state(), rpcrdma::Connection::State::Closed);
  if (engine->all_closed()) {
    EXPECT_TRUE(engine->memory_balanced());
  }
  connect();
}

void ServerLab::settle(int turns) {
  turn_until_quiet(
      turns,
      [&] {
        const std::uint64_t before = log.ops().size();
        const bool handed = turn();
        return handed || log.ops().size() != before;
      },
      [&] {
        const std::size_t before = peer->inbox.size() + peer->send_completions.size();
        peer->poll();
        return peer->inbox.size() + peer->send_completions.size() != before;
      });
}

std::vector<Received> ServerLab::exchange(std::span<const std::byte> message) {
  peer->inbox.clear();
  peer->send(message);
  settle();
  return peer->inbox;
}

Bytes ServerLab::call(std::span<const std::byte> message) {
  const auto answers = exchange(message);
  EXPECT_EQ(answers.size(), 1u);
  return answers.empty() ? Bytes{} : answers.front().bytes;
}

bool ServerLab::alive(std::uint32_t xid) {
  Bytes message = plain_header(xid, 32);
  append(message, rpc_call(xid, kTestProgram, 1, 0));
  peer->inbox.clear();
  peer->send(message);
  settle();
  return peer->inbox.size() == 1 && word_at(peer->inbox[0].bytes, 0) == xid &&
         word_at(peer->inbox[0].bytes, 3) == 0 && peer->inbox[0].bytes.size() == 52;
}

// --- Our engine as client

ClientLab::ClientLab(LabOptions lab_options) : options(std::move(lab_options)) {
  fabric = rdma::loopback::Fabric::in_process({.links = 8});
  device = std::make_unique<LoggedDevice>(rdma::loopback::make_device(fabric, {.name = "client"}), log,
                                          options.remote_invalidation);
  raw_device = rdma::loopback::make_device(fabric, {.name = "raw"});
  options.engine.max_connections = 4;
  options.engine.capacity.requests = std::max(options.engine.capacity.requests, 64u);
  options.connection.active = true;
  if (options.connection.credits_requested == 0) options.connection.credits_requested = 32;
  engine = std::make_unique<rpcrdma::Engine>(*device, options.engine);
  service = std::make_unique<TestService>(*device);
  engine->add_service(*service);
  requester = std::make_unique<rpcrdma::Requester>(engine->requester_context(), *device, options.requester);
  raw_device->connection_manager()->listen(kPort);
  connect();
}

ClientLab::~ClientLab() {
  if (peer) peer->owned_qp.reset();
}

void ClientLab::connect() {
  peer = std::make_unique<RawPeer>(*raw_device, options.raw_receive_bytes, options.raw_receives);
  peer->owned_qp = peer->make_queue_pair(options.raw_posts_receives);
  rdma::ConnectionManager& cm = *device->connection_manager();
  rdma::ConnectionManager& raw_cm = *raw_device->connection_manager();
  connection = engine->free_connection();
  ASSERT_NE(connection, nullptr);
  auto qp = device->create_queue_pair(engine->queue_pair_limits());
  rdma::QueuePair& qp_ref = *qp;
  connection->open(std::move(qp), options.connection, PeerAddress::from_ipv4(10, 0, 0, 1), requester.get());
  cm_id = cm.connect(qp_ref, kPort, {});
  ASSERT_TRUE(cm_id.has_value());
  for (int i = 0; i < 100 && !requester->connected(); ++i) {
    rdma::CmEvent events[4];
    const std::size_t raw_count = raw_cm.poll_events(events);
    for (const rdma::CmEvent& event : std::span(events, raw_count))
      if (event.type == rdma::CmEventType::ConnectRequest) {
        ASSERT_TRUE(raw_cm.accept(event.id, *peer->owned_qp, {}));
      }
    const std::size_t count = cm.poll_events(events);
    for (const rdma::CmEvent& event : std::span(events, count))
      if (event.type == rdma::CmEventType::Established) connection->established();
  }
  ASSERT_TRUE(requester->connected());
  settle();
}

void ClientLab::disconnect() {
  peer->owned_qp.reset();
  settle();
  while (engine->take_closed() != nullptr) {
  }
}

void ClientLab::settle(int turns) {
  turn_until_quiet(
      turns,
      [&] {
        const std::uint64_t before = log.ops().size() + finished.size();
        engine->poll(now_ns += 1000);
        return log.ops().size() + finished.size() != before;
      },
      [&] {
        if (!peer->owned_qp) return false;
        const std::size_t before = peer->inbox.size() + peer->send_completions.size();
        peer->poll();
        return peer->inbox.size() + peer->send_completions.size() != before;
      });
}

void ClientLab::completed(void* context, const rpcrdma::Reply& reply) noexcept {
  auto* pending = static_cast<Pending*>(context);
  Finished finished{.status = reply.status(),
                    .xid = reply.xid(),
                    .message = Bytes(reply.message().begin(), reply.message().end()),
                    .items = {},
                    .supported = reply.supported(),
                    .error = reply.error()};
  for (std::size_t i = 0; i < pending->item_counts.size(); ++i)
    finished.items.push_back(reply.item(i, pending->item_counts[i]));
  ClientLab& lab = *pending->lab;
  lab.finished.push_back(std::move(finished));
  if (lab.on_reply) lab.on_reply(reply);
}

std::optional<std::uint32_t> ClientLab::submit(const rpcrdma::Request& request,
                                               std::vector<std::uint32_t> item_counts) {
  pending_.push_back(std::make_unique<Pending>(Pending{this, std::move(item_counts)}));
  rpcrdma::Request with_completion = request;
  with_completion.completion = &completed;
  with_completion.context = pending_.back().get();
  const auto xid = requester->submit(with_completion);
  if (!xid) return std::nullopt;
  return static_cast<std::uint32_t>(*xid);
}

std::optional<std::uint32_t> ClientLab::submit_null() {
  const Bytes payload = rpc_call(0, kTestProgram, 1, 0);
  return submit({.payload = payload, .max_reply_bytes = 64});
}

Bytes ClientLab::success(std::uint32_t xid, std::uint32_t credits) {
  Bytes message = plain_header(xid, credits);
  append(message, words({xid, 1, 0, 0, 0, 0}));
  return message;
}

}  // namespace sluice::conformance
