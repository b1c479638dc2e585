// SPDX-License-Identifier: Apache-2.0
#include "dataplane/process/core.h"

#include <gtest/gtest.h>

#include <cstring>

#include "tests/unit/process/process_lab.h"

namespace sluice::process {
namespace {

constexpr std::uint64_t kLonger = 300'000'000;  ///< longer than the publication interval

class ExportsTest : public testing::Test {
 protected:
  ExportsTest() {
    config_.reactors = 2;
    config_.exports[1].in_use = 1;
    std::strcpy(config_.exports[1].path, "/data");
    config_.exports[1].quota_bytes = 1u << 20;
  }

  /// Returns whether calls of a program reach a service at this reactor.
  bool serves(std::uint32_t reactor, std::uint32_t program) {
    for (const segment::ProcedureInfo& info : segment_.layout().reactors[reactor].calls.info)
      if (info.program == program) return true;
    return false;
  }
  segment::ExportInfo shown(std::uint32_t number) { return segment_.layout().exports[number].read().value(); }

  segment::ConfigBlock config_ = loopback_config();
  MemorySegment segment_;
  Devices devices_{config_};
  const tcp_upstream::DuplicateRequestCaches caches_;
  Core owner_{config_, 0, devices_, {.caches = caches_}, segment_.layout(), &test_clock};
  Core reader_{config_, 1, devices_, {.caches = caches_}, segment_.layout(), &test_clock};
};

TEST_F(ExportsTest, all_reactors_serve_files_and_their_access_control_lists) {
  Exports exports(config_, owner_, segment_.layout(), &test_clock);
  exports.serve(reader_);
  owner_.reactor.measure_calls();
  reader_.reactor.measure_calls();
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
  exports.serve(reader_);
  owner_.reactor.measure_calls();
  reader_.reactor.measure_calls();
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
  exports.updates().front()->offer(changed);
  EXPECT_EQ(exports.updates().front()->take_back(), nullptr);
  exports.on_control_pass(kLonger + 1);  // before the interval has elapsed
  EXPECT_STREQ(shown(0).path, "/new");
  EXPECT_EQ(shown(1).in_use, 0u);
  ASSERT_EQ(exports.updates().front()->take_back(), &changed);
  EXPECT_EQ(exports.updates().front()->take_back(), nullptr);
  EXPECT_EQ(changed[1].path, "/data");  // the list previously in force
}

/// Queries of MOUNT for directories below the root of export 1.
class MountedPathTest : public ExportsTest {
 protected:
  segment::PathAnswer ask(const std::string& path, std::uint32_t export_number = 1) {
    segment::PathQuestion question{.number = ++number_, .export_number = export_number};
    path.copy(question.path, sizeof question.path - 1);
    segment_.layout().path_question.write(question);
    for (int pass = 0; pass < 100; ++pass) {
      exports_.on_control_pass(now_ns_ += 1);
      if (segment_.layout().path_answer.read().value().number == number_) break;
    }
    return segment_.layout().path_answer.read().value();
  }
  std::uint32_t status(const std::string& path) { return ask(path).status; }

  Exports exports_{config_, owner_, segment_.layout(), &test_clock};
  std::uint64_t number_ = 7;
  std::uint64_t now_ns_ = kLonger;
};

TEST_F(MountedPathTest, the_root_has_the_handle_that_is_published) {
  const segment::PathAnswer answer = ask("/data/");
  ASSERT_EQ(answer.status, 0u);
  ASSERT_EQ(answer.handle_bytes, shown(1).root_handle_bytes);
  EXPECT_EQ(std::memcmp(answer.handle, shown(1).root_handle, answer.handle_bytes), 0);
}

TEST_F(MountedPathTest, what_is_not_there_and_what_is_outside_have_none) {
  EXPECT_EQ(status("/data/missing"), 2u);
  EXPECT_EQ(status("/data/.."), 2u);
  EXPECT_EQ(status("/data/../data"), 2u);
  EXPECT_EQ(status("/other"), 2u) << "the control plane is ahead of the data plane";
  EXPECT_EQ(ask("/data/a", 0).status, 2u) << "not in use";
  EXPECT_EQ(ask("/data/a", 4'000'000'000).status, 2u) << "no export at all";
  EXPECT_EQ(status("/data/" + std::string(300, 'x')), 63u);
}

TEST_F(MountedPathTest, a_path_is_walked_in_slices) {
  std::string path = "/data";
  for (int i = 0; i < 500; ++i) path += "/.";
  segment::PathQuestion question{.number = 1, .export_number = 1};
  path.copy(question.path, sizeof question.path - 1);
  segment_.layout().path_question.write(question);
  exports_.on_control_pass(kLonger);
  EXPECT_EQ(segment_.layout().path_answer.read().value().number, 0u);
  EXPECT_EQ(status(path), 0u);
}

}  // namespace
}  // namespace sluice::process
