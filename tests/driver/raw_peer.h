// SPDX-License-Identifier: Apache-2.0
//
// A RoCEv2 peer by hand: the test is the other end of a softroce port's ethdev. It writes each frame that the
// port receives and reads each frame that it sends, including what no well-behaved peer does.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "pmd/softroce/frame.h"
#include "pmd/softroce/softroce.h"
#include "pmd/softroce/wire.h"
#include "tests/driver/driver_fixture.h"

struct rte_mbuf;
struct rte_mempool;
struct rte_ring;

namespace sluice::rdma::conformance {

using Bytes = std::vector<std::byte>;

/// An ethdev made of rings, whose other ends the test has.
class RawWire {
 public:
  explicit RawWire(std::uint16_t queues = 1, unsigned numa_node = 0);
  ~RawWire();
  RawWire(const RawWire&) = delete;
  RawWire& operator=(const RawWire&) = delete;

  std::uint16_t ethdev() const noexcept { return ethdev_; }
  /// A buffer of one segment with these bytes.
  rte_mbuf* buffer(std::span<const std::byte> bytes);
  /// Takes the frame over.
  void inject(rte_mbuf* frame, std::size_t queue = 0);
  /// Lets nothing more out of the ethdev until frames are taken.
  void clog();
  /// The next frame that the ethdev was given, owned by the caller from then on; null when there is none.
  rte_mbuf* take();

 private:
  rte_mempool* pool_ = nullptr;
  std::vector<rte_ring*> to_port_;
  std::vector<rte_ring*> from_port_;
  std::uint16_t ethdev_ = 0;
};

Bytes bytes_of(const rte_mbuf* frame);

/// A frame that left the port. `packet` is decoded where it is RoCEv2.
struct Sent {
  explicit Sent(Bytes frame);
  Sent(Sent&&) = default;
  Sent& operator=(Sent&&) = default;

  Bytes bytes;
  softroce::Frame frame;
  softroce::Packet packet;
};

class RawPeerTest : public testing::Test {
 protected:
  static constexpr std::uint32_t kOwnPsn = 0xFFFFFE;  ///< of the port's first request
  static constexpr std::uint32_t kPeerPsn = 0x100;    ///< of the peer's
  static constexpr std::uint32_t kPeerQp = 0x123456;
  static constexpr LinkAddress kPeerLink{2, 0, 0, 0, 0, 9};
  static const PeerAddress kPeer;
  static const PeerAddress kOwn;
  using Change = std::function<void(softroce::Packet&, softroce::Route&)>;

  /// Opens a port with address kOwn and a device for each of its lanes, in place of earlier ones.
  void open(const std::function<void(softroce::PortConfig&)>& change = {}, std::uint16_t queues = 1);
  /// Connects a queue pair of `lane` to `peer_qp`. Unless attributes_ says otherwise it never times out.
  void connect(Endpoint& endpoint, std::uint32_t peer_qp = kPeerQp, const QueuePairLimits& limits = {},
               std::size_t lane = 0);
  softroce::SoftRoce& device(std::size_t lane = 0) { return *devices_[lane]; }
  softroce::Statistics statistics(std::size_t lane = 0) { return devices_[lane]->statistics(); }

  /// A packet of the peer with a valid invariant CRC. AckReq is set unless `change` clears it.
  Bytes frame(const Endpoint& to, softroce::Opcode opcode, std::uint32_t psn,
              std::span<const std::byte> payload = {}, const Change& change = {}) const;
  void inject(const Bytes& frame, std::size_t queue = 0) { wire_->inject(wire_->buffer(frame), queue); }
  void peer_sends(softroce::Opcode opcode, std::uint32_t psn, std::span<const std::byte> payload = {},
                  const Change& change = {}) {
    inject(frame(own, opcode, psn, payload, change));
  }
  void peer_acknowledges(std::uint32_t psn) { peer_sends(softroce::Opcode::Acknowledge, psn); }

  /// One turn of each lane. Packets sent go to `sent`, work completions to `own` and `other`.
  void poll();
  /// What is on the wire, to `sent`: an ethdev that copies is done with their memory.
  void take_frames();
  /// Enough turns for everything that waits for no timer.
  void settle();
  /// Turns until `condition` holds; the limit is generous and only ends failing tests.
  bool until(const std::function<bool()>& condition);
  bool completed(const Endpoint& endpoint, std::uint64_t wr_id, WcStatus status = WcStatus::Success) {
    until([&] { return endpoint.find(wr_id) != nullptr; });
    return endpoint.find(wr_id) != nullptr && endpoint.find(wr_id)->status == status;
  }
  std::size_t count(softroce::Opcode opcode) const;
  std::size_t count_psn(std::uint32_t psn) const;  ///< requests and responses that carry it

  std::unique_ptr<RawWire> wire_;
  Owned<softroce::Port> port_;
  std::vector<std::unique_ptr<softroce::SoftRoce>> devices_;
  RcAttributes attributes_;
  Endpoint own;
  Endpoint other;  ///< for a second connection
  std::vector<Sent> sent;
};

Bytes pattern(std::size_t bytes, std::uint32_t seed = 1);

}  // namespace sluice::rdma::conformance
