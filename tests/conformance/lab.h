// SPDX-License-Identifier: Apache-2.0
//
// The bench of the black-box tests: two devices over loopback in one thread, a raw peer that can send
// anything, our engine on either side, and a test program with eligible and other items.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "dataplane/rpcrdma/engine.h"
#include "dataplane/rpcrdma/requester/requester.h"
#include "dataplane/service/api/service.h"
#include "dataplane/service/handover.h"
#include "pmd/loopback/loopback.h"
#include "tests/conformance/op_log.h"

namespace sluice::conformance {

using Bytes = std::vector<std::byte>;
inline constexpr std::uint16_t kPort = 20049;

/// XDR words, big-endian, as the vectors of the requirement tables are written.
inline Bytes words(std::initializer_list<std::uint32_t> list) {
  Bytes bytes(list.size() * 4);
  std::size_t at = 0;
  for (const std::uint32_t word : list) {
    xdr::store_u32(bytes.data() + at, word);
    at += 4;
  }
  return bytes;
}
void append(Bytes& to, std::span<const std::byte> more);
inline std::uint32_t word_at(std::span<const std::byte> bytes, std::size_t index) {
  return (index + 1) * 4 <= bytes.size() ? xdr::load_u32(bytes.data() + index * 4) : 0xDEADDEADu;
}

/// RPC call header with AUTH_NONE, 40 bytes.
inline Bytes rpc_call(std::uint32_t xid, std::uint32_t program, std::uint32_t version,
                      std::uint32_t procedure) {
  return words({xid, 0, 2, program, version, procedure, 0, 0, 0, 0});
}
/// Version 1 header without chunks, 28 bytes.
inline Bytes plain_header(std::uint32_t xid, std::uint32_t credits, std::uint32_t proc = 0) {
  return words({xid, 1, credits, proc, 0, 0, 0});
}

/// Deterministic content, different for each seed.
inline std::byte pattern_byte(std::uint32_t seed, std::size_t at) {
  return static_cast<std::byte>((at * 131 + seed * 29 + (at >> 8)) & 0xff);
}
inline void fill_pattern(std::span<std::byte> bytes, std::uint32_t seed) {
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = pattern_byte(seed, i);
}
inline bool has_pattern(std::span<const std::byte> bytes, std::uint32_t seed) {
  for (std::size_t i = 0; i < bytes.size(); ++i)
    if (bytes[i] != pattern_byte(seed, i)) return false;
  return true;
}

/// Program 0x20000099 version 1:
///   0 NULL
///   1 SINK      (opaque<> data [eligible], uint32 trailer) -> (uint32 length, uint32 sum of bytes,
///                                                              uint32 trailer)
///   2 SOURCE    (uint32 bytes) -> (uint32 status 0, opaque<> data [eligible], uint32 5)
///   3 PAIR      (uint32 a, uint32 b) -> (status, opaque<> [eligible] when a > 0;
///                                        status, opaque<> [eligible] when b > 0),
///               the status is 0 with data and 5 without
///   4 LIST      (uint32 bytes) -> (opaque<> of that many bytes, not eligible)
///   5 NAME      (opaque<> name, not eligible) -> (uint32 length)
///   6 LATER     () -> () completed by TestService::complete_later()
///   7 TWO_SINKS (opaque<> [eligible], uint32, opaque<> [eligible]) -> (length, sum, word, length, sum)
inline constexpr std::uint32_t kTestProgram = 0x20000099;

/// Servers made from now on have their calls served by another reactor.
void hand_calls_over() noexcept;

class TestService final : public service::Service {
 public:
  enum Procedure : std::uint32_t { kNull, kSink, kSource, kPair, kList, kName, kLater, kTwoSinks };

  explicit TestService(rdma::Device& device, std::uint32_t program = kTestProgram,
                       service::UnusableChunks unusable = service::UnusableChunks::Refuse);

  const service::Binding& binding() const noexcept override { return binding_; }
  service::Placement place(service::Call& call) noexcept override;
  service::Execution execute(service::Call& call) noexcept override;
  void release(service::Call&) noexcept override { ++releases; }

  void complete_later(rpc::AcceptStat stat = rpc::AcceptStat::Success);
  std::size_t held() const { return later_.size(); }

  /// place() answers with a sink in registered memory instead of having arguments assembled.
  bool use_sink = false;
  std::vector<std::uint32_t> executed;  ///< procedures, in order
  Bytes last_data;                      ///< of SINK, NAME and the first of TWO_SINKS
  std::uint32_t places = 0;
  std::uint32_t releases = 0;
  std::span<std::byte> source() { return source_.bytes; }

 private:
  service::Execution run_pair(service::Call& call, xdr::Reader& args);
  void add_data_result(service::Call& call, std::uint32_t from, std::uint32_t bytes);

  service::Binding binding_;
  rdma::MemoryRegion source_;
  rdma::MemoryRegion sink_;
  std::vector<service::Call*> later_;
};

struct Received {
  Bytes bytes;
  bool remote_invalidate = false;
};

struct LabOptions {
  rpcrdma::EngineConfig engine;
  rpcrdma::ConnectionConfig connection;  ///< of our engine's side
  rpcrdma::RequesterConfig requester;    ///< when our engine is the requester
  std::uint32_t raw_receive_bytes = 1024;
  std::uint32_t raw_receives = 64;
  bool raw_posts_receives = true;   ///< false: when the test says RawPeer::post_receives()
  bool remote_invalidation = true;  ///< a feature of our engine's device
};

/// The side that is not our engine: posts Receives, sends bytes, exposes memory, and checks nothing.
class RawPeer {
 public:
  RawPeer(rdma::Device& device, std::uint32_t receive_bytes, std::uint32_t receives);

  /// With its Receives posted, or without.
  std::unique_ptr<rdma::QueuePair> make_queue_pair(bool with_receives = true);
  void adopt(rdma::QueuePair& qp);
  void post_receives();

  /// With an rkey of the engine's: Send With Invalidate.
  void send(std::span<const std::byte> bytes, rdma::Rkey invalidate = {});
  /// Exposes fresh memory of this size; `access` kRemoteRead or kRemoteWrite.
  struct Exposed {
    std::span<std::byte> bytes;
    rpcrdma::Segment segment;
  };
  Exposed expose(std::size_t bytes, rdma::AccessFlags access);
  void write_remote(const rpcrdma::Segment& segment, std::span<const std::byte> bytes);
  /// Where the bytes will be once the RDMA Read is complete.
  std::span<const std::byte> read_remote(const rpcrdma::Segment& segment, std::size_t bytes);

  void poll();
  std::vector<Received> inbox;
  std::vector<rdma::WorkCompletion> send_completions;
  bool failed = false;  ///< a work completion with an error was seen
  rdma::WcStatus first_error = rdma::WcStatus::Success;
  std::unique_ptr<rdma::QueuePair> owned_qp;

 private:
  rdma::MemoryRegion allocate(std::size_t bytes);

  rdma::Device& device_;
  rdma::QueuePair* qp_ = nullptr;
  std::uint32_t receive_bytes_;
  std::uint32_t receives_;
  rdma::MemoryRegion receive_region_;
  rdma::MemoryRegion arena_;
  std::size_t arena_used_ = 0;
  std::uint64_t next_send_ = 1u << 20;
  std::uint32_t connection_ = 0;  ///< number in the MessageRecord
};

/// Our engine as responder (server), a raw client.
class ServerLab {
 public:
  explicit ServerLab(LabOptions options = {});
  ~ServerLab();

  void connect();
  /// Ends the connection and makes a new one.
  void reconnect();
  /// Turns of both sides until both are idle, `turns` at most.
  void settle(int turns = 200);
  /// One turn of the server's loop; true when calls moved between reactors.
  bool turn();
  /// Sends and settles; returns the messages that came back.
  std::vector<Received> exchange(std::span<const std::byte> message);
  /// One reply is expected: fails the test otherwise.
  Bytes call(std::span<const std::byte> message);
  /// True when a plain NULL call with this XID is answered.
  bool alive(std::uint32_t xid = 0x77000001);

  OpLog log;
  LabOptions options;
  std::shared_ptr<rdma::loopback::Fabric> fabric;
  std::unique_ptr<LoggedDevice> device;  ///< the engine's
  std::unique_ptr<rdma::Device> raw_device;
  std::unique_ptr<rpcrdma::Engine> engine;
  std::unique_ptr<TestService> service;
  std::unique_ptr<TestService> lenient;  ///< program + 1, UnusableChunks::Ignore
  /// When the suite runs with calls handed over to another reactor; here one thread is both.
  std::unique_ptr<service::Handover> handover;
  std::vector<std::unique_ptr<service::BorrowedService>> borrowed;
  std::unique_ptr<RawPeer> peer;
  rpcrdma::Connection* connection = nullptr;
  rpcrdma::Requester* requester_for_next_connection = nullptr;  ///< for reverse calls
  std::uint64_t now_ns = 1;
};

/// What a requester's completion reported.
struct Finished {
  rpcrdma::CallStatus status{};
  rpc::Xid xid{};
  Bytes message;
  std::vector<rpcrdma::ItemResult> items;
  rpc::VersionRange supported{};
  rpcrdma::v2::Error error{};
};

/// Our engine as requester (client), a raw server.
class ClientLab {
 public:
  explicit ClientLab(LabOptions options = {});
  ~ClientLab();

  void connect();
  void disconnect();
  void settle(int turns = 200);
  struct Submitted {
    std::uint32_t xid = 0;
    std::size_t index = 0;  ///< in `finished`, when it has completed
  };
  /// Submits; the completion asks Reply::item() for these `item_counts`.
  std::optional<std::uint32_t> submit(const rpcrdma::Request& request,
                                      std::vector<std::uint32_t> item_counts = {});
  std::optional<std::uint32_t> submit_null();
  /// An accepted reply without results, granting `credits`.
  static Bytes success(std::uint32_t xid, std::uint32_t credits);

  OpLog log;
  LabOptions options;
  std::shared_ptr<rdma::loopback::Fabric> fabric;
  std::unique_ptr<LoggedDevice> device;  ///< the engine's
  std::unique_ptr<rdma::Device> raw_device;
  std::unique_ptr<rpcrdma::Engine> engine;
  std::unique_ptr<TestService> service;  ///< for reverse calls
  std::unique_ptr<rpcrdma::Requester> requester;
  std::unique_ptr<RawPeer> peer;  ///< the raw server
  rpcrdma::Connection* connection = nullptr;
  std::optional<rdma::CmId> cm_id;
  std::vector<Finished> finished;
  std::function<void(const rpcrdma::Reply&)> on_reply;  ///< also called in the completion
  std::uint64_t now_ns = 1;

 private:
  struct Pending {
    ClientLab* lab = nullptr;
    std::vector<std::uint32_t> item_counts;
  };
  static void completed(void* context, const rpcrdma::Reply& reply) noexcept;
  std::vector<std::unique_ptr<Pending>> pending_;
};

}  // namespace sluice::conformance
