// SPDX-License-Identifier: Apache-2.0
//
// A softroce port on memif, whose control socket is served by DPDK's interrupt thread: peers come and go
// while the port is polled.
#include <gtest/gtest.h>
#include <rte_bus_vdev.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_interrupts.h>
#include <rte_mbuf.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "pmd/softroce/interrupt_guard.h"
#include "pmd/softroce/softroce.h"
#include "pmd/work_request.h"
#include "tests/driver/faulty_wire.h"

namespace sluice::rdma::conformance {
namespace {

using namespace softroce;

std::string text_of(int error) {
  return rte_strerror(-error);
}

// --- The guard by itself

/// A callback that DPDK's interrupt thread runs as often as it can.
class BusyInterrupt {
 public:
  BusyInterrupt() : fd_(eventfd(1, EFD_NONBLOCK)), handle_(rte_intr_instance_alloc(0)) {
    rte_intr_fd_set(handle_, fd_);
    rte_intr_type_set(handle_, RTE_INTR_HANDLE_EXT);
    EXPECT_EQ(rte_intr_callback_register(handle_, run, this), 0);
  }
  ~BusyInterrupt() {
    rte_intr_callback_unregister_sync(handle_, run, this);
    rte_intr_instance_free(handle_);
    close(fd_);
  }
  std::atomic<std::uint64_t> begun{0};
  std::atomic<std::uint64_t> ended{0};

 private:
  static void run(void* self) {
    auto& interrupt = *static_cast<BusyInterrupt*>(self);
    ++interrupt.begun;
    for (int i = 0; i < 1000; ++i) rte_pause();
    ++interrupt.ended;
  }
  const int fd_;
  rte_intr_handle* const handle_;
};

TEST(InterruptGuard, no_interrupt_is_served_while_a_lane_is_in_a_burst) {
  start_dpdk();
  InterruptGuard guard(2);
  BusyInterrupt interrupt;
  std::uint64_t seen_before = 0;
  for (int served = 0; served < 100;) {
    const Burst burst(&guard, 1);
    if (!burst) continue;
    const std::uint64_t begun = interrupt.begun;
    for (int i = 0; i < 2000; ++i) rte_pause();
    ASSERT_EQ(interrupt.begun, begun);
    ASSERT_EQ(interrupt.ended, begun);
    if (begun != seen_before) ++served;  // the interrupt is served between bursts
    seen_before = begun;
  }
}

TEST(InterruptGuard, a_lane_is_not_kept_out_for_good) {
  start_dpdk();
  InterruptGuard guard(1);
  for (int i = 0; i < 100; ++i) {
    while (!guard.enter(0)) std::this_thread::yield();
    guard.leave(0);
  }
}

TEST(InterruptGuard, without_one_a_burst_is_always_allowed) {
  const Burst first(nullptr, 0);
  const Burst second(nullptr, 0);
  EXPECT_TRUE(first);
  EXPECT_TRUE(second);
}

// --- Memif

class MemifPeer {
 public:
  explicit MemifPeer(const std::string& socket, rte_mempool* pool) : pool_(pool) {
    check(rte_vdev_init("net_memif_peer",
                        ("role=client,id=0,socket-abstract=no,bsize=8192,socket=" + socket).c_str()),
          "make the client's ethdev");
    check(rte_eth_dev_get_port_by_name("net_memif_peer", &ethdev_), "find it");
    const rte_eth_conf conf{};
    check(rte_eth_dev_configure(ethdev_, 1, 1, &conf), "configure it");
    check(rte_eth_rx_queue_setup(ethdev_, 0, 512, 0, nullptr, pool), "set up its receive queue");
    check(rte_eth_tx_queue_setup(ethdev_, 0, 512, 0, nullptr), "set up its transmit queue");
    check(rte_eth_dev_start(ethdev_), "start it");
  }
  ~MemifPeer() {
    rte_eth_dev_stop(ethdev_);
    rte_vdev_uninit("net_memif_peer");
  }
  MemifPeer(const MemifPeer&) = delete;
  MemifPeer& operator=(const MemifPeer&) = delete;

  bool connected() const {
    rte_eth_link link;
    return rte_eth_link_get_nowait(ethdev_, &link) == 0 && link.link_status == RTE_ETH_LINK_UP;
  }
  /// Sends frames until there is no room. The receiver drops them. Returns their number.
  std::uint32_t fill() {
    std::uint32_t sent = 0;
    for (;; ++sent) {
      rte_mbuf* frame = rte_pktmbuf_alloc(pool_);
      if (frame == nullptr) return sent;
      rte_pktmbuf_append(frame, 4096);
      if (rte_eth_tx_burst(ethdev_, 0, &frame, 1) == 1) continue;
      rte_pktmbuf_free(frame);
      return sent;
    }
  }

 private:
  static void check(int error, const char* what) {
    if (error != 0) throw std::runtime_error(std::string("cannot ") + what + ": " + text_of(error));
  }
  rte_mempool* const pool_;
  std::uint16_t ethdev_ = 0;
};

std::atomic<bool> poller_paused{false};
std::atomic<bool> poller_may_go_on{false};

/// Stops the thread as if it had been preempted.
void pause_poller(int) {
  poller_paused = true;
  while (!poller_may_go_on) rte_pause();
  poller_paused = false;
}

/// A port that is polled by its thread.
class MemifServer {
 public:
  explicit MemifServer(const std::string& socket) {
    const int error = rte_vdev_init(
        "net_memif0", ("role=server,id=0,socket-abstract=no,bsize=8192,socket=" + socket).c_str());
    if (error != 0) throw std::runtime_error("cannot make the server's ethdev: " + text_of(error));
    PortConfig config;
    config.name = "memif";
    rte_eth_dev_get_port_by_name("net_memif0", &config.ethdev);
    config.addresses = {{PeerAddress::from_ipv4(192, 0, 2, 1), 120}};
    config.frame_buffer_bytes = 8192;
    port_ = Port::open(config);
    device_ = port_->make_device(0);
    std::signal(SIGUSR1, pause_poller);
    poller_ = std::thread([this] {
      WorkCompletion none[4];
      while (!done_.load(std::memory_order_relaxed)) device_->poll(none);
    });
  }
  ~MemifServer() {
    done_ = true;
    poller_.join();
  }
  /// Pauses the poller at any point, also in the middle of a burst.
  void pause() {
    poller_may_go_on = false;
    pthread_kill(poller_.native_handle(), SIGUSR1);
    while (!poller_paused) rte_pause();
  }
  void go_on() {
    poller_may_go_on = true;
    while (poller_paused) rte_pause();
  }

 private:
  Owned<Port> port_;
  std::unique_ptr<SoftRoce> device_;
  std::atomic<bool> done_{false};
  std::thread poller_;
};

TEST(Memif, a_port_outlives_peers_that_leave_in_the_middle_of_its_bursts) {
  start_dpdk();
  char directory[] = "/tmp/sluice-memif-XXXXXX";
  ASSERT_NE(mkdtemp(directory), nullptr);
  const std::string socket = std::string(directory) + "/memif.sock";
  rte_mempool* const pool = rte_pktmbuf_pool_create("memif-peer", 4096, 0, 0, 8192 + RTE_PKTMBUF_HEADROOM, 0);
  ASSERT_NE(pool, nullptr);
  const char* const more = std::getenv("SLUICE_MEMIF_PEERS");
  const int peers = more != nullptr ? std::atoi(more) : 60;
  {
    MemifServer server(socket);
    for (int i = 0; i < peers; ++i) {
      {
        MemifPeer peer(socket, pool);
        while (!peer.connected()) std::this_thread::yield();
        ASSERT_GT(peer.fill(), 0u);
        server.pause();
      }
      // Gives the interrupt thread time to tear the rings down, which it may do only outside of a burst.
      std::this_thread::sleep_for(std::chrono::milliseconds(3));
      server.go_on();
    }
  }
  rte_mempool_free(pool);
  unlink(socket.c_str());
  rmdir(directory);
}

}  // namespace
}  // namespace sluice::rdma::conformance
