// SPDX-License-Identifier: Apache-2.0
//
// The transport and the memory export over the loopback driver, with a processor for each end; the driver
// alone; and memcpy.
#include <rte_cycles.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "cli/bench/nfs3_load.h"
#include "dataplane/service/api/null.h"
#include "dataplane/service/memory/memory_service.h"
#include "pmd/loopback/loopback.h"
#include "tests/bench/ping_pong.h"
#include "tests/bench/worker.h"

namespace sluice::bench {
namespace {

constexpr std::uint32_t kMegabyte = 1u << 20;

std::uint64_t wall_clock() noexcept {
  return now_ns();
}

/// A clock as cheap as the data plane's. Its unit does not matter here.
std::uint64_t tsc_ns() noexcept {
  return rte_rdtsc();
}

class Server {
 public:
  explicit Server(std::shared_ptr<rdma::loopback::Fabric> fabric)
      : device_(rdma::loopback::make_device(std::move(fabric), {.name = "server"})),
        engine_(*device_, config()),
        memory_(device_->allocate_memory(256u << 20),
                device_->allocate_memory(service::memory::kLargeBytes + 64), exports(), &wall_clock) {
    engine_.add_service(null_);
    engine_.add_service(memory_);
    engine_.measure(*calls_, &tsc_ns);  // like in the data plane
    device_->connection_manager()->listen(20049);
    thread_ = std::thread([this] { run(); });
  }
  ~Server() {
    stop_ = true;
    thread_.join();
  }
  Handle root() const {
    const auto handle = memory_.root_handle(0);
    return {handle.begin(), handle.end()};
  }

 private:
  static rpcrdma::EngineConfig config() {
    rpcrdma::EngineConfig config;
    config.max_connections = 4;
    config.capacity.call_slots = 128;
    return config;
  }
  static service::memory::MemoryServiceConfig exports() {
    service::memory::MemoryServiceConfig config{.max_files = 1000, .handle_key = {}, .exports = {}};
    config.exports = {{.path = "/", .root_squash = false, .allowed = {}}};
    return config;
  }
  void run() {
    pin(kServerCpu);
    auto& cm = *device_->connection_manager();
    std::uint64_t now = now_ns();
    for (std::uint64_t turn = 0; !stop_.load(std::memory_order_relaxed); ++turn) {
      engine_.poll(now);
      if (turn % 256 != 0) continue;
      now = now_ns();
      memory_.background(now);
      while (engine_.take_closed() != nullptr) {
      }
      rdma::CmEvent events[4];
      const std::size_t count = cm.poll_events(events);
      for (const auto& event : std::span(events, count)) on_event(event);
    }
  }
  void on_event(const rdma::CmEvent& event) {
    if (event.type != rdma::CmEventType::ConnectRequest) return;
    auto qp = device_->create_queue_pair(engine_.queue_pair_limits());
    auto& queue_pair = *qp;
    rpcrdma::Connection* connection = engine_.free_connection();
    connection->open(std::move(qp), {.send_inline_bytes = 4096, .credit_grant = 128, .max_version = 2},
                     event.peer_address, nullptr);
    device_->connection_manager()->accept(
        event.id, queue_pair, rpcrdma::encode_private_data({.send_bytes = 4096, .receive_bytes = 4096}));
  }

  std::unique_ptr<segment::CallTable> calls_ = std::make_unique<segment::CallTable>();
  std::unique_ptr<rdma::loopback::Loopback> device_;
  rpcrdma::Engine engine_;
  service::NullService null_;
  service::memory::MemoryService memory_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

struct LoadOutcome {
  LoadResult result;
  double p99_us = 0;

  double calls_per_second() const { return static_cast<double>(result.operations) / result.seconds; }
  double bytes_per_second() const {
    return static_cast<double>(result.bytes_read + result.bytes_written) / result.seconds;
  }
};

struct LoadShape {
  std::uint32_t depth = 64;
  std::uint32_t connections = 2;
  std::uint32_t block = 4096;
  std::uint32_t version = 1;
};

LoadOutcome run_load(double seconds, Operation operation, const LoadShape& shape) {
  const auto fabric = rdma::loopback::Fabric::in_process({.links = 8});
  Server server(fabric);
  pin(kClientCpu);
  const auto device = rdma::loopback::make_device(fabric, {.name = "client"});
  Client client(*device, {.connections = shape.connections, .depth = shape.depth, .version = shape.version});
  LoadConfig config{.block_bytes = shape.block, .file_bytes = 8u << 20, .seconds = seconds};
  config.weights[static_cast<std::size_t>(operation)] = 1;
  Load load(client, config, shape.depth, server.root());
  load.prepare();
  LoadOutcome outcome{.result = load.run()};
  outcome.p99_us = static_cast<double>(load.latency().percentile(0.99)) / 1e3;
  if (outcome.result.errors > 0) {
    std::fprintf(stderr, "%llu errors\n", static_cast<unsigned long long>(outcome.result.errors));
    std::exit(1);
  }
  return outcome;
}

template <Operation kOperation, LoadShape kShape>
double calls_per_second(double seconds) {
  return run_load(seconds, kOperation, kShape).calls_per_second();
}

template <Operation kOperation>
double megabytes_at_a_time(double seconds) {
  return run_load(seconds, kOperation, {.depth = 4, .connections = 1, .block = kMegabyte}).bytes_per_second();
}

template <std::uint32_t kDepth, PingPong::Arrays kArrays = PingPong::Arrays::Kept>
double driver_calls_per_second(double seconds) {
  const auto fabric = rdma::loopback::Fabric::in_process({.links = 2});
  std::atomic<bool> stop{false};
  std::atomic<bool> listening{false};
  std::thread server([&] {
    pin(kServerCpu);
    const auto device = rdma::loopback::make_device(fabric);
    PingPong(*device, *device->connection_manager(), kArrays).answer(listening, stop);
  });
  pin(kClientCpu);
  while (!listening) {
  }
  const auto device = rdma::loopback::make_device(fabric);
  PingPong client(*device, *device->connection_manager(), kArrays);
  client.connect();
  const double rate = client.calls_per_second(kDepth, seconds);
  stop = true;
  server.join();
  return rate;
}

/// Returns bytes per second of memcpy in blocks of kBlock bytes between two ranges of the sizes that the load
/// uses.
double memcpy_bytes_per_second(double seconds) {
  constexpr std::size_t kBlock = kMegabyte;
  pin(kServerCpu);
  constexpr std::size_t kFrom = 8u << 20;
  constexpr std::size_t kTo = 4u << 20;
  const std::vector<std::byte> from(kFrom, std::byte{1});
  std::vector<std::byte> to(kTo);
  const std::uint64_t begin = now_ns();
  std::uint64_t copied = 0;
  std::uint64_t now = begin;
  while (static_cast<double>(now - begin) < seconds * 1e9) {
    std::memcpy(to.data() + copied % kTo, from.data() + copied % kFrom, kBlock);
    asm volatile("" : : "r"(to.data()) : "memory");
    copied += kBlock;
    now = now_ns();
  }
  return static_cast<double>(copied) * 1e9 / static_cast<double>(now - begin);
}

constexpr LoadShape kVersion2{.version = 2};
constexpr LoadShape kOneConnection{.connections = 1};

constexpr Side kSides[] = {
    {"null", calls_per_second<Operation::Null, LoadShape{}>},
    {"getattr", calls_per_second<Operation::GetAttr, LoadShape{}>},
    {"null_v2", calls_per_second<Operation::Null, kVersion2>},
    {"getattr_v2", calls_per_second<Operation::GetAttr, kVersion2>},
    {"null_one_connection", calls_per_second<Operation::Null, kOneConnection>},
    {"read4k_one_connection", calls_per_second<Operation::Read, kOneConnection>},
    {"read1m", megabytes_at_a_time<Operation::Read>},
    {"write1m", megabytes_at_a_time<Operation::Write>},
    {"null_p99_us",
     [](double seconds) {
       return run_load(seconds, Operation::Null, {.depth = 1, .connections = 1}).p99_us;
     }},
    {"driver", driver_calls_per_second<128>},
    {"driver_with_fresh_arrays", driver_calls_per_second<128, PingPong::Arrays::Fresh>},
    {"driver_round_trip_us", [](double seconds) { return 1e6 / driver_calls_per_second<1>(seconds); }},
    {"memcpy1m", memcpy_bytes_per_second},
};

}  // namespace
}  // namespace sluice::bench

int main() {
  return sluice::bench::serve(sluice::bench::kSides);
}
