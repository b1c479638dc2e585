// SPDX-License-Identifier: Apache-2.0
#include "tests/driver/raw_peer.h"

#include <rte_errno.h>
#include <rte_eth_ring.h>
#include <rte_ethdev.h>
#include <rte_mbuf.h>
#include <rte_ring.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <stdexcept>
#include <string>

#include "tests/driver/faulty_wire.h"
#include "tests/driver/frame_builder.h"

namespace sluice::rdma::conformance {

using namespace softroce;

namespace {

constexpr unsigned kRingFrames = 1024;
constexpr unsigned kFrames = 2047;
constexpr std::uint16_t kFrameRoom = 8192 + RTE_PKTMBUF_HEADROOM;

std::string fresh_name(const char* what) {
  static int made = 0;
  return what + std::to_string(made++);
}

rte_ring* make_ring() {
  rte_ring* ring = rte_ring_create(fresh_name("raw-ring").c_str(), kRingFrames, 0, 0);
  if (ring == nullptr) throw std::runtime_error("no ring: " + std::string(rte_strerror(rte_errno)));
  return ring;
}

}  // namespace

RawWire::RawWire(std::uint16_t queues, unsigned numa_node) {
  start_dpdk();
  pool_ = rte_pktmbuf_pool_create(fresh_name("raw-pool").c_str(), kFrames, 0, 0, kFrameRoom, 0);
  if (pool_ == nullptr) throw std::runtime_error("no frames: " + std::string(rte_strerror(rte_errno)));
  for (std::uint16_t queue = 0; queue < queues; ++queue) {
    to_port_.push_back(make_ring());
    from_port_.push_back(make_ring());
  }
  const int made = rte_eth_from_rings(fresh_name("raw").c_str(), to_port_.data(), queues, from_port_.data(),
                                      queues, numa_node);
  if (made < 0) throw std::runtime_error("no ethdev: " + std::string(rte_strerror(rte_errno)));
  ethdev_ = static_cast<std::uint16_t>(made);
}

RawWire::~RawWire() {
  if (rte_eth_dev_is_valid_port(ethdev_)) {  // no port was opened that would have closed it
    rte_eth_dev_stop(ethdev_);
    rte_eth_dev_close(ethdev_);
  }
  while (rte_mbuf* frame = take()) rte_pktmbuf_free(frame);
  for (rte_ring* ring : to_port_) {
    void* frame;
    while (rte_ring_dequeue(ring, &frame) == 0) rte_pktmbuf_free(static_cast<rte_mbuf*>(frame));
    rte_ring_free(ring);
  }
  for (rte_ring* ring : from_port_) rte_ring_free(ring);
  rte_mempool_free(pool_);
}

rte_mbuf* RawWire::buffer(std::span<const std::byte> bytes) {
  rte_mbuf* frame = rte_pktmbuf_alloc(pool_);
  if (frame == nullptr) throw std::runtime_error("the wire has no frames left");
  std::memcpy(rte_pktmbuf_append(frame, static_cast<std::uint16_t>(bytes.size())), bytes.data(),
              bytes.size());
  return frame;
}

void RawWire::inject(rte_mbuf* frame, std::size_t queue) {
  if (rte_ring_enqueue(to_port_[queue], frame) != 0) throw std::runtime_error("the wire is full");
}

void RawWire::clog() {
  const std::array<std::byte, 60> frame{};
  for (rte_ring* ring : from_port_)
    while (rte_ring_full(ring) == 0) rte_ring_enqueue(ring, buffer(frame));
}

rte_mbuf* RawWire::take() {
  for (rte_ring* ring : from_port_)
    if (void* frame = nullptr; rte_ring_dequeue(ring, &frame) == 0) return static_cast<rte_mbuf*>(frame);
  return nullptr;
}

Bytes bytes_of(const rte_mbuf* frame) {
  Bytes bytes;
  for (const rte_mbuf* segment = frame; segment != nullptr; segment = segment->next) {
    const auto* from = rte_pktmbuf_mtod(segment, const std::byte*);
    bytes.insert(bytes.end(), from, from + segment->data_len);
  }
  return bytes;
}

Sent::Sent(Bytes from) : bytes(std::move(from)), frame(parse(bytes)) {
  if (frame.kind != FrameKind::Roce) return;
  EXPECT_TRUE(icrc_correct(frame, bytes));
  if (const auto decoded = decode(frame.transport)) packet = *decoded;
}

const PeerAddress RawPeerTest::kPeer = PeerAddress::from_ipv4(192, 0, 2, 1);
const PeerAddress RawPeerTest::kOwn = PeerAddress::from_ipv4(192, 0, 2, 2);

void RawPeerTest::open(const std::function<void(PortConfig&)>& change, std::uint16_t queues) {
  own.qp.reset();
  other.qp.reset();
  devices_.clear();
  port_.reset();
  wire_.reset();
  sent.clear();
  wire_ = std::make_unique<RawWire>(queues);
  PortConfig config;
  config.name = fresh_name("rp");
  config.ethdev = wire_->ethdev();
  config.addresses = {{kOwn, 120}};
  config.link_mtu = 4200;
  config.max_queue_pairs = 16;
  if (change) change(config);
  port_ = Port::open(config);
  for (std::uint32_t lane = 0; lane < config.lanes; ++lane) devices_.push_back(port_->make_device(lane));
  attributes_.path_mtu = 1024;
  attributes_.ack_timeout = 0;
}

void RawPeerTest::connect(Endpoint& endpoint, std::uint32_t peer_qp, const QueuePairLimits& limits,
                          std::size_t lane) {
  endpoint.device = devices_[lane].get();
  endpoint.qp = endpoint.device->create_queue_pair(limits);
  endpoint.memory = endpoint.device->allocate_memory(kEndpointBytes);
  endpoint.completions.clear();
  RcAttributes attributes = attributes_;
  attributes.local = kOwn;
  attributes.remote = kPeer;
  attributes.remote_link = kPeerLink;
  attributes.remote_qp = static_cast<QueuePairNumber>(peer_qp);
  attributes.send_psn = kOwnPsn;
  attributes.receive_psn = kPeerPsn;
  ASSERT_TRUE(endpoint.qp->connect(attributes));
}

Bytes RawPeerTest::frame(const Endpoint& to, Opcode opcode, std::uint32_t psn,
                         std::span<const std::byte> payload, const Change& change) const {
  Route route;
  route.source_mac = kPeerLink;
  route.destination_mac = port_->link_address();
  route.source = kPeer;
  route.destination = kOwn;
  Packet packet = make_packet(opcode, to.qp ? static_cast<std::uint32_t>(to.qp->number()) : 0, psn, payload);
  if (change) change(packet, route);
  return build_frame(route, packet, payload);
}

void RawPeerTest::poll() {
  for (const auto& device : devices_) {
    WorkCompletion wcs[16];
    const std::size_t count = device->poll(wcs);
    for (const WorkCompletion& wc : std::span(wcs, count)) {
      Endpoint& owner = other.qp && wc.qp == other.qp->number() ? other : own;
      owner.completions.push_back(wc);
    }
  }
  take_frames();
}

void RawPeerTest::take_frames() {
  while (rte_mbuf* frame = wire_->take()) {
    sent.emplace_back(bytes_of(frame));
    rte_pktmbuf_free(frame);
  }
}

void RawPeerTest::settle() {
  for (int turn = 0; turn < 100; ++turn) poll();
}

bool RawPeerTest::until(const std::function<bool()>& condition) {
  const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (std::chrono::steady_clock::now() < give_up)
    for (int turn = 0; turn < 100; ++turn) {
      if (condition()) return true;
      poll();
    }
  return condition();
}

std::size_t RawPeerTest::count(Opcode opcode) const {
  return static_cast<std::size_t>(std::count_if(sent.begin(), sent.end(), [&](const Sent& each) {
    return each.frame.kind == FrameKind::Roce && each.packet.bth.opcode == opcode;
  }));
}

std::size_t RawPeerTest::count_psn(std::uint32_t psn) const {
  return static_cast<std::size_t>(std::count_if(sent.begin(), sent.end(), [&](const Sent& each) {
    return each.frame.kind == FrameKind::Roce && each.packet.bth.psn == (psn & kPsnMask);
  }));
}

Bytes pattern(std::size_t bytes, std::uint32_t seed) {
  Bytes out(bytes);
  for (std::size_t i = 0; i < bytes; ++i) out[i] = static_cast<std::byte>(i * 37 + seed * 11 + (i >> 9) + 1);
  return out;
}

}  // namespace sluice::rdma::conformance
