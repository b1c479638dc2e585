// SPDX-License-Identifier: Apache-2.0
//
// Calls that the upstream answers late, as the gateway notes them.
#include "dataplane/segment/slow_calls.h"
#include "tests/unit/gateway/tcp_upstream/forward_lab.h"

namespace sluice::tcp_upstream_test {
namespace {

constexpr std::uint64_t kSecondNs = 1'000'000'000;

TEST(ForwardSlow, a_call_that_the_upstream_answers_late_is_noted_with_the_upstreams_part) {
  ForwardLab lab;
  const auto table = std::make_unique<segment::CallTable>();
  const auto slow = std::make_unique<segment::SlowCallRing>();
  lab.engine->measure(*table, &ForwardLab::clock);
  lab.engine->set_slow_calls(*slow, &ForwardLab::clock);
  lab.engine->set_slow_call_ns(kSecondNs);
  LabClient& client = lab.add_client();
  const Bytes call = call_of(0x20000123, 1, 7);
  const std::size_t ticket = client.submit({.payload = call, .max_reply_bytes = 64});
  ASSERT_TRUE(lab.until([&] { return lab.upstream.calls.size() == 1; }));
  lab.pass(3 * kSecondNs);
  lab.turns();
  EXPECT_EQ(slow->written.load(), 0u) << "it goes on";
  lab.upstream.send(0, record(success(lab.upstream.calls[0].xid())));
  ASSERT_TRUE(lab.until([&] { return client.finished[ticket].has_value() && slow->written.load() == 1; }));
  const segment::SlowCall noted = *slow->records[0].read();
  EXPECT_EQ(noted.call.program, 0x20000123u);
  EXPECT_EQ(noted.call.procedure, 7u);
  EXPECT_GE(noted.upstream_ns, 3 * kSecondNs);
  EXPECT_LE(noted.upstream_ns, noted.call.total_ns);
  EXPECT_GE(noted.call.state_ns[static_cast<std::size_t>(rpcrdma::CallSlot::State::Executing)],
            3 * kSecondNs);
  // The next one in its place is fast, and has nothing of it.
  lab.upstream.answer = [](const auto& next) { return success(next.xid()); };
  EXPECT_EQ(lab.call(client, {.payload = call, .max_reply_bytes = 64}).status, CallStatus::Ok);
  lab.engine->set_slow_call_ns(1);
  EXPECT_EQ(lab.call(client, {.payload = call, .max_reply_bytes = 64}).status, CallStatus::Ok);
  ASSERT_TRUE(lab.until([&] { return slow->written.load() == 2; }));
  EXPECT_LT(slow->records[1].read()->upstream_ns, 3 * kSecondNs);
}

}  // namespace
}  // namespace sluice::tcp_upstream_test
