// SPDX-License-Identifier: Apache-2.0
//
// A RoCEv2 peer by hand: the test is the other end of a softroce port's ethdev. The test writes each frame
// that the port receives and reads each frame that the port sends, including frames that no well-behaved peer
// sends.
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

/// An ethdev made of rings. The test holds their other ends.
class RawWire {
 public:
  explicit RawWire(std::uint16_t queues = 1, unsigned numa_node = 0);
  ~RawWire();
  RawWire(const RawWire&) = delete;
  RawWire& operator=(const RawWire&) = delete;

  std::uint16_t ethdev() const noexcept { return ethdev_; }
  /// Returns a buffer of one segment that holds these bytes.
  rte_mbuf* buffer(std::span<const std::byte> bytes);
  /// Delivers the frame to the ethdev. Takes ownership of it.
  void inject(rte_mbuf* frame, std::size_t queue = 0);
  /// Fills the transmit ring, so that the ethdev accepts no frame until frames are taken.
  void clog();
  /// Returns the next frame that the ethdev was given, or null. The caller owns it.
  rte_mbuf* take();

 private:
  rte_mempool* pool_ = nullptr;
  std::vector<rte_ring*> to_port_;
  std::vector<rte_ring*> from_port_;
  std::uint16_t ethdev_ = 0;
};

Bytes bytes_of(const rte_mbuf* frame);

/// A frame that the port has sent. `packet` is decoded if the frame is RoCEv2.
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
  static constexpr std::uint32_t kPeerPsn = 0x100;    ///< of the peer's first request
  static constexpr std::uint32_t kPeerQp = 0x123456;
  static constexpr LinkAddress kPeerLink{2, 0, 0, 0, 0, 9};
  static const PeerAddress kPeer;
  static const PeerAddress kOwn;
  using Change = std::function<void(softroce::Packet&, softroce::Route&)>;

  /// Opens a port with address kOwn and a device for each of its lanes, in place of earlier ones.
  void open(const std::function<void(softroce::PortConfig&)>& change = {}, std::uint16_t queues = 1);
  /// Connects a queue pair of `lane` to `peer_qp`. It never times out unless attributes_ sets a timeout.
  void connect(Endpoint& endpoint, std::uint32_t peer_qp = kPeerQp, const QueuePairLimits& limits = {},
               std::size_t lane = 0);
  softroce::SoftRoce& device(std::size_t lane = 0) { return *devices_[lane]; }
  softroce::Statistics statistics(std::size_t lane = 0) { return devices_[lane]->statistics(); }

  /// Builds a packet of the peer with a valid invariant CRC. AckReq is set unless `change` clears it.
  Bytes frame(const Endpoint& to, softroce::Opcode opcode, std::uint32_t psn,
              std::span<const std::byte> payload = {}, const Change& change = {}) const;
  void inject(const Bytes& frame, std::size_t queue = 0) { wire_->inject(wire_->buffer(frame), queue); }
  void peer_sends(softroce::Opcode opcode, std::uint32_t psn, std::span<const std::byte> payload = {},
                  const Change& change = {}) {
    inject(frame(own, opcode, psn, payload, change));
  }
  void peer_acknowledges(std::uint32_t psn) { peer_sends(softroce::Opcode::Acknowledge, psn); }

  /// Polls each lane once. Appends sent packets to `sent` and work completions to `own` and `other`.
  void poll();
  /// Moves the frames on the wire to `sent`. This ends the use of their memory by an ethdev that copies.
  void take_frames();
  /// Polls until everything that does not depend on a timer is done.
  void settle();
  /// Polls until `condition` holds. The limit is generous: it only bounds a failing test.
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
