// SPDX-License-Identifier: Apache-2.0
//
// The bench of the black-box tests: two devices over loopback in one thread, a raw peer that can send
// anything, our engine on either side, and a test program with eligible and other items.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cli/conformance/raw_endpoint.h"
#include "dataplane/rpcrdma/engine.h"
#include "dataplane/rpcrdma/requester/requester.h"
#include "dataplane/service/api/service.h"
#include "dataplane/service/cross_reactor_call.h"
#include "pmd/loopback/loopback.h"
#include "tests/conformance/op_log.h"

namespace sluice::conformance {

inline constexpr std::uint16_t kPort = 20049;

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

/// Has the calls of servers that are created from now on served by another reactor.
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
  /// Completes the oldest held call. Requires held() > 0.
  void complete_oldest();
  std::size_t held() const { return later_.size(); }

  /// True: place() returns a sink in registered memory instead of having arguments assembled.
  bool use_sink = false;
  std::vector<std::uint32_t> executed;  ///< procedures, in order
  Bytes last_data;                      ///< data of SINK, NAME and the first item of TWO_SINKS
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

struct LabOptions {
  rpcrdma::EngineConfig engine;
  rpcrdma::ConnectionConfig connection;  ///< of our engine's side
  rpcrdma::RequesterConfig requester;    ///< for our engine as requester
  std::uint32_t server_connections = 8;  ///< for our engine as responder
  std::uint32_t raw_receive_bytes = 1024;
  std::uint32_t raw_receives = 64;
  bool raw_posts_receives = true;   ///< false: the test calls RawPeer::post_receives()
  bool remote_invalidation = true;  ///< feature of our engine's device
};

/// The peer of our engine. Its sent and received messages are added to the MessageRecord.
class RawPeer final : public RawEndpoint {
 public:
  using RawEndpoint::RawEndpoint;
  void adopt(rdma::QueuePair& qp) override;

 private:
  void on_message(bool sent, std::span<const std::byte> bytes) override;

  std::uint32_t connection_ = 0;  ///< number in the MessageRecord
};

/// Our engine as responder (server), with a raw client.
class ServerLab {
 public:
  explicit ServerLab(LabOptions options = {});
  ~ServerLab();

  void connect();
  /// Ends the connection and establishes a new one.
  void reconnect();
  /// Runs both sides until both are idle, for at most `turns` iterations.
  void settle(int turns = 200);
  /// Runs the server's loop once. Returns true if calls moved between reactors.
  bool turn();
  /// Sends and settles; returns the messages that came back.
  std::vector<Received> exchange(std::span<const std::byte> message);
  /// Sends `message` and returns its reply. Fails the test unless there is exactly one.
  Bytes call(std::span<const std::byte> message);
  /// Returns true if a plain NULL call with this XID is answered.
  bool alive(std::uint32_t xid = 0x77000001);

  OpLog log;
  LabOptions options;
  std::shared_ptr<rdma::loopback::Fabric> fabric;
  std::unique_ptr<LoggedDevice> device;  ///< the engine's
  std::unique_ptr<rdma::Device> raw_device;
  std::unique_ptr<rpcrdma::Engine> engine;
  std::unique_ptr<TestService> service;
  std::unique_ptr<TestService> lenient;  ///< program + 1, UnusableChunks::Ignore
  /// Used when another reactor serves the calls of the suite. One thread runs both reactors here.
  std::unique_ptr<service::CrossReactorCall> rings;
  std::vector<std::unique_ptr<service::RemoteService>> remote_services;
  std::unique_ptr<RawPeer> peer;
  rpcrdma::Connection* connection = nullptr;
  rpcrdma::Requester* requester_for_next_connection = nullptr;  ///< for reverse calls
  std::uint64_t now_ns = 1;
};

/// The result that a requester's completion reported.
struct Finished {
  rpcrdma::CallStatus status{};
  rpc::Xid xid{};
  Bytes message;
  std::vector<rpcrdma::ItemResult> items;
  rpc::VersionRange supported{};
  rpcrdma::v2::Error error{};
};

/// Our engine as requester (client), with a raw server.
class ClientLab {
 public:
  explicit ClientLab(LabOptions options = {});
  ~ClientLab();

  void connect();
  void disconnect();
  void settle(int turns = 200);
  struct Submitted {
    std::uint32_t xid = 0;
    std::size_t index = 0;  ///< index in `finished` once it has completed
  };
  /// Submits a call. Its completion calls Reply::item() with these `item_counts`.
  std::optional<std::uint32_t> submit(const rpcrdma::Request& request,
                                      std::vector<std::uint32_t> item_counts = {});
  std::optional<std::uint32_t> submit_null();
  /// Builds an accepted reply without results that grants `credits`.
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
  std::function<void(const rpcrdma::Reply&)> on_reply;  ///< also called by the completion
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
