// SPDX-License-Identifier: Apache-2.0
//
// Loads: a mix of NFSv3 operations, and calls and replies of a given size.
#include "cli/bench/nfs3_load.h"

#include <unistd.h>

#include <cstring>
#include <string>
#include <vector>

#include "cli/bench/bulk_load.h"
#include "cli/interrupt.h"
#include "dataplane/base/small_algorithms.h"
#include "dataplane/service/api/null.h"

namespace sluice::bench {
namespace {

// Upper bound on the size of any small reply, and of a READ's reply without its data.
constexpr std::uint32_t kSmallReplyBytes = 512;
constexpr std::uint32_t kFillBytes = 1u << 20;
constexpr std::uint32_t kFileSync = 2;

constexpr std::uint64_t mix(std::uint64_t x) noexcept {
  x ^= x >> 33;
  x *= 0xff51afd7ed558ccd;
  x ^= x >> 33;
  x *= 0xc4ceb9fe1a85ec53;
  return x ^ x >> 33;
}

/// Reports whether the reply is accepted and successful. The reader is then at the results.
bool accepted(xdr::Reader& reader) noexcept {
  const rpc::ReplyDecodeResult reply = rpc::decode_reply(reader);
  return reply.ok && reply.header.success();
}

/// Reports whether the reply is accepted and successful with NFS3_OK. The reader is then after the status.
bool nfs_ok(xdr::Reader& reader) noexcept {
  return accepted(reader) && reader.u32() == 0 && reader.ok();
}

/// Returns the reason why an answer is not NFS3_OK.
std::string reason_of(const Client::Answer& answer) {
  if (answer.status != rpcrdma::CallStatus::Ok) return to_string(answer.status);
  xdr::Reader reader(answer.message);
  const rpc::ReplyDecodeResult reply = rpc::decode_reply(reader);
  if (!reply.ok) return "the reply cannot be read";
  if (reply.header.stat == rpc::ReplyStat::Denied) return "the server rejects AUTH_SYS of this client";
  switch (reply.header.accept) {
    case rpc::AcceptStat::Success:
      return "NFS version 3 status " + std::to_string(reader.u32()) +
             ". Check whether root of this client may write to the export (root_squash, read_only)";
    case rpc::AcceptStat::ProgUnavail:
    case rpc::AcceptStat::ProgMismatch:
      return "the server does not serve NFS version 3 at this port";
    default:
      return "accept_stat " + std::to_string(static_cast<std::uint32_t>(reply.header.accept));
  }
}

void skip_post_op_attr(xdr::Reader& reader) noexcept {
  if (reader.boolean()) reader.skip(84);
}

}  // namespace

const char* to_string(Operation operation) {
  switch (operation) {
    case Operation::Null:
      return "null";
    case Operation::GetAttr:
      return "getattr";
    case Operation::Lookup:
      return "lookup";
    case Operation::Read:
      return "read";
    case Operation::Write:
      return "write";
  }
  return "?";
}

Client::Answer expect_ok(Client::Answer answer, const char* what) {
  xdr::Reader reader(answer.message);
  if (answer.status != rpcrdma::CallStatus::Ok || !nfs_ok(reader))
    throw ClientError(std::string(what) + " failed: " + reason_of(answer) + '.');
  return answer;
}

Load::Load(Client& client, const LoadConfig& config, std::uint32_t depth, Handle root)
    : client_(client),
      config_(config),
      root_(std::move(root)),
      name_("sluice-bench." + std::to_string(::getpid())),
      idle_(static_cast<std::uint32_t>(client.sessions().size() * depth)),
      latency_(std::make_unique<segment::Histogram>()),
      random_(mix(config.seed + 1)) {
  const std::size_t tasks = client.sessions().size() * depth;
  const std::size_t block = larger_of(config.block_bytes, 64u);
  region_ = client.device().allocate_memory(larger_of(tasks * block, std::size_t{kFillBytes}));
  tasks_.resize(tasks);
  for (std::size_t i = 0; i < tasks; ++i) {
    tasks_[i].load = this;
    tasks_[i].requester = client.sessions()[i % client.sessions().size()].requester.get();
    tasks_[i].buffer = region_.bytes.subspan(i * block, block);
  }
  for (Task& task : tasks_) idle_.push(&task);
  ended_.resize(tasks);
  for (const std::uint32_t weight : config.weights) total_weight_ += weight;
  for (std::size_t i = 0; i < kOperations; ++i)
    if (total_weight_ > 0 && config.weights[i] == total_weight_) only_ = static_cast<Operation>(i);
}

Load::~Load() = default;

/// Visits the content word by word. Each byte is a function of seed and offset, so that any block can be
/// verified separately.
template <typename Visit>
void Load::for_each_word(std::size_t bytes, std::uint64_t offset, Visit&& visit) const noexcept {
  for (std::size_t at = 0; at < bytes;) {
    const std::uint64_t word = mix((offset + at) / 8 * 0x9e3779b97f4a7c15 + config_.seed);
    const std::size_t skip = (offset + at) % 8;
    const std::size_t run = smaller_of<std::size_t>(8 - skip, bytes - at);
    visit(at, reinterpret_cast<const std::byte*>(&word) + skip, run);
    at += run;
  }
}

void Load::fill(std::span<std::byte> bytes, std::uint64_t offset) const noexcept {
  for_each_word(bytes.size(), offset, [&](std::size_t at, const std::byte* content, std::size_t run) {
    std::memcpy(bytes.data() + at, content, run);
  });
}

bool Load::matches(std::span<const std::byte> bytes, std::uint64_t offset) const noexcept {
  bool same = true;
  for_each_word(bytes.size(), offset, [&](std::size_t at, const std::byte* content, std::size_t run) {
    same = same && std::memcmp(bytes.data() + at, content, run) == 0;
  });
  return same;
}

void Load::prepare() {
  const bool needs_file = total_weight_ > config_.weights[static_cast<std::size_t>(Operation::Null)];
  const auto keep = [this](const CallBuilder& call) {
    Prebuilt& kept = prebuilt_.emplace_back();
    kept.message.assign(call.message().begin(), call.message().end());
    kept.request = request_of(kept.message);
  };
  keep(CallBuilder(service::kNullProgram, service::kNullVersion, 0, false));
  if (!needs_file) return;

  CallBuilder create(ulb::kNfsProgram, ulb::kNfs3Version, ulb::kNfs3Create);
  create.arguments().opaque(root_);
  create.arguments().string(name_);
  create.arguments().u32(0);  // UNCHECKED
  for (const std::uint32_t word : {1u, 0666u, 0u, 0u, 0u, 0u, 0u}) create.arguments().u32(word);
  const auto created =
      expect_ok(client_.call({.payload = create.message(), .max_reply_bytes = kSmallReplyBytes}),
                "CREATE of the test file");
  xdr::Reader reader(created.message);
  nfs_ok(reader);
  if (!reader.boolean()) throw ClientError("CREATE answered no file handle.");
  const auto handle = reader.opaque(64);
  file_.assign(handle.begin(), handle.end());

  CallBuilder getattr(ulb::kNfsProgram, ulb::kNfs3Version, ulb::kNfs3GetAttr);
  getattr.arguments().opaque(file_);
  keep(getattr);
  CallBuilder lookup(ulb::kNfsProgram, ulb::kNfs3Version, ulb::kNfs3Lookup);
  lookup.arguments().opaque(root_);
  lookup.arguments().string(name_);
  keep(lookup);

  const bool io = config_.weights[static_cast<std::size_t>(Operation::Read)] +
                      config_.weights[static_cast<std::size_t>(Operation::Write)] >
                  0;
  for (std::uint64_t offset = 0; io && offset < config_.file_bytes; offset += kFillBytes) {
    const auto bytes =
        static_cast<std::uint32_t>(smaller_of<std::uint64_t>(kFillBytes, config_.file_bytes - offset));
    fill(region_.bytes.first(bytes), offset);
    CallBuilder write(ulb::kNfsProgram, ulb::kNfs3Version, ulb::kNfs3Write);
    write.arguments().opaque(file_);
    write.arguments().u64(offset);
    for (const std::uint32_t word : {bytes, kFileSync, bytes}) write.arguments().u32(word);
    const rdma::Sge piece{region_.bytes.data(), bytes, region_.lkey};
    const rpcrdma::ReadItem item{static_cast<rpcrdma::Position>(write.message().size()), {&piece, 1}};
    expect_ok(
        client_.call({.payload = write.message(), .reads = {&item, 1}, .max_reply_bytes = kSmallReplyBytes}),
        "WRITE to the test file");
  }
}

void Load::clean_up() {
  if (file_.empty()) return;
  CallBuilder remove(ulb::kNfsProgram, ulb::kNfs3Version, ulb::kNfs3Remove);
  remove.arguments().opaque(root_);
  remove.arguments().string(name_);
  expect_ok(client_.call({.payload = remove.message(), .max_reply_bytes = kSmallReplyBytes}),
            "REMOVE of the test file");
}

Operation Load::pick_by_weight() noexcept {
  random_ = random_ * 6364136223846793005 + 1442695040888963407;
  auto at = static_cast<std::uint32_t>((random_ >> 33) % total_weight_);
  for (std::size_t i = 0; i < kOperations; ++i) {
    if (at < config_.weights[i]) return static_cast<Operation>(i);
    at -= config_.weights[i];
  }
  return Operation::Null;
}

std::uint64_t Load::pick_offset() noexcept {
  random_ = random_ * 6364136223846793005 + 1442695040888963407;
  const std::uint64_t blocks = larger_of<std::uint64_t>(1, config_.file_bytes / config_.block_bytes);
  return (random_ >> 33) % blocks * config_.block_bytes;
}

rpcrdma::Request Load::request_of(std::span<const std::byte> message) noexcept {
  rpcrdma::Request request;
  request.payload = message;
  request.max_reply_bytes = kSmallReplyBytes;
  request.completion = &completed;
  return request;
}

bool Load::submit(Task& task, rpcrdma::Request& request) {
  task.started_ns = client_.now();
  request.context = &task;
  return task.requester->submit(request).has_value();
}

bool Load::start(Task& task) {
  task.operation = pick();
  const auto operation = static_cast<std::size_t>(task.operation);
  return operation < prebuilt_.size() ? submit(task, prebuilt_[operation].request) : start_io(task);
}

[[gnu::noinline]] bool Load::start_io(Task& task) {
  switch (task.operation) {
    case Operation::Null:
    case Operation::GetAttr:
    case Operation::Lookup:
      break;
    case Operation::Read: {
      task.offset = pick_offset();
      CallBuilder read(ulb::kNfsProgram, ulb::kNfs3Version, ulb::kNfs3Read);
      read.arguments().opaque(file_);
      read.arguments().u64(task.offset);
      read.arguments().u32(config_.block_bytes);
      const rdma::Sge piece{task.buffer.data(), config_.block_bytes, region_.lkey};
      const rpcrdma::WriteItem item{{&piece, 1}};
      rpcrdma::Request request = request_of(read.message());
      request.writes = {&item, 1};
      return submit(task, request);
    }
    case Operation::Write: {
      task.offset = pick_offset();
      if (config_.verify) fill(task.buffer.first(config_.block_bytes), task.offset);
      CallBuilder write(ulb::kNfsProgram, ulb::kNfs3Version, ulb::kNfs3Write);
      write.arguments().opaque(file_);
      write.arguments().u64(task.offset);
      for (const std::uint32_t word : {config_.block_bytes, kFileSync, config_.block_bytes})
        write.arguments().u32(word);
      const rdma::Sge piece{task.buffer.data(), config_.block_bytes, region_.lkey};
      const rpcrdma::ReadItem item{static_cast<rpcrdma::Position>(write.message().size()), {&piece, 1}};
      rpcrdma::Request request = request_of(write.message());
      request.reads = {&item, 1};
      return submit(task, request);
    }
  }
  return false;
}

/// Handles a reply. For NULL it is a leaf function, because the rate of NULL calls is limited by the client.
void Load::completed(void* context, const rpcrdma::Reply& reply) noexcept {
  const auto& task = *static_cast<Task*>(context);
  Load& load = *task.load;
  load.idle_.push(static_cast<Task*>(context));
  load.ended_[load.ended_count_++] = task.started_ns;
  ++load.result_.operations;
  ++load.result_.by_operation[static_cast<std::size_t>(task.operation)];
  if (task.operation == Operation::Null && reply.status() == rpcrdma::CallStatus::Ok &&
      rpc::begins_with_success(reply.message()))
    return;
  if (!load.check_results(task, reply)) ++load.result_.errors;
}

[[gnu::noinline]] bool Load::check_results(const Task& task, const rpcrdma::Reply& reply) noexcept {
  if (reply.status() != rpcrdma::CallStatus::Ok) return false;
  xdr::Reader reader(reply.message());
  if (task.operation == Operation::Null) return accepted(reader);
  if (!nfs_ok(reader)) return false;
  if (task.operation == Operation::Write) result_.bytes_written += config_.block_bytes;
  if (task.operation != Operation::Read) return true;
  skip_post_op_attr(reader);
  const std::uint32_t count = reader.u32();
  reader.boolean();
  const bool placed = reader.u32() == count && count == config_.block_bytes &&
                      reply.item(0, count).where == rpcrdma::ItemResult::Where::Placed;
  result_.bytes_read += count;
  if (placed && config_.verify) {
    result_.verified_bytes += count;
    if (!matches(task.buffer.first(count), task.offset)) ++result_.mismatches;
  }
  return placed;
}

/// Records the latencies of the calls that ended in the last iteration.
void Load::record_latencies() {
  if (ended_count_ == 0) return;
  const std::uint64_t now = client_.now();
  for (const std::uint64_t started_ns : std::span(ended_).first(ended_count_))
    latency_->record(now - started_ns);
  ended_count_ = 0;
}

/// Returns the number of calls that may have been started by now.
std::uint64_t Load::due(std::uint64_t begin) const noexcept {
  const std::uint64_t most = config_.max_operations == 0 ? UINT64_MAX : config_.max_operations;
  if (config_.calls_per_s <= 0) return most;
  const double seconds = static_cast<double>(client_.now() - begin) * 1e-9;
  return smaller_of(most, static_cast<std::uint64_t>(seconds * config_.calls_per_s));
}

void Load::start_due(std::uint64_t begin) {
  const std::uint64_t most = due(begin);
  while (!idle_.empty() && started_ < most) {
    if (!start(*idle_.top())) return;
    idle_.pop();
    ++started_;
  }
}

LoadResult Load::run(void (*progress)(const LoadResult&)) {
  constexpr std::uint64_t kProgressNs = 200'000'000;
  if (!config_.verify)
    for (Task& task : tasks_) fill(task.buffer, 0);
  result_ = {};
  client_.poll();
  const std::uint64_t begin = client_.now();
  const std::uint64_t end = begin + static_cast<std::uint64_t>(config_.seconds * 1e9);
  std::uint64_t shown = begin;
  started_ = 0;
  while (client_.now() < end && !interruptible_.told_to_end() &&
         (config_.max_operations == 0 || started_ < config_.max_operations)) {
    start_due(begin);
    client_.poll();
    record_latencies();
    if (progress != nullptr && client_.now() - shown > kProgressNs) {
      shown = client_.now();
      result_.seconds = static_cast<double>(shown - begin) * 1e-9;
      progress(result_);
    }
  }
  result_.seconds = static_cast<double>(client_.now() - begin) * 1e-9;
  const LoadResult result = result_;
  while (idle_.size() < tasks_.size()) client_.poll();
  record_latencies();
  LoadResult drained = config_.max_operations != 0 ? result_ : result;
  drained.seconds = result.seconds;
  drained.errors = result_.errors;
  drained.mismatches = result_.mismatches;
  return drained;
}

// --- Calls and replies of a given size

namespace {

struct Counted {
  std::uint64_t operations = 0;
  std::uint64_t errors = 0;
  std::uint32_t outstanding = 0;
};

void count(void* context, const rpcrdma::Reply& reply) noexcept {
  auto& counted = *static_cast<Counted*>(context);
  --counted.outstanding;
  ++counted.operations;
  xdr::Reader reader(reply.message());
  const auto decoded = rpc::decode_reply(reader);
  if (reply.status() != rpcrdma::CallStatus::Ok || !decoded.ok || !decoded.header.success()) ++counted.errors;
}

}  // namespace

BulkResult run_bulk(Client& client, const BulkConfig& config) {
  std::vector<std::byte> call(rpc::kMinCallBytes + xdr::kUnit + xdr::padded(config.call_bytes));
  xdr::Writer writer(call);
  rpc::encode_call(writer, {.program = service::kNullProgram,
                            .version = service::kNullVersion,
                            .procedure = service::kBulkProcedure,
                            .credential = {},
                            .verifier = {}});
  writer.u32(config.reply_bytes);
  Counted counted;
  const rpcrdma::Request request{
      .payload = call,
      .max_reply_bytes = static_cast<std::uint32_t>(rpc::kMinReplyBytes + xdr::padded(config.reply_bytes)),
      .completion = &count,
      .context = &counted};
  rpcrdma::Requester& requester = *client.sessions()[0].requester;
  client.poll();
  const std::uint64_t begin = client.now();
  const auto duration = static_cast<std::uint64_t>(config.seconds * 1e9);
  const cli::Interruptible interruptible;
  while (client.now() - begin < duration && !interruptible.told_to_end()) {
    while (counted.outstanding < config.depth && requester.submit(request)) ++counted.outstanding;
    client.poll();
  }
  const BulkResult result{.seconds = static_cast<double>(client.now() - begin) / 1e9,
                          .operations = counted.operations,
                          .errors = counted.errors};
  while (counted.outstanding > 0) client.poll();
  return result;
}

}  // namespace sluice::bench
