// SPDX-License-Identifier: Apache-2.0
//
// State that the connections of a reactor share: the stage of work requests, the records of failed transfers
// and of servers without version 2, buffers, queues.
#include <gtest/gtest.h>

#include <type_traits>
#include <utility>
#include <vector>

#include "dataplane/rpcrdma/connection.h"

namespace sluice::rpcrdma {
namespace {

using Peer = std::remove_cvref_t<decltype(std::declval<Connection&>().peer())>;

Peer peer(std::uint8_t last) {
  return Peer::from_ipv4(10, 0, 0, last);
}

// --- Failed transfers

constexpr std::uint64_t kLifetimeNs = FailedTransfers::kLifetimeNs;

TEST(FailedTransfers, V1_039_an_entry_is_taken_once_and_is_its_peers) {
  FailedTransfers failed;
  EXPECT_FALSE(failed.take(peer(1), rpc::Xid{7}, 1));
  failed.add(peer(1), rpc::Xid{7}, 1);
  EXPECT_FALSE(failed.take(peer(2), rpc::Xid{7}, 1));
  EXPECT_FALSE(failed.take(peer(1), rpc::Xid{8}, 1));
  EXPECT_TRUE(failed.take(peer(1), rpc::Xid{7}, 1));
  EXPECT_FALSE(failed.take(peer(1), rpc::Xid{7}, 1));
}

TEST(FailedTransfers, V1_039_an_entry_is_over_after_its_time) {
  FailedTransfers failed;
  failed.add(peer(1), rpc::Xid{7}, 5);
  failed.add(peer(1), rpc::Xid{8}, 6);
  EXPECT_FALSE(failed.take(peer(1), rpc::Xid{7}, 5 + kLifetimeNs));
  EXPECT_TRUE(failed.take(peer(1), rpc::Xid{8}, 5 + kLifetimeNs));
  failed.add(peer(1), rpc::Xid{9}, 10);
  EXPECT_TRUE(failed.take(peer(1), rpc::Xid{9}, 9 + kLifetimeNs));
  failed.add(peer(1), rpc::Xid{9}, 10);
  EXPECT_FALSE(failed.take(peer(1), rpc::Xid{9}, 10 + kLifetimeNs));
}

TEST(FailedTransfers, V1_039_the_newest_are_remembered) {
  constexpr auto kEntries = static_cast<std::uint8_t>(FailedTransfers::kEntries);
  FailedTransfers failed;
  for (std::uint8_t i = 0; i < kEntries + 1; ++i) failed.add(peer(i), rpc::Xid{i}, 1u + i);
  EXPECT_FALSE(failed.take(peer(0), rpc::Xid{0}, kEntries + 2));
  for (std::uint8_t i = 1; i < kEntries + 1; ++i)
    EXPECT_TRUE(failed.take(peer(i), rpc::Xid{i}, kEntries + 2)) << int{i};
  // All entries are taken, so new ones are found again.
  for (std::uint32_t round = 0; round < 2 * kEntries; ++round) {
    failed.add(peer(1), rpc::Xid{round}, 1000);
    EXPECT_TRUE(failed.take(peer(1), rpc::Xid{round}, 1000));
  }
}

/// Any process of a client's host may connect and fail deliberately with the XIDs that the kernel will use.
TEST(FailedTransfers, V1_039_a_host_has_few_entries_and_takes_none_of_others) {
  constexpr auto kPerHost = static_cast<std::uint32_t>(FailedTransfers::kEntriesPerHost);
  FailedTransfers failed;
  failed.add(peer(2), rpc::Xid{1}, 1);
  for (std::uint32_t xid = 0; xid < 1000; ++xid) failed.add(peer(1), rpc::Xid{xid}, 2 + xid);
  std::uint32_t taken = 0;
  for (std::uint32_t xid = 0; xid < 1000; ++xid) taken += failed.take(peer(1), rpc::Xid{xid}, 1002) ? 1 : 0;
  EXPECT_EQ(taken, kPerHost);
  EXPECT_TRUE(failed.take(peer(2), rpc::Xid{1}, 1002));
  // The newest entries of a host are kept.
  for (std::uint32_t xid = 0; xid < kPerHost + 1; ++xid) failed.add(peer(1), rpc::Xid{xid}, 2000 + xid);
  EXPECT_FALSE(failed.take(peer(1), rpc::Xid{0}, 3000));
  EXPECT_TRUE(failed.take(peer(1), rpc::Xid{1}, 3000));
  EXPECT_TRUE(failed.take(peer(1), rpc::Xid{kPerHost}, 3000));
}

// --- Servers without version 2

ServerAddress server(std::uint8_t last, std::uint16_t port = 20049) {
  return {peer(last), port};
}

TEST(VersionMemory, V2_015_a_server_is_taken_for_version_1_until_its_time_is_over) {
  VersionMemory memory;
  EXPECT_FALSE(memory.version_1_only(server(1), 0));
  memory.add(server(1), 100);
  EXPECT_TRUE(memory.version_1_only(server(1), 99));
  EXPECT_FALSE(memory.version_1_only(server(1), 100));
  EXPECT_FALSE(memory.version_1_only(server(2), 0));
  EXPECT_FALSE(memory.version_1_only(server(1, 20050), 0)) << "another server at this address";
  memory.add(server(1), 200);
  EXPECT_TRUE(memory.version_1_only(server(1), 199));
  memory.add(server(1), 50);
  EXPECT_FALSE(memory.version_1_only(server(1), 50)) << "it has one entry";
}

TEST(VersionMemory, V2_015_the_newest_servers_are_remembered) {
  constexpr auto kEntries = static_cast<std::uint8_t>(VersionMemory::kEntries);
  VersionMemory memory;
  for (std::uint8_t i = 0; i < kEntries; ++i) memory.add(server(i), 100);
  // Known servers evict no entry.
  for (int again = 0; again < 3; ++again) memory.add(server(5), 100);
  for (std::uint8_t i = 0; i < kEntries; ++i) EXPECT_TRUE(memory.version_1_only(server(i), 1)) << int{i};
  memory.add(server(200), 100);
  EXPECT_FALSE(memory.version_1_only(server(0), 1));
  for (std::uint8_t i = 1; i < kEntries; ++i) EXPECT_TRUE(memory.version_1_only(server(i), 1)) << int{i};
  EXPECT_TRUE(memory.version_1_only(server(200), 1));
}

// --- Work requests

class Stage : public ::testing::Test {
 protected:
  rdma::Sge piece(std::size_t at, std::uint32_t bytes, std::uint32_t key = 1) {
    return {memory.data() + at, bytes, static_cast<rdma::Lkey>(key)};
  }
  bool read(std::uint32_t handle, std::uint64_t offset, const rdma::Sge& to) {
    return stage.transfer(rdma::SendOpcode::RdmaRead, 5, {static_cast<rdma::Rkey>(handle), to.length, offset},
                          to);
  }
  std::vector<std::byte> memory = std::vector<std::byte>(65536);
  SendStage stage;
};

TEST_F(Stage, pieces_that_go_on_are_one) {
  EXPECT_TRUE(stage.empty());
  ASSERT_TRUE(stage.begin(rdma::SendOpcode::Send, 7, rdma::kSignaled));
  EXPECT_FALSE(stage.empty());
  EXPECT_TRUE(stage.append(piece(0, 16)));
  EXPECT_TRUE(stage.append(piece(16, 4)));
  EXPECT_TRUE(stage.append(piece(24, 4)));
  EXPECT_TRUE(stage.append(piece(28, 4, 2)));  // under another key
  ASSERT_EQ(stage.size(), 1u);
  const rdma::SendWr& wr = stage.wrs()[0];
  EXPECT_EQ(wr.wr_id, 7u);
  EXPECT_EQ(wr.flags, rdma::kSignaled);
  ASSERT_EQ(wr.sges.size(), 3u);
  EXPECT_EQ(wr.sges[0].length, 20u);
  EXPECT_EQ(wr.sges[1].length, 4u);
  EXPECT_EQ(wr.sges[2].length, 4u);
  // The next work request has separate pieces, although they are contiguous.
  ASSERT_TRUE(stage.begin(rdma::SendOpcode::Send, 8, 0));
  EXPECT_TRUE(stage.append(piece(32, 4, 2)));
  EXPECT_EQ(stage.wrs()[1].sges.size(), 1u);
  EXPECT_EQ(stage.wrs()[0].sges[2].length, 4u);
}

TEST_F(Stage, transfers_go_on_where_both_ends_do) {
  stage.begin_transfers();
  EXPECT_TRUE(read(1, 1000, piece(0, 64)));
  EXPECT_TRUE(read(1, 1064, piece(64, 64)));
  EXPECT_TRUE(read(1, 1128, piece(512, 64)));
  ASSERT_EQ(stage.size(), 1u);
  EXPECT_EQ(stage.wrs()[0].sges.size(), 2u);
  EXPECT_EQ(stage.wrs()[0].remote_address, 1000u);
  EXPECT_EQ(stage.wrs()[0].rkey, rdma::Rkey{1});
  EXPECT_TRUE(read(2, 1192, piece(576, 64)));  // another handle
  EXPECT_TRUE(read(2, 1257, piece(640, 64)));  // a gap
  EXPECT_EQ(stage.size(), 3u);
  stage.begin_transfers();
  EXPECT_TRUE(read(2, 1321, piece(704, 64)));
  EXPECT_EQ(stage.size(), 4u);
}

TEST_F(Stage, a_work_request_has_as_many_pieces_as_the_device_takes) {
  stage.set_max_sge(3, 3);
  EXPECT_EQ(stage.max_sge(), 3u);
  ASSERT_TRUE(stage.begin(rdma::SendOpcode::Send, 1, 0));
  for (std::size_t i = 0; i < 3; ++i) EXPECT_TRUE(stage.append(piece(i * 64, 8)));
  EXPECT_FALSE(stage.append(piece(1024, 8)));
  EXPECT_TRUE(stage.append(piece(136, 8))) << "it goes on from the last";
  // A transfer with too many pieces begins another work request.
  stage.clear();
  EXPECT_TRUE(stage.empty());
  stage.begin_transfers();
  for (std::size_t i = 0; i < 4; ++i) EXPECT_TRUE(read(1, 1000 + 8 * i, piece(i * 64, 8)));
  ASSERT_EQ(stage.size(), 2u);
  EXPECT_EQ(stage.wrs()[0].sges.size(), 3u);
  EXPECT_EQ(stage.wrs()[1].sges.size(), 1u);
  EXPECT_EQ(stage.wrs()[1].remote_address, 1024u);
}

TEST_F(Stage, an_rdma_read_has_as_many_pieces_as_the_device_scatters) {
  stage.set_max_sge(16, 2);
  stage.begin_transfers();
  for (std::size_t i = 0; i < 5; ++i) EXPECT_TRUE(read(1, 1000 + 8 * i, piece(i * 64, 8)));
  ASSERT_EQ(stage.size(), 3u);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(stage.wrs()[i].sges.size(), i < 2 ? 2u : 1u);
    EXPECT_EQ(stage.wrs()[i].remote_address, 1000 + 16 * i);
  }
}

TEST_F(Stage, sends_that_follow_one_another_share_the_completion_of_the_last) {
  const auto id = [](WrKind kind, std::uint16_t index) {
    return WrId{.kind = kind, .generation = 3, .connection = 2, .index = index}.encode();
  };
  const auto send = [&](WrKind kind, std::uint16_t index) {
    return stage.add_send(id(kind, index), piece(std::size_t{index} * 64, 8));
  };
  const auto flags = [&](std::size_t i) { return stage.wrs()[i].flags; };
  EXPECT_EQ(send(WrKind::ReplySent, 4), kNoWr);
  EXPECT_EQ(flags(0), rdma::kSignaled) << "nothing has followed it yet";
  EXPECT_EQ(send(WrKind::ReplySent, 9), 4);
  EXPECT_EQ(flags(0), 0);
  EXPECT_EQ(flags(1), rdma::kSignaled);
  EXPECT_EQ(send(WrKind::CallSent, 1), kNoWr) << "another owner's";
  EXPECT_EQ(flags(1), rdma::kSignaled);
  // Another work request between two Sends ends the run.
  ASSERT_TRUE(stage.begin(rdma::SendOpcode::Send, id(WrKind::ControlSent, 0), rdma::kSignaled));
  EXPECT_EQ(send(WrKind::CallSent, 2), kNoWr);
  EXPECT_EQ(flags(2), rdma::kSignaled);
  // The end of the burst and a rollback end the run as well.
  const SendStage::Mark mark = stage.mark();
  ASSERT_TRUE(stage.begin(rdma::SendOpcode::RdmaWrite, id(WrKind::Transfer, 5), 0));
  stage.rollback(mark);
  EXPECT_EQ(send(WrKind::CallSent, 3), kNoWr);
  EXPECT_EQ(flags(4), rdma::kSignaled);
  stage.clear();
  EXPECT_EQ(send(WrKind::CallSent, 6), kNoWr);
}

TEST_F(Stage, a_completion_stands_for_a_bounded_number_of_sends) {
  constexpr std::size_t kRun = SendStage::kMaxSilent + 1;
  std::size_t signaled = 0;
  for (std::uint16_t i = 0; i < 4 * kRun; ++i) {
    const std::uint16_t before =
        stage.add_send(WrId{.kind = WrKind::ReplySent, .index = i}.encode(), piece(0, 8));
    EXPECT_EQ(before, i % kRun == 0 ? kNoWr : i - 1) << i;
  }
  for (const rdma::SendWr& wr : stage.wrs()) signaled += wr.flags == rdma::kSignaled ? 1 : 0;
  EXPECT_EQ(signaled, 4u);
}

TEST_F(Stage, it_holds_as_much_as_it_says) {
  for (std::size_t i = 0; i < SendStage::kMaxWrs; ++i)
    ASSERT_TRUE(stage.begin(rdma::SendOpcode::Send, i, 0)) << i;
  EXPECT_FALSE(stage.begin(rdma::SendOpcode::Send, 0, 0));
  EXPECT_EQ(stage.size(), SendStage::kMaxWrs);
  EXPECT_EQ(stage.last().wr_id, SendStage::kMaxWrs - 1);
  stage.clear();
  stage.set_max_sge(16, 16);
  std::size_t pieces = 0;
  for (std::size_t wr = 0; wr < SendStage::kMaxSges / 16; ++wr) {
    ASSERT_TRUE(stage.begin(rdma::SendOpcode::Send, wr, 0));
    for (int i = 0; i < 16; ++i) ASSERT_TRUE(stage.append(piece(32 * pieces++, 8))) << pieces;
  }
  EXPECT_EQ(stage.mark().sges(), SendStage::kMaxSges);
  ASSERT_TRUE(stage.begin(rdma::SendOpcode::Send, 0, 0));
  EXPECT_FALSE(stage.append(piece(0, 8)));
}

TEST_F(Stage, what_is_rolled_back_is_gone) {
  ASSERT_TRUE(stage.begin(rdma::SendOpcode::Send, 1, 0));
  ASSERT_TRUE(stage.append(piece(0, 8)));
  const SendStage::Mark mark = stage.mark();
  ASSERT_TRUE(stage.begin(rdma::SendOpcode::Send, 2, 0));
  ASSERT_TRUE(stage.append(piece(64, 8)));
  stage.rollback(mark);
  EXPECT_EQ(stage.size(), 1u);
  EXPECT_EQ(stage.last().wr_id, 1u);
  EXPECT_EQ(stage.mark().sges(), 1u);
}

// --- Work request identifiers

TEST(WrIds, each_part_has_its_place) {
  const WrId id{WrKind::Invalidated, 0xfedc, 0xba98, 0x7654};
  const WrId back = WrId::decode(id.encode());
  EXPECT_EQ(back.kind, WrKind::Invalidated);
  EXPECT_EQ(back.generation, 0xfedc);
  EXPECT_EQ(back.connection, 0xba98);
  EXPECT_EQ(back.index, 0x7654);
  EXPECT_EQ(id.encode() & 0xffffffffffff, 0xfedcba987654u);
}

}  // namespace
}  // namespace sluice::rpcrdma
