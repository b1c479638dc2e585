// SPDX-License-Identifier: Apache-2.0
#include "tests/conformance/client_lab.h"

#include <gtest/gtest.h>

#include <deque>
#include <utility>

#include "cli/conformance/nfs.h"
#include "cli/conformance/upstream.h"
#include "dataplane/rpcrdma/link/config.h"
#include "tests/unit/service/memory/call_harness.h"

namespace sluice::conformance {
namespace {

constexpr std::uint16_t kPort = 20049;
constexpr std::uint32_t kInlineBytes = 4096;
constexpr std::uint32_t kTasks = 6;
constexpr std::uint32_t kTaskBytes = 16384;
constexpr std::uint32_t kDirectoryBytes = 8192;
constexpr std::uint64_t kTransferNs = 2'000'000'000;
/// Measured on the client's clock, which advances with each iteration, independent of the real time.
constexpr std::uint64_t kFirstAnswerNs = 3'600'000'000'000;
constexpr std::uint64_t kVersion1MemoryNs = 1'000'000'000;
constexpr std::uint64_t kQuietNs = 2'000'000'000;
/// Size of the file. A READ at its end returns a length that is no multiple of four.
constexpr std::uint32_t kOddBytes = kFileBytes - 1;
/// Word of a READ's reply that holds the count; eof follows.
constexpr std::size_t kCountWord = 29;

std::uint64_t wall_clock() noexcept {
  return 1'700'000'000'000'000'000;
}

service::memory::MemoryServiceConfig exports() {
  service::memory::MemoryServiceConfig config{.max_files = 100, .handle_key = {}, .exports = {}};
  config.exports = {{.path = "/", .root_squash = false, .allowed = {}}};
  return config;
}

rpcrdma::EngineConfig engine_config() {
  rpcrdma::EngineConfig config;
  config.max_connections = 2;
  config.capacity.requests = 64;
  return config;
}

/// Executes one call of the memory service for each reply.
class FilesUpstream final : public Upstream {
 public:
  explicit FilesUpstream(MemoryFiles& files) : files_(files) {}
  void send(std::span<const std::byte> message) override { replies_.push_back(files_.reply_to(message)); }
  std::optional<Bytes> receive() override {
    if (replies_.empty()) return std::nullopt;
    Bytes reply = std::move(replies_.front());
    replies_.pop_front();
    return reply;
  }

 private:
  MemoryFiles& files_;
  std::deque<Bytes> replies_;
};

}  // namespace

MemoryFiles::MemoryFiles(rdma::Device& device)
    : service_(device.allocate_memory(16u << 20), device.allocate_memory(service::memory::kLargeBytes + 64),
               exports(), &wall_clock) {}

Bytes MemoryFiles::root() const {
  const auto handle = service_.root_handle(0);
  return {handle.begin(), handle.end()};
}

Bytes MemoryFiles::reply_to(std::span<const std::byte> message) {
  xdr::Reader reader(message);
  service::test::TestCall call;
  rpc::decode_call(reader, call.header());
  Bytes reply = words({word_at(message, 0), 1, 0, 0, 0, 0});
  if (call.header().procedure == 0) return reply;
  call.start(reader.rest());
  call.execute(service_);
  xdr::store_u32(reply.data() + 20, static_cast<std::uint32_t>(call.accepted()));
  append(reply, call.results());
  call.release(service_);
  return reply;
}

Bytes MemoryFiles::make_file(const std::string& name) {
  const Bytes handle = made_handle(reply_to(create_payload(1, root(), name)));
  Bytes write = write_payload(2, handle, 0, kOddBytes);
  Bytes content(kOddBytes);
  fill_pattern(content, kFileSeed);
  append(write, content);
  write.resize(padded(write.size()));
  reply_to(write);
  return handle;
}

OwnClient::OwnClient(std::shared_ptr<rdma::loopback::Fabric> fabric, Bytes root, Bytes file,
                     std::uint32_t version)
    : device_(rdma::loopback::make_device(std::move(fabric), {.name = "client"})),
      engine_(*device_, engine_config()),
      requester_(engine_.requester_context(), *device_, {.requests = 16, .credits_requested = 8}),
      root_(std::move(root)),
      file_(std::move(file)),
      version_(version),
      tasks_(kTasks) {
  for (Task& task : tasks_) {
    task.client = this;
    task.memory = device_->allocate_memory(kTaskBytes);
    idle_.push_back(&task);
  }
}

void OwnClient::open() {
  connection_ = engine_.free_connection();
  auto qp = device_->create_queue_pair(engine_.queue_pair_limits());
  rdma::QueuePair& queue_pair = *qp;
  connection_->open(
      std::move(qp),
      {.receive_inline_bytes = kInlineBytes,
       .credit_grant = 0,
       .credits_requested = 8,
       .active = true,
       .max_version = version_,
       .version2 = {.first_answer_ns = kFirstAnswerNs, .version_1_memory_ns = kVersion1MemoryNs}},
      {}, &requester_);
  const auto own = rpcrdma::encode_private_data({.send_bytes = kInlineBytes, .receive_bytes = kInlineBytes});
  cm_id_ = device_->connection_manager()->connect(queue_pair, kPort, own);
}

void OwnClient::turn() {
  if (connection_ == nullptr) open();
  rdma::CmEvent events[4];
  const std::size_t count = device_->connection_manager()->poll_events(events);
  for (const rdma::CmEvent& event : std::span(events, count)) {
    if (event.id != cm_id_) continue;
    if (event.type == rdma::CmEventType::Established) {
      const auto peer = rpcrdma::decode_private_data({event.private_data, event.private_data_bytes});
      connection_->set_send_inline_bytes(rpcrdma::send_inline_bytes(peer, kInlineBytes));
      connection_->established();
    } else {
      connection_->close(rpcrdma::CloseReason::LocalClose);
    }
  }
  engine_.poll(now_ns_ += 10'000);
  while (engine_.take_closed() != nullptr) connection_ = nullptr;
  for (Task* task : std::exchange(idle_, {})) start(*task);
}

void OwnClient::forget_versions() {
  now_ns_ += 2 * kVersion1MemoryNs;
}

void OwnClient::start(Task& task) {
  task.read = false;
  switch (with_chunks ? next_++ % (version_ == 2 ? 8 : 6) : 0) {
    case 0:
      return submit(task, {.payload = getattr_payload(0, file_)});
    case 1:
      return submit_read(task, kTaskBytes / 2, kTaskBytes / 2);
    case 2:
      return submit_read(task, 4096, 5001);
    case 3: {
      const Bytes payload = write_payload(0, file_, 0, 5001);
      fill_pattern(task.memory.bytes, kFileSeed);
      const rdma::Sge piece{task.memory.bytes.data(), 5001, task.memory.lkey};
      const rpcrdma::ReadItem item{static_cast<rpcrdma::Position>(position_of(payload)), {&piece, 1}};
      return submit(task, {.payload = payload, .reads = {&item, 1}});
    }
    case 4:
      return submit(task, {.payload = readdir_payload(0, root_, kDirectoryBytes),
                           .max_reply_bytes = kDirectoryBytes + 100});
    case 6:  // with a Reply chunk that version 2 may leave unused
      return submit(task, {.payload = readdir_payload(0, root_, kDirectoryBytes),
                           .max_reply_bytes = kDirectoryBytes + 100,
                           .offer_reply_chunk = true,
                           .repeatable = true});
    case 7:
      return start_write_in_parts(task);
    default:
      return submit(task, {.payload = lookup_payload(0, root_, "file"), .as_long_call = true});
  }
}

void OwnClient::start_write_in_parts(Task& task) {
  Bytes payload = write_payload(0, file_, 0, 5001);
  const std::size_t data = payload.size();
  payload.resize(data + padded(5001));
  fill_pattern(std::span(payload).subspan(data, 5001), kFileSeed);
  submit(task, {.payload = payload});
}

void OwnClient::submit(Task& task, rpcrdma::Request request) {
  if (request.max_reply_bytes == 0) request.max_reply_bytes = 512;
  request.completion = &on_reply;
  request.context = &task;
  if (!requester_.submit(request)) idle_.push_back(&task);
}

void OwnClient::submit_read(Task& task, std::uint32_t offset, std::uint32_t bytes) {
  task.read = true;
  task.offset = offset;
  task.bytes = bytes;
  const rdma::Sge piece{task.memory.bytes.data(), bytes, task.memory.lkey};
  const rpcrdma::WriteItem item{{&piece, 1}};
  submit(task, {.payload = read_payload(0, file_, offset, bytes), .writes = {&item, 1}});
}

void OwnClient::check_read(Task& task, const rpcrdma::Reply& reply) {
  using Where = rpcrdma::ItemResult::Where;
  const std::uint32_t count = word_at(reply.message(), kCountWord);
  const Where where = reply.item(0, count).where;
  if (where == Where::Defect) {
    ++refused;
    return idle_.push_back(&task);
  }
  std::span<const std::byte> data = task.memory.bytes;
  if (where == Where::Inline) data = reply.message().subspan((kCountWord + 3) * 4);
  bool right = count > 0 && count <= task.bytes && count <= data.size();
  for (std::uint32_t i = 0; right && i < count; ++i)
    right = data[i] == pattern_byte(kFileSeed, task.offset + i);
  wrong += !right;
  const bool at_end = word_at(reply.message(), kCountWord + 1) == 1;
  if (right && count < task.bytes && !at_end)
    submit_read(task, task.offset + count, task.bytes - count);
  else
    idle_.push_back(&task);
}

void OwnClient::on_reply(void* context, const rpcrdma::Reply& reply) noexcept {
  auto& task = *static_cast<Task*>(context);
  OwnClient& client = *task.client;
  ++client.completed;
  if (reply.status() == rpcrdma::CallStatus::Ok && task.read) return client.check_read(task, reply);
  client.refused += reply.status() != rpcrdma::CallStatus::Ok;
  client.idle_.push_back(&task);
}

JudgedClient::Local::Local(JudgedClient& all, const ResponderConfig& config)
    : Responder(
          *all.device_, *all.device_->connection_manager(), all.judge_,
          [&all] { return std::make_unique<FilesUpstream>(all.files_); }, config),
      all_(all) {}

bool JudgedClient::Local::arrives(Bytes& message, int before) {
  if (before == 0) times_ = all_.spoil ? all_.spoil(message) : 1;
  // A repeated message grants no further credits.
  else if (word_at(message, 1) == 2)
    xdr::store_u32(message.data() + 8, word_at(message, 2) & 0xFFFF0000);
  return before < times_;
}

JudgedClient::JudgedClient(std::uint32_t version)
    : fabric_(rdma::loopback::Fabric::in_process({.links = 8})),
      device_(rdma::loopback::make_device(fabric_, {.name = "judge"})),
      files_(*device_),
      client_(fabric_, files_.root(), files_.make_file("file"), version),
      judge_(version),
      responder_(*this, {.port = kPort,
                         .receive_bytes = kInlineBytes,
                         .grant = 4,
                         .version = version,
                         .transfer_ns = kTransferNs}) {}

void JudgedClient::serve(std::uint64_t calls) {
  const std::uint64_t end = responder_.calls_served() + calls;
  while (responder_.calls_served() < end &&
         responder_.wait(kQuietNs, [this] { return !responder_.waiting().empty(); }))
    responder_.serve(responder_.take());
}

Result JudgedClient::provoke(const Provocation& provocation, std::uint64_t patience_ns) {
  return conformance::provoke(provocation, responder_, patience_ns, true, [] { return false; });
}

std::size_t rules_kept(JudgedClient& lab) {
  EXPECT_EQ(lab.client().wrong, 0u);
  std::size_t passed = 0;
  for (const Result& result : lab.results()) {
    EXPECT_NE(result.outcome, Outcome::Failed) << result.test->name << ": " << result.detail;
    passed += result.outcome == Outcome::Passed;
  }
  return passed;
}

}  // namespace sluice::conformance
