// SPDX-License-Identifier: Apache-2.0
//
// Memory that was returned to its owner is not sent to any peer. A work completion returns the memory of its
// request, and a hostile peer can cause it early by acknowledging a packet that has not been sent yet. The
// memory may hold another client's data by the time the packet is sent.
#include <algorithm>
#include <cstring>

#include "tests/driver/raw_peer.h"

namespace sluice::rdma::conformance {
namespace {

using namespace softroce;

class GivenBack : public RawPeerTest {
 protected:
  static constexpr std::uint32_t kMtu = 1024;

  void SetUp() override {
    open();
    connect(own);
  }
  void write(std::uint64_t wr_id, std::uint32_t packets) {
    ASSERT_TRUE(own.post(SendOpcode::RdmaWrite, wr_id, {own.sge(0, packets * kMtu)}, 0x1000, Rkey{5}));
  }
  void peer_misses(std::uint32_t number) {
    peer_sends(Opcode::Acknowledge, kOwnPsn + number, {}, [](Packet& packet, Route&) {
      packet.aeth = {Syndrome::Nak, static_cast<std::uint8_t>(NakCode::SequenceError), 0};
    });
  }
  /// Polls once without taking frames from the wire. True if this work completion arrived.
  bool turn_completes(std::uint64_t wr_id, std::size_t lane = 0) {
    WorkCompletion wcs[16];
    const std::size_t count = device(lane).poll(wcs);
    return std::any_of(wcs, wcs + count, [&](const WorkCompletion& wc) {
      return wc.wr_id == wr_id && wc.status == WcStatus::Success;
    });
  }
  void use_memory_for_another_client() {
    std::fill(own.memory.bytes.begin(), own.memory.bytes.end(), std::byte{0xEE});
  }
  /// Takes the frames on the wire and those that follow. True if a frame holds data written after the memory
  /// was returned.
  bool anything_of_the_other_client() {
    settle();
    return std::any_of(sent.begin(), sent.end(), [](const Sent& each) {
      return each.frame.kind == FrameKind::Roce &&
             std::find(each.packet.payload.begin(), each.packet.payload.end(), std::byte{0xEE}) !=
                 each.packet.payload.end();
    });
  }
};

TEST_F(GivenBack, a_packet_that_found_no_room_has_its_own_copy) {
  wire_->clog();
  write(1, 1);
  EXPECT_FALSE(turn_completes(1));
  EXPECT_EQ(statistics().left_overs_copied, 0u) << "its memory is still its own";
  peer_acknowledges(kOwnPsn);
  ASSERT_TRUE(turn_completes(1));
  EXPECT_EQ(statistics().left_overs_copied, 1u);
  use_memory_for_another_client();
  EXPECT_FALSE(anything_of_the_other_client());
  EXPECT_EQ(count(Opcode::WriteOnly), 1u);
}

TEST_F(GivenBack, a_packet_sent_again_goes_before_the_completion_that_comes_with_it) {
  constexpr std::uint32_t kFirst = 60;
  constexpr std::uint32_t kSecond = 30;
  write(1, kFirst);
  settle();
  peer_misses(10);  // its acknowledgement shows that it keeps the others
  settle();
  peer_acknowledges(kOwnPsn + kFirst - 1);
  ASSERT_TRUE(completed(own, 1));
  write(2, kSecond);
  settle();
  sent.clear();
  peer_misses(kFirst + 5);
  peer_acknowledges(kOwnPsn + kFirst + kSecond - 1);
  ASSERT_TRUE(turn_completes(2));
  take_frames();
  use_memory_for_another_client();
  EXPECT_FALSE(anything_of_the_other_client());
  EXPECT_EQ(sent.size(), 1u) << "the one that was missed";
  EXPECT_EQ(statistics().left_overs_copied, 0u) << "there was room";
}

/// The memory of a window is returned when either side has invalidated the window, or when the connection has
/// ended.
TEST_F(GivenBack, a_response_that_found_no_room_has_its_own_copy_when_its_window_is_gone) {
  enum class End { ByThePeer, ByThisSide, OfTheConnection };
  for (const End end : {End::ByThePeer, End::ByThisSide, End::OfTheConnection}) {
    SCOPED_TRACE(static_cast<int>(end));
    open();
    connect(own);
    const auto rkey = own.qp->bind_window(device().allocate_window(), own.memory.bytes.first(kMtu),
                                          own.memory.lkey, kRemoteRead);
    ASSERT_TRUE(rkey && own.receive(7, own.sge(8192, 64)));
    wire_->clog();
    peer_sends(Opcode::ReadRequest, kPeerPsn, {}, [&](Packet& packet, Route&) {
      packet.reth = {reinterpret_cast<std::uintptr_t>(own.memory.bytes.data()),
                     static_cast<std::uint32_t>(*rkey), kMtu};
    });
    turn_completes(0);
    EXPECT_EQ(statistics().left_overs_copied, 0u);
    if (end == End::ByThePeer)
      peer_sends(Opcode::SendOnlyWithInvalidate, kPeerPsn + 1, {},
                 [&](Packet& packet, Route&) { packet.invalidate_rkey = static_cast<std::uint32_t>(*rkey); });
    else if (end == End::ByThisSide)
      ASSERT_TRUE(own.post(SendOpcode::LocalInvalidate, 8, {}, 0, *rkey));
    else
      own.qp->to_error();
    turn_completes(0);
    EXPECT_EQ(statistics().left_overs_copied, 1u);
    use_memory_for_another_client();
    EXPECT_FALSE(anything_of_the_other_client());
    EXPECT_EQ(count(Opcode::ReadResponseOnly), 1u);
  }
}

TEST_F(GivenBack, a_connection_that_ends_leaves_no_packet_with_its_memory) {
  for (const bool destroyed : {false, true}) {
    SCOPED_TRACE(destroyed);
    open();
    connect(own);
    wire_->clog();
    write(1, 1);
    if (destroyed)
      own.qp.reset();
    else
      own.qp->to_error();
    turn_completes(1);
    use_memory_for_another_client();
    EXPECT_FALSE(anything_of_the_other_client());
    EXPECT_EQ(count(Opcode::WriteOnly), 1u);
  }
}

TEST_F(GivenBack, a_lane_whose_packets_another_one_sends_copies_them) {
  open([](PortConfig& config) { config.lanes = 2; });
  connect(own, kPeerQp, {}, 1);
  write(1, 1);
  turn_completes(1, 1);  // the lane now waits for lane 0
  use_memory_for_another_client();
  EXPECT_FALSE(anything_of_the_other_client());
  EXPECT_EQ(count(Opcode::WriteOnly), 1u);
}

}  // namespace
}  // namespace sluice::rdma::conformance
