// SPDX-License-Identifier: Apache-2.0
#include "dataplane/process/control_plane_monitor.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>

#include "dataplane/process/settings.h"
#include "tests/unit/process/process_lab.h"

namespace sluice::process {
namespace {

class NewcomersTest : public testing::Test {
 protected:
  NewcomersTest() {
    config_.generation = 3;
    config_.reactors = 2;
    config_.spare_upstreams = 2;
    config_.record_buffers = config_.item_buffers = 2;
    add("first");
    devices_ = std::make_unique<Devices>(config_);
    rebuild();
  }
  /// Builds the cores of the present configuration.
  void rebuild() {
    cores_.clear();
    caches_ = request_caches(config_);
    for (std::uint32_t i = 0; i < 2; ++i) {
      cores_.push_back(std::make_unique<Core>(config_, i, *devices_,
                                              Core::Shared{.listener = nullptr, .caches = caches_},
                                              segment_.layout(), &test_clock));
    }
    hot_add_ = std::make_unique<UpstreamHotAdd>(config_, places(), segment_.layout().upstream_places);
  }
  std::vector<UpstreamHotAdd::Places> places() const {
    std::vector<UpstreamHotAdd::Places> all(3);
    for (std::uint32_t i = 0; i < all.size(); ++i)
      for (const auto& core : cores_)
        if (tcp_upstream::UpstreamSlot* const place = core->place(i)) all[i].push_back(place);
    return all;
  }
  segment::UpstreamConfig& add(const char* name) {
    segment::UpstreamConfig& entry = config_.upstreams[config_.upstream_count++];
    std::strcpy(entry.name, name);
    entry.handle_tag = config_.upstream_count;
    entry.route_count = 1;
    entry.routes[0] = {100003, 3};
    return entry;
  }
  bool settled(std::size_t reactor, std::uint32_t place) { return cores_[reactor]->place(place)->settled(); }
  segment::UpstreamPlaces shown() { return segment_.layout().upstream_places.read().value(); }
  void turn(std::size_t reactor) { cores_[reactor]->upstreams->poll(test_now_ns); }

  segment::ConfigBlock config_ = loopback_config();
  MemorySegment segment_;
  std::unique_ptr<Devices> devices_;
  tcp_upstream::DuplicateRequestCaches caches_;
  std::vector<std::unique_ptr<Core>> cores_;
  std::unique_ptr<UpstreamHotAdd> hot_add_;
};

TEST_F(NewcomersTest, one_that_comes_takes_the_spare_place_that_is_its_own_on_every_reactor) {
  hot_add_->apply(config_);
  EXPECT_TRUE(hot_add_->taken()) << "nothing has come";
  EXPECT_EQ(shown().count, 3u);
  EXPECT_TRUE(shown().serves("first") && shown().has_spare(1) && shown().has_spare(2) &&
              !shown().has_spare(3));
  add("second");
  hot_add_->apply(config_);
  EXPECT_FALSE(hot_add_->taken());
  turn(0);
  EXPECT_FALSE(hot_add_->taken()) << "not on every reactor";
  turn(1);
  EXPECT_TRUE(hot_add_->taken());
  EXPECT_TRUE(shown().serves("second") && !shown().has_spare(1));
  add("third");
  add("fourth");
  hot_add_->apply(config_);
  turn(0);
  turn(1);
  EXPECT_TRUE(hot_add_->taken()) << "for the fourth there is no place";
}

TEST_F(NewcomersTest, one_without_exports_or_that_is_known_waits_for_the_next_start) {
  add("second").handle_tag = 0;
  add("first");
  hot_add_->apply(config_);
  EXPECT_TRUE(hot_add_->taken());
  EXPECT_TRUE(settled(0, 1) && settled(0, 2));
  EXPECT_TRUE(shown().has_spare(1) && shown().has_spare(2));
}

TEST_F(NewcomersTest, settings_reach_the_upstream_on_every_reactor) {
  const auto settings = [this](std::size_t reactor) -> const tcp_upstream::UpstreamSettings& {
    return cores_[reactor]->place(0)->offered();
  };
  for (const std::uint32_t tag : {1u, 0u}) {  // with exports and without
    config_.upstreams[0].handle_tag = tag;
    if (tag == 0) hot_add_ = nullptr, rebuild();
    config_.upstreams[0].call_timeout_s = 9;
    config_.upstreams[0].connections = 7;
    config_.upstreams[0].withheld.pnfs = 0;
    hot_add_->apply(config_);
    EXPECT_FALSE(hot_add_->taken());
    turn(0);
    EXPECT_FALSE(hot_add_->taken()) << "not on every reactor";
    turn(1);
    EXPECT_TRUE(hot_add_->taken());
    for (const std::size_t reactor : {0u, 1u}) {
      EXPECT_EQ(settings(reactor).call_timeout_ns, 9'000'000'000u);
      EXPECT_EQ(settings(reactor).connections, 7u);
      EXPECT_FALSE(settings(reactor).withheld.pnfs);
    }
    hot_add_->apply(config_);
    EXPECT_TRUE(hot_add_->taken()) << "nothing has changed";
    EXPECT_TRUE(shown().serves("first"));
    config_.upstreams[0] = segment::UpstreamConfig{};
    config_.upstream_count = 0;
    add("first");
  }
}

TEST_F(NewcomersTest, one_at_a_port_of_its_own_has_its_place_for_good) {
  config_.driver = segment::Driver::SoftRoce;
  const auto at_port = [this](const char* name, std::uint32_t port) -> segment::UpstreamConfig& {
    segment::UpstreamConfig& entry = add(name);
    entry.handle_tag = 0;
    entry.routes[0] = {100003, 4};
    entry.listen_port = port;
    return entry;
  };
  at_port("second", 20050);
  const auto look = [this](UpstreamHotAdd& hot_add) {
    hot_add.apply(config_);
    turn(0);
    turn(1);
    return hot_add.taken();
  };
  segment::ConfigBlock started = config_;
  started.upstream_count = 1;
  started.spare_upstreams = 2;
  UpstreamHotAdd without(started, places(), segment_.layout().upstream_places);
  EXPECT_TRUE(look(without));
  EXPECT_FALSE(shown().serves("second")) << "no place has services for it";

  // The first upstream gets a separate port as well, so the slots have services.
  started.upstreams[0] = config_.upstreams[0] = config_.upstreams[1];
  std::strcpy(started.upstreams[0].name, "first");
  std::strcpy(config_.upstreams[0].name, "first");
  UpstreamHotAdd with(started, places(), segment_.layout().upstream_places);
  config_.upstreams[1].routes[0].version = 5;
  EXPECT_TRUE(look(with));
  EXPECT_FALSE(shown().serves("second")) << "of another program";
  config_.upstreams[1].routes[0].version = 4;
  with.apply(config_);
  EXPECT_FALSE(with.taken()) << "not on every reactor";
  EXPECT_TRUE(look(with));
  EXPECT_TRUE(shown().serves("second") && !shown().may_change(1) && shown().has_spare(2));
  std::strcpy(config_.upstreams[1].name, "other");
  EXPECT_TRUE(look(with));
  EXPECT_FALSE(shown().serves("other")) << "clients stay with their port";
}

TEST_F(NewcomersTest, one_at_a_port_of_its_own_takes_no_place_that_another_one_has_had) {
  config_.driver = segment::Driver::SoftRoce;
  segment::UpstreamConfig& second = add("second");
  second.handle_tag = 0;
  second.routes[0] = {100003, 4};
  second.listen_port = 20050;
  segment::ConfigBlock started = config_;
  started.spare_upstreams = 1;
  UpstreamHotAdd hot_add(started, places(), segment_.layout().upstream_places);
  config_.upstreams[0] = second;
  std::strcpy(config_.upstreams[0].name, "third");
  config_.upstreams[0].listen_port = 20051;
  hot_add.apply(config_);
  EXPECT_TRUE(hot_add.taken());
  EXPECT_TRUE(shown().serves("first") && !shown().serves("third"));
}

TEST_F(NewcomersTest, one_over_rdma_takes_a_spare_place_where_there_are_only_such) {
  segment::ConfigBlock started = loopback_config();
  started.spare_upstreams = 1;
  started.upstream_count = 1;
  segment::UpstreamConfig& first = started.upstreams[0] = rdma_upstream("first", 2);
  first.listen_port = 20050;
  const auto caches = request_caches(started);
  Core core(started, 0, *devices_, {.listener = nullptr, .caches = caches}, segment_.layout(), &test_clock);
  ASSERT_NE(core.place(0), nullptr);
  ASSERT_NE(core.place(1), nullptr);
  started.driver = segment::Driver::SoftRoce;  // the loopback driver listens only at start
  UpstreamHotAdd hot_add(started, {{core.place(0)}, {core.place(1)}}, segment_.layout().upstream_places);
  EXPECT_TRUE(shown().has_spare(1) && !shown().may_change(0)) << "it keeps its clients";
  segment::ConfigBlock next = started;
  next.upstream_count = 2;
  segment::UpstreamConfig& second = next.upstreams[1];
  second = first;
  std::strcpy(second.name, "second");
  second.listen_port = 20051;
  second.connections = 3;
  hot_add.apply(next);
  EXPECT_TRUE(hot_add.taken() && !shown().serves("second")) << "it would be larger";
  second.connections = 2;
  hot_add.apply(next);
  EXPECT_FALSE(hot_add.taken());
  core.relays[1]->poll(test_now_ns);
  EXPECT_TRUE(hot_add.taken());
  EXPECT_TRUE(shown().serves("second") && !shown().may_change(1));
}

TEST_F(NewcomersTest, a_place_is_given_to_another_one_as_often_as_wanted) {
  for (const char* const name : {"second", "third", "second"}) {
    if (config_.upstream_count == 1) add(name);
    std::strcpy(config_.upstreams[1].name, name);
    hot_add_->apply(config_);
    EXPECT_FALSE(hot_add_->taken());
    turn(0);
    EXPECT_FALSE(hot_add_->taken()) << "not on every reactor";
    turn(1);
    EXPECT_TRUE(hot_add_->taken());
    EXPECT_TRUE(shown().serves(name)) << name;
  }
  EXPECT_FALSE(shown().serves("third"));
}

TEST_F(NewcomersTest, one_that_was_there_at_start_gives_its_place_as_well) {
  std::strcpy(config_.upstreams[0].name, "other");
  hot_add_->apply(config_);
  turn(0);
  turn(1);
  EXPECT_TRUE(shown().serves("other") && !shown().serves("first"));
}

TEST_F(NewcomersTest, one_that_is_removed_keeps_its_place_until_another_one_wants_it) {
  config_.upstreams[0].removed = 4;
  hot_add_->apply(config_);
  EXPECT_TRUE(hot_add_->taken());
  EXPECT_TRUE(shown().serves("first"));
}

TEST_F(NewcomersTest, a_configuration_is_in_force_when_its_upstreams_are_served) {
  ExportUpdate update;
  ConfigMonitor watch(
      segment_.layout(), update, *hot_add_, [](std::uint64_t) {}, config_);
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
