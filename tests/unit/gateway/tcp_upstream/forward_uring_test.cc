// SPDX-License-Identifier: Apache-2.0
//
// Upstreams are served with the io_uring features that the kernel supports. The tests disable each of the
// features, one at a time.
#include "dataplane/tcp/uring.h"
#include "tests/unit/gateway/tcp_upstream/forward_lab.h"

namespace sluice::tcp_upstream_test {
namespace {

using Counter = segment::UpstreamCounter;

struct ForwardUring : testing::TestWithParam<UringFeatures> {
  static ForwardOptions options() { return {.shared_connections = 1, .uring = GetParam()}; }
};
INSTANTIATE_TEST_SUITE_P(Features, ForwardUring,
                         testing::Values(UringFeatures::all(),
                                         UringFeatures::all().without(UringFeature::deferred_work),
                                         UringFeatures::all().without(UringFeature::multishot_receive),
                                         UringFeatures::all().without(UringFeature::registered_ring),
                                         UringFeatures()),
                         [](const auto& with) { return "with_" + std::to_string(with.param.bits()); });

TEST_P(ForwardUring, those_in_use_are_shown) {
  ForwardLab lab(options());
  lab.area->uring_features = ~0u;
  ASSERT_TRUE(lab.until([&] {
    lab.pass(tcp_upstream::kCreditIntervalNs);
    return lab.area->uring_features.load() == (GetParam().bits() & tcp::uring_features_of_kernel().bits());
  }));
}

TEST_P(ForwardUring, short_and_long_replies_come_in_any_order) {
  ForwardLab lab(options());
  LabClient& client = lab.add_client();
  for (const std::size_t bytes : {4u, 700'000u, 100u, 16'000u, 16'384u, 16u, 40'000u, 4u}) {
    const Bytes results = pattern(bytes, static_cast<std::uint32_t>(bytes));
    lab.upstream.answer = [&](const auto& call) { return success(call.xid(), results); };
    const Outcome outcome = lab.call(client, {.payload = unknown_call({}), .max_reply_bytes = 1u << 20});
    ASSERT_EQ(outcome.status, CallStatus::Ok);
    EXPECT_EQ(Bytes(outcome.message.begin() + kResultsAt, outcome.message.end()), results) << bytes;
  }
}

TEST_P(ForwardUring, long_calls_arrive_whole) {
  ForwardLab lab(options());
  LabClient& client = lab.add_client();
  lab.upstream.answer = [](const auto& call) { return success(call.xid(), words({0})); };
  const LongWrite write(client, 1u << 20);
  conformance::fill_pattern(write.data, 6);
  ASSERT_EQ(lab.call(client, write.request()).status, CallStatus::Ok);
  const Bytes& seen = lab.upstream.calls.back().message;
  ASSERT_EQ(seen.size(), write.call.size() + write.data.size());
  EXPECT_TRUE(conformance::has_pattern(std::span(seen).subspan(write.call.size(), write.data.size()), 6));
}

/// Makes calls during which the upstream sends `half(reply)` on the first connection and, if `closes`, closes
/// it. Checks that the connection is opened again once.
void lose_connections(ForwardLab& lab, const std::function<Bytes(const Bytes& reply)>& half, bool closes) {
  LabClient& client = lab.add_client();
  for (std::uint32_t round = 1; round <= 5; ++round) {
    lab.upstream.answer = nullptr;
    lab.upstream.calls.clear();
    const std::size_t index = client.submit({.payload = unknown_call({}), .max_reply_bytes = 1u << 20});
    ASSERT_TRUE(lab.until([&] { return lab.upstream.calls.size() == 1; }));
    const std::size_t connection = lab.upstream.calls[0].connection;
    const Bytes reply = success(lab.upstream.calls[0].xid(), pattern(round * 15'000, round));
    lab.upstream.send(connection, half(reply));
    lab.upstream.poll();
    if (closes) lab.upstream.close(connection);
    lab.upstream.answer = [&](const auto& call) {
      Bytes again = reply;
      xdr::store_u32(again.data(), call.xid());
      return again;
    };
    ASSERT_TRUE(lab.until([&] {
      lab.pass(tcp_upstream::kFirstRetryNs / 10);
      return client.finished[index].has_value();
    }));
    ASSERT_EQ(client.finished[index]->status, CallStatus::Ok);
    EXPECT_EQ(Bytes(client.finished[index]->message.begin() + 4, client.finished[index]->message.end()),
              Bytes(reply.begin() + 4, reply.end()));
    EXPECT_EQ(lab.count(Counter::disconnects), round);
    EXPECT_EQ(lab.upstream.connections(), round + 1);
  }
}

// Data of the lost connection that the kernel still holds is not taken for the next connection's.
TEST_P(ForwardUring, a_connection_that_is_lost_in_a_reply_is_made_again_once) {
  ForwardLab lab(options());
  lose_connections(
      lab,
      [](const Bytes& reply) {
        const Bytes whole = record(reply);
        return Bytes(whole.begin(), whole.begin() + std::ssize(whole) / 2);
      },
      true);
}

// Further bytes arrive after the gateway has given up the connection.
TEST_P(ForwardUring, a_connection_that_says_nonsense_is_made_again_once) {
  ForwardLab lab(options());
  lose_connections(
      lab,
      [](const Bytes& reply) {
        Bytes nonsense = words({0x7fffffff});
        append(nonsense, reply);
        return nonsense;
      },
      false);
}

}  // namespace
}  // namespace sluice::tcp_upstream_test
