// SPDX-License-Identifier: Apache-2.0
//
// A network card that reads payload in place, some time after its driver has accepted the packet. The tests
// check which packets are sent that way, and that memory is returned only when the card has read it,
// independent of what the peer acknowledges. Taking a frame from the wire represents the card's read, and
// freeing the frame represents the driver's completion.
#include <rte_mbuf.h>
#include <rte_mempool.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tests/driver/card_stub.h"
#include "tests/driver/raw_peer.h"

namespace sluice::rdma::conformance {
namespace {

using namespace softroce;

class SoftCard : public RawPeerTest {
 protected:
  static constexpr std::uint32_t kMtu = 1024;

  void TearDown() override { end(); }
  void open(const std::function<void(PortConfig&)>& change = {}, std::uint16_t queues = 1) {
    RawPeerTest::open(
        [&](PortConfig& config) {
          config.card_reads_payload = true;
          if (change) change(config);
        },
        queues);
  }
  /// The port is closed before the card is destroyed.
  void end() {
    while (rte_mbuf* frame = wire_ ? wire_->take() : nullptr) rte_pktmbuf_free(frame);
    own.qp.reset();
    other.qp.reset();
    devices_.clear();
    port_.reset();
  }
  void open_and_connect() {
    end();
    open();
    connect(own);
  }
  void write(std::uint64_t wr_id, std::size_t at = 0) {
    ASSERT_TRUE(own.post(SendOpcode::RdmaWrite, wr_id, {own.sge(at, kMtu)}, 0x1000, Rkey{5}));
  }
  /// Polls without taking frames from the wire.
  void turns() {
    for (int turn = 0; turn < 3; ++turn) {
      WorkCompletion completions[16];
      const std::size_t count = device().poll(completions);
      own.completions.insert(own.completions.end(), completions, completions + count);
    }
  }
  bool has(std::uint64_t wr_id) {
    turns();
    return own.find(wr_id) != nullptr;
  }
  /// Returns the next frame, as it was handed to the ethdev. Fails the test if there is none.
  rte_mbuf* taken() {
    turns();
    rte_mbuf* const frame = wire_->take();
    EXPECT_NE(frame, nullptr);
    return frame;
  }

  CardStub card;
};

TEST_F(SoftCard, payload_is_sent_from_memory_that_is_mapped_for_it) {
  open_and_connect();
  EXPECT_TRUE(port_->transmission().in_place) << port_->transmission().obstacle;
  EXPECT_TRUE(card.reaches(own.memory.bytes));
  std::vector<std::byte> callers(12288);
  device().register_memory(callers);
  EXPECT_TRUE(card.reaches(callers));
  write(1, 100);
  rte_mbuf* const frame = taken();
  ASSERT_EQ(frame->nb_segs, 3u);  // headers, payload, invariant CRC
  EXPECT_EQ(rte_pktmbuf_mtod(frame->next, std::byte*), own.memory.bytes.data() + 100);
  for (const rte_mbuf* segment = frame->next; segment != nullptr; segment = segment->next)
    EXPECT_EQ(rte_pktmbuf_iova(segment), reinterpret_cast<std::uintptr_t>(rte_pktmbuf_mtod(segment, void*)));
  rte_pktmbuf_free(frame);
  end();
  EXPECT_TRUE(card.mapped.empty()) << "of a port that is closed";
}

TEST_F(SoftCard, memory_is_mapped_once_whoever_registers_it) {
  open_and_connect();
  const auto memory = own.memory.bytes;
  const std::size_t before = card.mapped.size();
  device().register_memory(memory);
  device().register_memory(memory.subspan(100, 5000));
  EXPECT_EQ(card.mapped.size(), before);
  EXPECT_TRUE(port_->transmission().in_place) << port_->transmission().obstacle;
}

TEST_F(SoftCard, a_work_request_completes_when_the_card_has_sent_it) {
  open_and_connect();
  write(1);
  turns();
  peer_acknowledges(kOwnPsn);
  EXPECT_FALSE(has(1)) << "the packet waits in the card";
  rte_mbuf* const frame = taken();
  EXPECT_FALSE(has(1)) << "the card reads it";
  EXPECT_GT(statistics().memory_waits, 0u);
  rte_pktmbuf_free(frame);
  EXPECT_TRUE(has(1));
  const std::uint64_t waits = statistics().memory_waits;
  turns();
  EXPECT_EQ(statistics().memory_waits, waits);
}

/// A driver whose card reports only each 32nd packet would hold the last packets until others follow.
TEST_F(SoftCard, the_card_says_of_each_packet_that_it_was_sent) {
  open_and_connect();
  EXPECT_EQ(card.tx_rs_thresh, 1u);
  end();
  open([](PortConfig& config) { config.card_reads_payload = false; });
  EXPECT_EQ(card.tx_rs_thresh, 0u) << "the driver's own";
}

TEST_F(SoftCard, the_driver_is_asked_to_free_what_has_been_sent) {
  open_and_connect();
  rte_mbuf* sent_frame = nullptr;
  card.free_sent = [&](std::uint16_t ethdev, std::uint16_t queue) {
    EXPECT_EQ(ethdev, wire_->ethdev());
    EXPECT_EQ(queue, 0u);
    rte_pktmbuf_free(sent_frame);
    sent_frame = nullptr;
  };
  write(1);
  sent_frame = taken();
  turns();
  ASSERT_NE(sent_frame, nullptr) << "nobody waits for it";
  peer_acknowledges(kOwnPsn);
  EXPECT_TRUE(has(1));
}

TEST_F(SoftCard, a_packet_sent_again_is_waited_for_too) {
  open_and_connect();
  write(1);
  rte_pktmbuf_free(taken());
  peer_sends(Opcode::Acknowledge, kOwnPsn, {}, [](Packet& packet, Route&) {
    packet.aeth = {Syndrome::Nak, static_cast<std::uint8_t>(NakCode::SequenceError), 0};
  });
  rte_mbuf* const again = taken();
  peer_acknowledges(kOwnPsn);
  EXPECT_FALSE(has(1));
  rte_pktmbuf_free(again);
  EXPECT_TRUE(has(1));
}

TEST_F(SoftCard, packets_are_freed_in_any_order) {
  open_and_connect();
  write(1);
  rte_mbuf* const first = taken();
  write(2);
  rte_mbuf* const second = taken();
  peer_acknowledges(kOwnPsn + 1);
  rte_pktmbuf_free(second);
  EXPECT_FALSE(has(1));
  EXPECT_FALSE(has(2)) << "completions are in order";
  rte_pktmbuf_free(first);
  EXPECT_TRUE(has(1));
  EXPECT_TRUE(has(2));
}

/// Under load there is always a packet in the card.
TEST_F(SoftCard, what_waits_already_does_not_wait_for_what_is_sent_later) {
  open_and_connect();
  rte_mbuf* in_card = nullptr;
  for (std::uint32_t i = 0; i < 50; ++i) {
    write(1 + i);
    rte_mbuf* const next = taken();
    peer_acknowledges(kOwnPsn + i);
    turns();
    if (in_card != nullptr) {
      rte_pktmbuf_free(in_card);
      ASSERT_TRUE(has(i)) << "although " << 1 + i << " waits";
    }
    EXPECT_FALSE(has(1 + i));
    in_card = next;
  }
  rte_pktmbuf_free(in_card);
  EXPECT_TRUE(has(50));
}

TEST_F(SoftCard, a_response_is_waited_for_when_its_window_is_gone) {
  enum class End { ByThePeer, ByThisSide, OfTheConnection };
  for (const End how : {End::ByThePeer, End::ByThisSide, End::OfTheConnection}) {
    SCOPED_TRACE(static_cast<int>(how));
    open_and_connect();
    const auto rkey = own.qp->bind_window(device().allocate_window(), own.memory.bytes.first(kMtu),
                                          own.memory.lkey, kRemoteRead);
    ASSERT_TRUE(rkey && own.receive(7, own.sge(8192, 64)));
    peer_sends(Opcode::ReadRequest, kPeerPsn, {}, [&](Packet& packet, Route&) {
      packet.reth = {reinterpret_cast<std::uintptr_t>(own.memory.bytes.data()),
                     static_cast<std::uint32_t>(*rkey), kMtu};
    });
    rte_mbuf* const response = taken();
    std::uint64_t ended = 7;
    if (how == End::ByThePeer)
      peer_sends(Opcode::SendOnlyWithInvalidate, kPeerPsn + 1, {},
                 [&](Packet& packet, Route&) { packet.invalidate_rkey = static_cast<std::uint32_t>(*rkey); });
    else if (how == End::ByThisSide)
      ASSERT_TRUE(own.post(SendOpcode::LocalInvalidate, ended = 8, {}, 0, *rkey));
    else
      own.qp->to_error();
    EXPECT_FALSE(has(ended));
    rte_pktmbuf_free(response);
    EXPECT_TRUE(has(ended));
  }
}

TEST_F(SoftCard, flushed_work_is_waited_for_and_a_queue_pair_that_is_gone_leaves_the_others_theirs) {
  open_and_connect();
  write(1);
  rte_mbuf* const frame = taken();
  own.qp->to_error();
  EXPECT_FALSE(has(1));
  connect(other, kPeerQp + 1);
  own.qp.reset();
  ASSERT_TRUE(other.post(SendOpcode::RdmaWrite, 2, {other.sge(0, kMtu)}, 0x1000, Rkey{5}));
  rte_mbuf* const of_other = taken();
  inject(RawPeerTest::frame(other, Opcode::Acknowledge, kOwnPsn));
  EXPECT_FALSE(has(2));
  rte_pktmbuf_free(frame);
  EXPECT_FALSE(has(2));
  rte_pktmbuf_free(of_other);
  EXPECT_TRUE(has(2));
  EXPECT_FALSE(has(1)) << "its queue pair is gone";
}

TEST_F(SoftCard, a_card_that_never_lets_go_of_a_packet_stops_no_payload_from_being_sent) {
  open_and_connect();
  write(1);
  rte_mbuf* const kept = taken();
  peer_acknowledges(kOwnPsn);
  std::uint32_t sent_besides = 0;
  for (std::uint64_t i = 1; i < 4000 && statistics().buffer_waits == 0; ++i) {
    other.completions.clear();
    ASSERT_TRUE(own.post(SendOpcode::RdmaWrite, 1 + i, {own.sge(0, kMtu)}, 0x1000, Rkey{5}, 0));
    turns();
    rte_mbuf* const frame = wire_->take();
    if (frame == nullptr) break;
    rte_pktmbuf_free(frame);
    ++sent_besides;
    peer_acknowledges(kOwnPsn + static_cast<std::uint32_t>(i));
  }
  EXPECT_GT(sent_besides, 1024u) << "as many as there are buffers";
  EXPECT_GT(statistics().buffer_waits, 0u) << "and then they wait";
  EXPECT_FALSE(has(1));
  rte_pktmbuf_free(kept);
  EXPECT_TRUE(has(1));
}

/// A driver frees its packets when its ethdev is closed, which is after the lanes have ended.
TEST_F(SoftCard, buffers_that_the_driver_has_outlive_the_lane) {
  open_and_connect();
  const std::string pool = port_->config().name + ".0-p";
  write(1);
  rte_mbuf* const frame = taken();
  own.qp.reset();
  devices_.clear();
  EXPECT_NE(rte_mempool_lookup(pool.c_str()), nullptr);
  rte_pktmbuf_free(frame);
  port_.reset();
  EXPECT_EQ(rte_mempool_lookup(pool.c_str()), nullptr);
}

// --- Cards for which payload is copied

TEST_F(SoftCard, payload_is_copied_where_the_card_cannot_do_without_and_the_reason_is_told) {
  const std::vector<std::pair<std::function<void()>, std::string>> obstacles = {
      {[this] { card.frees_when_asked = false; }, "its driver does not free sent packets on request"},
      {[this] { card.addresses_are_virtual = false; },
       "DPDK uses physical addresses. Bind the card to vfio-pci, with an IOMMU"},
      {[this] { card.most_mappings = 0; }, "memory cannot be mapped for the card (No space left on device)"}};
  for (const auto& [obstruct, sentence] : obstacles) {
    SCOPED_TRACE(sentence);
    card.frees_when_asked = card.addresses_are_virtual = true;
    obstruct();
    end();
    open();
    EXPECT_FALSE(port_->transmission().in_place);
    EXPECT_EQ(port_->transmission().obstacle, sentence);
    connect(own);
    EXPECT_TRUE(card.mapped.empty());
    write(1);
    rte_mbuf* const frame = taken();
    EXPECT_EQ(frame->nb_segs, 1u);
    peer_acknowledges(kOwnPsn);
    EXPECT_TRUE(has(1)) << "the packet has its own copy";
    rte_pktmbuf_free(frame);
  }
}

TEST_F(SoftCard, payload_is_copied_unless_the_card_is_to_read_it) {
  end();
  open([](PortConfig& config) { config.card_reads_payload = false; });
  EXPECT_FALSE(port_->transmission().in_place);
  EXPECT_EQ(port_->transmission().obstacle, "");
  connect(own);
  EXPECT_TRUE(card.mapped.empty());
  write(1);
  rte_mbuf* const frame = taken();
  EXPECT_EQ(frame->nb_segs, 1u);
  rte_pktmbuf_free(frame);
}

TEST_F(SoftCard, a_lane_whose_memory_cannot_all_be_mapped_copies) {
  card.most_mappings = 1;
  open_and_connect();
  EXPECT_TRUE(port_->transmission().in_place);
  const auto more = device().allocate_memory(4096);
  EXPECT_FALSE(port_->transmission().in_place);
  EXPECT_FALSE(card.reaches(more.bytes));
  write(1);
  rte_mbuf* const frame = taken();
  EXPECT_EQ(frame->nb_segs, 1u);
  rte_pktmbuf_free(frame);
}

TEST_F(SoftCard, what_one_lane_finds_out_holds_for_memory_that_another_registers_later) {
  end();
  open([](PortConfig& config) { config.lanes = config.hardware_queues = 2; }, 2);
  connect(own);
  card.most_mappings = card.mapped.size();
  device(1).allocate_memory(4096);
  EXPECT_FALSE(port_->transmission().in_place);
  write(1);
  rte_mbuf* const before = taken();
  EXPECT_EQ(before->nb_segs, 3u) << "all that this lane has is mapped";
  card.most_mappings = SIZE_MAX;
  device(0).allocate_memory(4096);
  write(2);
  rte_mbuf* const after = taken();
  EXPECT_EQ(after->nb_segs, 1u);
  peer_acknowledges(kOwnPsn + 1);
  rte_pktmbuf_free(after);
  EXPECT_FALSE(has(1)) << "it is still read where it lies";
  rte_pktmbuf_free(before);
  EXPECT_TRUE(has(1) && has(2));
}

}  // namespace
}  // namespace sluice::rdma::conformance
