// SPDX-License-Identifier: Apache-2.0
//
// NULL over the loopback driver with both ends on one core, by the processor time of their thread: what a version
// costs, whatever else runs and however far apart two cores are.
#include <rte_cycles.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <memory>
#include <thread>
#include <vector>

#include "cli/bench/client.h"
#include "dataplane/service/api/null.h"
#include "pmd/loopback/loopback.h"
#include "tests/bench/worker.h"

namespace sluice::bench {
namespace {

constexpr std::uint32_t kConnections = 2;
constexpr std::uint32_t kDepth = 64;  ///< of each connection
constexpr std::uint32_t kReplyBytes = 256;
constexpr double kPatienceS = 600;  ///< a tracer makes the connecting slow
constexpr std::uint64_t kCallsBetweenClocks = 10'000;

std::uint64_t tsc() noexcept {
  return rte_rdtsc();
}

class Server {
 public:
  explicit Server(std::shared_ptr<rdma::loopback::Fabric> fabric)
      : device_(rdma::loopback::make_device(std::move(fabric), {.name = "server"})),
        engine_(*device_, config()) {
    engine_.add_service(null_);
    engine_.measure(*calls_, &tsc);  // as the data plane does
    device_->connection_manager()->listen(20049);
  }
  void poll() { engine_.poll(now_ns_); }
  void poll_cm() {
    now_ns_ = now_ns();
    std::array<rdma::CmEvent, kConnections> events;
    const std::size_t count = device_->connection_manager()->poll_events(events);
    for (const auto& event : std::span(events).first(count)) {
      if (event.type != rdma::CmEventType::ConnectRequest) continue;
      auto qp = device_->create_queue_pair(engine_.queue_pair_limits());
      auto& queue_pair = *qp;
      engine_.free_connection()->open(
          std::move(qp),
          {.send_inline_bytes = 4096, .credit_grant = 2 * kDepth, .max_version = rpcrdma::v2::kVersion},
          event.peer_address, nullptr);
      device_->connection_manager()->accept(
          event.id, queue_pair, rpcrdma::encode_private_data({.send_bytes = 4096, .receive_bytes = 4096}));
    }
  }

 private:
  static rpcrdma::EngineConfig config() {
    rpcrdma::EngineConfig config;
    config.max_connections = kConnections;
    config.capacity.call_slots = 2 * kDepth;
    return config;
  }

  std::unique_ptr<segment::CallTable> calls_ = std::make_unique<segment::CallTable>();
  std::unique_ptr<rdma::loopback::Loopback> device_;
  rpcrdma::Engine engine_;
  service::NullService null_;
  std::uint64_t now_ns_ = now_ns();
};

/// A server and its client, connected for good.
class Pair {
 public:
  explicit Pair(std::uint32_t version)
      : fabric_(rdma::loopback::Fabric::in_process({.links = 2 * kConnections})), server_(fabric_) {
    // The client's constructor waits for the connections.
    std::atomic<bool> connected{false};
    std::thread thread([this, &connected] {
      while (!connected) {
        server_.poll_cm();
        server_.poll();
        std::this_thread::yield();  // where threads take turns, as under a tracer, the client's goes on
      }
    });
    device_ = rdma::loopback::make_device(fabric_, {.name = "client"});
    client_ = std::make_unique<Client>(
        *device_,
        ClientConfig{
            .connections = kConnections, .depth = kDepth, .version = version, .timeout_s = kPatienceS});
    connected = true;
    thread.join();
    for (std::size_t i = 0; i < kConnections * kDepth; ++i) idle_.push_back(i);
    run(kCallsBetweenClocks);
  }

  /// Calls per second of the thread's processor time.
  double rate(double seconds) {
    const std::uint64_t begin = thread_ns();
    const auto end = begin + static_cast<std::uint64_t>(seconds * 1e9);
    std::uint64_t calls = 0;
    std::uint64_t now = begin;
    for (; now < end; now = thread_ns()) {
      run(kCallsBetweenClocks);
      calls += kCallsBetweenClocks;
    }
    return static_cast<double>(calls) * 1e9 / static_cast<double>(now - begin);
  }

 private:
  struct Task {
    Pair* pair;
    std::size_t index;
  };

  void run(std::uint64_t calls) {
    done_ = 0;
    for (std::uint64_t started = 0; done_ < calls;) {
      while (!idle_.empty() && started < calls && submit(idle_.back())) {
        idle_.pop_back();
        ++started;
      }
      client_->poll();
      server_.poll();
    }
  }
  bool submit(std::size_t index) {
    tasks_[index] = {this, index};
    rpcrdma::Request request;
    request.payload = call_.message();
    request.max_reply_bytes = kReplyBytes;
    request.completion = &completed;
    request.context = &tasks_[index];
    return client_->sessions()[index % kConnections].requester->submit(request).has_value();
  }
  /// Accepted, with accept_stat as the last of its words.
  static bool is_success(std::span<const std::byte> reply) {
    constexpr auto kSuccess = static_cast<std::uint32_t>(rpc::AcceptStat::Success);
    return reply.size() == rpc::kMinReplyBytes && xdr::load_u32(reply.last(xdr::kUnit).data()) == kSuccess;
  }
  static void completed(void* context, const rpcrdma::Reply& reply) noexcept {
    const Task& task = *static_cast<Task*>(context);
    if (reply.status() != rpcrdma::CallStatus::Ok || !is_success(reply.message())) std::abort();
    ++task.pair->done_;
    task.pair->idle_.push_back(task.index);
  }

  std::shared_ptr<rdma::loopback::Fabric> fabric_;
  Server server_;
  std::unique_ptr<rdma::loopback::Loopback> device_;
  std::unique_ptr<Client> client_;
  CallBuilder call_{service::kNullProgram, service::kNullVersion, service::kNullProcedure, false};
  std::array<Task, kConnections * kDepth> tasks_{};
  std::vector<std::size_t> idle_;
  std::uint64_t done_ = 0;
};

template <std::uint32_t kVersion>
double null_calls(double seconds) {
  static Pair pair(kVersion);
  pin(kServerCpu);
  return pair.rate(seconds);
}

constexpr Side kSides[] = {
    {"null", null_calls<1>},
    {"null_v2", null_calls<rpcrdma::v2::kVersion>},
};

}  // namespace
}  // namespace sluice::bench

int main() {
  return sluice::bench::serve(sluice::bench::kSides);
}
