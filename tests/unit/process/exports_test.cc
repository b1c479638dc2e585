// SPDX-License-Identifier: Apache-2.0
#include "dataplane/process/exports.h"

#include <gtest/gtest.h>

#include <cstring>

#include "tests/unit/process/process_lab.h"

namespace sluice::process {
namespace {

constexpr std::uint64_t kLonger = 300'000'000;  ///< than the interval of publication

class ExportsTest : public testing::Test {
 protected:
  ExportsTest() {
    config_.reactors = 2;
    config_.exports[1].in_use = 1;
    std::strcpy(config_.exports[1].path, "/data");
    config_.exports[1].quota_bytes = 1u << 20;
  }

  /// Whether calls of a program reach a service at this reactor.
  bool serves(std::uint32_t reactor, std::uint32_t program) {
    for (const segment::ProcedureInfo& info : segment_.layout().reactors[reactor].calls.info)
      if (info.program == program) return true;
    return false;
  }
  segment::ExportInfo shown(std::uint32_t number) { return segment_.layout().exports[number].read().value(); }

  segment::ConfigBlock config_ = loopback_config();
  MemorySegment segment_;
  Devices devices_{config_};
  Core owner_{config_, 0, devices_, {}, segment_.layout(), &test_clock};
  Core borrower_{config_, 1, devices_, {}, segment_.layout(), &test_clock};
};

TEST_F(ExportsTest, all_reactors_serve_files_and_their_access_control_lists) {
  Exports exports(config_, owner_, segment_.layout(), &test_clock);
  exports.lend_to(borrower_);
  owner_.reactor.measure_calls();
  borrower_.reactor.measure_calls();
  for (const std::uint32_t reactor : {0u, 1u}) {
    EXPECT_TRUE(serves(reactor, 100003));
    EXPECT_TRUE(serves(reactor, 100227));
  }
}

TEST_F(ExportsTest, no_reactor_serves_files_that_an_upstream_has) {
  segment::ConfigBlock elsewhere = config_;
  elsewhere.upstream_count = 1;
  elsewhere.upstreams[0].route_count = 1;
  elsewhere.upstreams[0].routes[0] = {100003, 3};
  Exports exports(elsewhere, owner_, segment_.layout(), &test_clock);
  exports.lend_to(borrower_);
  owner_.reactor.measure_calls();
  borrower_.reactor.measure_calls();
  EXPECT_FALSE(serves(0, 100003));
  EXPECT_FALSE(serves(1, 100003));
}

TEST_F(ExportsTest, what_a_predecessor_left_is_cleared) {
  segment_.layout().exports[5].write({.in_use = 1});
  Exports exports(config_, owner_, segment_.layout(), &test_clock);
  EXPECT_EQ(shown(5).in_use, 0u);
}

TEST_F(ExportsTest, the_owner_publishes_them_in_its_control_pass) {
  Exports exports(config_, owner_, segment_.layout(), &test_clock);
  owner_.reactor.poll_once();
  EXPECT_EQ(shown(0).in_use, 0u);
  EXPECT_EQ(shown(1).in_use, 1u);
  EXPECT_STREQ(shown(1).path, "/data");
  EXPECT_EQ(shown(1).quota_bytes, 1u << 20);
  EXPECT_GT(shown(1).root_handle_bytes, 0u);
}

TEST_F(ExportsTest, publishing_has_its_interval) {
  Exports exports(config_, owner_, segment_.layout(), &test_clock);
  exports.on_control_pass(kLonger);
  const std::uint32_t before = segment_.layout().exports[1].sequence();
  exports.on_control_pass(kLonger + 1);
  EXPECT_EQ(segment_.layout().exports[1].sequence(), before);
  exports.on_control_pass(2 * kLonger);
  EXPECT_NE(segment_.layout().exports[1].sequence(), before);
}

TEST_F(ExportsTest, an_update_is_in_force_with_the_next_pass_and_comes_back) {
  Exports exports(config_, owner_, segment_.layout(), &test_clock);
  exports.on_control_pass(kLonger);
  ExportUpdate::List changed(2);
  changed[0].path = "/new";
  changed[1].in_use = false;
  exports.update().offer(changed);
  EXPECT_EQ(exports.update().take_back(), nullptr);
  exports.on_control_pass(kLonger + 1);  // without waiting for the interval
  EXPECT_STREQ(shown(0).path, "/new");
  EXPECT_EQ(shown(1).in_use, 0u);
  ASSERT_EQ(exports.update().take_back(), &changed);
  EXPECT_EQ(exports.update().take_back(), nullptr);
  EXPECT_EQ(changed[1].path, "/data");  // the list in force before
}

}  // namespace
}  // namespace sluice::process
