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

using nlohmann::json;

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
  const json shown = upstreams(segment.layout(), config.block);
  ASSERT_EQ(shown.size(), 1u);
  EXPECT_EQ(shown[0]["io_uring"], json({"deferred_work", "registered_ring"}));
  reactors[0].upstreams[0].uring_features = 0;  // over RDMA
  EXPECT_EQ(upstreams(segment.layout(), config.block)[0]["io_uring"], json::array());
}

TEST(Upstreams, one_that_is_removed_is_shown_as_such_while_it_is_served) {
  lab::TestSegment segment{"upstreams"};
  config::Config config = lab::configuration("");
  config.block.upstream_count = 1;
  config.block.upstreams[0].removed = 1;
  segment.layout().reactors[0].upstreams[0].connections = 2;
  segment.layout().reactors[0].upstreams[0].outstanding = 3;
  const json shown = upstreams(segment.layout(), config.block);
  ASSERT_EQ(shown.size(), 1u);
  EXPECT_EQ(shown[0]["state"], "removed");
  EXPECT_EQ(shown[0]["outstanding"], 3u);
}

}  // namespace
}  // namespace sluice::admin
