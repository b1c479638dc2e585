// SPDX-License-Identifier: Apache-2.0
//
// A card that is removed, or reset by its physical function, under a port with two lanes. The ethdev is
// DPDK's null device, and the test reports the events in place of its driver.
#include <dlfcn.h>
#include <rte_dev.h>
#include <rte_ethdev.h>

#include <map>
#include <string>

#include "tests/driver/faulty_wire.h"
#include "tests/driver/raw_peer.h"

namespace sluice::rdma::conformance {
namespace {

using namespace softroce;

struct Listener {
  rte_eth_dev_cb_fn call;
  void* argument;
};
/// Listeners of the port that was opened last.
std::map<rte_eth_event_type, Listener> listeners;

constexpr const char* kCard = "net_null_card";

class CardEvents : public testing::Test {
 protected:
  void SetUp() override {
    start_dpdk();
    ASSERT_EQ(rte_eal_hotplug_add("vdev", kCard, ""), 0);
    PortConfig config;
    static int made = 0;
    config.name = "card" + std::to_string(made++);
    ASSERT_EQ(rte_eth_dev_get_port_by_name(kCard, &config.ethdev), 0);
    config.addresses = {{PeerAddress::from_ipv4(192, 0, 2, 2), 120}};
    config.lanes = 2;
    port_ = Port::open(config);
    for (std::uint32_t lane = 0; lane < 2; ++lane) lanes_[lane] = port_->make_device(lane);
    poll(0);
    poll(1);
  }
  void TearDown() override {
    for (auto& lane : lanes_) lane.reset();
    port_.reset();
    rte_eal_hotplug_remove("vdev", kCard);
  }
  void poll(std::size_t lane) {
    WorkCompletion none[1];
    lanes_[lane]->poll(none);
  }
  void look() { lanes_[0]->handle_events(); }
  /// Reports an event as a driver does in DPDK's interrupt thread.
  static void report(rte_eth_event_type event) {
    const Listener& listener = listeners.at(event);
    listener.call(0, event, listener.argument, nullptr);
  }
  static bool has_ethdev() {
    std::uint16_t ethdev = 0;
    return rte_eth_dev_get_port_by_name(kCard, &ethdev) == 0;
  }
  std::string notices() {
    std::string all;
    for (const LinkNotice& notice : port_->take_notices()) all += notice.text + "\n";
    return all;
  }
  Condition condition() { return lanes_[1]->condition(); }

  Owned<Port> port_;
  std::unique_ptr<SoftRoce> lanes_[2];
};

TEST_F(CardEvents, a_card_that_is_removed_or_reset_is_opened_again_when_no_lane_uses_it) {
  std::uint64_t times = 0;
  for (const rte_eth_event_type event : {RTE_ETH_EVENT_INTR_RMV, RTE_ETH_EVENT_INTR_RESET}) {
    look();
    ASSERT_EQ(condition(), Condition::Up);
    report(event);
    look();
    EXPECT_EQ(condition(), Condition::Gone);
    EXPECT_NE(notices().find(event == RTE_ETH_EVENT_INTR_RMV ? "was removed" : "was reset"),
              std::string::npos);
    poll(0);
    look();
    EXPECT_TRUE(has_ethdev()) << "lane 1 may be using it";
    poll(1);
    look();
    EXPECT_FALSE(has_ethdev());
    poll(0);
    poll(1);
    while (!has_ethdev()) look();
    EXPECT_NE(notices().find("The port is open again"), std::string::npos);
    look();
    poll(0);
    poll(1);
    EXPECT_EQ(condition(), Condition::Up);
    EXPECT_EQ(lanes_[0]->statistics().port_reopened, ++times);
    EXPECT_EQ(lanes_[0]->statistics().port_down, times);
    EXPECT_EQ(lanes_[0]->statistics().port_up, times);
  }
}

TEST_F(CardEvents, a_link_event_is_no_reason_to_leave_the_card) {
  report(RTE_ETH_EVENT_INTR_LSC);
  look();
  EXPECT_EQ(condition(), Condition::Up);
  EXPECT_EQ(notices(), "");
}

TEST_F(CardEvents, a_port_that_is_closed_with_its_card_gone_closes_nothing_twice) {
  report(RTE_ETH_EVENT_INTR_RMV);
  look();
  poll(0);
  poll(1);
  look();
  EXPECT_FALSE(has_ethdev());
}

}  // namespace
}  // namespace sluice::rdma::conformance

extern "C" int rte_eth_dev_callback_register(std::uint16_t ethdev, rte_eth_event_type event,
                                             rte_eth_dev_cb_fn call, void* argument) {
  sluice::rdma::conformance::listeners[event] = {call, argument};
  const auto original = reinterpret_cast<decltype(rte_eth_dev_callback_register)*>(
      ::dlsym(RTLD_NEXT, "rte_eth_dev_callback_register"));
  return original(ethdev, event, call, argument);
}
