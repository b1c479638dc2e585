// SPDX-License-Identifier: Apache-2.0
//
// GETATTR over the loopback driver with two reactors, one of which owns the files. Calls arrive on
// connections of the owner, or on connections of the other reactor. The reactor with the connections shares a
// thread with the client, so that neither waits for the other's time slice. The other one has its own
// processor and no connections. Both sides thus have the same work on the same processors.
#include <atomic>
#include <memory>
#include <thread>

#include "dataplane/ulb/nfs3.h"
#include "tests/bench/closed_loop.h"
#include "tests/bench/reactors.h"
#include "tests/bench/worker.h"

namespace sluice::bench {
namespace {

constexpr std::uint32_t kConnections = 2;
constexpr std::uint32_t kDepth = 64;                               ///< per connection
constexpr std::size_t kReplyBytes = rpc::kMinReplyBytes + 4 + 84;  ///< with status and fattr3 (RFC 1813, 2.5)
constexpr std::uint64_t kTurnsPerControlPass = 256;
constexpr std::uint32_t kOwner = 0;
constexpr std::uint32_t kReader = 1;

/// Two reactors, one of them on its own processor.
class TwoReactors {
 public:
  explicit TwoReactors(std::uint32_t apart) : thread_([this, apart] { run(apart); }) {}
  ~TwoReactors() {
    stop_ = true;
    thread_.join();
  }
  TwoReactors(const TwoReactors&) = delete;
  TwoReactors& operator=(const TwoReactors&) = delete;

  Reactors& reactors() { return reactors_; }

 private:
  void run(std::uint32_t reactor) {
    pin(kServerCpu);
    for (std::uint64_t turn = 0; !stop_.load(std::memory_order_relaxed); ++turn) {
      reactors_.poll(reactor);
      if (turn % kTurnsPerControlPass == 0) reactors_.control_pass(reactor);
    }
  }

  Reactors reactors_{{.reactors = 2, .connections = kConnections}};
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

/// GETATTR calls to one of the two reactors.
template <std::uint32_t kReactor>
class Calls {
 public:
  Calls()
      : client_(
            reactors_.fabric(),
            {.port = Reactors::port(kReactor), .connections = kConnections, .depth = kDepth},
            [](void* reactors) {
              static_cast<Reactors*>(reactors)->control_pass(kReactor);
              static_cast<Reactors*>(reactors)->poll(kReactor);
            },
            &reactors_) {
    call_.arguments().opaque(reactors_.root());
    calls_ = std::make_unique<ClosedLoop<>>(client_.client(), SameCall(call_.message(), kReplyBytes),
                                            kConnections * kDepth);
    calls_->warm_up([this] { reactors_.poll(kReactor); });
  }
  double per_second(double seconds) {
    return calls_->rate(seconds, now_ns, [this] { reactors_.poll(kReactor); });
  }

 private:
  TwoReactors both_{kReactor == kOwner ? kReader : kOwner};
  Reactors& reactors_ = both_.reactors();
  ClientOfThread client_;
  CallBuilder call_{ulb::kNfsProgram, ulb::kNfs3Version, ulb::kNfs3GetAttr};
  std::unique_ptr<ClosedLoop<>> calls_;
};

template <std::uint32_t kReactor>
double getattrs(double seconds) {
  Calls<kReactor> calls;
  pin(kClientCpu);
  return calls.per_second(seconds);
}

constexpr Side kSides[] = {
    {"foreign", getattrs<kReader>},
    {"own", getattrs<kOwner>},
};

}  // namespace
}  // namespace sluice::bench

int main() {
  return sluice::bench::serve(sluice::bench::kSides);
}
