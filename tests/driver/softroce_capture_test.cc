// SPDX-License-Identifier: Apache-2.0
//
// Capture of a port's frames while the port is in use.
#include "pmd/softroce/capture.h"

#include <algorithm>
#include <vector>

#include "tests/driver/raw_peer.h"

namespace sluice::rdma::conformance {
namespace {

using namespace softroce;

struct Kept {
  Way way;
  std::uint32_t wire_bytes;
  Bytes bytes;
};

class CaptureTest : public RawPeerTest {
 protected:
  void SetUp() override { open_port(1); }
  void TearDown() override {
    port_->set_capture(nullptr);
    settle();
  }
  void open_port(std::uint32_t lanes) {
    open([&](PortConfig& config) { config.lanes = lanes; });
    connect(own);
    for (std::uint64_t i = 0; i < 8; ++i) ASSERT_TRUE(own.receive(i, own.sge(i * 4096, 4096)));
    capture_ = std::make_unique<Capture>(port_->config());
  }
  void start(const CaptureFilter& filter = {}, std::uint32_t snap_bytes = kMaxSnapBytes) {
    capture_->start(filter, snap_bytes);
    port_->set_capture(capture_.get());
  }
  std::vector<Kept> take() {
    std::vector<Kept> kept;
    for (const CapturedFrame* frame; (frame = capture_->next()) != nullptr; capture_->pop())
      kept.push_back(
          {frame->way, frame->wire_bytes, Bytes(frame->bytes(), frame->bytes() + frame->kept_bytes)});
    return kept;
  }
  static long count(const std::vector<Kept>& kept, const Bytes& bytes, Way way) {
    return std::count_if(kept.begin(), kept.end(),
                         [&](const Kept& each) { return each.bytes == bytes && each.way == way; });
  }

  std::unique_ptr<Capture> capture_;
};

TEST_F(CaptureTest, every_packet_of_both_ways_is_kept_once_while_it_runs) {
  start();
  const Bytes request = frame(own, Opcode::SendOnly, kPeerPsn, pattern(700));
  inject(request);
  settle();
  ASSERT_EQ(sent.size(), 1u);
  std::vector<Kept> kept = take();
  EXPECT_EQ(kept.size(), 2u);
  EXPECT_EQ(count(kept, request, Way::In), 1);
  EXPECT_EQ(count(kept, sent[0].bytes, Way::Out), 1);
  EXPECT_TRUE(take().empty());
  peer_sends(Opcode::SendOnly, kPeerPsn + 1, pattern(8));
  settle();
  capture_->stop();
  peer_sends(Opcode::SendOnly, kPeerPsn + 2, pattern(9, 5));
  settle();
  EXPECT_EQ(take().size(), 2u) << "what was queued before the stop, and nothing of later";
  EXPECT_EQ(capture_->dropped(), 0u);
  capture_->release();
  peer_sends(Opcode::SendOnly, kPeerPsn + 3, pattern(9, 5));
  settle();
  EXPECT_TRUE(take().empty());
}

TEST_F(CaptureTest, a_packet_that_one_lane_hands_to_another_is_kept_once) {
  open_port(2);
  connect(other, kPeerQp + 1, {}, 1);
  ASSERT_TRUE(other.receive(0, other.sge(0, 4096)));
  start();
  const Bytes request = frame(other, Opcode::SendOnly, kPeerPsn, pattern(700));
  inject(request);
  settle();
  EXPECT_EQ(statistics(0).handed_over, 1u);
  const std::vector<Kept> kept = take();
  EXPECT_EQ(count(kept, request, Way::In), 1);
  EXPECT_EQ(kept.size(), 2u) << "the request and its acknowledgement";
}

TEST_F(CaptureTest, of_each_packet_only_what_was_asked_for_is_kept) {
  start({}, 100);
  const Bytes request = frame(own, Opcode::SendOnly, kPeerPsn, pattern(700));
  inject(request);
  settle();
  const std::vector<Kept> kept = take();
  ASSERT_FALSE(kept.empty());
  EXPECT_EQ(kept[0].bytes, Bytes(request.begin(), request.begin() + 100));
  EXPECT_EQ(kept[0].wire_bytes, request.size());
}

TEST_F(CaptureTest, what_nobody_takes_in_time_is_counted_and_the_lane_goes_on) {
  start({}, kMinSnapBytes);
  constexpr std::size_t kAsked = kCaptureDepth + 100;
  for (std::size_t i = 0; i < kAsked; ++i) {
    inject(frame(own, Opcode::SendOnly, 0x800000, pattern(8)));  // after a gap: the only answer is one NAK
    poll();
  }
  settle();
  EXPECT_EQ(statistics().packets_received, kAsked);
  capture_->stop();
  EXPECT_EQ(take().size() + capture_->dropped(), kAsked + sent.size());
  EXPECT_GT(capture_->dropped(), 0u);
  start();
  EXPECT_EQ(capture_->dropped(), 0u);
}

TEST_F(CaptureTest, a_queue_pair_is_asked_for_by_our_number_of_it_both_ways) {
  connect(other, kPeerQp + 1);
  ASSERT_TRUE(other.receive(0, other.sge(0, 4096)));
  start({.peer = {}, .queue_pair = static_cast<std::uint32_t>(own.qp->number())});
  inject(frame(other, Opcode::SendOnly, kPeerPsn, pattern(700)));
  const Bytes request = frame(own, Opcode::SendOnly, kPeerPsn, pattern(700));
  inject(request);
  settle();
  ASSERT_EQ(sent.size(), 2u);
  const std::vector<Kept> kept = take();
  ASSERT_EQ(kept.size(), 2u);
  EXPECT_EQ(count(kept, request, Way::In), 1);
  for (const Sent& each : sent)
    EXPECT_EQ(count(kept, each.bytes, Way::Out), each.packet.bth.destination_qp == kPeerQp ? 1 : 0);
}

TEST_F(CaptureTest, a_peer_is_asked_for_by_its_address) {
  const PeerAddress stranger = PeerAddress::from_ipv4(192, 0, 2, 77);
  start({.peer = stranger, .queue_pair = 0});
  peer_sends(Opcode::SendOnly, kPeerPsn, pattern(700));
  settle();
  EXPECT_TRUE(take().empty());
  const Bytes from_stranger = frame(own, Opcode::SendOnly, kPeerPsn + 1, pattern(700),
                                    [&](Packet&, Route& route) { route.source = stranger; });
  inject(from_stranger);
  settle();
  EXPECT_EQ(count(take(), from_stranger, Way::In), 1);
  capture_->stop();
  start({.peer = kPeer, .queue_pair = 0});
  peer_sends(Opcode::SendOnly, kPeerPsn + 1, pattern(700));
  settle();
  EXPECT_EQ(take().size(), 2u);
}

}  // namespace
}  // namespace sluice::rdma::conformance
