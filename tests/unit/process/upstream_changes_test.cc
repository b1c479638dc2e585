// SPDX-License-Identifier: Apache-2.0
//
// The main thread offers the upstreams of a configuration to the slots of two reactors.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "dataplane/process/control_plane_monitor.h"
#include "dataplane/process/settings.h"
#include "tests/unit/process/process_lab.h"

namespace sluice::process {
namespace {

class UpstreamChangesTest : public testing::Test {
 protected:
  UpstreamChangesTest() {
    config_.generation = 3;
    config_.reactors = 2;
    config_.upstreams_max = 3;
    config_.record_buffers = config_.item_buffers = 2;
    add("first");
    build();
  }
  /// Builds the cores of the present configuration.
  void build() {
    changes_ = nullptr;
    cores_.clear();
    config_.started_slots = {};
    devices_ = nullptr;
    devices_ = std::make_unique<Devices>(config_);
    caches_ = request_caches(config_);
    for (std::uint32_t i = 0; i < 2; ++i)
      cores_.push_back(std::make_unique<Core>(config_, i, *devices_,
                                              Core::Shared{.listener = nullptr, .caches = caches_},
                                              segment_.layout(), &test_clock));
    std::vector<UpstreamChanges::Slots> slots(config_.slots().count);
    for (std::uint32_t i = 0; i < slots.size(); ++i)
      for (const auto& core : cores_) slots[i].push_back(&core->slots->slot(i));
    started_ = config_;
    config_.started_slots = config_.slots();
    changes_ =
        std::make_unique<UpstreamChanges>(started_, std::move(slots), segment_.layout().upstream_places);
  }
  segment::UpstreamConfig& add(const char* name) {
    segment::UpstreamConfig& entry = config_.upstreams[config_.upstream_count++];
    entry = {};
    std::strcpy(entry.name, name);
    entry.handle_tag = config_.upstream_count;
    entry.route_count = 1;
    entry.routes[0] = {100003, 3};
    return entry;
  }
  const gateway::UpstreamSettings& offered(std::size_t reactor, std::uint32_t slot) {
    return cores_[reactor]->slots->slot(slot).offered();
  }
  segment::UpstreamPlaces shown() { return segment_.layout().upstream_places.read().value(); }
  void turn(std::size_t reactor) {
    cores_[reactor]->slots->poll(test_now_ns);
    if (cores_[reactor]->upstreams) cores_[reactor]->upstreams->poll(test_now_ns);
    for (const auto& relay : cores_[reactor]->relays) relay->poll(test_now_ns);
  }
  /// Applies the configuration, and returns whether both reactors have taken it.
  bool take() {
    changes_->apply(config_);
    turn(0);
    turn(1);
    return changes_->taken();
  }
  /// Returns whether a service has the program on both reactors.
  bool finds(std::uint32_t program, std::uint32_t version) {
    return std::all_of(cores_.begin(), cores_.end(), [&](const auto& core) {
      const auto& services = core->engine.services();
      return std::any_of(services.begin(), services.end(), [&](const service::Service* each) {
        return each->binding().program == program && each->binding().version == version;
      });
    });
  }

  segment::ConfigBlock config_ = loopback_config();
  segment::ConfigBlock started_;
  MemorySegment segment_;
  std::unique_ptr<Devices> devices_;
  tcp_upstream::DuplicateRequestCaches caches_;
  std::vector<std::unique_ptr<Core>> cores_;
  std::unique_ptr<UpstreamChanges> changes_;
};

TEST_F(UpstreamChangesTest, one_that_comes_is_served_when_every_reactor_has_taken_it) {
  changes_->apply(config_);
  EXPECT_TRUE(changes_->taken()) << "nothing has come";
  EXPECT_EQ(shown().count, 3u);
  EXPECT_TRUE(shown().serves("first") && !shown().serves("second"));
  add("second");
  changes_->apply(config_);
  EXPECT_FALSE(changes_->taken());
  turn(0);
  EXPECT_FALSE(changes_->taken()) << "not on every reactor";
  turn(1);
  EXPECT_TRUE(changes_->taken());
  EXPECT_TRUE(shown().serves("second"));
  add("third");
  add("fourth");
  EXPECT_TRUE(take()) << "for the fourth there is no slot";
  EXPECT_TRUE(shown().serves("third") && !shown().serves("fourth"));
}

TEST_F(UpstreamChangesTest, settings_reach_the_upstream_on_every_reactor) {
  config_.upstreams[0].call_timeout_s = 9;
  config_.upstreams[0].connections = 7;
  config_.upstreams[0].withheld.pnfs = 0;
  changes_->apply(config_);
  EXPECT_FALSE(changes_->taken());
  turn(0);
  EXPECT_FALSE(changes_->taken()) << "not on every reactor";
  turn(1);
  EXPECT_TRUE(changes_->taken());
  for (const std::size_t reactor : {0u, 1u}) {
    EXPECT_EQ(offered(reactor, 0).call_timeout_ns, 9'000'000'000u);
    EXPECT_EQ(offered(reactor, 0).connections, 7u);
    EXPECT_FALSE(offered(reactor, 0).withheld.pnfs);
  }
  changes_->apply(config_);
  EXPECT_TRUE(changes_->taken()) << "nothing has changed";
  EXPECT_TRUE(shown().serves("first"));
}

TEST_F(UpstreamChangesTest, programs_change_and_one_without_exports_comes) {
  config_.upstreams[0].routes[config_.upstreams[0].route_count++] = {100003, 4};
  EXPECT_FALSE(finds(100003, 4));
  EXPECT_TRUE(take());
  EXPECT_TRUE(finds(100003, 4));
  segment::UpstreamConfig& plain = add("plain");
  plain.handle_tag = 0;
  plain.routes[0] = {0x20000123, 1};
  EXPECT_TRUE(take());
  EXPECT_TRUE(finds(0x20000123, 1));
  EXPECT_TRUE(shown().serves("plain"));
}

TEST_F(UpstreamChangesTest, a_slot_is_given_to_another_one_as_often_as_wanted) {
  for (const char* const name : {"second", "third", "second"}) {
    if (config_.upstream_count == 1) add(name);
    std::strcpy(config_.upstreams[1].name, name);
    EXPECT_TRUE(take());
    EXPECT_TRUE(shown().serves(name)) << name;
  }
  EXPECT_FALSE(shown().serves("third"));
  std::strcpy(config_.upstreams[0].name, "other");
  EXPECT_TRUE(take());
  EXPECT_TRUE(shown().serves("other") && !shown().serves("first")) << "one from the start leaves as well";
}

TEST_F(UpstreamChangesTest, one_that_is_removed_is_served_until_another_one_wants_its_slot) {
  config_.upstreams[0].removed = 4;
  EXPECT_TRUE(take());
  EXPECT_TRUE(shown().serves("first"));
}

TEST_F(UpstreamChangesTest, one_that_fits_no_slot_waits_for_the_next_start) {
  config_.upstreams[0].transport = segment::Transport::Rdma;
  segment::UpstreamConfig& at_port = add("second");
  at_port.listen_port = 20050;
  EXPECT_TRUE(take());
  EXPECT_EQ(offered(0, 0).transport, segment::Transport::Tcp) << "nothing is for RDMA";
  EXPECT_FALSE(shown().serves("second")) << "the loopback driver listens at the start only";
}

TEST_F(UpstreamChangesTest, one_changes_its_transport_and_back_while_there_is_a_side_for_it) {
  config_.rdma_upstreams_max = 1;
  config_.upstream_count = 0;
  add("first");
  build();
  ASSERT_EQ(cores_[0]->relays.size(), 1u);
  for (const segment::Transport transport :
       {segment::Transport::Rdma, segment::Transport::Tcp, segment::Transport::Rdma}) {
    config_.upstreams[0].transport = transport;
    EXPECT_TRUE(take());
    EXPECT_EQ(offered(1, 0).transport, transport);
    EXPECT_EQ(cores_[1]->relays[0]->in_use(), transport == segment::Transport::Rdma);
  }
  add("second").transport = segment::Transport::Rdma;
  EXPECT_TRUE(take());
  EXPECT_FALSE(shown().serves("second")) << "the side is in use";
  std::strcpy(config_.upstreams[0].name, "third");
  config_.upstreams[0].transport = segment::Transport::Tcp;
  EXPECT_TRUE(take());
  changes_->apply(config_);
  turn(0);
  turn(1);
  EXPECT_TRUE(changes_->taken());
  EXPECT_TRUE(shown().serves("second") && shown().serves("third"));
}

TEST_F(UpstreamChangesTest, a_configuration_is_in_force_when_its_upstreams_are_served) {
  ExportUpdate update;
  ConfigMonitor watch(
      segment_.layout(), {&update}, *changes_, [](std::uint64_t) {}, config_);
  add("second");
  config_.generation = 4;
  segment_.layout().config.write(config_);
  watch.poll();
  update.give_back(*update.take());
  watch.poll();
  EXPECT_EQ(segment_.layout().generation_applied.load(), 3u);
  turn(0);
  turn(1);
  watch.poll();
  EXPECT_EQ(segment_.layout().generation_applied.load(), 4u);
}

}  // namespace
}  // namespace sluice::process
