// SPDX-License-Identifier: Apache-2.0
//
// softroce on a wire that only loses frames: RDMA Writes and Reads of 1 MiB, one at a time, and Sends of 64
// bytes in both directions. One thread drives both ends and the wire. A queue pair exists as long as its
// wire, so a round starts with the congestion state of the previous one.
#include <algorithm>
#include <memory>
#include <stdexcept>
#include <vector>

#include "cli/bench/client.h"
#include "tests/bench/worker.h"
#include "tests/driver/softroce_pair.h"

namespace sluice::bench {
namespace {

using namespace rdma;

constexpr std::uint32_t kBulkBytes = 1u << 20;
constexpr std::uint32_t kSmallBytes = 64;
constexpr std::uint64_t kGiveUpNs = 10'000'000'000;

class LossyWire {
 public:
  explicit LossyWire(std::uint32_t drops_per_mille)
      : pair_({.faults = {.seed = 7, .drops_per_mille = drops_per_mille}}),
        left_(open(pair_.left())),
        right_(open(pair_.right())) {
    connect(left_, right_, pair_.link_of_right(), 100, 200);
    connect(right_, left_, pair_.link_of_left(), 200, 100);
    window_ = pair_.right().allocate_window();
    const auto key = right_.qp->bind_window(window_, right_.memory.bytes.first(kBulkBytes),
                                            right_.memory.lkey, kRemoteRead | kRemoteWrite);
    if (!key) throw std::runtime_error("The window cannot be bound.");
    key_ = *key;
  }

  /// Returns bytes per second of processor time. The time excludes other programs on the host, and includes
  /// waiting for a timer.
  double bulk_bytes_per_second(SendOpcode opcode, double seconds) {
    const std::uint64_t begun_ns = thread_ns();
    std::uint64_t done = 0;
    std::uint64_t now = begun_ns;
    for (; static_cast<double>(now - begun_ns) < seconds * 1e9; now = thread_ns(), ++done) {
      post(left_, opcode, kBulkBytes);
      until(left_, 1, now_ns());
    }
    return static_cast<double>(done) * kBulkBytes * 1e9 / static_cast<double>(now - begun_ns);
  }

  /// Returns the durations of round trips in ascending order.
  std::vector<double> round_trips_us(double seconds) {
    std::vector<double> result;
    const std::uint64_t begun_ns = now_ns();
    for (std::uint64_t now = begun_ns; static_cast<double>(now - begun_ns) < seconds * 1e9;) {
      receive(left_);
      receive(right_);
      post(left_, SendOpcode::Send, kSmallBytes);
      until(right_, 1, now);
      post(right_, SendOpcode::Send, kSmallBytes);
      until(left_, 1, now);
      const std::uint64_t done_ns = now_ns();
      result.push_back(static_cast<double>(done_ns - now) * 1e-3);
      now = done_ns;
    }
    std::sort(result.begin(), result.end());
    return result;
  }

 private:
  struct End {
    softroce::SoftRoce* device = nullptr;
    Owned<QueuePair> qp;
    MemoryRegion memory;
    std::uint32_t completed = 0;
  };

  static End open(softroce::SoftRoce& device) {
    return {&device, device.create_queue_pair({}), device.allocate_memory(kBulkBytes)};
  }
  void connect(End& from, End& to, const LinkAddress& link, std::uint32_t send_psn,
               std::uint32_t receive_psn) {
    RcAttributes attributes;
    attributes.local = from.device->addresses()[0];
    attributes.remote = to.device->addresses()[0];
    attributes.remote_link = link;
    attributes.remote_qp = to.qp->number();
    attributes.send_psn = send_psn;
    attributes.receive_psn = receive_psn;
    attributes.path_mtu = from.device->max_path_mtu();
    if (!from.qp->connect(attributes)) throw std::runtime_error("The queue pair cannot be connected.");
  }
  /// Posts a work request. Completions of Sends are not counted, because the test waits for their arrival.
  void post(End& end, SendOpcode opcode, std::uint32_t bytes) {
    const Sge sge{end.memory.bytes.data(), bytes, end.memory.lkey};
    const SendWr wr{.sges = {&sge, 1},
                    .remote_address = reinterpret_cast<std::uintptr_t>(right_.memory.bytes.data()),
                    .rkey = key_,
                    .opcode = opcode,
                    .flags = opcode == SendOpcode::Send ? std::uint8_t{0} : std::uint8_t{kSignaled}};
    while (end.qp->post_send({&wr, 1}) == 0) turn();
  }
  void receive(End& end) {
    const RecvWr wr{0, {end.memory.bytes.data(), kSmallBytes, end.memory.lkey}};
    if (end.qp->post_recv({&wr, 1}) != 1) throw std::runtime_error("The receive queue is full.");
  }
  void turn() {
    pair_.carry();
    for (End* end : {&left_, &right_}) {
      WorkCompletion completions[16];
      const std::size_t count = end->device->poll(completions);
      for (const WorkCompletion& each : std::span(completions, count)) {
        if (each.status != WcStatus::Success) throw std::runtime_error("The connection was lost.");
        ++end->completed;
      }
    }
  }
  void until(End& end, std::uint32_t completions, std::uint64_t begun_ns) {
    for (std::uint32_t turns = 1; end.completed < completions; ++turns) {
      turn();
      if (turns % 1024 == 0 && now_ns() - begun_ns > kGiveUpNs)
        throw std::runtime_error("The other end does not answer.");
    }
    end.completed -= completions;
  }

  conformance::SoftRocePair pair_;
  End left_;
  End right_;
  MemoryWindow window_;
  Rkey key_{};
};

/// Returns the wire with this loss rate. There is one wire without losses and one with losses, because DPDK's
/// memory does not suffice for more.
template <std::uint32_t drops_per_mille>
LossyWire& wire() {
  static std::unique_ptr<LossyWire> wires[2];
  static std::uint32_t drops[2];
  const std::size_t losing = drops_per_mille > 0 ? 1 : 0;
  if (!wires[losing] || drops[losing] != drops_per_mille) {
    pin(kServerCpu);
    wires[losing].reset();
    wires[losing] = std::make_unique<LossyWire>(drops_per_mille);
    drops[losing] = drops_per_mille;
  }
  return *wires[losing];
}
template <std::uint32_t drops_per_mille, SendOpcode opcode>
double bulk(double seconds) {
  return wire<drops_per_mille>().bulk_bytes_per_second(opcode, seconds);
}
template <std::uint32_t drops_per_mille, std::uint32_t percent>
double small(double seconds) {
  const std::vector<double> sorted = wire<drops_per_mille>().round_trips_us(seconds);
  return sorted[sorted.size() * percent / 100];
}

constexpr Side kSides[] = {{"write_losing_0", bulk<0, SendOpcode::RdmaWrite>},
                           {"write_losing_1", bulk<1, SendOpcode::RdmaWrite>},
                           {"write_losing_10", bulk<10, SendOpcode::RdmaWrite>},
                           {"write_losing_50", bulk<50, SendOpcode::RdmaWrite>},
                           {"read_losing_0", bulk<0, SendOpcode::RdmaRead>},
                           {"read_losing_1", bulk<1, SendOpcode::RdmaRead>},
                           {"read_losing_10", bulk<10, SendOpcode::RdmaRead>},
                           {"read_losing_50", bulk<50, SendOpcode::RdmaRead>},
                           {"small_losing_0_us", small<0, 50>},
                           {"small_losing_0_p99_us", small<0, 99>},
                           {"small_losing_10_us", small<10, 50>},
                           {"small_losing_10_p99_us", small<10, 99>},
                           {"small_losing_50_p99_us", small<50, 99>}};

}  // namespace
}  // namespace sluice::bench

int main() {
  return sluice::bench::serve(sluice::bench::kSides);
}
