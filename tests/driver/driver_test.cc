// SPDX-License-Identifier: Apache-2.0
//
// The rules of pmd/device.h, for any driver. This file is compiled once, and a file for each driver
// instantiates the tests.
#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "tests/driver/driver_fixture.h"

namespace sluice::rdma::conformance {
namespace {

void put_number(Endpoint& endpoint, std::uint32_t slot, std::uint32_t number) {
  std::memcpy(endpoint.memory.bytes.data() + std::size_t{slot} * 2048, &number, sizeof number);
}

TEST_P(DriverTest, sends_of_all_sizes_arrive_whole_and_in_order) {
  const std::uint32_t sizes[] = {
      0, 1, 55, 56, 57, 63, 64, 65, 119, 120, 121, 1024, 4096, 16384, a.device->limits().max_send_bytes};
  std::uint64_t id = 0;
  for (const std::uint32_t bytes : sizes) {
    fill(a, 0, bytes, bytes);
    std::memset(b.memory.bytes.data(), 0xEE, bytes + 1);
    ASSERT_TRUE(b.receive(1000 + id, b.sge(0, std::max(bytes, 1u))));
    ASSERT_TRUE(a.post(SendOpcode::Send, id, {a.sge(0, bytes)}));
    ASSERT_EQ(status_of(b, 1000 + id), WcStatus::Success) << bytes;
    ASSERT_EQ(b.find(1000 + id)->byte_len, bytes);
    ASSERT_EQ(status_of(a, id), WcStatus::Success);
    EXPECT_TRUE(same(a, 0, b, 0, bytes)) << bytes;
    EXPECT_EQ(b.memory.bytes[bytes], std::byte{0xEE});
    ++id;
  }
}

TEST_P(DriverTest, many_sends_keep_their_order_across_wrap_arounds) {
  constexpr std::uint32_t kRounds = 3000;
  std::uint32_t sent = 0;
  std::uint32_t seen = 0;
  std::uint32_t posted = 0;
  for (; posted < 128; ++posted) b.receive(posted, b.sge(posted % 128 * 2048, 2048));
  while (seen < kRounds) {
    while (sent < kRounds && sent < seen + 100 && a.qp->send_room() > 0) {
      put_number(a, sent % 128, sent);
      ASSERT_TRUE(a.post(SendOpcode::Send, 1'000'000 + sent, {a.sge(sent % 128 * 2048, 4 + sent % 1900)}));
      ++sent;
    }
    ASSERT_TRUE(until([&] {
      for (const auto& wc : b.completions)
        if (wc.opcode == WcOpcode::Receive) return true;
      return false;
    }));
    for (const auto& wc : std::exchange(b.completions, {})) {
      if (wc.opcode != WcOpcode::Receive) continue;
      ASSERT_EQ(wc.status, WcStatus::Success);
      ASSERT_EQ(wc.wr_id % 128, seen % 128);
      std::uint32_t number;
      std::memcpy(&number, b.memory.bytes.data() + seen % 128 * 2048, 4);
      ASSERT_EQ(number, seen);
      ASSERT_EQ(wc.byte_len, 4 + seen % 1900);
      ++seen;
      b.receive(posted, b.sge(posted % 128 * 2048, 2048));
      ++posted;
    }
  }
  // Completions of the send queue come in posting order too.
  ASSERT_TRUE(until([&] { return a.completions.size() == kRounds; }));
  for (std::uint32_t i = 0; i < kRounds; ++i) ASSERT_EQ(a.completions[i].wr_id, 1'000'000u + i);
}

TEST_P(DriverTest, gather_lists_and_unsignaled_requests) {
  fill(a, 0, 300, 1);
  b.receive(1, b.sge(0, 512));
  b.receive(2, b.sge(512, 512));
  a.post(SendOpcode::Send, 10, {a.sge(0, 100), a.sge(150, 1), a.sge(200, 99)}, 0, {}, 0);
  a.post(SendOpcode::Send, 11, {a.sge(0, 10)});
  ASSERT_EQ(status_of(a, 11), WcStatus::Success);
  ASSERT_EQ(status_of(b, 2), WcStatus::Success);
  EXPECT_EQ(b.find(1)->byte_len, 200u);
  EXPECT_TRUE(same(a, 0, b, 0, 100));
  EXPECT_TRUE(same(a, 150, b, 100, 1));
  EXPECT_TRUE(same(a, 200, b, 101, 99));
  EXPECT_EQ(a.find(10), nullptr);
}

TEST_P(DriverTest, writes_are_placed_before_a_later_send_is_received) {
  for (const std::uint32_t bytes : {1u, 4096u, 1u << 20, 3u << 20}) {
    fill(b, 0, bytes, bytes);
    const Window window = expose(a, 0, bytes, kRemoteWrite);
    a.receive(bytes, a.sge(kEndpointBytes - 64, 64));
    b.post(SendOpcode::RdmaWrite, bytes + 1, {b.sge(0, bytes / 2), b.sge(bytes / 2, bytes - bytes / 2)},
           window.address, window.rkey);
    b.post(SendOpcode::Send, bytes + 2, {b.sge(0, 1)});
    ASSERT_EQ(status_of(a, bytes), WcStatus::Success);
    EXPECT_TRUE(same(a, 0, b, 0, bytes)) << bytes;
    ASSERT_EQ(status_of(b, bytes + 1), WcStatus::Success);
  }
}

TEST_P(DriverTest, it_says_that_it_moves_data_before_the_completion_comes) {
  const Window window = expose(a, 0, 1u << 20, kRemoteWrite);
  quiesce();
  EXPECT_TRUE(until([&] {
    turn();
    return !a.device->moved() && !b.device->moved();
  })) << "nothing is under way";
  fill(b, 0, 1u << 20, 5);
  ASSERT_TRUE(b.post(SendOpcode::RdmaWrite, 41, {b.sge(0, 1u << 20)}, window.address, window.rkey));
  bool moved = false;
  EXPECT_TRUE(until([&] {
    moved |= b.device->moved();
    return b.find(41) != nullptr;
  }));
  EXPECT_EQ(moved, pair_->moves_data());
  EXPECT_TRUE(until([&] {
    turn();
    return !a.device->moved() && !b.device->moved();
  }));
}

TEST_P(DriverTest, V2_045_reads_bring_the_memory_and_more_than_the_depth_wait) {
  fill(a, 0, 1u << 20, 5);
  const Window window = expose(a, 0, 1u << 20, kRemoteRead);
  const bool in_pieces = b.device->limits().max_read_sge > 1;
  for (std::uint64_t i = 0; i < 64; ++i)
    ASSERT_TRUE(b.post(SendOpcode::RdmaRead, i,
                       in_pieces ? std::vector<Sge>{b.sge(i * 16384, 10000), b.sge(i * 16384 + 10000, 6384)}
                                 : std::vector<Sge>{b.sge(i * 16384, 16384)},
                       window.address + i * 16384, window.rkey));
  a.receive(500, a.sge(2u << 20, 64));
  b.post(SendOpcode::Send, 100, {b.sge(0, 1)}, 0, {}, kSignaled | kFence);
  ASSERT_EQ(status_of(b, 100), WcStatus::Success);
  for (std::uint64_t i = 0; i < 64; ++i) ASSERT_EQ(status_of(b, i), WcStatus::Success);
  EXPECT_TRUE(same(a, 0, b, 0, 1u << 20));
}

TEST_P(Refusal, keys_bounds_and_rights_are_enforced) {
  for (const SendOpcode opcode : {SendOpcode::RdmaRead, SendOpcode::RdmaWrite}) {
    const AccessFlags right = opcode == SendOpcode::RdmaRead ? kRemoteRead : kRemoteWrite;
    const AccessFlags wrong = opcode == SendOpcode::RdmaRead ? kRemoteWrite : kRemoteRead;
    const auto with = [&](AccessFlags access, const auto& spoil) {
      Window window = expose(a, 1024, 1000, access);
      std::uint32_t bytes = 1000;
      spoil(window, bytes);
      expect_refused(opcode, window.address, window.rkey, bytes);
    };
    with(wrong, [](Window&, std::uint32_t&) {});
    with(right, [](Window& w, std::uint32_t&) {
      w.rkey = static_cast<Rkey>(static_cast<std::uint32_t>(w.rkey) ^ 0x10000);
    });
    with(right, [](Window& w, std::uint32_t&) { w.rkey = Rkey{0}; });
    with(right, [](Window& w, std::uint32_t&) { w.rkey = Rkey{0xFFFFFFFF}; });
    if (pair_->holds_window_bounds()) {
      with(right, [](Window& w, std::uint32_t& bytes) { w.address += 1, bytes = 1000; });  // one byte beyond
      with(right, [](Window& w, std::uint32_t& bytes) { w.address -= 1, bytes = 1; });     // one byte before
      with(right, [](Window&, std::uint32_t& bytes) { bytes = 1001; });
    }
    with(right, [](Window& w, std::uint32_t&) { w.address = ~std::uint64_t{0} - 10; });
    with(right, [](Window& w, std::uint32_t&) { w.address += std::uint64_t{1} << 63; });
  }
}

TEST_P(Refusal, V1_139_invalidated_and_foreign_windows_are_refused) {
  if (!has_windows(a) && !has_regions(a)) GTEST_SKIP() << kNoWindows;
  const Window window = expose(a, 0, 4096, kRemoteWrite);
  ASSERT_TRUE(b.post(SendOpcode::RdmaWrite, 4, {b.sge(0, 64)}, window.address, window.rkey));
  ASSERT_EQ(status_of(b, 4), WcStatus::Success);
  ASSERT_TRUE(has_windows(a) ? a.post(SendOpcode::LocalInvalidate, 5, {}, 0, window.rkey)
                             : a.qp->deregister_region(window.window, 5, kSignaled));
  ASSERT_EQ(status_of(a, 5), WcStatus::Success);
  expect_refused(SendOpcode::RdmaWrite, window.address, window.rkey, 64);

  // A window of one connection is not valid on another, and a region ends with its queue pair.
  connect();
  const Window foreign = expose(a, 0, 4096, kRemoteWrite);
  Endpoint c;
  Endpoint d;
  std::swap(a, c);
  std::swap(b, d);
  a.memory = c.memory;
  b.memory = d.memory;
  connect();
  if (has_regions(a)) c.qp.reset();
  expect_refused(SendOpcode::RdmaWrite, foreign.address, foreign.rkey, 64);
}

TEST_P(DriverTest, V1_144_rkeys_differ_with_every_binding_and_do_not_count) {
  if (!has_windows(a)) GTEST_SKIP() << kNoWindows;
  const MemoryWindow window = a.device->allocate_window();
  std::set<std::uint32_t> seen;
  std::uint32_t previous = 0;
  int steps = 0;
  for (std::uint64_t i = 0; i < 200; ++i) {
    const auto rkey = a.qp->bind_window(window, a.memory.bytes.first(64), a.memory.lkey, kRemoteRead);
    ASSERT_TRUE(rkey);
    const auto value = static_cast<std::uint32_t>(*rkey);
    steps += value == previous + 1 || value == previous + 256 || value == previous + 4096;
    previous = value;
    seen.insert(value);
    ASSERT_TRUE(a.post(SendOpcode::LocalInvalidate, i, {}, 0, *rkey));
    ASSERT_EQ(status_of(a, i), WcStatus::Success);
  }
  EXPECT_GT(seen.size(), 195u);
  EXPECT_LT(steps, 10);
}

TEST_P(DriverTest, a_bound_window_cannot_be_bound_again_and_unknown_keys_cannot_be_invalidated) {
  if (!has_windows(a)) GTEST_SKIP() << kNoWindows;
  const Window window = expose(a, 0, 64, kRemoteRead);
  EXPECT_FALSE(a.qp->bind_window(window.window, a.memory.bytes.first(64), a.memory.lkey, kRemoteRead));
  ASSERT_TRUE(a.post(SendOpcode::LocalInvalidate, 1, {}, 0, Rkey{0x12345001}));
  EXPECT_EQ(status_of(a, 1), pair_->local_error(WcStatus::BindError));
}

TEST_P(DriverTest, send_with_invalidate_tells_the_handle_and_ends_access) {
  if (!has_windows(a)) GTEST_SKIP() << kNoWindows;
  if (!b.device->limits().remote_invalidation) GTEST_SKIP() << "the device has no Send with Invalidate";
  const Window window = expose(a, 0, 4096, kRemoteWrite);
  a.receive(1, a.sge(8192, 64));
  ASSERT_TRUE(b.post(SendOpcode::SendWithInvalidate, 2, {b.sge(0, 8)}, 0, window.rkey));
  ASSERT_EQ(status_of(a, 1), WcStatus::Success);
  EXPECT_TRUE(a.find(1)->remote_invalidate);
  EXPECT_EQ(a.find(1)->rkey, window.rkey);
  ASSERT_TRUE(b.post(SendOpcode::RdmaWrite, 3, {b.sge(0, 8)}, window.address, window.rkey));
  EXPECT_EQ(status_of(b, 3), WcStatus::RemoteAccessError);
}

TEST_P(DriverTest, a_receive_that_is_too_short_ends_the_connection) {
  if (pair_->shares_receives()) GTEST_SKIP() << "Receives are shared, and all long enough.";
  b.receive(1, b.sge(0, 63));
  a.post(SendOpcode::Send, 2, {a.sge(0, 64)});
  EXPECT_EQ(status_of(b, 1), WcStatus::LocalLengthError);
  EXPECT_EQ(status_of(a, 2), pair_->refusal_of_too_long());
  EXPECT_EQ(a.qp->state(), QueuePair::State::Error);
  EXPECT_EQ(b.qp->state(), QueuePair::State::Error);
}

TEST_P(DriverTest, receiver_not_ready_waits_for_ever_with_seven_and_gives_up_with_less) {
  if (pair_->shares_receives()) GTEST_SKIP() << "Receives are shared: one is there.";
  a.post(SendOpcode::Send, 1, {a.sge(0, 64)});
  quiesce();
  EXPECT_EQ(a.find(1), nullptr);
  b.receive(2, b.sge(0, 64));
  EXPECT_EQ(status_of(a, 1), WcStatus::Success);

  connect({.rnr_retry = 2});
  a.post(SendOpcode::Send, 3, {a.sge(0, 64)});
  EXPECT_EQ(status_of(a, 3), WcStatus::RnrRetryExceeded);
}

TEST_P(DriverTest, a_send_that_waits_for_a_receive_holds_up_nothing_before_it_and_completes_with_its_own) {
  if (pair_->shares_receives()) GTEST_SKIP() << "Receives are shared: one is there.";
  const Window window = expose(b, 0, 64, kRemoteWrite);
  a.post(SendOpcode::RdmaWrite, 1, {a.sge(0, 64)}, window.address, window.rkey);
  a.post(SendOpcode::Send, 2, {a.sge(0, 64)});
  EXPECT_EQ(status_of(a, 1), WcStatus::Success);
  quiesce();
  a.post(SendOpcode::Send, 3, {a.sge(0, 64)});
  quiesce();
  EXPECT_EQ(a.find(2), nullptr);
  b.receive(4, b.sge(0, 64));
  EXPECT_EQ(status_of(a, 2), WcStatus::Success);
  quiesce();
  EXPECT_EQ(a.find(3), nullptr);
  b.receive(5, b.sge(0, 64));
  EXPECT_EQ(status_of(a, 3), WcStatus::Success);
}

TEST_P(DriverTest, memory_outside_of_regions_is_a_local_protection_error) {
  std::byte outside[64];
  const WcStatus expected = pair_->local_error(WcStatus::LocalProtectionError);
  a.post(SendOpcode::Send, 1, {{outside, 64, a.memory.lkey}});
  EXPECT_EQ(status_of(a, 1), expected);
  connect();
  a.post(SendOpcode::Send, 2, {{a.memory.bytes.data() + kEndpointBytes - 10, 64, a.memory.lkey}});
  EXPECT_EQ(status_of(a, 2), expected);
  connect();
  a.post(SendOpcode::Send, 3, {{a.memory.bytes.data(), 64, Lkey{0xDEAD0001}}});
  EXPECT_EQ(status_of(a, 3), expected);
}

TEST_P(DriverTest, everything_outstanding_flushes_once_and_in_order_and_posting_in_error_flushes_too) {
  if (pair_->shares_receives()) GTEST_SKIP() << "Receives are shared: Sends do not wait for one.";
  for (std::uint64_t i = 0; i < 20; ++i) a.receive(100 + i, a.sge(i * 64, 64));
  for (std::uint64_t i = 0; i < 20; ++i)
    a.post(SendOpcode::Send, i, {a.sge(0, 64)}, 0, {}, static_cast<std::uint8_t>(i % 2 ? 1 : 0));
  a.qp->to_error();
  EXPECT_TRUE(a.post(SendOpcode::Send, 20, {a.sge(0, 64)}));
  EXPECT_TRUE(a.receive(120, a.sge(0, 64)));
  ASSERT_TRUE(until([&] { return a.completions.size() >= 42; }));
  quiesce();
  ASSERT_EQ(a.completions.size(), 42u);
  std::uint64_t next_send = 0;
  std::uint64_t next_receive = 100;
  for (const WorkCompletion& wc : a.completions) {
    EXPECT_EQ(wc.status, WcStatus::WrFlushError);
    EXPECT_EQ(wc.wr_id, wc.opcode == WcOpcode::Receive ? next_receive++ : next_send++);
  }
}

TEST_P(DriverTest, immediate_data_arrives_with_sends_and_writes) {
  if (!a.device->limits().immediate_data) GTEST_SKIP() << "this driver has no immediate data";
  for (const std::uint32_t bytes : {0u, 5u, 9000u}) {
    connect();
    fill(a, 0, bytes, 3);
    const Window window = expose(b, 65536, 16384, kRemoteWrite);
    b.receive(1, b.sge(0, 16384));
    b.receive(2, b.sge(32768, 64));
    const Sge sge = a.sge(0, bytes);
    const SendWr wrs[] = {
        {.wr_id = 3, .sges = {&sge, 1}, .opcode = SendOpcode::SendWithImmediate, .immediate = 77},
        {.wr_id = 4,
         .sges = {&sge, 1},
         .remote_address = window.address,
         .rkey = window.rkey,
         .opcode = SendOpcode::RdmaWriteWithImmediate,
         .immediate = 0xFFFFFFFE}};
    ASSERT_EQ(a.qp->post_send(wrs), 2u);
    ASSERT_EQ(status_of(b, 2), WcStatus::Success);
    ASSERT_EQ(status_of(b, 1), WcStatus::Success);
    EXPECT_EQ(b.find(1)->immediate, 77u);
    EXPECT_EQ(b.find(1)->byte_len, bytes);
    EXPECT_EQ(b.find(2)->immediate, 0xFFFFFFFEu);
    EXPECT_EQ(b.find(2)->byte_len, bytes);
    EXPECT_TRUE(b.find(1)->has_immediate && b.find(2)->has_immediate);
    EXPECT_TRUE(same(a, 0, b, 0, bytes));
    EXPECT_TRUE(same(a, 0, b, 65536, bytes));
    ASSERT_EQ(status_of(a, 4), WcStatus::Success);
  }
}

TEST_P(DriverTest, a_full_queue_takes_a_part) {
  connect({.send_depth = 8, .recv_depth = 8});
  std::vector<SendWr> sends(20);
  std::vector<RecvWr> receives(20);
  const Sge sge = a.sge(0, 4);
  for (std::uint64_t i = 0; i < 20; ++i)
    sends[i] = {.wr_id = i, .sges = {&sge, 1}}, receives[i] = {100 + i, a.sge(64, 64)};
  EXPECT_EQ(a.qp->send_room(), 8u);
  EXPECT_EQ(a.qp->post_send(sends), 8u);
  EXPECT_EQ(a.qp->send_room(), 0u);
  EXPECT_EQ(a.qp->post_send(sends), 0u);
  EXPECT_EQ(a.qp->post_recv(receives), 8u);
  for (std::uint64_t i = 0; i < 8; ++i) b.receive(i, b.sge(0, 64));
  ASSERT_EQ(status_of(a, 7), WcStatus::Success);
  EXPECT_EQ(a.qp->send_room(), 8u);
}

TEST_P(DriverTest, connections_come_and_go_without_a_leak) {
  for (int i = 0; i < 300; ++i) {
    connect();
    b.receive(1, b.sge(0, 64));
    a.post(SendOpcode::Send, 2, {a.sge(0, 64)});
    ASSERT_EQ(status_of(b, 1), WcStatus::Success) << i;
  }
}

}  // namespace
}  // namespace sluice::rdma::conformance
