// SPDX-License-Identifier: Apache-2.0
//
// The requester side for tools: an engine on a device, and connections to one server. Single-threaded.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cli/bench/client_error.h"
#include "cli/bench/clock.h"
#include "controlplane/properties/host_handshake.h"
#include "dataplane/rpcrdma/engine.h"
#include "dataplane/rpcrdma/link/config.h"
#include "dataplane/rpcrdma/requester/requester.h"
#include "pmd/device.h"

namespace sluice::bench {

struct ClientConfig {
  std::uint16_t port = 20049;
  std::uint32_t connections = 1;
  std::uint32_t depth = 32;  ///< calls outstanding on each connection
  std::uint32_t inline_bytes = 4096;
  std::uint32_t version = 1;  ///< first version of RPC-over-RDMA to try
  /// Version 2: files with the keys for mutual host authentication, the preferred one first. Empty means no
  /// authentication.
  std::vector<std::string> psk_files{};
  std::string host_name = "sluice-bench";  ///< host that the keys belong to
  double timeout_s = 10;
};

/// One connection and its requester.
struct Session {
  std::unique_ptr<rpcrdma::Requester> requester;
  rpcrdma::Connection* connection = nullptr;
  std::optional<rdma::CmId> cm_id;
  std::optional<rpcrdma::PrivateData> peer;  ///< RFC 8797 private data of the server's reply
  bool rejected = false;
  std::unique_ptr<properties::HostHandshake> handshake;
  std::vector<std::byte> unsent{};  ///< host authentication that the connection could not send yet
  properties::HostHandshake::Verdict verdict = properties::HostHandshake::Verdict::Pending;
};

class Client {
 public:
  /// Creates a client and connects all sessions. Used at setup. Throws ClientError.
  Client(rdma::Device& device, rdma::ConnectionManager& manager, const ClientConfig& config);
  /// Creates a client for a device with its own connection manager.
  Client(rdma::Device& device, const ClientConfig& config)
      : Client(device, *device.connection_manager(), config) {}
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  /// Runs one iteration of the poll loop. Returns the number of work completions. Throws ClientError if a
  /// connection is lost.
  std::size_t poll();
  std::vector<Session>& sessions() { return sessions_; }
  rpcrdma::Engine& engine() { return engine_; }
  rdma::Device& device() { return device_; }
  /// Returns approximately the time at which the latest poll that found work ended.
  std::uint64_t now() const { return now_ns_; }

  struct Answer {
    rpcrdma::CallStatus status{};
    std::vector<std::byte> message;
    std::vector<rpcrdma::ItemResult> items;
  };
  /// Makes one call on the first session and waits for the reply.
  Answer call(const rpcrdma::Request& request, std::vector<std::uint32_t> item_counts = {});

 private:
  void start(Session& session);
  [[noreturn]] void give_up(const ClientError& error);
  void close();
  void look_for_server();
  void poll_cm();
  void give_up_if_lost();
  bool ready(Session& session);
  static void authenticate(Session& session, std::vector<std::byte> octets);
  static bool on_properties(void* context, rpcrdma::Connection& connection, std::span<const std::byte> body,
                            bool first) noexcept;

  rdma::Device& device_;
  rdma::ConnectionManager& manager_;
  const ClientConfig config_;
  rpcrdma::Engine engine_;
  std::vector<Session> sessions_;
  std::uint64_t now_ns_ = bench::now_ns();
  std::uint64_t sampled_ns_ = now_ns_;
  bool closed_ = false;
  std::uint32_t turns_ = 0;
};

/// Builds an RPC call message: a header with AUTH_SYS (uid 0) or AUTH_NONE, then the data written to
/// arguments().
class CallBuilder {
 public:
  CallBuilder(const CallBuilder&) = delete;
  CallBuilder& operator=(const CallBuilder&) = delete;
  CallBuilder(std::uint32_t program, std::uint32_t version, std::uint32_t procedure, bool auth_sys = true);
  xdr::Writer& arguments() { return writer_; }
  std::span<const std::byte> message() const { return {buffer_.data(), writer_.position()}; }

 private:
  std::array<std::byte, 2048> buffer_{};
  xdr::Writer writer_;
};

}  // namespace sluice::bench
