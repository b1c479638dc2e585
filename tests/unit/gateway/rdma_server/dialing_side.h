// SPDX-License-Identifier: Apache-2.0
//
// Opens connections to a server in tests of gateways: an engine over the loopback driver, in the test's
// thread.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "dataplane/gateway/rdma_server/dialer.h"
#include "dataplane/rpcrdma/engine.h"
#include "pmd/loopback/loopback.h"
#include "tests/conformance/lab.h"

namespace sluice::rdma_server_test {

/// Number of concurrent calls of the server that each connection accepts.
inline constexpr std::uint32_t kServerCalls = 4;

struct DialingOptions {
  std::string name;
  std::uint32_t version = 1;
  std::uint32_t calls = 8;
  rpcrdma::EngineConfig engine;
};

class DialingSide : public rdma_server::Dialer {
 public:
  DialingSide(std::shared_ptr<rdma::loopback::Fabric> fabric, const DialingOptions& options);
  virtual ~DialingSide() = default;
  DialingSide(const DialingSide&) = delete;
  DialingSide& operator=(const DialingSide&) = delete;

  rpcrdma::Connection* dial(const rdma_server::Server& server, rpcrdma::Requester& requester,
                            service::Service& callee) noexcept override;
  void hang_up(rpcrdma::Connection& connection, rpcrdma::CloseReason reason) noexcept override;

  bool may_dial = true;
  std::unique_ptr<rdma::loopback::Loopback> device;
  rpcrdma::Engine engine;
  std::vector<rpcrdma::Connection*> connections;  ///< in order of dialing
  std::vector<rdma_server::Server> servers;       ///< server of each connection
  std::vector<rpcrdma::CloseReason> hung_up;

 protected:
  /// Closes all connections. For destructors of classes whose connections use their members.
  void close_connections();
  /// Polls the engine and connection management once.
  void poll_connections(std::uint64_t now_ns);
  /// Handles a client's connection request.
  virtual void on_connect_request(rdma::CmId) {}

 private:
  struct Dialed {
    rdma::CmId id{};
    rpcrdma::Connection* connection = nullptr;
  };
  void on_event(const rdma::CmEvent& event);

  const std::uint32_t version_;
  const std::uint32_t calls_;
  std::vector<Dialed> dialed_;
};

}  // namespace sluice::rdma_server_test
