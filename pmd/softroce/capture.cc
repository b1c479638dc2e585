// SPDX-License-Identifier: Apache-2.0
#include "pmd/softroce/capture.h"

#include <fcntl.h>
#include <rte_cycles.h>
#include <rte_errno.h>
#include <rte_mbuf.h>
#include <rte_pcapng.h>
#include <rte_ring.h>
#include <rte_version.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <type_traits>

#include "dataplane/base/setup_error.h"

namespace sluice::rdma::softroce {
namespace {

constexpr unsigned kBuffers = 4095;
constexpr std::uint16_t kWriteBurst = 64;

/// rte_pcapng_copy() of DPDK 22.11 to 23.07 takes a timestamp; later ones read it. 23.03 added a comment.
template <class CopyFunction>
rte_mbuf* copy_with(CopyFunction* function, std::uint16_t ethdev, const rte_mbuf* packet, rte_mempool* pool,
                    std::uint32_t bytes, rte_pcapng_direction direction) noexcept {
  constexpr std::uint32_t kQueue = 0;
  if constexpr (std::is_invocable_v<CopyFunction, std::uint16_t, std::uint32_t, const rte_mbuf*, rte_mempool*,
                                    std::uint32_t, rte_pcapng_direction, const char*>)
    return function(ethdev, kQueue, packet, pool, bytes, direction, nullptr);
  else if constexpr (std::is_invocable_v<CopyFunction, std::uint16_t, std::uint32_t, const rte_mbuf*,
                                         rte_mempool*, std::uint32_t, std::uint64_t, rte_pcapng_direction>)
    return function(ethdev, kQueue, packet, pool, bytes, rte_get_tsc_cycles(), direction);
  else
    return function(ethdev, kQueue, packet, pool, bytes, rte_get_tsc_cycles(), direction, nullptr);
}

/// Writes the interface description block. DPDK before 23.03 writes one for every ethdev by itself.
bool describe_interface([[maybe_unused]] rte_pcapng* file, [[maybe_unused]] std::uint16_t ethdev) {
#if RTE_VERSION >= RTE_VERSION_NUM(23, 3, 0, 0)
  return rte_pcapng_add_interface(file, ethdev, nullptr, nullptr, nullptr) >= 0;
#else
  return true;
#endif
}

}  // namespace

Capture::Capture(const PortConfig& port, const std::string& path, std::uint32_t snap_bytes)
    : ethdev_(port.ethdev), snap_bytes_(std::clamp<std::uint32_t>(snap_bytes, 64, 9216)) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0640);
  if (fd < 0)
    throw SetupError("Cannot write the capture to " + path + " (" + std::strerror(errno) +
                     "): give a path in a directory that the data plane may write to.");
  file_ = rte_pcapng_fdopen(fd, nullptr, nullptr, "sluice", nullptr);
  pool_ =
      rte_pktmbuf_pool_create("capture", kBuffers, 128, 0,
                              static_cast<std::uint16_t>(rte_pcapng_mbuf_size(snap_bytes_)), SOCKET_ID_ANY);
  for (std::uint32_t lane = 0; lane < port.lanes; ++lane)
    lanes_[lane].ring = rte_ring_create(("capture" + std::to_string(lane)).c_str(), kCaptureDepth,
                                        SOCKET_ID_ANY, RING_F_SP_ENQ | RING_F_SC_DEQ);
  const bool described = file_ != nullptr && describe_interface(file_, ethdev_);
  if (!described || pool_ == nullptr || lanes_[port.lanes - 1].ring == nullptr)
    throw SetupError("Not enough memory for a capture (" + std::string(rte_strerror(rte_errno)) +
                     "): raise dpdk_memory_mib in the configuration, or capture fewer bytes of each packet.");
}

Capture::~Capture() {
  write();
  for (Lane& lane : lanes_) rte_ring_free(lane.ring);
  if (file_ != nullptr) rte_pcapng_close(file_);
  rte_mempool_free(pool_);
}

void Capture::add(std::uint32_t number, std::span<rte_mbuf* const> packets, Way way) noexcept {
  Lane& lane = lanes_[number];
  for (rte_mbuf* packet : packets) {
    rte_mbuf* copy = copy_with(&rte_pcapng_copy, ethdev_, packet, pool_, snap_bytes_,
                               way == Way::In ? RTE_PCAPNG_DIRECTION_IN : RTE_PCAPNG_DIRECTION_OUT);
    if (copy != nullptr && rte_ring_sp_enqueue(lane.ring, copy) == 0) continue;
    rte_pktmbuf_free(copy);
    lane.dropped.store(lane.dropped.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }
}

std::uint64_t Capture::write() {
  std::uint64_t written = 0;
  for (Lane& lane : lanes_) {
    if (lane.ring == nullptr) continue;
    rte_mbuf* packets[kWriteBurst];
    unsigned count;
    while ((count = rte_ring_sc_dequeue_burst(lane.ring, reinterpret_cast<void**>(packets), kWriteBurst,
                                              nullptr)) > 0) {
      rte_pcapng_write_packets(file_, packets, static_cast<std::uint16_t>(count));
      rte_pktmbuf_free_bulk(packets, count);
      written += count;
    }
  }
  return written;
}

std::uint64_t Capture::dropped() const noexcept {
  std::uint64_t sum = 0;
  for (const Lane& lane : lanes_) sum += lane.dropped.load(std::memory_order_relaxed);
  return sum;
}

}  // namespace sluice::rdma::softroce
