// SPDX-License-Identifier: Apache-2.0
//
// The figures of the transport and the memory export: figures [NAME...]. One line of JSON each, medians of
// kRuns runs, with a baseline of the same run.
#include <rpc/rpc.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "cli/bench/nfs3_load.h"
#include "dataplane/reactor/cpu.h"
#include "dataplane/rpcrdma/v1.h"
#include "dataplane/service/memory/memory_service.h"
#include "dataplane/service/null.h"
#include "pmd/loopback/loopback.h"
#include "rpcrdma_v1.h"
#include "tests/bench/figure.h"
#include "tests/golden/v1_vectors.h"

namespace sluice::bench {
namespace {

constexpr double kSecondsPerRun = 1.0;
constexpr int kServerCpu = 1;
constexpr int kClientCpu = 0;

// --- Codec

std::vector<std::byte> read_chunk_call() {
  // E2 with its first segment alone: a call with one Read chunk.
  std::vector<std::byte> bytes(std::size(golden::kE2) * 4);
  for (std::size_t i = 0; i < std::size(golden::kE2); ++i)
    xdr::store_u32(bytes.data() + i * 4, golden::kE2[i]);
  bytes.erase(bytes.begin() + 40, bytes.begin() + 64);
  return bytes;
}

double ns_each(int rounds, const std::function<void()>& work) {
  const std::uint64_t begin = now_ns();
  for (int i = 0; i < rounds; ++i) work();
  return static_cast<double>(now_ns() - begin) / rounds;
}

double decode_ns() {
  const auto message = read_chunk_call();
  constexpr int kBatch = 1000;
  std::uint32_t sink = 0;
  const double ns = ns_each(2000, [&] {
    for (int i = 0; i < kBatch; ++i) {
      const std::byte* at = message.data();
      asm volatile("" : "+r"(at));  // as if each message were another one
      const auto decoded = rpcrdma::v1::decode({at, message.size()});
      sink += decoded.header.chunks.reads[0].target.length + static_cast<std::uint32_t>(decoded.status);
    }
  });
  asm volatile("" : : "r"(sink));
  return ns / kBatch;
}

double rpcgen_decode_ns() {
  auto message = read_chunk_call();
  return ns_each(500'000, [&] {
    XDR xdrs;
    rv1_message decoded{};
    xdrmem_create(&xdrs, reinterpret_cast<char*>(message.data()), static_cast<u_int>(message.size()),
                  XDR_DECODE);
    if (!xdr_rv1_message(&xdrs, &decoded)) std::abort();
    xdr_free(reinterpret_cast<xdrproc_t>(reinterpret_cast<void (*)()>(&xdr_rv1_message)), &decoded);
  });
}

// --- A server in this process

std::uint64_t wall_clock() noexcept {
  return now_ns();
}

/// As cheap as the data plane's clock; its unit does not matter here.
std::uint64_t tsc_ns() noexcept {
  return cpu::ticks();
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
    engine_.measure(*calls_, &tsc_ns);  // as the data plane does
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
};

LoadOutcome run_load(Operation operation, std::uint32_t depth, std::uint32_t connections,
                     std::uint32_t block = 4096, std::uint32_t version = 1) {
  const auto fabric = rdma::loopback::Fabric::in_process({.links = 8});
  Server server(fabric);
  pin(kClientCpu);
  const auto device = rdma::loopback::make_device(fabric, {.name = "client"});
  Client client(*device, {.connections = connections, .depth = depth, .version = version});
  LoadConfig config{.block_bytes = block, .file_bytes = 8u << 20, .seconds = kSecondsPerRun};
  config.weights[static_cast<std::size_t>(operation)] = 1;
  Load load(client, config, depth, server.root());
  load.prepare();
  LoadOutcome outcome{.result = load.run()};
  outcome.p99_us = static_cast<double>(load.latency().percentile(0.99)) / 1e3;
  if (outcome.result.errors > 0) {
    std::fprintf(stderr, "%llu errors\n", static_cast<unsigned long long>(outcome.result.errors));
    std::exit(1);
  }
  return outcome;
}

double per_second(const LoadOutcome& outcome) {
  return static_cast<double>(outcome.result.operations) / outcome.result.seconds;
}

// --- Baselines

/// Two Sends per round trip, of a NULL call's and its reply's size, with nothing in between but the driver.
double raw_round_trips_per_second(std::uint32_t depth) {
  const auto fabric = rdma::loopback::Fabric::in_process({.links = 2});
  std::atomic<bool> stop{false};
  std::atomic<bool> listening{false};
  struct Side {
    explicit Side(std::shared_ptr<rdma::loopback::Fabric> fabric, std::uint32_t buffers)
        : device(rdma::loopback::make_device(std::move(fabric))),
          memory(device->allocate_memory(buffers * 128)),
          qp(device->create_queue_pair({.send_depth = 512, .recv_depth = 512})) {
      for (std::uint32_t i = 0; i < buffers; ++i) repost(i);
    }
    rdma::Sge buffer(std::uint64_t i, std::uint32_t bytes) {
      return {memory.bytes.data() + i * 128, bytes, memory.lkey};
    }
    void repost(std::uint64_t i) {
      const rdma::RecvWr wr{i, buffer(i, 128)};
      qp->post_recv({&wr, 1});
    }
    /// Handles what is there; `answer` bytes are sent for each message that came.
    std::size_t turn(std::uint32_t answer) {
      rdma::WorkCompletion completions[64];
      rdma::Sge sges[64];
      rdma::SendWr wrs[64];
      std::size_t sends = 0;
      const std::size_t count = device->poll(completions);
      for (const auto& wc : std::span(completions, count)) {
        if (wc.opcode != rdma::WcOpcode::Receive) continue;
        repost(wc.wr_id);
        sges[sends] = buffer(wc.wr_id, answer);
        wrs[sends] = {.wr_id = 0, .sges = {&sges[sends], 1}};
        ++sends;
      }
      if (sends > 0) qp->post_send({wrs, sends});
      return sends;
    }
    std::unique_ptr<rdma::loopback::Loopback> device;
    rdma::MemoryRegion memory;
    std::unique_ptr<rdma::QueuePair> qp;
  };
  std::thread server([&] {
    pin(kServerCpu);
    Side side(fabric, 256);
    auto& cm = *side.device->connection_manager();
    cm.listen(1);
    listening = true;
    rdma::CmEvent event;
    for (std::uint64_t turn = 0; !stop; ++turn) {
      side.turn(52);
      if (turn % 1024 == 0 && cm.poll_events({&event, 1}) == 1 &&
          event.type == rdma::CmEventType::ConnectRequest)
        cm.accept(event.id, *side.qp, {});
    }
  });
  pin(kClientCpu);
  while (!listening) {
  }
  Side side(fabric, 256);
  auto& cm = *side.device->connection_manager();
  cm.connect(*side.qp, 1, {});
  rdma::CmEvent event;
  while (cm.poll_events({&event, 1}) == 0 || event.type != rdma::CmEventType::Established) {
  }
  for (std::uint32_t i = 0; i < depth; ++i) {
    const rdma::Sge sge = side.buffer(i, 68);
    const rdma::SendWr wr{.wr_id = 0, .sges = {&sge, 1}};
    side.qp->post_send({&wr, 1});
  }
  const std::uint64_t begin = now_ns();
  std::uint64_t done = 0;
  std::uint64_t now = begin;
  for (std::uint64_t turn = 0; static_cast<double>(now - begin) < kSecondsPerRun * 1e9; ++turn) {
    done += side.turn(68);
    if (turn % 64 == 0) now = now_ns();
  }
  stop = true;
  server.join();
  return static_cast<double>(done) * 1e9 / static_cast<double>(now - begin);
}

/// Bytes per second of memcpy in blocks of this size between two ranges as large as the load's.
double memcpy_bytes_per_second(std::size_t block) {
  pin(kServerCpu);
  constexpr std::size_t kFrom = 8u << 20;
  constexpr std::size_t kTo = 4u << 20;
  const std::vector<std::byte> from(kFrom, std::byte{1});
  std::vector<std::byte> to(kTo);
  const std::uint64_t begin = now_ns();
  std::uint64_t copied = 0;
  std::uint64_t now = begin;
  while (now - begin < 500'000'000) {
    std::memcpy(to.data() + copied % kTo, from.data() + copied % kFrom, block);
    asm volatile("" : : "r"(to.data()) : "memory");
    copied += block;
    now = now_ns();
  }
  return static_cast<double>(copied) * 1e9 / static_cast<double>(now - begin);
}

constexpr std::uint32_t kMegabyte = 1u << 20;

constexpr Figure kFigures[] = {
    {"v1_decode_ns", "ns", 25,
     [] {
       return Sample{decode_ns(), rpcgen_decode_ns()};
     }},
    {"v1_decode_vs_rpcgen", "times faster", 5,
     [] {
       return Sample{rpcgen_decode_ns() / decode_ns(), 1};
     }},
    {"loopback_null_rps", "RPC/s", 5e6,
     [] {
       return Sample{per_second(run_load(Operation::Null, 64, 2)), raw_round_trips_per_second(128)};
     }},
    {"loopback_getattr_rps", "RPC/s", 3e6,
     [] {
       return Sample{per_second(run_load(Operation::GetAttr, 64, 2)),
                     per_second(run_load(Operation::Null, 64, 2))};
     }},
    {"loopback_read4k_rps", "RPC/s", 1.5e6,
     [] {
       return Sample{per_second(run_load(Operation::Read, 64, 1)),
                     per_second(run_load(Operation::Null, 64, 1))};
     }},
    {"loopback_read1m_vs_memcpy", "GB/s (goal is the ratio)", 0.7,
     [] {
       const LoadOutcome outcome = run_load(Operation::Read, 4, 1, kMegabyte);
       return Sample{static_cast<double>(outcome.result.bytes_read) / outcome.result.seconds / 1e9,
                     memcpy_bytes_per_second(kMegabyte) / 1e9};
     }},
    {"loopback_write1m_vs_memcpy", "GB/s (goal is the ratio)", 0.7,
     [] {
       const LoadOutcome outcome = run_load(Operation::Write, 4, 1, kMegabyte);
       return Sample{static_cast<double>(outcome.result.bytes_written) / outcome.result.seconds / 1e9,
                     memcpy_bytes_per_second(kMegabyte) / 1e9};
     }},
    {"loopback_v2_null_rps", "RPC/s", 5e6,
     [] {
       return Sample{per_second(run_load(Operation::Null, 64, 2, 4096, 2)),
                     per_second(run_load(Operation::Null, 64, 2, 4096, 1))};
     }},
    {"loopback_v2_getattr_rps", "RPC/s", 3e6,
     [] {
       return Sample{per_second(run_load(Operation::GetAttr, 64, 2, 4096, 2)),
                     per_second(run_load(Operation::GetAttr, 64, 2, 4096, 1))};
     }},
    {"loopback_null_p99_us", "us", 5,
     [] {
       return Sample{run_load(Operation::Null, 1, 1).p99_us, 1e6 / raw_round_trips_per_second(1)};
     }},
};

}  // namespace
}  // namespace sluice::bench

int main(int argc, char** argv) {
  return sluice::bench::print_figures(sluice::bench::kFigures, argc, argv);
}
