// SPDX-License-Identifier: Apache-2.0
//
// Calls that a server over RDMA answers late, as the relay notes them.
#include "dataplane/segment/slow_calls.h"
#include "tests/unit/gateway/rdma_upstream/relay_lab.h"

namespace sluice::rdma_upstream_test {
namespace {

constexpr std::uint64_t kSecondNs = 1'000'000'000;

TEST(RelaySlow, a_call_that_the_server_answers_late_is_noted_with_the_servers_part) {
  RelayLab lab;
  const auto table = std::make_unique<segment::CallTable>();
  const auto slow = std::make_unique<segment::SlowCallRing>();
  lab.side.engine.measure(*table, &tcp_upstream_test::ForwardLab::clock);
  lab.side.engine.set_slow_calls(*slow, &tcp_upstream_test::ForwardLab::clock);
  lab.side.engine.set_slow_call_ns(kSecondNs);
  LabClient& client = lab.add_client();
  const Bytes call = tcp_upstream_test::call_of(0x20000123, 1, 7);
  const std::size_t ticket = client.submit({.payload = call, .max_reply_bytes = 64});
  ASSERT_TRUE(lab.until([&] { return lab.upstream().calls.size() == 1; }));
  lab.forward.pass(3 * kSecondNs);
  lab.upstream().send(0,
                      tcp_upstream_test::record(tcp_upstream_test::success(lab.upstream().calls[0].xid())));
  ASSERT_TRUE(lab.until([&] { return client.finished[ticket].has_value() && slow->written.load() == 1; }));
  const segment::SlowCall noted = *slow->records[0].read();
  EXPECT_EQ(noted.call.procedure, 7u);
  EXPECT_GE(noted.upstream_ns, 3 * kSecondNs);
  EXPECT_LE(noted.upstream_ns, noted.call.total_ns);
}

}  // namespace
}  // namespace sluice::rdma_upstream_test
