// SPDX-License-Identifier: Apache-2.0
//
// Our requester is judged as any client is: it keeps the rules and withstands every provocation. A client
// that does not is reported.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/conformance/client_lab.h"

namespace sluice::conformance {
namespace {

constexpr std::uint64_t kPatienceNs = 5'000'000'000;
constexpr std::uint64_t kShortNs = 50'000'000;

bool is(const Provocation& provocation, const char* row) {
  const auto rows = rows_of(provocation.test);
  return std::find(rows.begin(), rows.end(), row) != rows.end();
}

TEST(JudgedClient, our_requester_keeps_the_rules) {
  JudgedClient lab;
  lab.serve(500);
  EXPECT_GE(lab.client().completed, 490u);
  EXPECT_EQ(lab.client().refused, 0u);
  EXPECT_GE(rules_kept(lab), 33u);
}

TEST(JudgedClient, our_requester_bears_every_provocation) {
  JudgedClient lab;
  lab.serve(50);
  for (const Provocation* provocation : provocations_of(1)) {
    const Result result = lab.provoke(*provocation, kPatienceNs);
    // The client does not offer remote invalidation.
    EXPECT_EQ(result.outcome, is(*provocation, "V1-150") ? Outcome::Skipped : Outcome::Passed)
        << provocation->test.name << ": " << result.detail;
  }
  rules_kept(lab);
}

/// No provocation may pass when the client is silent.
TEST(JudgedClient, a_client_that_falls_silent_bears_none) {
  for (const Provocation* provocation : provocations_of(1)) {
    JudgedClient lab;
    lab.serve(50);
    lab.spoil = [](Bytes&) { return 0; };
    EXPECT_NE(lab.provoke(*provocation, kShortNs).outcome, Outcome::Passed) << provocation->test.name;
  }
}

/// A change of messages that defies one provocation.
struct Defiant {
  const char* row;
  Spoil spoil;
};

Spoil repeats() {
  return [first = Bytes()](Bytes& message) mutable {
    if (first.empty()) first = message;
    return message = first, true;
  };
}
Spoil changes_xids() {
  return [n = 0u](Bytes& message) mutable {
    const std::uint32_t xid = word_at(message, 0);
    for (std::size_t at = 0; at + 4 <= message.size(); at += 4)
      if (word_at(message, at / 4) == xid) xdr::store_u32(message.data() + at, 0x12340000 + n);
    return ++n, true;
  };
}

TEST(JudgedClient, a_client_that_defies_a_provocation_is_seen) {
  const Spoil swells = [](Bytes& message) {
    return message.resize(std::max<std::size_t>(message.size(), 1100)), true;
  };
  const std::vector<Defiant> defiant = {
      {"V1-121", repeats()},      {"V1-100", repeats()}, {"V1-104", repeats()}, {"V1-055", repeats()},
      {"V1-155", repeats()},      {"V1-133", repeats()}, {"V1-157", repeats()}, {"V1-174", repeats()},
      {"V1-027", repeats()},      {"V1-029", repeats()}, {"V1-139", repeats()}, {"V1-152", changes_xids()},
      {"V1-091", repeats()},      {"V1-110", repeats()}, {"V1-122", repeats()}, {"V1-036", repeats()},
      {"V1-147", changes_xids()}, {"V1-062", swells}};
  for (const Defiant& one : defiant)
    for (const Provocation* provocation : provocations_of(1)) {
      if (!is(*provocation, one.row)) continue;
      JudgedClient lab;
      lab.serve(50);
      lab.spoil = one.spoil;
      const Result result = lab.provoke(*provocation, kShortNs);
      EXPECT_NE(result.outcome, Outcome::Passed) << provocation->test.name;
      // A client that only repeats one call may never make the call that the provocation waits for.
      EXPECT_TRUE(result.outcome == Outcome::Failed || result.detail.rfind("Not seen", 0) == 0)
          << result.detail;
    }
}

}  // namespace
}  // namespace sluice::conformance
