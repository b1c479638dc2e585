// SPDX-License-Identifier: Apache-2.0
//
// NFSv3 calls over RPC-over-RDMA on loopback: two engines in one thread, and a connection for each client
// address. Chunks carry READ and WRITE data.
#pragma once

#include <map>
#include <memory>

#include "dataplane/rpcrdma/engine.h"
#include "dataplane/rpcrdma/requester/requester.h"
#include "pmd/loopback/loopback.h"
#include "tests/unit/service/memory/call_harness.h"

namespace sluice::service::test {

class Transport {
 public:
  explicit Transport(std::uint32_t version);
  ~Transport();

  /// Returns the device with which the memory of the services must be registered.
  rdma::Device& server_device() { return *server_device_; }
  void add_service(Service& service) { server_->add_service(service); }

  struct Answer {
    rpc::ReplyHeader header;
    Bytes results;  ///< including data that was placed
  };
  Answer call(const rpc::CallHeader& header, const PeerAddress& peer, const HostName& host,
              std::span<const std::byte> arguments);

 private:
  struct Session {
    std::unique_ptr<rpcrdma::Requester> requester;
    rpcrdma::Connection* client = nullptr;
    rpcrdma::Connection* server = nullptr;
  };
  Session& session(const PeerAddress& peer);
  void turn();

  const std::uint32_t version_;
  std::shared_ptr<rdma::loopback::Fabric> fabric_;
  std::unique_ptr<rdma::Device> client_device_;
  std::unique_ptr<rdma::Device> server_device_;
  std::unique_ptr<rpcrdma::Engine> client_;
  std::unique_ptr<rpcrdma::Engine> server_;
  rdma::MemoryRegion memory_;
  std::map<std::array<std::uint8_t, 16>, Session> sessions_;
  std::uint64_t now_ns_ = 1;
};

}  // namespace sluice::service::test
