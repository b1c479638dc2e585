// SPDX-License-Identifier: Apache-2.0
//
// The view of upstreams, on a segment that the test fills.
#include "controlplane/admin/views/upstreams.h"

#include <gtest/gtest.h>

#include <cstring>

#include "dataplane/base/uring_features.h"
#include "tests/unit/controlplane/lab.h"

namespace sluice::admin {
namespace {

TEST(Upstreams, show_what_all_reactors_use_of_io_uring) {
  lab::TestSegment segment{"upstreams"};
  config::Config config = lab::configuration("");
  config.block.reactors = 2;
  config.block.upstream_count = 1;
  std::strcpy(config.block.upstreams[0].name, "filer");
  auto& reactors = segment.layout().reactors;
  reactors[0].upstreams[0].uring_features = UringFeatures::all().bits();
  reactors[1].upstreams[0].uring_features =
      UringFeatures::all().without(UringFeature::multishot_receive).bits();
  const Json shown = upstreams(segment.layout(), config.block);
  ASSERT_EQ(shown.size(), 1u);
  EXPECT_EQ(shown[0]["io_uring"], Json::array({"deferred_work", "registered_ring"}));
  reactors[0].upstreams[0].uring_features = 0;  // over RDMA
  EXPECT_EQ(upstreams(segment.layout(), config.block)[0]["io_uring"], Json::array());
}

TEST(Upstreams, one_that_is_removed_is_shown_as_such_while_it_is_served) {
  lab::TestSegment segment{"upstreams"};
  config::Config config = lab::configuration("");
  config.block.upstream_count = 1;
  config.block.upstreams[0].removed = 1;
  segment.layout().reactors[0].upstreams[0].connections = 2;
  segment.layout().reactors[0].upstreams[0].outstanding = 3;
  const Json shown = upstreams(segment.layout(), config.block);
  ASSERT_EQ(shown.size(), 1u);
  EXPECT_EQ(shown[0]["state"], "removed");
  EXPECT_EQ(shown[0]["outstanding"], 3u);
}

/// Counts calls of one procedure together, whichever upstream served them.
class Latencies : public testing::Test {
 protected:
  Latencies() {
    config_.block.upstream_count = 3;
    for (const std::uint32_t i : {0u, 1u}) serve(i, 4);
    serve(2, 3);
    segment_.layout().reactors[0].calls.procedures = 3;
    segment_.layout().reactors[0].calls.info[1] = {.program = 100003, .version = 4};
    segment_.layout().reactors[0].calls.info[2] = {.program = 100003, .version = 3};
    answered(0, 1, 100'000, 1'000, 101'000 + 5'000);
    answered(1, 1, 900'000, 3'000, 903'000 + 5'000);
    answered(2, 2, 50'000, 1'000, 51'000 + 9'000);
  }
  void serve(std::uint32_t upstream, std::uint32_t version) {
    segment::UpstreamConfig& entry = config_.block.upstreams[upstream];
    entry.route_count = 1;
    entry.routes[0] = {100003, version};
  }
  void answered(std::uint32_t upstream, std::uint32_t procedure, std::uint64_t upstream_ns,
                std::uint64_t gateway_ns, std::uint64_t total_ns) {
    auto& reactor = segment_.layout().reactors[0];
    reactor.upstreams[upstream].upstream_ns.record(upstream_ns);
    reactor.upstreams[upstream].gateway_ns.record(gateway_ns);
    reactor.calls.use[0][procedure].latency.record(total_ns);
  }
  void expect(const Json& mean, double upstream, double gateway, double rdma) {
    EXPECT_DOUBLE_EQ(mean["upstream"].get<double>(), upstream);
    EXPECT_DOUBLE_EQ(mean["gateway"].get<double>(), gateway);
    EXPECT_NEAR(mean["rdma"].get<double>(), rdma, 1e-9);
  }

  lab::TestSegment segment_{"upstreams"};
  config::Config config_ = lab::configuration("");
};

TEST_F(Latencies, a_slow_upstream_of_a_program_is_not_taken_for_rdma_at_another) {
  const Json shown = upstreams(segment_.layout(), config_.block);
  expect(shown[0]["mean_us"], 100, 1, 5);
  expect(shown[1]["mean_us"], 900, 3, 5);
  expect(shown[2]["mean_us"], 50, 1, 9);
}

TEST_F(Latencies, who_shares_with_one_that_shares_belongs_to_them) {
  config_.block.upstreams[0].route_count = 2;
  config_.block.upstreams[0].routes[1] = {100003, 3};
  const Json shown = upstreams(segment_.layout(), config_.block);
  for (const Json& each : shown) EXPECT_NEAR(each["mean_us"]["rdma"].get<double>(), 19.0 / 3, 1e-9);
}

}  // namespace
}  // namespace sluice::admin
