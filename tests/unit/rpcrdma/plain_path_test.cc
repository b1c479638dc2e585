// SPDX-License-Identifier: Apache-2.0
//
// Differential test of the path of plain messages. The same generated messages, submissions and completions
// are given to a connection with shortcuts and to one without. Every byte sent, every posted Receive,
// everything that the service and the callers see, and all counters must be equal.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>

#include "dataplane/rpcrdma/engine.h"
#include "tests/unit/rpcrdma/recording_device.h"

namespace sluice::rpcrdma {
namespace {

using test::Bytes;
using test::RecordingDevice;

constexpr std::uint32_t kProgram = 0x20000777;
constexpr std::uint32_t kServed = 8;  ///< credits of each direction
constexpr std::uint32_t kMessageBytes = 4096;

std::string hex(std::span<const std::byte> bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const std::byte byte : bytes) {
    text += kDigits[std::to_integer<unsigned>(byte >> 4)];
    text += kDigits[std::to_integer<unsigned>(byte & std::byte{15})];
  }
  return text;
}

/// Everything observable of a connection, in order.
class Trace {
 public:
  template <typename... Words>
  void add(std::string what, std::span<const std::byte> bytes, Words... words) {
    for (const std::uint64_t word : {std::uint64_t{0}, static_cast<std::uint64_t>(words)...})
      what += ' ' + std::to_string(word);
    lines_.push_back(what + ' ' + hex(bytes));
  }
  const std::vector<std::string>& lines() const { return lines_; }

 private:
  std::vector<std::string> lines_;
};

/// Returns results of a requested length, now or when the test calls finish(), or an error.
class ScriptedService final : public service::Service {
 public:
  enum How : std::uint32_t { kNow, kLater, kNoProcedure, kDenied, kWholeReply, kHows };

  explicit ScriptedService(Trace& trace) : trace_(trace) {}
  const service::Binding& binding() const noexcept override { return binding_; }
  service::Execution execute(service::Call& call) noexcept override {
    xdr::Reader arguments(call.arguments());
    const std::uint32_t bytes = arguments.u32();
    const std::uint32_t how = arguments.u32() % kHows;
    if (!arguments.ok()) return call.complete(rpc::AcceptStat::GarbageArgs), service::Execution::Started;
    if (!call.require_results(xdr::padded(bytes))) return service::Execution::NeedsMemory;
    trace_.add("served", call.message(), call.arguments().size());
    if (how == kWholeReply) {
      call.write_whole_reply();
      call.results().words(rpc::MessageType::Reply, 0, 0, 0, 0);
    }
    call.results().opaque_fixed(Bytes(bytes, std::byte{0x5a}));
    if (how == kDenied)
      call.deny(rpc::AuthStat::TooWeak);
    else if (how == kLater)
      waiting_.push_back(&call);
    else
      call.complete(how == kNoProcedure ? rpc::AcceptStat::ProcUnavail : rpc::AcceptStat::Success);
    return service::Execution::Started;
  }
  /// Completes up to `count` calls, the latest first.
  void finish(std::size_t count) {
    for (; count > 0 && !waiting_.empty(); --count) {
      service::Call* const call = waiting_.back();
      waiting_.pop_back();
      call->complete(rpc::AcceptStat::Success);
    }
  }

 private:
  static std::uint64_t most_results(std::uint32_t, std::span<const std::byte> arguments) {
    xdr::Reader reader(arguments);
    return reader.u32();
  }
  static constexpr service::ProcedureBinding kProcedures[] = {{}, {.idempotent = false}};
  Trace& trace_;
  std::vector<service::Call*> waiting_;
  service::Binding binding_{.program = kProgram,
                            .version = 1,
                            .procedures = kProcedures,
                            .name = "scripted",
                            .max_results_bytes = most_results};
};

/// One connection and its script. The random numbers depend on the seed, and the script also on what the
/// connection has sent, which is equal for both paths.
class Script {
 public:
  Script(std::uint32_t version, bool active, bool shortcuts, std::uint32_t seed)
      : version_(version), active_(active), random_(seed), most_granted_(seed % 3 == 0 ? 1 : seed % 3 * 3) {
    engine_.add_service(service_);
    peer_.open(kServed, !active);
    connection_ = engine_.free_connection();
    connection_->open(device_.create_queue_pair(engine_.queue_pair_limits()), config(shortcuts), {},
                      active ? &requester_ : nullptr);
    connection_->established();
    poll();
    if (version == v2::kVersion && active) deliver_grant();
    poll();
  }
  ~Script() {
    connection_->close(CloseReason::LocalClose);
    for (int i = 0; i < 8; ++i) {
      service_.finish(~std::size_t{0});
      poll();
    }
    EXPECT_EQ(connection_->state(), LinkState::Closed);
    EXPECT_TRUE(engine_.memory_balanced());
    requester_.cancel_all();
  }
  Script(const Script&) = delete;
  Script& operator=(const Script&) = delete;

  void run(int steps) {
    for (int i = 0; i < steps; ++i) step();
    note_counters();
  }
  const Trace& trace() const { return trace_; }
  std::uint64_t silent_sends() const { return device_.silent_sends(); }
  bool is_open() const { return connection_->is_open(); }

 private:
  static EngineConfig engine_config() {
    EngineConfig config;
    config.max_connections = 1;
    config.capacity = {.call_slots = kServed, .requests = kServed, .send_depth = SendStage::kMaxWrs};
    config.call_buffers = config.assembly_buffers = 1;
    config.reply_buffers = 2;
    config.reply_buffer_bytes = 16u << 10;
    config.call_buffer_bytes = 64u << 10;
    return config;
  }
  ConnectionConfig config(bool shortcuts) const {
    ConnectionConfig config{.send_inline_bytes = kMessageBytes, .credit_grant = kServed};
    config.credits_requested = active_ ? kServed : 0;
    config.active = active_;
    config.shortcuts = shortcuts;
    config.max_version = version_;
    config.version2.announce = false;
    return config;
  }

  std::uint32_t draw(std::uint32_t below) { return static_cast<std::uint32_t>(random_() % below); }
  std::size_t header_bytes() const {
    return version_ == v2::kVersion ? v2::kMinMsgHeaderBytes : kMinMsgHeaderBytes;
  }

  void step() {
    switch (draw(12)) {
      case 0:
      case 1:
      case 2:
        return active_ ? submit() : deliver_call();
      case 3:
      case 4:
      case 5:
        return active_ ? deliver_reply() : deliver_call();
      case 6:
        return version_ == v2::kVersion ? deliver_grant() : poll();
      case 7:
        return service_.finish(draw(4));
      case 8:
        // All Sends complete together because Sends of the plain path share completions.
        return device_.complete_sends();
      case 9:
        if (draw(8) == 0) connection_->set_credits(1 + draw(kServed));
        return;
      default:
        return poll();
    }
  }

  // --- The peer
  v2::CreditWord word() {
    const auto limit = static_cast<std::uint16_t>(draw(20) == 0 ? draw(3) : 40);
    const std::uint32_t granted = draw(200) == 0 ? 65000 : draw(most_granted_ + 1);
    return {static_cast<std::uint16_t>(granted), limit};
  }
  void deliver(Bytes message, bool response) {
    if (device_.receives() == 0 || !is_open()) return;
    if (version_ == v2::kVersion) {
      if (peer_.balance() <= 0) return;
      const v2::CreditWord credit = word();
      peer_.on_send(credit);
      const auto xid = static_cast<rpc::Xid>(xdr::load_u32(message.data() + header_bytes()));
      response ? v2::store_plain_reply(message.data(), xid, credit)
               : v2::store_plain_call(message.data(), xid, credit);
    } else {
      static constexpr std::uint32_t kCredits[] = {0, 1, 2, kServed, ~0u};
      const auto xid = static_cast<rpc::Xid>(xdr::load_u32(message.data() + header_bytes()));
      v1::store_plain_call(message.data(), xid, static_cast<Credits>(kCredits[draw(std::size(kCredits))]));
    }
    device_.deliver(message);
  }
  void deliver_grant() {
    if (device_.receives() == 0 || peer_.balance() <= 0 || !is_open()) return;
    Bytes message(v2::kMinMsgHeaderBytes);
    xdr::Writer writer(message);
    const v2::CreditWord credit(static_cast<std::uint16_t>(1 + draw(most_granted_)), 40);
    peer_.on_send(credit);
    v2::encode_grant(writer, credit);
    device_.deliver(message);
  }
  /// Makes a message of this kind with random bytes after `words` and room for the header.
  Bytes message(std::initializer_list<std::uint32_t> words, std::size_t payload_bytes) {
    Bytes bytes(header_bytes() + std::max(payload_bytes, 2 * xdr::kUnit));
    for (std::size_t i = header_bytes(); i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(random_());
    std::size_t at = header_bytes();
    for (const std::uint32_t each : words) {
      if (at + xdr::kUnit > bytes.size()) break;
      xdr::store_u32(bytes.data() + at, each);
      at += xdr::kUnit;
    }
    return bytes;
  }
  /// Delivers a call that is valid, or has a defect in its RPC header.
  void deliver_call() {
    const std::uint32_t most = kMessageBytes - static_cast<std::uint32_t>(header_bytes());
    const std::uint32_t defect = draw(24);
    const std::uint32_t results = draw(6) == 0 ? draw(12000) : draw(300);
    const std::uint32_t bytes = draw(6) == 0 ? 8 + draw(most - 8) : 48 + draw(200);
    deliver(message({static_cast<std::uint32_t>(random_()), 0, defect == 0 ? 3u : 2u,
                     kProgram + (defect == 1), 1u + (defect == 2), draw(3), defect == 3 ? 7u : 0u,
                     defect == 4 ? 800u : 0u, 0, defect == 5 ? 401u : 0u, results, draw(12)},
                    bytes),
            false);
  }
  void deliver_reply() {
    if (awaited_.empty()) return;
    const std::size_t which = draw(static_cast<std::uint32_t>(awaited_.size()));
    std::uint32_t xid = awaited_[which] + first_xid_;
    if (draw(16) == 0)
      xid += 1 + draw(1000);  // unknown, or of another call
    else
      awaited_.erase(awaited_.begin() + static_cast<std::ptrdiff_t>(which));
    const std::uint32_t bytes = draw(6) == 0 ? 8 + draw(kMessageBytes - 64) : 20 + draw(300);
    deliver(message({xid, 1, draw(8) == 0, 0, 0, draw(3)}, bytes), true);
  }

  // --- The connection
  void submit() {
    if (!is_open()) return;
    Bytes call(rpc::kMinCallBytes + (draw(6) == 0 ? draw(kMessageBytes - 200) : draw(200)));
    for (std::byte& byte : call) byte = static_cast<std::byte>(random_());
    const SubmittedXid xid = requester_.submit({.payload = call,
                                                .max_reply_bytes = draw(kMessageBytes - 64),
                                                .urgent = draw(8) == 0,
                                                .completion = completed,
                                                .context = this});
    if (xid && !first_submitted_) first_xid_ = static_cast<std::uint32_t>(*xid) & ~(kServed - 1);
    first_submitted_ = first_submitted_ || xid;
    trace_.add("submitted", {}, xid ? static_cast<std::uint32_t>(*xid) - first_xid_ : ~0u);
  }
  static void completed(void* context, const Reply& reply) noexcept {
    auto& script = *static_cast<Script*>(context);
    if (!script.is_open()) return;
    script.trace_.add("completed", reply.message().subspan(reply.message().empty() ? 0 : xdr::kUnit),
                      reply.status(), static_cast<std::uint32_t>(reply.xid()) - script.first_xid_);
  }
  void poll() {
    engine_.poll(now_ns_ += 1000);
    for (Bytes& message : device_.take_sent()) note_sent(message);
    trace_.add("polled", {}, device_.receives(), connection_->state(), connection_->responder().busy_slots());
    for (std::size_t state = 0; state < segment::kSlotStateCount; ++state)
      trace_.add("slots", {}, engine_.slots_in_state(state));
    if (active_ && is_open())
      trace_.add("requester", {}, requester_.granted(), requester_.outstanding(), requester_.free_requests());
  }
  void note_sent(Bytes& message) {
    if (version_ == v2::kVersion) {
      const v2::Header header = v2::decode(message).header;
      static_cast<void>(peer_.on_receive());
      header.type == v2::HeaderType::Error ? peer_.on_error()
                                           : static_cast<void>(peer_.on_credits(header.credit));
    }
    // The first XID of a requester is random.
    const bool call = active_ && message.size() >= header_bytes() + rpc::kMinCallBytes &&
                      xdr::load_u32(message.data()) == xdr::load_u32(message.data() + header_bytes());
    if (call) {
      awaited_.push_back(xdr::load_u32(message.data()) - first_xid_);
      xdr::store_u32(message.data(), awaited_.back());
      xdr::store_u32(message.data() + header_bytes(), awaited_.back());
    }
    trace_.add("sent", message);
  }
  void note_counters() {
#define SLUICE_NOTE_COUNTER(name, group, help) trace_.add(#name, {}, engine_.counters().name);
    SLUICE_TRANSPORT_COUNTERS(SLUICE_NOTE_COUNTER)
#undef SLUICE_NOTE_COUNTER
    trace_.add("traffic", {}, connection_->traffic().received, connection_->traffic().sent);
    trace_.add("responder", {}, connection_->responder().calls(), connection_->responder().served(),
               connection_->responder().take_peak());
    trace_.add("closed", {}, connection_->close_reason());
  }

  const std::uint32_t version_;
  const bool active_;
  std::mt19937_64 random_;
  const std::uint32_t most_granted_;
  Trace trace_;
  RecordingDevice device_;
  ScriptedService service_{trace_};
  Engine engine_{device_, engine_config()};
  Requester requester_{engine_.requester_context(),
                       device_,
                       {.requests = kServed, .credits_requested = kServed, .windows = 0, .long_buffers = 2}};
  Connection* connection_ = nullptr;
  v2::FlowControl peer_;
  std::vector<std::uint32_t> awaited_;  ///< XIDs of sent calls, relative to first_xid_
  std::uint32_t first_xid_ = 0;
  bool first_submitted_ = false;
  std::uint64_t now_ns_ = 1000;
};

/// Parameters: version, and whether the connection is the active side.
class PlainPath : public testing::TestWithParam<std::tuple<std::uint32_t, bool>> {};

TEST_P(PlainPath, has_the_bytes_and_counters_of_the_general_path) {
  constexpr std::uint32_t kSeeds = 60;
  constexpr int kSteps = 600;
  const auto [version, active] = GetParam();
  std::uint64_t silent = 0;
  std::size_t sent = 0;
  std::uint32_t open = 0;
  for (std::uint32_t seed = 1; seed <= kSeeds; ++seed) {
    Script plain(version, active, true, seed);
    Script general(version, active, false, seed);
    plain.run(kSteps);
    general.run(kSteps);
    const auto& lines = plain.trace().lines();
    const auto& others = general.trace().lines();
    const auto differs = std::mismatch(lines.begin(), lines.end(), others.begin(), others.end());
    ASSERT_TRUE(differs.first == lines.end() && differs.second == others.end())
        << "seed " << seed << "\nplain:   " << (differs.first == lines.end() ? "nothing" : *differs.first)
        << "\ngeneral: " << (differs.second == others.end() ? "nothing" : *differs.second);
    EXPECT_EQ(general.silent_sends(), 0u) << seed;  // only the plain path shares completions
    silent += plain.silent_sends();
    open += plain.is_open() ? 1 : 0;
    for (const std::string& line : lines) sent += line.starts_with("sent") ? 1 : 0;
  }
  EXPECT_GT(silent, 100u);
  EXPECT_GT(sent, 5000u);
  EXPECT_EQ(open, kSeeds);
}

INSTANTIATE_TEST_SUITE_P(Versions, PlainPath, testing::Combine(testing::Values(1u, 2u), testing::Bool()));

}  // namespace
}  // namespace sluice::rpcrdma
