// SPDX-License-Identifier: Apache-2.0
//
// NULL over the loopback driver with both ends on one core, measured by the processor time of their thread.
// This shows the cost of a version, and of measuring stages and calls, independently of other programs and of
// the distance between two cores.
#include <rte_cycles.h>

#include <memory>

#include "tests/bench/closed_loop.h"
#include "tests/bench/polled_server.h"
#include "tests/bench/worker.h"

namespace sluice::bench {
namespace {

constexpr std::uint16_t kConnections = 2;
constexpr std::uint32_t kDepth = 64;  ///< calls of each connection
constexpr std::size_t kMany = kConnections * kDepth;
constexpr double kPatienceS = 600;  ///< a tracer slows down the connection setup

bool measured = true;

/// Returns zero while measuring is disabled. The same pair of ends serves both cases, because two pairs
/// differ by the placement of their memory.
std::uint64_t tsc() noexcept {
  return measured ? rte_rdtsc() : 0;
}

/// A server and its client, connected until the program ends.
class Pair {
 public:
  Pair(std::uint32_t version, std::size_t outstanding)
      : fabric_(rdma::loopback::Fabric::in_process({.links = 2 * kConnections})),
        server_(fabric_, {.connections = kConnections, .call_slots = 2 * kDepth}) {
    server_.start(&tsc);
    client_ = std::make_unique<ClientOfThread>(
        fabric_,
        ClientConfig{
            .connections = kConnections, .depth = kDepth, .version = version, .timeout_s = kPatienceS},
        &PolledServer::poll_all_of, &server_);
    calls_ = std::make_unique<ClosedLoop<>>(client_->client(), SameCall(call_.message(), rpc::kMinReplyBytes),
                                            outstanding);
    calls_->warm_up([this] { server_.poll(); });
  }
  /// Returns calls per second of the thread's processor time.
  double rate(double seconds) {
    return calls_->rate(seconds, thread_ns, [this] { server_.poll(); });
  }

 private:
  std::shared_ptr<rdma::loopback::Fabric> fabric_;
  PolledServer server_;
  std::unique_ptr<ClientOfThread> client_;
  CallBuilder call_{service::kNullProgram, service::kNullVersion, service::kNullProcedure, false};
  std::unique_ptr<ClosedLoop<>> calls_;
};

template <std::uint32_t kVersion, std::size_t kOutstanding>
Pair& pair_of() {
  static Pair pair(kVersion, kOutstanding);
  return pair;
}

template <std::uint32_t kVersion, std::size_t kOutstanding, bool kMeasured>
double null_calls(double seconds) {
  Pair& pair = pair_of<kVersion, kOutstanding>();
  measured = kMeasured;
  pin(kServerCpu);
  return pair.rate(seconds);
}

constexpr Side kSides[] = {
    {"null", null_calls<1, kMany, true>},
    {"null_v2", null_calls<rpcrdma::v2::kVersion, kMany, true>},
    {"null_unmeasured", null_calls<1, kMany, false>},
    {"single_null", null_calls<1, 1, true>},
    {"single_null_unmeasured", null_calls<1, 1, false>},
};

}  // namespace
}  // namespace sluice::bench

int main() {
  return sluice::bench::serve(sluice::bench::kSides);
}
