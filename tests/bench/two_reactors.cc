// SPDX-License-Identifier: Apache-2.0
//
// GETATTR over the loopback driver with two reactors, one of which owns the files. Calls arrive on
// connections of the owner, or on connections of the other reactor, which passes them to the owner. The owner
// has its own processor; the other reactor shares a thread with the client, so that neither waits for the
// other's time slice.
#include <rte_cycles.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "dataplane/service/cross_reactor_call.h"
#include "dataplane/service/memory/memory_service.h"
#include "dataplane/ulb/nfs3.h"
#include "tests/bench/closed_loop.h"
#include "tests/bench/polled_server.h"
#include "tests/bench/worker.h"

namespace sluice::bench {
namespace {

constexpr std::uint32_t kConnections = 2;
constexpr std::uint32_t kDepth = 64;                               ///< per connection
constexpr std::size_t kReplyBytes = rpc::kMinReplyBytes + 4 + 84;  ///< with status and fattr3 (RFC 1813, 2.5)
constexpr std::uint64_t kTurnsPerControlPass = 256;
constexpr std::uint16_t kOwnersPort = 20049;
constexpr std::uint16_t kCallersPort = 20050;

std::uint64_t tsc() noexcept {
  return rte_rdtsc();
}

service::memory::MemoryServiceConfig exports() {
  service::memory::MemoryServiceConfig config{.max_files = 1000, .handle_key = {}, .exports = {}};
  config.exports = {{.path = "/", .root_squash = false, .allowed = {}}};
  return config;
}

class Reactors {
 public:
  Reactors()
      : owner_(fabric_, {.name = "owner", .port = kOwnersPort}),
        caller_(fabric_, {.name = "caller", .port = kCallersPort}),
        data_(owner_.device().allocate_memory(64u << 20)),
        zeros_(owner_.device().allocate_memory(service::memory::kLargeBytes + 64)),
        memory_(data_, zeros_, exports(), &now_ns),
        rings_(keys(), caller_.engine().connection_count()),
        remote_service_(rings_, memory_) {
    owner_.engine().add_service(memory_);
    caller_.engine().add_service(remote_service_);
    owner_.start(&tsc);
    caller_.start(&tsc);
    thread_ = std::thread([this] { run_owner(); });
  }
  ~Reactors() {
    stop_ = true;
    thread_.join();
  }
  Reactors(const Reactors&) = delete;
  Reactors& operator=(const Reactors&) = delete;

  const std::shared_ptr<rdma::loopback::Fabric>& fabric() const { return fabric_; }
  std::vector<std::byte> root() const {
    const auto handle = memory_.root_handle(0);
    return {handle.begin(), handle.end()};
  }
  /// Polls the caller once.
  void poll() noexcept {
    caller_.poll();
    rings_.collect();
  }
  void poll_cm() { caller_.poll_cm(); }
  /// Lets another thread poll the caller from now on.
  void pass_on() noexcept { caller_.pass_on(); }

 private:
  std::vector<service::CrossReactorCall::KeyPair> keys() {
    std::vector<service::CrossReactorCall::KeyPair> keys;
    for (const rdma::MemoryRegion& region : {data_, zeros_})
      keys.push_back({region.lkey, caller_.device().register_memory(region.bytes).lkey});
    return keys;
  }
  void run_owner() {
    pin(kServerCpu);
    for (std::uint64_t turn = 0; !stop_.load(std::memory_order_relaxed); ++turn) {
      owner_.poll();
      rings_.serve();
      if (turn % kTurnsPerControlPass != 0) continue;
      owner_.poll_cm();
      memory_.background(owner_.time_ns());
    }
  }

  const std::shared_ptr<rdma::loopback::Fabric> fabric_ =
      rdma::loopback::Fabric::in_process({.links = 4 * kConnections});
  PolledServer owner_;
  PolledServer caller_;
  const rdma::MemoryRegion data_;
  const rdma::MemoryRegion zeros_;
  service::memory::MemoryService memory_;
  service::CrossReactorCall rings_;
  service::RemoteService remote_service_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

/// GETATTR calls to one of the two reactors.
class Calls {
 public:
  explicit Calls(std::uint16_t port)
      : device_(rdma::loopback::make_device(reactors_.fabric(), {.name = "client"})),
        client_(connect_to(
            *device_, {.port = port, .connections = kConnections, .depth = kDepth},
            [this] {
              reactors_.poll_cm();
              reactors_.poll();
            },
            [this] { reactors_.pass_on(); })) {
    call_.arguments().opaque(reactors_.root());
    calls_ = std::make_unique<ClosedLoop>(*client_, call_.message(), kReplyBytes, kConnections * kDepth);
    calls_->warm_up([this] { reactors_.poll(); });
  }
  double per_second(double seconds) {
    return calls_->rate(seconds, now_ns, [this] { reactors_.poll(); });
  }

 private:
  Reactors reactors_;
  std::unique_ptr<rdma::loopback::Loopback> device_;
  std::unique_ptr<Client> client_;
  CallBuilder call_{ulb::kNfsProgram, ulb::kNfs3Version, ulb::kNfs3GetAttr};
  std::unique_ptr<ClosedLoop> calls_;
};

template <std::uint16_t kPort>
double getattrs(double seconds) {
  Calls calls(kPort);
  pin(kClientCpu);
  return calls.per_second(seconds);
}

constexpr Side kSides[] = {
    {"foreign", getattrs<kCallersPort>},
    {"own", getattrs<kOwnersPort>},
};

}  // namespace
}  // namespace sluice::bench

int main() {
  return sluice::bench::serve(sluice::bench::kSides);
}
