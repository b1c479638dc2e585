// SPDX-License-Identifier: Apache-2.0
#include "dataplane/segment/desired_state.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/unit/base/counted_invariants.h"

namespace sluice::segment {
namespace {

/// Records the changes that are applied to it.
struct Recorder {
  std::vector<std::string> calls;
  HostName host;
  Parameters parameters;
  Grant grant;

  void set_parameters(const Parameters& set) noexcept { calls.push_back("parameters"), parameters = set; }
  void admit(const HostName& name) noexcept { calls.push_back("admit"), host = name; }
  void set_grant(const Grant& set) noexcept { calls.push_back("grant"), grant = set; }
  void set_established() noexcept { calls.push_back("established"); }
  void set_draining(bool on) noexcept { calls.push_back(on ? "drain" : "drain off"); }
  void set_traced(bool on) noexcept { calls.push_back(on ? "trace" : "trace off"); }
  void end(End how, std::uint32_t reason) noexcept {
    calls.push_back("end " + std::to_string(static_cast<int>(how)) + " " + std::to_string(reason));
  }
};

using Calls = std::vector<std::string>;

class Wanted : public testing::Test {
 protected:
  static constexpr std::uint32_t kNumber = 7;
  Calls follow(std::uint32_t incarnation) {
    recorder_.calls.clear();
    const bool any = segment::follow(area_, kNumber, incarnation, followed_, recorder_);
    EXPECT_EQ(any, !recorder_.calls.empty());
    return recorder_.calls;
  }

  std::unique_ptr<DesiredStatePart> part_ = std::make_unique<DesiredStatePart>();
  RingOfConsumer hints_read_{};
  DesiredStateArea area_{*part_, hints_read_};
  DesiredStateWriter writer_{area_};
  AppliedState followed_;
  Recorder recorder_;
};

TEST_F(Wanted, words_say_what_was_put_into_them) {
  for (const DesiredState& course :
       {DesiredState{}, DesiredState{.established = true}, DesiredState{.draining = true},
        DesiredState{.traced = true}, DesiredState{.parameters = true}, DesiredState{.admitted = true},
        DesiredState{.end = End::PeerGone}, DesiredState{.end = End::Disconnect, .reason = 255}})
    EXPECT_EQ(decode_course(pack(9, encode(course))), course);
  for (const Grant& grant : {Grant{}, Grant{.credits = kMaxDesiredCredits, .client_class = 0}})
    EXPECT_EQ(decode_grant(pack(9, encode(grant))), grant);
  EXPECT_EQ(decode_grant(encode(Grant{.credits = ~0u, .client_class = 1})),
            (Grant{.credits = kMaxDesiredCredits, .client_class = 1}));
  EXPECT_EQ(incarnation_of(pack(0xFFFFFFFF, 1)), 0xFFFFFFFFu);
}

TEST_F(Wanted, each_change_is_followed_once) {
  writer_.established(kNumber, 1);
  EXPECT_EQ(follow(1), Calls{"established"});
  EXPECT_EQ(follow(1), Calls{});
  writer_.drain(kNumber, 1, true);
  writer_.trace(kNumber, 1, true);
  EXPECT_EQ(follow(1), (Calls{"drain", "trace"}));
  writer_.drain(kNumber, 1, false);
  EXPECT_EQ(follow(1), Calls{"drain off"});
}

TEST_F(Wanted, what_is_taken_back_before_it_was_seen_is_not_followed) {
  writer_.drain(kNumber, 1, true);
  writer_.drain(kNumber, 1, false);
  EXPECT_TRUE(segment::follow(area_, kNumber, 1, followed_, recorder_));
  EXPECT_EQ(recorder_.calls, Calls{});
}

TEST_F(Wanted, the_class_of_an_admitted_host_comes_before_its_admission) {
  writer_.parameters(kNumber, 1, {.send_bytes = 1, .max_segment_bytes = 2, .max_segments = 3, .reverse = 4});
  writer_.admit(kNumber, 1, HostName("a.example"), 3);
  EXPECT_EQ(follow(1), (Calls{"grant", "parameters", "admit"}));
  EXPECT_EQ(recorder_.host.view(), "a.example");
  EXPECT_EQ(recorder_.grant, (Grant{.credits = 0, .client_class = 3}));
  EXPECT_EQ(recorder_.parameters.max_segments, 3u);
  EXPECT_EQ(recorder_.parameters.reverse, 4u);
}

TEST_F(Wanted, an_end_is_followed_once_and_alone) {
  writer_.end(kNumber, 1, End::Disconnect, 9);
  writer_.established(kNumber, 1);
  EXPECT_EQ(follow(1), Calls{"end 2 9"});
  writer_.trace(kNumber, 1, true);
  EXPECT_TRUE(segment::follow(area_, kNumber, 1, followed_, recorder_));
  EXPECT_EQ(recorder_.calls, Calls{"end 2 9"});
}

TEST_F(Wanted, a_successor_has_nothing_of_what_was_wanted_before) {
  writer_.drain(kNumber, 1, true);
  writer_.grant(kNumber, 1, {.credits = 5});
  EXPECT_EQ(follow(2), Calls{});
  EXPECT_EQ(writer_.course(kNumber, 2), DesiredState{});
  EXPECT_EQ(writer_.grant(kNumber, 2), Grant{});
  writer_.established(kNumber, 2);
  EXPECT_EQ(follow(2), Calls{"established"});
}

TEST_F(Wanted, nothing_of_a_predecessor_is_written_over_its_successor) {
  // Incarnations count up modulo 2^32; zero means none.
  for (const auto& [past, next] :
       {std::pair{1u, 2u}, std::pair{0xFFFFFFFFu, 1u}, std::pair{5u, 0x80000004u}}) {
    area_.words[kNumber].course = area_.words[kNumber].grant = 0;
    EXPECT_TRUE(writer_.established(kNumber, past)) << past;
    EXPECT_TRUE(writer_.established(kNumber, next)) << past;
    EXPECT_TRUE(writer_.grant(kNumber, next, {.credits = 5})) << past;
    EXPECT_FALSE(writer_.end(kNumber, past, End::PeerGone)) << past;
    EXPECT_FALSE(writer_.grant(kNumber, past, {.credits = 6})) << past;
    EXPECT_FALSE(writer_.admit(kNumber, past, HostName("a"), 1)) << past;
    EXPECT_FALSE(writer_.parameters(kNumber, past, {})) << past;
    EXPECT_EQ(writer_.course(kNumber, next), DesiredState{.established = true}) << past;
    EXPECT_EQ(writer_.grant(kNumber, next).credits, 5u) << past;
  }
}

TEST_F(Wanted, who_has_not_followed_yet_is_behind) {
  EXPECT_FALSE(writer_.is_behind(kNumber, 1, followed_));
  writer_.grant(kNumber, 1, {.credits = 5});
  EXPECT_TRUE(writer_.is_behind(kNumber, 1, followed_));
  EXPECT_FALSE(writer_.is_behind(kNumber, 2, followed_));
  follow(1);
  EXPECT_FALSE(writer_.is_behind(kNumber, 1, followed_));
  writer_.drain(kNumber, 1, true);
  EXPECT_TRUE(writer_.is_behind(kNumber, 1, followed_));
}

TEST_F(Wanted, a_hint_comes_with_each_change_and_with_nothing_else) {
  writer_.grant(kNumber, 1, {.credits = 5});
  writer_.grant(kNumber, 1, {.credits = 5});
  EXPECT_EQ(area_.hints.size(), 1u);
  while (area_.hints.push(0)) {
  }
  EXPECT_TRUE(writer_.grant(kNumber, 1, {.credits = 6})) << "also without room for a hint";
  EXPECT_EQ(writer_.grant(kNumber, 1).credits, 6u);
}

TEST_F(Wanted, a_number_that_no_connection_has_is_a_failed_invariant) {
  const CountedInvariants counted;
  EXPECT_FALSE(writer_.grant(kMaxConnections, 1, {.credits = 8}));
  EXPECT_FALSE(writer_.established(kMaxConnections, 1));
  EXPECT_GE(counted.failed(Invariant::table_index), 2u);
}

}  // namespace
}  // namespace sluice::segment
