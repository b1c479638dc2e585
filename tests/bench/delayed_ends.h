// SPDX-License-Identifier: Apache-2.0
//
// A client and a server with a wire of a given delay between them, in one thread, so that only the wire and
// the work of both ends take time. One of the two clocks is the processor's. The other one stands still while
// either end has work, and then advances to the arrival of the next frame; it counts round trips.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "dataplane/service/api/null.h"
#include "dataplane/service/memory/memory_service.h"
#include "tests/bench/delayed_calls.h"
#include "tests/driver/rpcrdma_pair.h"

namespace sluice::bench {

class DelayedEnds {
 public:
  enum class Clock : std::uint8_t { Processor, Trips };

  DelayedEnds(const Transport& transport, std::uint64_t one_way_ns, Clock clock);
  ~DelayedEnds();
  DelayedEnds(const DelayedEnds&) = delete;
  DelayedEnds& operator=(const DelayedEnds&) = delete;

  const DelayedFiles& files() const { return files_; }
  /// Makes `calls` in rotation with `depth` of them outstanding. Their starts are distributed over the time
  /// of a round trip. Runs for `seconds`, but makes each call at least once.
  void run(std::span<const DelayedCall> calls, std::uint32_t depth, double seconds);
  /// Returns the latencies of the last run's calls, by their index in `calls`.
  const std::vector<std::vector<double>>& latencies_ns() const { return latencies_ns_; }
  /// Returns the number of RDMA operations of both ends. Waits until the wire is empty.
  rdma::conformance::RpcRdmaPair::Operations operations();

 private:
  static constexpr std::uint64_t kNever = ~std::uint64_t{0};

  struct Task {
    DelayedEnds* ends = nullptr;
    std::uint64_t begun_ns = 0;
    std::size_t call = 0;       ///< index in the calls of the run
    std::span<std::byte> data;  ///< data of a WRITE
    bool has_status = false;
    Bytes reply;
    bool done = true;
  };

  static rdma::conformance::RpcRdmaPair::Options options(const Transport& transport,
                                                         std::uint64_t one_way_ns);
  static void completed(void* context, const rpcrdma::Reply& reply) noexcept;
  void start(Task& task, const DelayedCall& call);
  /// Polls once, or advances the clock to the arrival of the next frame.
  void step();
  bool next_arrival();
  bool goes_inline(const DelayedCall& call) const;
  Bytes transact(const DelayedCall& call);

  const Transport& transport_;
  const Clock clock_;
  const std::uint64_t one_way_ns_;
  service::NullService null_;
  rdma::conformance::RpcRdmaPair pair_;
  service::memory::MemoryService memory_;
  rdma::MemoryRegion client_memory_;
  std::vector<Task> tasks_;
  DelayedFiles files_;
  std::vector<std::vector<double>> latencies_ns_;
  std::uint64_t next_start_ns_ = kNever;  ///< start of another outstanding call
};

}  // namespace sluice::bench
