// SPDX-License-Identifier: Apache-2.0
//
// Events of the journal about upstreams that are lost or found, and about operations that gateways refuse.
// The test publishes the state of the reactors.
#include "controlplane/upstreams/address_manager.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "controlplane/events/journal.h"
#include "tests/unit/controlplane/lab.h"

namespace sluice::upstreams {
namespace {

class ReachWatches : public testing::Test {
 protected:
  ReachWatches() {
    config_.reactors = 2;
    config_.upstream_count = 1;
    name("filer");
  }
  void name(const std::string& upstream) {
    const std::size_t end = upstream.copy(config_.upstreams[0].name, sizeof config_.upstreams[0].name - 1);
    config_.upstreams[0].name[end] = '\0';
  }
  /// Publishes the state of the first upstream at one reactor.
  void publish(std::uint32_t reactor, std::uint32_t connections, std::uint32_t connecting,
               std::uint32_t waiting = 0) {
    segment::UpstreamArea& area = segment_.layout().reactors[reactor].upstreams[0];
    area.connections = connections;
    area.connecting = connecting;
    area.waiting = waiting;
  }
  void look(bool data_plane_alive = true) {
    now_ns_ += sluice::lab::kSecondNs;
    watch_.poll(config_, data_plane_alive, now_ns_);
  }
  /// Returns names and fields of all events.
  std::vector<std::string> events() {
    std::vector<std::string> said;
    for (const events::Event& event : journal_.read(1, 100).events) {
      std::string& one = said.emplace_back(event.kind->name);
      for (const events::Field& field : event.fields)
        std::visit(
            [&](const auto& value) {
              if constexpr (std::is_same_v<std::decay_t<decltype(value)>, std::string>)
                one += " " + value;
              else
                one += " " + std::to_string(static_cast<int>(value));
            },
            field.value);
    }
    return said;
  }

  sluice::lab::TestSegment segment_{"reach"};
  segment::ConfigBlock config_{};
  std::uint64_t now_ns_ = sluice::lab::kSecondNs;
  events::Journal journal_{[](const events::Event&) {}};
  UpstreamMonitor watch_{journal_, segment_.layout()};
};

using Events = std::vector<std::string>;

TEST_F(ReachWatches, each_unknown_operation_is_told_once) {
  segment::ReactorArea& first = segment_.layout().reactors[0];
  segment::ReactorArea& second = segment_.layout().reactors[1];
  look();
  EXPECT_TRUE(events().empty());
  first.upstreams[0].unknown_operation.note(76);
  second.upstreams[0].unknown_operation.note(76);
  look();
  look();
  second.upstreams[0].unknown_operation.note(0);
  first.reverse.unknown_operation.note(76);
  look();
  first.upstreams[0].unknown_operation.note(0);
  look();
  EXPECT_EQ(events(), (Events{"operation_refused filer 76", "operation_refused filer 0",
                              "operation_refused reverse 76"}));
}

TEST_F(ReachWatches, unknown_operations_of_any_number_fill_neither_journal_nor_memory) {
  for (std::uint32_t number = 100; number < 100 + 2 * kMaxOperationsRefused; ++number) {
    segment_.layout().reactors[0].upstreams[0].unknown_operation.note(number);
    look();
  }
  EXPECT_EQ(events().size(), kMaxOperationsRefused);
  segment_.layout().reactors[0].reverse.unknown_operation.note(7);
  look();
  EXPECT_EQ(events().back(), "operation_refused reverse 7");  // another gateway has its own share
}

TEST_F(ReachWatches, one_connection_of_any_reactor_is_enough) {
  publish(0, 0, 1);
  publish(1, 1, 0);
  for (int i = 0; i < 3; ++i) look();
  EXPECT_EQ(events(), Events{"upstream_found filer 0"});
}

TEST_F(ReachWatches, an_upstream_is_lost_when_two_looks_in_a_row_find_nothing_but_attempts) {
  publish(0, 2, 0);
  look();
  publish(0, 0, 1, 3);
  publish(1, 0, 1, 4);
  look();
  EXPECT_EQ(events().size(), 1u);  // a connection may be about to succeed
  look();
  look();
  EXPECT_EQ(events(), (Events{"upstream_found filer 0", "upstream_lost filer 7"}));
}

TEST_F(ReachWatches, a_look_that_finds_a_connection_begins_the_count_anew) {
  publish(0, 0, 1);
  look();
  publish(0, 1, 0);
  look();
  publish(0, 0, 1);
  look();
  EXPECT_EQ(events(), Events{"upstream_found filer 0"});
}

TEST_F(ReachWatches, what_is_found_again_says_how_long_it_was_lost) {
  publish(0, 0, 1);
  look();
  look();
  for (int i = 0; i < 4; ++i) look();
  publish(1, 1, 0);
  look();
  EXPECT_EQ(events(), (Events{"upstream_lost filer 0", "upstream_found filer 5"}));
}

TEST_F(ReachWatches, nobody_connects_to_an_upstream_without_calls_and_it_is_not_lost) {
  publish(0, 1, 0);
  look();
  publish(0, 0, 0);
  for (int i = 0; i < 4; ++i) look();
  EXPECT_EQ(events(), Events{"upstream_found filer 0"});
}

TEST_F(ReachWatches, nothing_changes_without_a_data_plane) {
  publish(0, 1, 0);
  look();
  publish(0, 0, 1);
  for (int i = 0; i < 4; ++i) look(false);
  EXPECT_EQ(events(), Events{"upstream_found filer 0"});
  look();
  look();
  EXPECT_EQ(events().size(), 2u);
}

TEST_F(ReachWatches, another_upstream_in_the_same_place_begins_as_unknown) {
  publish(0, 0, 1);
  look();
  look();
  name("other");
  publish(0, 1, 0);
  look();
  EXPECT_EQ(events(), (Events{"upstream_lost filer 0", "upstream_found other 0"}));
}

}  // namespace
}  // namespace sluice::upstreams
