// SPDX-License-Identifier: Apache-2.0
//
// A server over loopback RDMA that answers READs of one size immediately, on its own thread. Its data is
// written without a copy.
#pragma once

#include <atomic>
#include <memory>
#include <thread>

#include "dataplane/rpcrdma/engine.h"
#include "pmd/loopback/loopback.h"
#include "tests/bench/forward_calls.h"

namespace sluice::bench {

inline constexpr std::uint16_t kRdmaServerPort = 20050;

class RdmaServer {
 public:
  /// Creates a server for READs of this shape.
  RdmaServer(std::shared_ptr<rdma::loopback::Fabric> fabric, const ForwardedShape& shape);
  ~RdmaServer();
  RdmaServer(const RdmaServer&) = delete;
  RdmaServer& operator=(const RdmaServer&) = delete;

 private:
  class Reads final : public service::Service {
   public:
    Reads(rdma::Device& device, std::uint32_t bytes) : data_(device.allocate_memory(bytes)) {}
    const service::Binding& binding() const noexcept override { return ulb::nfs3_binding(); }
    service::Execution execute(service::Call& call) noexcept override;

   private:
    const rdma::MemoryRegion data_;
  };
  void run();
  void accept();

  const std::unique_ptr<rdma::loopback::Loopback> device_;
  rpcrdma::Engine engine_;
  Reads reads_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace sluice::bench
