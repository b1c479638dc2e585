// SPDX-License-Identifier: Apache-2.0
//
// NULL over the loopback driver with both ends on one core, by the processor time of their thread: what a version
// costs, and what the measuring of stages and calls, whatever else runs and however far apart two cores are.
#include <rte_cycles.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <memory>
#include <thread>
#include <vector>

#include "tests/bench/polled_server.h"
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

/// A server that reads this one measures nothing, with the same instructions otherwise.
std::uint64_t stopped() noexcept {
  return 0;
}

/// A server and its client, connected for good.
class Pair {
 public:
  explicit Pair(std::uint32_t version, Clock clock = &tsc, std::size_t outstanding = kConnections * kDepth)
      : fabric_(rdma::loopback::Fabric::in_process({.links = 2 * kConnections})),
        server_(fabric_, {.connections = kConnections, .call_slots = 2 * kDepth}) {
    server_.start(clock);
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
    for (std::size_t i = 0; i < outstanding; ++i) idle_.push_back(i);
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
  PolledServer server_;
  std::unique_ptr<rdma::loopback::Loopback> device_;
  std::unique_ptr<Client> client_;
  CallBuilder call_{service::kNullProgram, service::kNullVersion, service::kNullProcedure, false};
  std::array<Task, kConnections * kDepth> tasks_{};
  std::vector<std::size_t> idle_;
  std::uint64_t done_ = 0;
};

double rate_of(Pair& pair, double seconds) {
  pin(kServerCpu);
  return pair.rate(seconds);
}

template <std::uint32_t kVersion>
double null_calls(double seconds) {
  static Pair pair(kVersion);
  return rate_of(pair, seconds);
}

template <std::size_t kOutstanding>
double unmeasured_null_calls(double seconds) {
  static Pair pair(1, &stopped, kOutstanding);
  return rate_of(pair, seconds);
}

double single_null_calls(double seconds) {
  static Pair pair(1, &tsc, 1);
  return rate_of(pair, seconds);
}

constexpr Side kSides[] = {
    {"null", null_calls<1>},
    {"null_v2", null_calls<rpcrdma::v2::kVersion>},
    {"null_unmeasured", unmeasured_null_calls<kConnections * kDepth>},
    {"single_null", single_null_calls},
    {"single_null_unmeasured", unmeasured_null_calls<1>},
};

}  // namespace
}  // namespace sluice::bench

int main() {
  return sluice::bench::serve(sluice::bench::kSides);
}
