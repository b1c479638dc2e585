// SPDX-License-Identifier: Apache-2.0
//
// Events about the RDMA devices of the data plane. The test plays the reactors.
#include "controlplane/statistics.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <string>
#include <vector>

#include "controlplane/events/journal.h"
#include "pmd/softroce/statistics.h"
#include "pmd/verbs/statistics.h"
#include "tests/unit/controlplane/lab.h"

namespace sluice::controlplane {
namespace {

class Devices : public testing::Test {
 protected:
  Devices() {
    config_.driver = segment::Driver::SoftRoce;
    config_.reactors = 2;
    show(segment::DeviceCondition::Up);
  }
  void show(segment::DeviceCondition condition) {
    for (std::uint32_t i = 0; i < 2; ++i)
      segment_.layout().reactors[i].info.write(
          {.state = segment::ReactorState::Running, .path_mtu = 1024, .condition = condition});
  }
  std::atomic<std::uint64_t>& counter(std::string_view name) {
    std::size_t i = 0;
    while (rdma::softroce::kStatistics[i].name != name) ++i;
    return segment_.layout().reactors[0].device_statistics[i];
  }
  /// Polls, and returns the names and texts of the events since the last call.
  std::vector<std::string> events(bool data_plane_alive = true) {
    watch_.poll(config_, data_plane_alive);
    std::vector<std::string> all;
    const events::Journal::Part part = journal_.read(next_, 100);
    next_ = part.next;
    for (const events::Event& event : part.events) {
      std::string& one = all.emplace_back(event.kind->name);
      for (const events::Field& field : event.fields) {
        if (const auto* text = std::get_if<std::string>(&field.value)) one += " " + *text;
        if (const auto* truth = std::get_if<bool>(&field.value)) one += *truth ? " yes" : " no";
      }
    }
    return all;
  }
  using Names = std::vector<std::string>;

  lab::TestSegment segment_{"devices"};
  segment::ConfigBlock config_{};
  events::Journal journal_{[](const events::Event&) {}};
  DeviceMonitor watch_{journal_, segment_.layout()};
  std::uint64_t next_ = 1;
};

TEST_F(Devices, a_lost_link_and_its_return_are_one_event_each_whatever_the_number_of_reactors) {
  EXPECT_EQ(events(), Names{});
  show(segment::DeviceCondition::NoLink);
  ++counter("port_down");
  EXPECT_EQ(events(), Names{"device_down no_link"});
  EXPECT_EQ(events(), Names{});
  show(segment::DeviceCondition::Up);
  ++counter("port_up");
  EXPECT_EQ(events(), Names{"device_up no"});
}

TEST_F(Devices, one_that_was_replaced_between_two_looks_was_gone) {
  EXPECT_EQ(events(), Names{});
  ++counter("port_down");
  ++counter("port_up");
  ++counter("port_reopened");
  ++counter("mac_changes");
  EXPECT_EQ(events(), (Names{"device_down gone", "device_up yes", "device_changed mac_address"}));
  ++counter("mtu_changes");
  EXPECT_EQ(events(), Names{"device_changed mtu"});
}

TEST_F(Devices, one_that_is_down_when_its_data_plane_is_new_is_an_event_and_earlier_losses_are_not) {
  counter("port_down") = 3;
  counter("port_up") = 3;
  EXPECT_EQ(events(), Names{});
  EXPECT_EQ(events(false), Names{});
  counter("port_down") = 1;
  counter("port_up") = 0;
  show(segment::DeviceCondition::Gone);
  EXPECT_EQ(events(), Names{"device_down gone"});
}

class VerbsDevices : public Devices {
 protected:
  VerbsDevices() {
    config_.driver = segment::Driver::Verbs;
    config_.reactors = 1;
  }
  std::atomic<std::uint64_t>& count(std::string_view name) {
    std::size_t i = 0;
    while (rdma::verbs::kStatistics[i].name != name) ++i;
    return segment_.layout().reactors[0].device_statistics[i];
  }
};

TEST_F(VerbsDevices, one_that_was_removed_is_gone_until_it_is_opened_again) {
  EXPECT_EQ(events(), Names{});
  show(segment::DeviceCondition::Gone);
  ++count("device_lost");
  EXPECT_EQ(events(), Names{"device_down gone"});
  show(segment::DeviceCondition::Up);
  ++count("device_returned");
  EXPECT_EQ(events(), Names{"device_up yes"});
}

TEST_F(VerbsDevices, one_that_does_not_flush_a_queue_pair_is_broken_however_soon_it_is_opened_again) {
  EXPECT_EQ(events(), Names{});
  ++count("flush_timeouts");
  ++count("device_returned");
  EXPECT_EQ(events(), (Names{"device_down broken", "device_up yes"}));
  show(segment::DeviceCondition::Broken);
  ++count("device_lost");
  EXPECT_EQ(events(), Names{"device_down broken"});
}

TEST_F(Devices, a_client_that_is_the_other_end_of_the_link_comes_and_goes_without_an_event) {
  std::strcpy(config_.ethdev, "net_memif0,role=server");
  EXPECT_EQ(events(), Names{});
  ++counter("port_down");
  show(segment::DeviceCondition::NoLink);
  EXPECT_EQ(events(), Names{});
}

TEST_F(Devices, the_counters_of_another_data_plane_begin_anew) {
  counter("port_down") = 3;
  counter("port_up") = 3;
  EXPECT_EQ(events(), Names{});
  counter("port_down") = 0;
  counter("port_up") = 0;
  EXPECT_EQ(events(), Names{});
  show(segment::DeviceCondition::NoLink);
  counter("port_down") = 1;
  EXPECT_EQ(events(), Names{"device_down no_link"});
}

}  // namespace
}  // namespace sluice::controlplane
