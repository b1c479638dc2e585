// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/service/memory/nfs3_transport.h"

#include "dataplane/ulb/nfs3.h"

#include <algorithm>

namespace sluice::service::test {
namespace {

constexpr std::uint16_t kPort = 20049;
constexpr std::uint32_t kMaxPeers = 32;
constexpr std::size_t kMemoryBytes = 8u << 20;
constexpr std::uint32_t kMostRead = 4u << 20;
constexpr std::uint32_t kLongBytes = 5u << 20;
constexpr std::uint32_t kSegmentBytes = 1u << 20;
constexpr std::uint32_t kMostReply = 120u << 10;
constexpr int kMaxTurns = 100'000;

rpcrdma::EngineConfig engine_config() {
  rpcrdma::EngineConfig config;
  config.max_connections = kMaxPeers;
  config.capacity.call_slots = 4;
  config.capacity.requests = 4;
  config.call_buffer_bytes = kLongBytes;
  return config;
}

/// Returns the offset of a WRITE's data in its arguments, or zero if they are not arguments of a WRITE.
std::size_t write_data_at(std::span<const std::byte> arguments, std::uint32_t& bytes) {
  xdr::Reader in(arguments);
  in.opaque(64);
  in.skip(8 + 4 + 4);
  bytes = in.u32();
  const bool whole = in.ok() && bytes > 0 && in.remaining() == xdr::padded(bytes);
  return whole ? in.position() : 0;
}

std::uint32_t read_count(std::span<const std::byte> arguments) {
  xdr::Reader in(arguments);
  in.opaque(64);
  in.skip(8);
  const std::uint32_t count = in.u32();
  return in.ok() && in.remaining() == 0 ? std::min(count, kMostRead) : 0;
}

struct Waiting {
  bool done = false;
  rpcrdma::CallStatus status{};
  Bytes message;
  bool offered = false;
  std::uint64_t placed = 0;
};

void completed(void* context, const rpcrdma::Reply& reply) noexcept {
  auto& waiting = *static_cast<Waiting*>(context);
  waiting.done = true;
  waiting.status = reply.status();
  waiting.message.assign(reply.message().begin(), reply.message().end());
  if (!waiting.offered || waiting.message.size() < xdr::kUnit) return;
  // The count word of a READ's data is the last word that is inline.
  const std::uint32_t count = xdr::load_u32(&waiting.message[waiting.message.size() - xdr::kUnit]);
  if (count > 0 && reply.item(0, count).where == rpcrdma::ItemResult::Where::Placed) waiting.placed = count;
}

}  // namespace

Transport::Transport(std::uint32_t version)
    : version_(version),
      fabric_(rdma::loopback::Fabric::in_process({.links = kMaxPeers})),
      client_device_(rdma::loopback::make_device(fabric_, {.name = "client", .max_queue_pairs = kMaxPeers})),
      server_device_(rdma::loopback::make_device(fabric_, {.name = "server", .max_queue_pairs = kMaxPeers})),
      client_(std::make_unique<rpcrdma::Engine>(*client_device_, engine_config())),
      server_(std::make_unique<rpcrdma::Engine>(*server_device_, engine_config())),
      memory_(client_device_->allocate_memory(kMemoryBytes)) {
  server_device_->connection_manager()->listen(kPort);
}

Transport::~Transport() {
  for (auto& [peer, session] : sessions_) {
    for (rpcrdma::Connection* end : {session.client, session.server})
      if (end != nullptr) end->close(rpcrdma::CloseReason::LocalClose);
  }
  for (int i = 0; i < 100; ++i) turn();
}

void Transport::turn() {
  now_ns_ += 1000;
  client_->poll(now_ns_);
  server_->poll(now_ns_);
}

Transport::Session& Transport::session(const PeerAddress& peer) {
  Session& session = sessions_[peer.bytes];
  if (session.client != nullptr) return session;
  session.requester =
      std::make_unique<rpcrdma::Requester>(client_->requester_context(), *client_device_,
                                           rpcrdma::RequesterConfig{.requests = 4,
                                                                    .windows = 64,
                                                                    .long_buffers = 2,
                                                                    .long_buffer_bytes = kLongBytes,
                                                                    .max_segment_bytes = kSegmentBytes});
  rpcrdma::ConnectionConfig config;
  config.max_version = version_;
  config.send_inline_bytes = config.receive_inline_bytes;
  config.active = true;
  config.credit_grant = 0;
  config.credits_requested = 4;
  session.client = client_->free_connection();
  session.client->open(client_device_->create_queue_pair(client_->queue_pair_limits()), config, {},
                       session.requester.get());
  rdma::ConnectionManager& client_cm = *client_device_->connection_manager();
  rdma::ConnectionManager& server_cm = *server_device_->connection_manager();
  client_cm.connect(session.client->queue_pair(), kPort, {});
  for (int i = 0; i < kMaxTurns && !session.requester->connected(); ++i) {
    rdma::CmEvent events[4];
    std::size_t count = server_cm.poll_events(events);
    for (const rdma::CmEvent& event : std::span(events, count)) {
      if (event.type != rdma::CmEventType::ConnectRequest) continue;
      config.active = false;
      config.credit_grant = 4;
      config.credits_requested = 0;
      session.server = server_->free_connection();
      session.server->open(server_device_->create_queue_pair(server_->queue_pair_limits()), config, peer,
                           nullptr);
      server_cm.accept(event.id, session.server->queue_pair(), {});
      session.server->established();
    }
    count = client_cm.poll_events(events);
    for (const rdma::CmEvent& event : std::span(events, count))
      if (event.type == rdma::CmEventType::Established) session.client->established();
  }
  EXPECT_TRUE(session.requester->connected());
  return session;
}

Transport::Answer Transport::call(const rpc::CallHeader& header, const PeerAddress& peer,
                                  const HostName& host, std::span<const std::byte> arguments) {
  Bytes payload(2048 + arguments.size());
  xdr::Writer out(payload);
  rpc::encode_call(out, header);
  const std::size_t head = out.position();
  EXPECT_TRUE(out.ok());

  Waiting waiting;
  rpcrdma::Request request{.payload = {}, .completion = &completed, .context = &waiting};
  rdma::Sge piece;
  rpcrdma::ReadItem read;
  rpcrdma::WriteItem write;
  std::size_t inline_bytes = arguments.size();
  const bool nfs = header.program == ulb::kNfsProgram;
  if (nfs && header.procedure == ulb::kNfs3Write) {
    std::uint32_t bytes = 0;
    if (const std::size_t at = write_data_at(arguments, bytes); at > 0) {
      std::memcpy(memory_.bytes.data(), arguments.data() + at, bytes);
      piece = {memory_.bytes.data(), bytes, memory_.lkey};
      read = {static_cast<rpcrdma::Position>(head + at), {&piece, 1}};
      request.reads = {&read, 1};
      inline_bytes = at;
    }
  } else if (const std::uint32_t count =
                 nfs && header.procedure == ulb::kNfs3Read ? read_count(arguments) : 0;
             count > 0) {
    piece = {memory_.bytes.data(), count, memory_.lkey};
    write.pieces = {&piece, 1};
    request.writes = {&write, 1};
    waiting.offered = true;
  }
  std::copy_n(arguments.begin(), inline_bytes, payload.begin() + static_cast<std::ptrdiff_t>(head));
  request.payload = std::span(payload).first(head + inline_bytes);
  const auto bound = nfs ? ulb::nfs3_binding().max_results_bytes(header.procedure, arguments) : kMostReply;
  request.max_reply_bytes =
      waiting.offered ? 512 : static_cast<std::uint32_t>(std::min<std::uint64_t>(bound + 64, kMostReply));

  Session& session = this->session(peer);
  session.server->admit(host);
  EXPECT_TRUE(session.requester->submit(request));
  for (int i = 0; i < kMaxTurns && !waiting.done; ++i) turn();
  EXPECT_TRUE(waiting.done);
  EXPECT_EQ(waiting.status, rpcrdma::CallStatus::Ok) << rpcrdma::to_string(waiting.status);
  EXPECT_EQ(session.client->version(), version_);

  Answer answer;
  xdr::Reader in(waiting.message);
  const auto decoded = rpc::decode_reply(in);
  EXPECT_TRUE(decoded.ok);
  answer.header = decoded.header;
  answer.header.verifier = {};
  const auto rest = in.rest();
  answer.results.assign(rest.begin(), rest.end());
  if (waiting.placed > 0) {
    answer.results.insert(answer.results.end(), memory_.bytes.begin(),
                          memory_.bytes.begin() + static_cast<std::ptrdiff_t>(waiting.placed));
    answer.results.resize(xdr::padded(answer.results.size()));
  }
  return answer;
}

}  // namespace sluice::service::test
