// SPDX-License-Identifier: Apache-2.0
//
// Version 2: a requester whose Write chunks are too short for the results offers more of the caller's memory,
// up to all of it (V2-118).
#include <gtest/gtest.h>

#include <array>

#include "tests/conformance/v2_client.h"

namespace sluice::conformance::v2 {
namespace {

constexpr std::uint32_t kWriteResource = 8;
constexpr std::uint32_t kFirstOffer = 512;

/// Options with a single request slot.
LabOptions one_slot() {
  LabOptions options = Client::defaults();
  options.requester.requests = 1;
  return options;
}

struct Replan : Client {
  Replan() : Client(one_slot()), memory(device->allocate_memory(65536)) { confirm(); }
  rdma::Sge piece(std::uint32_t from, std::uint32_t bytes) {
    return {memory.bytes.data() + from, bytes, memory.lkey};
  }
  /// Submits a call and returns it as sent.
  Bytes call(std::span<const rpcrdma::ReadItem> reads, std::span<const rpcrdma::WriteItem> writes) {
    peer->inbox.clear();
    const Bytes payload = test_call(0, TestService::kSink, {64, 64, 0, 0, 0, 0});
    submit({.payload = payload, .reads = reads, .writes = writes, .max_reply_bytes = 64, .repeatable = true});
    settle();
    const auto calls = sent();
    EXPECT_EQ(calls.size(), 1u);
    return calls.empty() ? Bytes{} : calls.front();
  }
  /// Returns the lengths of the Write chunks of a call, segment by segment.
  static std::vector<std::vector<std::uint32_t>> offered(const Bytes& call) {
    const auto decoded = rpcrdma::v2::decode(call, rpcrdma::v2::Negotiation::Fixed);
    std::vector<std::vector<std::uint32_t>> lengths;
    for (const auto chunk : decoded.header.chunks.writes) {
      lengths.emplace_back();
      for (std::uint32_t i = 0; i < chunk.size(); ++i) lengths.back().push_back(chunk[i].length);
    }
    return lengths;
  }
  rdma::MemoryRegion memory;
};

/// Makes a call with two arguments of two pieces each, and answers it.
void use_the_slot(Replan& lab) {
  const std::array arguments{lab.piece(0, 8), lab.piece(64, 8), lab.piece(128, 8), lab.piece(192, 8)};
  const std::array reads{
      rpcrdma::ReadItem{.position = rpcrdma::Position{44}, .pieces = std::span(arguments).first(2)},
      rpcrdma::ReadItem{.position = rpcrdma::Position{64}, .pieces = std::span(arguments).subspan(2)}};
  const Bytes call = lab.call(reads, {});
  lab.answer(success(word_at(call, 0)));
  ASSERT_EQ(lab.finished.size(), 1u);
  ASSERT_EQ(lab.finished[0].status, rpcrdma::CallStatus::Ok);
}

TEST(V2Replan, V2_118_a_result_may_grow_to_its_own_memory_behind_the_arguments_memory) {
  for (const std::uint32_t needed : {4096u, 4097u}) {
    Replan lab;
    use_the_slot(lab);
    const rdma::Sge argument = lab.piece(0, 16);
    const std::array result{lab.piece(1024, 2048), lab.piece(8192, 2048)};
    const rpcrdma::ReadItem read{.position = rpcrdma::Position{44}, .pieces = {&argument, 1}};
    const rpcrdma::WriteItem write{.pieces = result, .first_offer_bytes = kFirstOffer};
    const Bytes call = lab.call({&read, 1}, {&write, 1});
    EXPECT_EQ(Replan::offered(call), (std::vector<std::vector<std::uint32_t>>{{kFirstOffer}}));
    lab.answer(error(word_at(call, 0), kWriteResource, {1, needed}));
    if (needed > 4096) {
      EXPECT_TRUE(lab.sent().empty());
      ASSERT_EQ(lab.finished.size(), 2u);
      EXPECT_EQ(lab.finished[1].status, rpcrdma::CallStatus::Refused);
      continue;
    }
    ASSERT_EQ(lab.sent().size(), 1u);
    EXPECT_EQ(Replan::offered(lab.sent()[0]), (std::vector<std::vector<std::uint32_t>>{{2048, 2048}}));
  }
}

/// The refusal may arrive before the completion of the refused call's Send. The second call is sent from the
/// same buffer.
TEST(V2Replan, V2_118_a_call_goes_out_again_when_its_first_send_is_complete) {
  Replan lab;
  lab.device->hold = [](const rdma::WorkCompletion& wc) {
    return rpcrdma::WrId::decode(wc.wr_id).kind == rpcrdma::WrKind::CallSent;
  };
  const rdma::Sge result = lab.piece(1024, 4096);
  const rpcrdma::WriteItem write{.pieces = {&result, 1}, .first_offer_bytes = kFirstOffer};
  const Bytes call = lab.call({}, {&write, 1});
  lab.answer(error(word_at(call, 0), kWriteResource, {1, 4096}));
  EXPECT_TRUE(lab.sent().empty());
  lab.device->hold = nullptr;
  lab.settle();
  const auto again = lab.sent();
  ASSERT_EQ(again.size(), 1u);
  EXPECT_EQ(Replan::offered(again[0]), (std::vector<std::vector<std::uint32_t>>{{4096}}));
  lab.answer(success(word_at(call, 0)));
  ASSERT_EQ(lab.finished.size(), 1u);
  EXPECT_EQ(lab.finished[0].status, rpcrdma::CallStatus::Ok);
}

TEST(V2Replan, V2_118_the_second_result_may_grow_to_its_own_memory_and_the_first_stays_as_it_is) {
  Replan lab;
  use_the_slot(lab);
  const std::array first{lab.piece(0, 256), lab.piece(512, 256)};
  const rdma::Sge second = lab.piece(1024, 4096);
  const std::array writes{rpcrdma::WriteItem{.pieces = first},
                          rpcrdma::WriteItem{.pieces = {&second, 1}, .first_offer_bytes = kFirstOffer}};
  const Bytes call = lab.call({}, writes);
  lab.answer(error(word_at(call, 0), kWriteResource, {2, 4096}));
  ASSERT_EQ(lab.sent().size(), 1u);
  EXPECT_EQ(Replan::offered(lab.sent()[0]), (std::vector<std::vector<std::uint32_t>>{{256, 256}, {4096}}));
}

TEST(V2Replan, V2_118_a_chunk_that_was_not_offered_or_is_long_enough_is_not_offered_again) {
  struct Case {
    std::uint32_t index;
    std::uint32_t needed;
  };
  for (const Case& some : {Case{0, 1024}, Case{2, 1024}, Case{1, kFirstOffer}}) {
    Replan lab;
    const rdma::Sge result = lab.piece(0, 4096);
    const rpcrdma::WriteItem write{.pieces = {&result, 1}, .first_offer_bytes = kFirstOffer};
    const Bytes call = lab.call({}, {&write, 1});
    lab.answer(error(word_at(call, 0), kWriteResource, {some.index, some.needed}));
    EXPECT_TRUE(lab.sent().empty());
    ASSERT_EQ(lab.finished.size(), 1u);
    EXPECT_EQ(lab.finished[0].status, rpcrdma::CallStatus::Refused);
  }
}

}  // namespace
}  // namespace sluice::conformance::v2
