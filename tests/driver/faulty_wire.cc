// SPDX-License-Identifier: Apache-2.0
#include "tests/driver/faulty_wire.h"

#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_eth_ring.h>
#include <rte_ethdev.h>
#include <rte_mbuf.h>
#include <rte_ring.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <vector>

namespace sluice::rdma::conformance {
namespace {

constexpr unsigned kRingFrames = 1024;
constexpr unsigned kFrames = 8192;
constexpr std::uint16_t kFrameRoom = 8192 + RTE_PKTMBUF_HEADROOM;

unsigned wires_made = 0;

rte_ring* make_ring(const std::string& name) {
  rte_ring* ring = rte_ring_create(name.c_str(), kRingFrames, 0, RING_F_SP_ENQ | RING_F_SC_DEQ);
  if (ring == nullptr) throw std::runtime_error("no ring: " + std::string(rte_strerror(rte_errno)));
  return ring;
}

/// True for ARP, which has no checksum. A damaged ARP frame is dropped, as the frame check sequence of
/// Ethernet would drop it.
bool relies_on_ethernet(const rte_mbuf* frame) {
  constexpr std::uint8_t kArp[] = {0x08, 0x06};
  const auto* bytes = rte_pktmbuf_mtod(frame, const std::uint8_t*);
  return frame->data_len >= 14 && std::equal(kArp, kArp + 2, bytes + 12);
}

void empty(rte_ring* ring) {
  void* frame;
  while (rte_ring_sc_dequeue(ring, &frame) == 0) rte_pktmbuf_free(static_cast<rte_mbuf*>(frame));
}

}  // namespace

void start_dpdk() {
  static const bool started = [] {
    std::vector<std::string> words{"sluice-test",
                                   "--no-huge",
                                   "-m",
                                   "640",
                                   "--no-pci",
                                   "--no-telemetry",
                                   "--log-level=lib.eal:error",
                                   "--file-prefix=sluice-test-" + std::to_string(::getpid())};
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    if (rte_eal_init(static_cast<int>(argv.size()), argv.data()) < 0)
      throw std::runtime_error("DPDK does not start: " + std::string(rte_strerror(rte_errno)));
    return true;
  }();
  static_cast<void>(started);
}

FaultyWire::FaultyWire(const WireFaults& faults, const WireLength& length)
    : faults_(faults), length_(length), random_(faults.seed) {
  start_dpdk();
  const std::string name = "wire" + std::to_string(wires_made++);
  pool_ = rte_pktmbuf_pool_create((name + "-pool").c_str(), kFrames, 256, 0, kFrameRoom, 0);
  if (pool_ == nullptr) throw std::runtime_error("no frames: " + std::string(rte_strerror(rte_errno)));
  rte_ring* to_left = make_ring(name + "-l");
  rte_ring* to_right = make_ring(name + "-r");
  rte_ring* from_left = make_ring(name + "-L");
  rte_ring* from_right = make_ring(name + "-R");
  directions_[0] = {from_left, to_right, {}, {kRingFrames, length.one_way_ns}};
  directions_[1] = {from_right, to_left, {}, {kRingFrames, length.one_way_ns}};
  ports_[0] =
      static_cast<std::uint16_t>(rte_eth_from_rings((name + "a").c_str(), &to_left, 1, &from_left, 1, 0));
  ports_[1] =
      static_cast<std::uint16_t>(rte_eth_from_rings((name + "b").c_str(), &to_right, 1, &from_right, 1, 0));
}

FaultyWire::~FaultyWire() {
  for (Direction& direction : directions_) {
    for (const Late& late : direction.late) rte_pktmbuf_free(late.frame);
    while (const auto frame = direction.underway.take()) rte_pktmbuf_free(*frame);
    for (rte_ring* ring : {direction.from, direction.to}) {
      empty(ring);
      rte_ring_free(ring);
    }
  }
  rte_mempool_free(pool_);
}

void FaultyWire::inject(bool to_right, std::span<const std::byte> bytes) {
  rte_mbuf* frame = rte_pktmbuf_alloc(pool_);
  if (frame == nullptr) throw std::runtime_error("the wire has no frames left");
  std::memcpy(rte_pktmbuf_append(frame, static_cast<std::uint16_t>(bytes.size())), bytes.data(),
              bytes.size());
  deliver(directions_[to_right ? 0 : 1], frame);
}

/// Marks a frame with an untagged Ethernet header as "congestion experienced" in its IPv4 header, and updates
/// the header checksum.
void FaultyWire::mark(rte_mbuf* frame) {
  auto* ip = rte_pktmbuf_mtod_offset(frame, std::uint8_t*, 14);
  if (frame->data_len < 34 || ip[0] != 0x45) return;
  ip[1] |= 3;
  ip[10] = ip[11] = 0;
  std::uint32_t sum = 0;
  for (int i = 0; i < 20; i += 2) sum += static_cast<std::uint32_t>(ip[i] << 8 | ip[i + 1]);
  while (sum >> 16) sum = (sum & 0xFFFF) + (sum >> 16);
  ip[10] = static_cast<std::uint8_t>(~sum >> 8);
  ip[11] = static_cast<std::uint8_t>(~sum);
  ++counts_.marked;
}

void FaultyWire::drop(rte_mbuf* frame) {
  ++counts_.dropped;
  rte_pktmbuf_free(frame);
}

void FaultyWire::deliver(Direction& direction, rte_mbuf* frame) {
  if (length_.one_way_ns == 0) return arrive(direction, frame);
  if (!direction.underway.push(frame, length_.clock_ns())) drop(frame);
}

void FaultyWire::arrive(Direction& direction, rte_mbuf* frame) {
  const bool to_right = &direction == &directions_[0];
  const std::span<std::byte> bytes{rte_pktmbuf_mtod(frame, std::byte*), frame->data_len};
  if ((edit && !edit(to_right, bytes)) || (lose && lose(to_right, bytes))) return drop(frame);
  if (watch) watch(to_right, bytes);
  if (rte_ring_sp_enqueue(direction.to, frame) != 0) drop(frame);
}

std::optional<std::uint64_t> FaultyWire::next_arrival_ns() {
  std::optional<std::uint64_t> next;
  for (Direction& direction : directions_)
    if (const auto one = direction.underway.next_ns(); one && (!next || *one < *next)) next = one;
  return next;
}

void FaultyWire::carry(Direction& direction) {
  if (length_.one_way_ns > 0)
    while (const auto frame = direction.underway.take(length_.clock_ns())) arrive(direction, *frame);
  for (Late& late : direction.late) --late.turns;
  while (!direction.late.empty() && direction.late.front().turns <= 0) {
    deliver(direction, direction.late.front().frame);
    direction.late.pop_front();
  }
  rte_mbuf* held = nullptr;
  void* next;
  while (rte_ring_count(direction.from) > 0 && rte_ring_sc_dequeue(direction.from, &next) == 0) {
    auto* sent = static_cast<rte_mbuf*>(next);
    rte_mbuf* frame = rte_pktmbuf_copy(sent, pool_, 0, UINT32_MAX);
    rte_pktmbuf_free(sent);
    if (frame == nullptr) throw std::runtime_error("the wire has no frames left");
    ++counts_.carried;
    if (happens() || (faults_.drops_per_mille > 0 && random_() % 1000 < faults_.drops_per_mille)) {
      drop(frame);
      continue;
    }
    if (faults_.marks_per_mille > 0 && random_() % 1000 < faults_.marks_per_mille) mark(frame);
    if (happens()) {
      if (relies_on_ethernet(frame)) {
        drop(frame);
        continue;
      }
      ++counts_.corrupted;
      auto* bytes = rte_pktmbuf_mtod(frame, std::uint8_t*);
      bytes[random_() % frame->data_len] ^= static_cast<std::uint8_t>(1u << random_() % 8);
    }
    if (happens()) {
      ++counts_.duplicated;
      deliver(direction, rte_pktmbuf_copy(frame, pool_, 0, UINT32_MAX));
    }
    if (happens()) {
      ++counts_.delayed;
      direction.late.push_back({frame, static_cast<int>(1 + random_() % 50)});
      continue;
    }
    if (held == nullptr && happens()) {
      ++counts_.reordered;
      held = frame;
      continue;
    }
    deliver(direction, frame);
    if (held != nullptr) deliver(direction, std::exchange(held, nullptr));
  }
  if (held != nullptr) deliver(direction, held);
}

void FaultyWire::carry() {
  for (Direction& direction : directions_) carry(direction);
}

}  // namespace sluice::rdma::conformance
