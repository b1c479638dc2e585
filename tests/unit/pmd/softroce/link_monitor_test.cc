// SPDX-License-Identifier: Apache-2.0
//
// Changes of a kernel interface that LinkMonitor reports. Each test runs in its own network namespace, which
// requires root.
#include "pmd/softroce/link_monitor.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <cstdlib>
#include <string>
#include <thread>

namespace sluice::rdma::softroce {
namespace {

class Interfaces : public testing::Test {
 protected:
  void SetUp() override {
    if (::unshare(CLONE_NEWNET) != 0) GTEST_SKIP() << "Only root may have a network namespace.";
    if (std::system("ip link help 2> /dev/null; test $? -ne 127") != 0) GTEST_SKIP() << "There is no ip.";
  }
  static void ip(const std::string& words) {
    ASSERT_EQ(std::system(("ip link " + words).c_str()), 0) << words;
  }
  static void create() {
    ip("add watched mtu 2000 address 02:00:00:00:00:01 type veth peer name other");
    ip("set watched up");
    ip("set other up");
  }
  /// Polls until `condition` is true for the sum of the reports.
  template <typename Condition>
  InterfaceNews until(LinkMonitor& watch, Condition&& condition) {
    InterfaceNews sum;
    do {
      const InterfaceNews news = watch.poll();
      sum.now = news.now;
      sum.losses += news.losses;
      sum.deleted |= news.deleted;
      std::this_thread::yield();
    } while (!condition(sum));
    return sum;
  }
  static bool runs(const InterfaceNews& news) { return news.now.running; }
};

TEST_F(Interfaces, one_that_is_not_there_is_found_when_it_is_created) {
  LinkMonitor watch("watched");
  EXPECT_EQ(watch.state().index, 0u);
  EXPECT_EQ(watch.poll().now.index, 0u);
  create();
  const InterfaceNews news = until(watch, runs);
  EXPECT_NE(news.now.index, 0u);
  EXPECT_EQ(news.now.mtu, 2000u);
  EXPECT_EQ(news.now.mac, (MacAddress{2, 0, 0, 0, 0, 1}));
  EXPECT_FALSE(news.deleted);
}

TEST_F(Interfaces, the_carrier_is_lost_and_comes_back) {
  create();
  LinkMonitor watch("watched");
  until(watch, runs);
  ip("set other down");
  EXPECT_EQ(until(watch, [](const InterfaceNews& news) { return !news.now.running; }).losses, 1u);
  ip("set other up");
  EXPECT_EQ(until(watch, runs).losses, 0u);
  ip("set watched down");
  ip("set watched up");
  EXPECT_GE(
      until(watch, [](const InterfaceNews& news) { return news.now.running && news.losses > 0; }).losses, 1u)
      << "between two polls";
}

TEST_F(Interfaces, a_changed_mtu_and_a_changed_address_are_reported) {
  create();
  LinkMonitor watch("watched");
  ip("set watched mtu 1500");
  ip("set watched address 02:00:00:00:00:02");
  const InterfaceNews news = until(watch, [](const InterfaceNews& seen) { return seen.now.mac[5] == 2; });
  EXPECT_EQ(news.now.mtu, 1500u);
  EXPECT_FALSE(news.deleted);
}

TEST_F(Interfaces, one_that_is_replaced_between_two_polls_is_deleted_and_another_is_there) {
  create();
  LinkMonitor watch("watched");
  const std::uint32_t index = watch.state().index;
  ip("del watched");
  create();
  const InterfaceNews news = watch.poll();
  EXPECT_TRUE(news.deleted);
  EXPECT_NE(news.now.index, 0u);
  EXPECT_NE(news.now.index, index);
  EXPECT_FALSE(watch.poll().deleted);
}

TEST_F(Interfaces, one_that_is_replaced_by_another_with_the_same_index_is_deleted_too) {
  ip("add watched index 77 type bridge");
  LinkMonitor watch("watched");
  EXPECT_EQ(watch.state().index, 77u);
  ip("del watched");
  ip("add watched index 77 type bridge");
  const InterfaceNews news = watch.poll();
  EXPECT_TRUE(news.deleted);
  EXPECT_EQ(news.now.index, 77u);
}

TEST_F(Interfaces, one_that_is_renamed_stays_and_a_bridge_that_it_leaves_does_not_delete_it) {
  create();
  LinkMonitor watch("watched");
  const std::uint32_t index = watch.state().index;
  ip("add switch type bridge");
  ip("set watched master switch");
  ip("set watched nomaster");
  ip("set watched down");
  ip("set watched name renamed");
  const InterfaceNews news = watch.poll();
  EXPECT_FALSE(news.deleted);
  EXPECT_EQ(news.now.index, index);
}

TEST_F(Interfaces, reports_that_the_kernel_had_no_room_for_are_made_up_by_a_question) {
  create();
  LinkMonitor watch("watched");
  const std::uint32_t index = watch.state().index;
  ASSERT_EQ(std::system("for i in $(seq 400); do echo link set other mtu $((1500 + i)); done | ip -batch -"),
            0);
  ip("del watched");
  create();
  const InterfaceNews news = watch.poll();
  EXPECT_TRUE(news.deleted);
  EXPECT_NE(news.now.index, index);
}

}  // namespace
}  // namespace sluice::rdma::softroce
