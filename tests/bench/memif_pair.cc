// SPDX-License-Identifier: Apache-2.0
//
// Two processes with a memif between them, each on its own processor: the softroce driver alone, and bare
// packets of the same sizes on the same ethdev. Each run has new processes and a new ethdev.
#include <rte_ethdev.h>
#include <rte_mbuf.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <new>
#include <span>

#include "cli/bench/device.h"
#include "pmd/softroce/frame.h"
#include "pmd/softroce/softroce.h"
#include "pmd/softroce/wire.h"
#include "tests/bench/ping_pong.h"
#include "tests/bench/worker.h"

namespace sluice::bench {
namespace {

constexpr std::uint32_t kDepth = 64;

/// Memory that both processes share.
struct Shared {
  std::atomic<bool> listening{false};
  std::atomic<bool> stop{false};
  std::atomic<double> result{0};
};

using End = void (*)(Shared& shared, double seconds, ToolDevice& device);

ToolDevice open_end(const std::string& folder, bool server) {
  DeviceOptions options;
  options.driver = "softroce";
  options.ethdev = std::string("net_memif0,role=") + (server ? "server" : "client") +
                   ",id=0,socket=" + folder + "/memif.sock,socket-abstract=no,bsize=8192,rsize=10";
  options.address = server ? "192.0.2.1/24" : "192.0.2.2/24";
  options.server = server ? "192.0.2.2" : "192.0.2.1";
  options.cpu = server ? kServerCpu : kClientCpu;
  return open_device(options);
}

pid_t start_end(End end, bool server, const std::string& folder, Shared& shared, double seconds) {
  const pid_t pid = ::fork();
  if (pid != 0) return pid;
  try {
    ToolDevice device = open_end(folder, server);
    end(shared, seconds, device);
    ::_exit(0);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    ::_exit(1);
  }
}

/// Runs both processes and returns the value that the client stores in Shared::result.
double run_pair(End server, End client, double seconds) {
  char folder[] = "/tmp/sluice-bench-XXXXXX";
  if (::mkdtemp(folder) == nullptr) throw std::runtime_error("Cannot create a directory in /tmp.");
  void* memory = ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  auto& shared = *new (memory) Shared;
  const pid_t serving = start_end(server, true, folder, shared, seconds);
  while (!shared.listening && ::waitpid(serving, nullptr, WNOHANG) == 0) ::usleep(1000);
  int status = 1;
  ::waitpid(start_end(client, false, folder, shared, seconds), &status, 0);
  shared.stop = true;
  ::waitpid(serving, nullptr, 0);
  std::filesystem::remove_all(folder);
  const double result = shared.result;
  ::munmap(memory, sizeof(Shared));
  if (status != 0) std::exit(1);
  return result;
}

// --- softroce

void driver_server(Shared& shared, double, ToolDevice& device) {
  PingPong(*device.device, device.manager()).answer(shared.listening, shared.stop);
}

void driver_client(Shared& shared, double seconds, ToolDevice& device) {
  PingPong client(*device.device, device.manager());
  client.connect();
  shared.result = client.calls_per_second(kDepth, seconds);
}

void driver_client_counting_packets(Shared& shared, double seconds, ToolDevice& device) {
  PingPong client(*device.device, device.manager());
  client.connect();
  const auto& statistics = static_cast<const rdma::softroce::SoftRoce&>(*device.device).statistics();
  const auto packets = [&] { return statistics.packets_sent + statistics.packets_received; };
  const std::uint64_t before = packets();
  const std::uint64_t begun_ns = now_ns();
  client.calls_per_second(kDepth, seconds);
  shared.result = static_cast<double>(packets() - before) * 1e9 / static_cast<double>(now_ns() - begun_ns);
}

// --- Bare packets on the ethdev, configured by softroce

constexpr std::uint16_t kBurst = 32;
constexpr std::uint16_t kPort = 0;

constexpr std::uint16_t frame_bytes(std::uint32_t message_bytes) {
  using namespace rdma::softroce;
  return static_cast<std::uint16_t>(kEthernetBytes + kIpv4Bytes + kUdpBytes + kBthBytes + message_bytes +
                                    kIcrcBytes);
}

void send_all(std::span<rte_mbuf*> packets, std::uint16_t bytes) {
  for (rte_mbuf* packet : packets) packet->data_len = bytes, packet->pkt_len = bytes;
  while (!packets.empty())
    packets = packets.subspan(
        rte_eth_tx_burst(kPort, 0, packets.data(), static_cast<std::uint16_t>(packets.size())));
}

/// Sends back the packets received, each with `bytes` bytes; returns their number.
std::uint16_t turn_around(std::uint16_t bytes) {
  rte_mbuf* packets[kBurst];
  const std::uint16_t count = rte_eth_rx_burst(kPort, 0, packets, kBurst);
  send_all({packets, count}, bytes);
  return count;
}

void packet_server(Shared& shared, double, ToolDevice&) {
  shared.listening = true;
  while (!shared.stop.load(std::memory_order_relaxed)) turn_around(frame_bytes(kNullReplyBytes));
}

void packet_client(Shared& shared, double seconds, ToolDevice&) {
  rte_eth_link link{};
  while (link.link_status != RTE_ETH_LINK_UP) rte_eth_link_get_nowait(kPort, &link);
  rte_mempool* pool = rte_pktmbuf_pool_create("calls", 2 * kDepth, 0, 0, RTE_MBUF_DEFAULT_BUF_SIZE, 0);
  rte_mbuf* calls[kDepth];
  if (pool == nullptr || rte_pktmbuf_alloc_bulk(pool, calls, kDepth) != 0)
    throw std::runtime_error("No buffers for packets.");
  send_all(calls, frame_bytes(kNullCallBytes));
  const std::uint64_t begin = now_ns();
  std::uint64_t now = begin;
  std::uint64_t packets = 0;
  for (std::uint64_t turn = 0; static_cast<double>(now - begin) < seconds * 1e9; ++turn) {
    packets += 2u * turn_around(frame_bytes(kNullCallBytes));  // one received, one sent
    if (turn % 64 == 0) now = now_ns();
  }
  if (packets == 0) throw std::runtime_error("No packets came back.");
  shared.result = static_cast<double>(packets) * 1e9 / static_cast<double>(now - begin);
}

constexpr Side kSides[] = {
    {"driver", [](double seconds) { return run_pair(driver_server, driver_client, seconds); }},
    {"driver_packets",
     [](double seconds) { return run_pair(driver_server, driver_client_counting_packets, seconds); }},
    {"packets", [](double seconds) { return run_pair(packet_server, packet_client, seconds); }},
};

}  // namespace
}  // namespace sluice::bench

int main() {
  return sluice::bench::serve(sluice::bench::kSides);
}
