// SPDX-License-Identifier: Apache-2.0
//
// Number of times that a call crosses a long wire, by the version of RPC-over-RDMA. Time passes only when the
// test says so.
#include <gtest/gtest.h>

#include <vector>

#include "dataplane/rpc/message.h"
#include "dataplane/service/api/null.h"
#include "tests/driver/rpcrdma_pair.h"

namespace sluice::rdma::conformance {
namespace {

TEST(DelayLine, items_arrive_in_order_and_not_before_their_time) {
  DelayLine<int> line(2, 100);
  EXPECT_FALSE(line.next_ns());
  EXPECT_TRUE(line.push(1, 1000));
  EXPECT_TRUE(line.push(2, 1050));
  EXPECT_FALSE(line.push(3, 1060)) << "there is room for two";
  EXPECT_EQ(line.next_ns(), 1100u);
  EXPECT_FALSE(line.take(1099));
  EXPECT_EQ(line.take(1100), 1);
  EXPECT_FALSE(line.take(1149));
  EXPECT_EQ(line.take(1150), 2);
  EXPECT_FALSE(line.take(~std::uint64_t{0}));
}

struct Case {
  const char* name;
  std::uint32_t version;
  std::uint32_t inline_bytes;
};

class Trips : public testing::TestWithParam<Case> {
 protected:
  static constexpr std::uint64_t kOneWayNs = 20'000;
  static constexpr std::uint32_t kBytes = 8192;

  Trips()
      : pair_({.ports = {.one_way_ns = kOneWayNs, .clock_ns = []() noexcept { return now_ns_; }},
               .version = GetParam().version,
               .inline_bytes = GetParam().inline_bytes}) {
    pair_.server().add_service(null_);
  }
  void SetUp() override {
    trips_of(0, 0);  // the first exchange of the ends is not part of a call
    while (pass()) {
    }
  }
  void TearDown() override { EXPECT_EQ(pair_.ports().wire().counts().dropped, 0u); }

  /// Advances the clock to the next arrival. Returns false if no frame is in flight.
  bool pass() {
    pair_.settle();
    const auto next = pair_.ports().wire().next_arrival_ns();
    if (next) now_ns_ = *next;
    return next.has_value();
  }
  struct Called {
    std::uint64_t begun_ns = 0;
    std::uint64_t done_ns = 0;  ///< zero until the reply has arrived
    std::size_t reply_bytes = 0;

    /// One-way trips between the call and its reply.
    std::uint64_t trips() const {
      EXPECT_EQ((done_ns - begun_ns) % kOneWayNs, 0u);
      return (done_ns - begun_ns) / kOneWayNs;
    }
  };
  /// Submits a call with arguments and results of these sizes. `called` must stay at its address until the
  /// reply has arrived.
  void call(std::uint32_t call_bytes, std::uint32_t reply_bytes, Called& called) {
    std::vector<std::byte> message(rpc::kMinCallBytes + xdr::kUnit + call_bytes);
    xdr::Writer writer(message);
    rpc::encode_call(writer, {.program = service::kNullProgram,
                              .version = service::kNullVersion,
                              .procedure = service::kBulkProcedure,
                              .credential = {},
                              .verifier = {}});
    writer.u32(reply_bytes);
    const auto completed = [](void* context, const rpcrdma::Reply& reply) noexcept {
      auto& done = *static_cast<Called*>(context);
      done.done_ns = now_ns_;
      if (reply.status() == rpcrdma::CallStatus::Ok) done.reply_bytes = reply.message().size();
    };
    called.begun_ns = now_ns_;
    ASSERT_TRUE(pair_.requester().submit(
        {.payload = message,
         .max_reply_bytes = static_cast<std::uint32_t>(rpc::kMinReplyBytes) + reply_bytes,
         .completion = completed,
         .context = &called}));
    pair_.settle();
  }
  void await(const Called& called, std::uint32_t reply_bytes) {
    while (called.done_ns == 0 && pass()) pair_.settle();
    EXPECT_EQ(called.reply_bytes, rpc::kMinReplyBytes + reply_bytes);
  }
  std::uint64_t trips_of(std::uint32_t call_bytes, std::uint32_t reply_bytes) {
    Called called;
    call(call_bytes, reply_bytes, called);
    await(called, reply_bytes);
    return called.trips();
  }
  bool version_2() const { return GetParam().version == 2; }

  static inline std::uint64_t now_ns_ = 1'000'000'000;
  service::NullService null_;
  RpcRdmaPair pair_;
};

TEST_P(Trips, a_short_call_and_its_reply_cross_the_wire_once_each) {
  EXPECT_EQ(trips_of(0, 0), 2u);
}

/// The responder has to fetch a Long Call, whereas the client sends the parts of a continued call itself.
TEST_P(Trips, a_call_of_8_kib_is_fetched_in_version_1_and_comes_by_itself_in_version_2) {
  const RpcRdmaPair::Operations before = pair_.operations();
  EXPECT_EQ(trips_of(kBytes, 0), version_2() ? 2u : 4u);
  while (pass()) {
  }
  EXPECT_EQ(pair_.operations().reads - before.reads, version_2() ? 0u : 1u);
  EXPECT_EQ(pair_.operations().writes - before.writes, 0u);
}

/// RDMA Writes into a Reply chunk need no answer before the reply that follows them.
TEST_P(Trips, a_reply_of_8_kib_crosses_the_wire_once_in_either_version) {
  const RpcRdmaPair::Operations before = pair_.operations();
  EXPECT_EQ(trips_of(0, kBytes), 2u);
  while (pass()) {
  }
  EXPECT_EQ(pair_.operations().reads - before.reads, 0u);
  EXPECT_EQ(pair_.operations().writes - before.writes, version_2() ? 0u : 1u);
}

/// The client invalidates the Reply chunk's memory before it uses the reply. The work request for that
/// completes after the Sends posted before it, which are acknowledged a round trip after they were posted.
TEST_P(Trips, a_long_reply_waits_in_version_1_for_the_acknowledgement_of_calls_that_followed_its_own) {
  Called first;
  Called second;
  call(0, kBytes, first);
  ASSERT_TRUE(pass());
  call(0, 0, second);
  await(first, kBytes);
  await(second, 0);
  EXPECT_EQ(first.trips(), version_2() ? 2u : 3u);
  EXPECT_EQ(second.trips(), 2u);
}

INSTANTIATE_TEST_SUITE_P(Versions, Trips,
                         testing::Values(Case{"v1_1_kib", 1, 1024}, Case{"v1_4_kib", 1, 4096},
                                         Case{"v2_4_kib", 2, 4096}),
                         [](const auto& chosen) { return std::string(chosen.param.name); });

}  // namespace
}  // namespace sluice::rdma::conformance
