// SPDX-License-Identifier: Apache-2.0
//
// Version 2 at the responder: transport properties, and the limits that result from the sets of both ends.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/conformance/v2_lab.h"

namespace sluice::conformance::v2 {
namespace {

TEST(V2Properties, V2_047_V2_048_thresholds_follow_from_both_ends) {
  for (const std::uint32_t theirs : {0u, 4096u, 8192u, 32768u}) {
    for (const std::uint32_t ours : {4096u, 8192u, 32768u}) {
      LabOptions options = Server::defaults();
      options.engine.capacity.receive_bytes = 32768;
      options.connection.receive_inline_bytes = 32768;
      options.connection.version2.parameters.max_send_bytes = ours;
      Server lab(options);
      const Header first{.xid = 1, .credit = 0x00400100, .type = kConnProp};
      lab.peer->send(theirs == 0 ? first.then({0}) : first.then({1, 2, 4, theirs}));
      lab.settle();
      lab.peer->inbox.clear();
      lab.ask(Header{.xid = 2}.with(test_call(2, TestService::kList, {100000})));
      std::size_t largest = 0;
      for (const Received& received : lab.peer->inbox) largest = std::max(largest, received.bytes.size());
      EXPECT_EQ(largest, std::min(ours, theirs == 0 ? 4096 : theirs));
      // The very next message may be as long as the Receives that were announced.
      Bytes name = test_call(3, TestService::kName, {32768 - 36 - 44});
      name.resize(32768 - 36);
      EXPECT_TRUE(is_success(lab.answer(Header{.xid = 3}.with(name)), 3));
    }
  }
}

TEST(V2Properties, V2_047_a_small_receive_buffer_counts_from_the_next_call_on) {
  Server lab;
  lab.connection->set_property_sink(
      [](void*, rpcrdma::Connection&, std::span<const std::byte>, bool) noexcept { return true; }, nullptr);
  lab.peer->send(Header{.xid = 1, .credit = 0x00400100, .type = kConnProp}.then({1, 2, 4, 2048}));
  lab.peer->send(Header{.xid = 2}.with(test_call(2, TestService::kList, {10000})));
  lab.settle();
  std::size_t bytes = 0;
  for (const Bytes& message : lab.answers()) {
    EXPECT_LE(message.size(), 2048u);
    bytes += message.size();
  }
  EXPECT_GT(bytes, 10000u);
}

/// Holds back completions of property Sends, except for the first `passed`.
void hold_properties(Server& lab, int passed) {
  lab.device->hold = [passed](const rdma::WorkCompletion& wc) mutable {
    return rpcrdma::WrId::decode(wc.wr_id).kind == rpcrdma::WrKind::ControlSent && passed-- <= 0;
  };
}

TEST(V2Properties, V2_062_host_authentication_keeps_its_memory_until_its_own_send_is_complete) {
  Server lab;
  const auto& memory = lab.engine->assembly_memory();
  hold_properties(lab, 0);  // the peer acknowledges nothing
  lab.hello();
  ASSERT_TRUE(lab.connection->send_host_authentication(Bytes(200)));
  lab.settle();
  ASSERT_EQ(memory.available(), memory.buffers() - 1);
  hold_properties(lab, 1);  // the greeting, and nothing after it
  lab.settle();
  EXPECT_EQ(memory.available(), memory.buffers() - 1);
  lab.device->hold = nullptr;
  lab.settle();
  EXPECT_EQ(memory.available(), memory.buffers());
}

TEST(V2Properties, V2_062_host_authentication_in_parts_keeps_its_memory_between_them) {
  LabOptions options = Server::defaults();
  options.engine.small_buffer_bytes = 16384;
  Server lab(options);
  lab.peer->send(Header{.xid = 1, .credit = 0x00400002, .type = kConnProp}.then({0}));  // two credits
  lab.settle();
  const auto& memory = lab.engine->assembly_memory();
  lab.peer->inbox.clear();
  ASSERT_TRUE(lab.connection->send_host_authentication(Bytes(12000)));
  lab.settle();
  const auto parts = [&] {
    std::size_t count = 0;
    for (const Received& received : lab.peer->inbox) count += word_at(received.bytes, 3) == kConnProp ? 1 : 0;
    return count;
  };
  const std::size_t first = parts();
  ASSERT_GT(first, 0u);
  EXPECT_EQ(memory.available(), memory.buffers() - 1) << "those that are sent are complete, others are to go";
  for (int i = 0; i < 8; ++i) lab.peer->send(grant(static_cast<std::uint16_t>(4))), lab.settle();
  EXPECT_GT(parts(), first);
  EXPECT_EQ(memory.available(), memory.buffers());
}

TEST(V2Properties, V2_052_V2_053_V2_056_V2_061_unknown_ones_are_skipped_and_the_order_does_not_matter) {
  const auto after = [](std::initializer_list<std::uint32_t> body) {
    Server lab;
    lab.peer->send(Header{.xid = 1, .credit = 0x00400040, .type = kConnProp}.then(body));
    lab.settle();
    EXPECT_TRUE(lab.answers().empty());
    EXPECT_TRUE(lab.alive2());
    return lab.connection->agreement();
  };
  const auto known = after({2, 2, 4, 8192, 4, 4, 3});
  EXPECT_EQ(known.send_bytes, 8192u);
  EXPECT_EQ(known.max_segments, 3u);
  for (const auto& same : {after({3, 4, 4, 3, 0x7fff0001, 3, 0xdeadbe00, 2, 4, 8192}),
                           after({4, 0, 0, 4, 4, 3, 0xffffffff, 4, 1, 2, 4, 8192})}) {
    EXPECT_EQ(same.send_bytes, known.send_bytes);
    EXPECT_EQ(same.max_segments, known.max_segments);
  }
  const auto defaults = after({6, 1, 0, 2, 0, 3, 0, 4, 0, 5, 0, 6, 0});
  EXPECT_EQ(defaults.send_bytes, 4096u);
  EXPECT_EQ(defaults.max_segment_bytes, 1048576u);
  EXPECT_EQ(defaults.max_segments, 16u);
  EXPECT_EQ(defaults.reverse, rpcrdma::v2::ReverseSupport::Inline);
  EXPECT_EQ(after({1, 5, 4, 77}).reverse, rpcrdma::v2::ReverseSupport::Inline);  // V2-061
}

TEST(V2Properties, V2_054_V2_055_V2_110_properties_that_cannot_be_parsed_are_refused_whole) {
  Server lab;
  lab.hello(200);
  for (const Bytes& bad : {Header{.xid = 7, .type = kConnProp}.then({2, 4, 4, 3, 2, 3, 0x11223300}),
                           Header{.xid = 7, .type = kConnProp}.then({1, 2, 5, 1, 0x11000000}),
                           Header{.xid = 7, .type = kConnProp}.then({1, 6, 8, 99, 0}),
                           Header{.xid = 7, .type = kConnProp}.then({1, 0x7fff0001, 0xfffffff0}),
                           Header{.xid = 7, .type = kConnProp}.then({0x20000000, 2, 4, 8192}),
                           Header{.xid = 7, .type = kConnProp}.then({2, 2, 4, 8192, 2, 4, 8192}),
                           Header{.xid = 7, .type = kConnProp}.then({1, 2, 4, 8192, 0}),
                           Header{.xid = 7, .type = kConnProp}.prefix()}) {
    EXPECT_TRUE(is_error(lab.answer(bad), 7, 2));
    EXPECT_EQ(lab.connection->agreement().send_bytes, 4096u);
  }
  EXPECT_TRUE(lab.alive2());
}

TEST(V2Properties, V2_059_V2_060_later_sets_change_nothing) {
  Server lab;
  lab.hello();
  EXPECT_TRUE(lab.ask(Header{.xid = 8, .type = kConnProp}.then({1, 2, 4, 65536})).empty());
  EXPECT_EQ(lab.connection->agreement().send_bytes, 4096u);
  EXPECT_EQ(lab.counters().late_properties, 1u);
  for (int i = 0; i < 50; ++i)
    EXPECT_TRUE(lab.ask(Header{.xid = 9, .type = kConnProp}.then({1, 0x7fff0001, 0})).empty());
  EXPECT_EQ(lab.engine->counters().calls_received, 0u);
  EXPECT_TRUE(lab.alive2());
}

TEST(V2Properties, V2_064_split_at_each_position_they_are_the_same) {
  const auto body = words({2, 2, 4, 8192, 4, 4, 3});
  for (std::size_t at = 4; at < body.size(); at += 4) {
    Server lab;
    Bytes first = Header{.xid = 3, .credit = 0x00400040, .type = kConnProp, .flags = kMore}.prefix();
    append(first, std::span(body).first(at));
    Bytes second = Header{.xid = 3, .type = kConnProp}.prefix();
    append(second, std::span(body).subspan(at));
    lab.peer->send(first);
    lab.settle();
    EXPECT_EQ(lab.connection->agreement().send_bytes, 4096u);
    lab.peer->send(second);
    lab.settle();
    EXPECT_TRUE(lab.answers().empty());
    EXPECT_EQ(lab.connection->agreement().send_bytes, 8192u);
    EXPECT_EQ(lab.connection->agreement().max_segments, 3u);
    EXPECT_TRUE(lab.alive2());
  }
  Server lab;
  lab.hello();
  lab.peer->send(Header{.xid = 3, .type = kConnProp, .flags = kMore}.then({1, 2}));
  const auto answers = lab.ask(Header{.xid = 4, .type = kConnProp}.then({4, 8192}));
  ASSERT_EQ(answers.size(), 2u);
  EXPECT_TRUE(is_error(answers[0], 3, 4));
  EXPECT_TRUE(is_error(answers[1], 4, 4));
}

TEST(V2Properties, V2_065_values_out_of_range_are_clamped) {
  const auto send_bytes = [](std::uint32_t value) {
    Server lab;
    lab.peer->send(Header{.xid = 1, .credit = 0x00400040, .type = kConnProp}.then({1, 2, 4, value}));
    lab.settle();
    EXPECT_TRUE(lab.alive2());
    return lab.connection->agreement().send_bytes;
  };
  const std::uint32_t lab_limit = Server().connection->own_parameters().max_send_bytes;
  EXPECT_EQ(send_bytes(0), 1024u);
  EXPECT_EQ(send_bytes(17), 1024u);
  EXPECT_EQ(send_bytes(0xffffffff), lab_limit);
  Server lab;
  lab.peer->send(Header{.xid = 1, .credit = 0x00400100, .type = kConnProp}.then(
      {4, 2, 4, 1, 3, 4, 1, 4, 4, 0, 5, 4, 9}));
  lab.settle();
  lab.peer->inbox.clear();
  lab.ask(Header{.xid = 2}.with(test_call(2, TestService::kList, {20000})));
  EXPECT_GT(lab.answers().size(), 19u);
  EXPECT_TRUE(lab.alive2());
}

}  // namespace
}  // namespace sluice::conformance::v2
