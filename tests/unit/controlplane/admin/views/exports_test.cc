// SPDX-License-Identifier: Apache-2.0
#include "controlplane/admin/views/reactors.h"

#include <gtest/gtest.h>

#include <cstring>

#include "tests/unit/controlplane/lab.h"

namespace sluice::admin {
namespace {

TEST(Exports, show_the_hosts_that_they_serve) {
  lab::TestSegment segment("exports_view");
  segment::ConfigBlock block;
  block.exports[3].hosts = {HostName("a"), HostName("b.example")};
  block.exports[3].host_count = 2;
  block.exports[4].host_count = ~std::uint32_t{0};
  segment.layout().config.write(block);
  EXPECT_TRUE(exports(segment.layout()).empty());
  for (const std::uint32_t number : {2u, 3u, 4u}) {
    segment::ExportInfo info{.in_use = 1};
    std::strcpy(info.path, ("/" + std::to_string(number)).c_str());
    segment.layout().exports[number].write(info);
  }
  const Json shown = exports(segment.layout());
  ASSERT_EQ(shown.size(), 3u);
  EXPECT_EQ(shown[0]["path"], "/2");
  EXPECT_EQ(shown[0]["hosts"], Json::array());
  EXPECT_EQ(shown[1]["hosts"], (Json{"a", "b.example"}));
  EXPECT_EQ(shown[2]["hosts"].size(), segment::kMaxExportHosts) << "no more than there are";
}

}  // namespace
}  // namespace sluice::admin
