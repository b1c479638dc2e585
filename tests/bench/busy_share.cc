// SPDX-License-Identifier: Apache-2.0
//
// Compares the busy share that a reactor reports with calls of known cost. The service uses the processor for
// a fixed time per call, and a client on the other core makes calls at a given rate. For pairs.py: 'LOAD
// SECONDS', with the load in percent, is answered with the share that the reactor reports as busy; 'true 0'
// is answered with the service's share in the same interval, or NaN if other programs used the reactor's
// core.
#include <array>
#include <atomic>
#include <cmath>
#include <thread>
#include <vector>

#include "cli/bench/client.h"
#include "dataplane/reactor/reactor.h"
#include "dataplane/rpcrdma/link/config.h"
#include "dataplane/service/api/null.h"
#include "pmd/loopback/loopback.h"
#include "tests/bench/worker.h"

namespace sluice::bench {
namespace {

constexpr std::uint64_t kCallNs =
    100'000;  ///< the remainder of a call, about a microsecond, is small in comparison
constexpr std::uint32_t kDepth = 32;
constexpr double kLeastShareOfCore = 0.98;

std::uint64_t clock_ns() noexcept {
  return now_ns();
}

/// The null program with a fixed cost per call.
class Costly final : public service::Service {
 public:
  const service::Binding& binding() const noexcept override { return null_.binding(); }
  service::Execution execute(service::Call& call) noexcept override {
    const std::uint64_t begin = now_ns();
    std::uint64_t now = begin;
    while (now - begin < kCallNs) now = now_ns();
    used_ns_.fetch_add(now - begin, std::memory_order_relaxed);
    return null_.execute(call);
  }
  std::uint64_t used_ns() const noexcept { return used_ns_.load(std::memory_order_relaxed); }

 private:
  service::NullService null_;
  std::atomic<std::uint64_t> used_ns_{0};
};

/// The reactor on its core, and the control plane's part in a connection.
class Server {
 public:
  explicit Server(std::shared_ptr<rdma::loopback::Fabric> fabric)
      : device_(rdma::loopback::make_device(std::move(fabric), {.name = "server"})),
        engine_(*device_, config()),
        reactor_(reactor_config(), engine_, segment_->layout(), &clock_ns) {
    engine_.add_service(service_);
    reactor_.measure_calls();
    device_->connection_manager()->listen(20049);
    thread_ = std::thread([this] {
      pin(kServerCpu);
      clock_ = clock_of_this_thread();
      reactor_.run();
    });
  }
  ~Server() {
    reactor_.stop();
    thread_.join();
  }

  void answer_requests() {
    segment::Event event;
    segment::ReactorArea& area = segment_->layout().reactors[0];
    while (area.events.pop(event))
      if (event.type == segment::EventType::ConnectRequest)
        area.commands.push({.type = segment::CommandType::Accept,
                            .cm_id = event.cm_id,
                            .credits = kDepth,
                            .first_grant = kDepth,
                            .receive_inline_bytes = 4096,
                            .send_inline_bytes = 4096});
  }

  struct Times {
    std::uint64_t now_ns, processor_ns, used_ns, busy_ns, idle_ns;
  };
  Times times() {
    timespec used{};
    ::clock_gettime(clock_, &used);
    const auto ns = [this](std::string_view stage) {
      for (std::size_t i = 0; i < segment::kReactorCounterCount; ++i)
        if (segment::kReactorCounters[i].name == stage)
          return segment_->layout().reactors[0].counters[i].load(std::memory_order_relaxed);
      return std::uint64_t{0};
    };
    return {.now_ns = now_ns(),
            .processor_ns = static_cast<std::uint64_t>(used.tv_sec) * 1'000'000'000 +
                            static_cast<std::uint64_t>(used.tv_nsec),
            .used_ns = service_.used_ns(),
            .busy_ns = ns("device_ns") + ns("calls_ns") + ns("services_ns") + ns("upstreams_ns"),
            .idle_ns = ns("idle_ns")};
  }

 private:
  static rpcrdma::EngineConfig config() {
    rpcrdma::EngineConfig config;
    config.max_connections = 1;
    config.capacity.call_slots = kDepth;
    return config;
  }
  static reactor::ReactorConfig reactor_config() {
    reactor::ReactorConfig config;
    config.idle = segment::IdlePolicy::Spin;
    return config;
  }
  static clockid_t clock_of_this_thread() {
    clockid_t clock = CLOCK_THREAD_CPUTIME_ID;
    ::pthread_getcpuclockid(::pthread_self(), &clock);
    return clock;
  }

  Owned<segment::Segment> segment_ = segment::Segment::in_memory();
  std::unique_ptr<rdma::loopback::Loopback> device_;
  rpcrdma::Engine engine_;
  Costly service_;
  reactor::Reactor reactor_;
  std::atomic<clockid_t> clock_{CLOCK_THREAD_CPUTIME_ID};
  std::thread thread_;
};

class Bench {
 public:
  Bench() {
    std::atomic<bool> connected{false};
    std::thread control_plane([&] {
      while (!connected) {
        server_.answer_requests();
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    });
    device_ = rdma::loopback::make_device(fabric_, {.name = "client"});
    client_ = std::make_unique<Client>(*device_, ClientConfig{.connections = 1, .depth = kDepth});
    connected = true;
    control_plane.join();
  }

  /// Returns the share that the reactor reports, and sets `truth`.
  double shown(double load, double seconds) {
    constexpr double kWarmS = 0.1;
    const std::uint64_t begin = now_ns();
    due_ = begin;
    run(load, begin + static_cast<std::uint64_t>(kWarmS * 1e9));
    const Server::Times first = server_.times();
    run(load, first.now_ns + static_cast<std::uint64_t>(seconds * 1e9));
    const Server::Times last = server_.times();
    const auto part = [](std::uint64_t some, std::uint64_t all) {
      return static_cast<double>(some) / static_cast<double>(all);
    };
    const std::uint64_t elapsed = last.now_ns - first.now_ns;
    truth = part(last.processor_ns - first.processor_ns, elapsed) < kLeastShareOfCore
                ? std::nan("")
                : part(last.used_ns - first.used_ns, elapsed);
    const std::uint64_t busy = last.busy_ns - first.busy_ns;
    return part(busy, busy + last.idle_ns - first.idle_ns);
  }

  double truth = 0;

 private:
  void run(double load, std::uint64_t end) {
    const auto between_ns = static_cast<std::uint64_t>(static_cast<double>(kCallNs) / load);
    for (std::uint64_t now = now_ns(); now < end; now = now_ns()) {
      for (; due_ <= now && outstanding_ < kDepth && submit(); due_ += between_ns) ++outstanding_;
      client_->poll();
    }
  }
  bool submit() {
    return client_->sessions()[0]
        .requester
        ->submit({.payload = call_.message(),
                  .max_reply_bytes = 256,
                  .completion =
                      [](void* outstanding, const rpcrdma::Reply&) noexcept {
                        --*static_cast<std::uint32_t*>(outstanding);
                      },
                  .context = &outstanding_})
        .has_value();
  }

  std::shared_ptr<rdma::loopback::Fabric> fabric_ = rdma::loopback::Fabric::in_process({.links = 2});
  Server server_{fabric_};
  std::unique_ptr<rdma::Device> device_;
  std::unique_ptr<Client> client_;
  const CallBuilder call_{service::kNullProgram, service::kNullVersion, service::kNullProcedure, false};
  std::uint64_t due_ = 0;
  std::uint32_t outstanding_ = 0;
};

Bench& bench() {
  static Bench made;
  return made;
}

template <int kPercent>
double shown(double seconds) {
  return bench().shown(kPercent / 100.0, seconds);
}

}  // namespace
}  // namespace sluice::bench

int main() {
  using namespace sluice::bench;
  pin(kClientCpu);
  static constexpr Side kSides[] = {{"25", &shown<25>},
                                    {"50", &shown<50>},
                                    {"90", &shown<90>},
                                    {"true", [](double) { return bench().truth; }}};
  return serve(kSides);
}
