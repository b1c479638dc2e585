// SPDX-License-Identifier: Apache-2.0
//
// Our requester is judged in version 2 as any client is: it keeps the rules and withstands every provocation.
// A client that does not is reported.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/conformance/client_lab.h"

namespace sluice::conformance {
namespace {

constexpr std::uint64_t kPatienceNs = 5'000'000'000;
constexpr std::uint64_t kShortNs = 50'000'000;
/// Patience with a bad client, long enough for a slow machine.
constexpr std::uint64_t kDefianceNs = 1'000'000'000;

TEST(JudgedClientV2, our_requester_keeps_the_rules) {
  JudgedClient lab(2);
  lab.serve(500);
  EXPECT_GE(lab.client().completed, 490u);
  EXPECT_EQ(lab.client().refused, 0u);
  EXPECT_GE(rules_kept(lab), 40u);
}

TEST(JudgedClientV2, our_requester_bears_every_provocation) {
  JudgedClient lab(2);
  lab.serve(50);
  for (const Provocation* provocation : provocations_of(2)) {
    lab.client().forget_versions();
    const Result result = lab.provoke(*provocation, kPatienceNs);
    EXPECT_EQ(result.outcome, Outcome::Passed) << provocation->test.name << ": " << result.detail;
  }
  rules_kept(lab);
}

/// No provocation may pass when the client is silent.
TEST(JudgedClientV2, a_client_that_falls_silent_bears_none) {
  for (const Provocation* provocation : provocations_of(2)) {
    JudgedClient lab(2);
    lab.serve(50);
    lab.spoil = [](Bytes&) { return 0; };
    EXPECT_NE(lab.provoke(*provocation, kShortNs).outcome, Outcome::Passed) << provocation->test.name;
  }
}

bool is_whole_call(const Bytes& m) {
  return word_at(m, 1) == 2 && word_at(m, 3) == v2::kMsg && word_at(m, 4) == 0;
}
bool is_properties(const Bytes& m) {
  return word_at(m, 1) == 2 && word_at(m, 3) == v2::kConnProp;
}

/// Applies `spoil` from the next reconnection on.
Spoil on_the_next_connection(const Spoil& spoil) {
  return [spoil, begun = false](Bytes& message) mutable {
    begun |= is_properties(message);
    return begun ? spoil(message) : 1;
  };
}
int twice(Bytes& message) {
  const bool is_long = word_at(message, 3) == v2::kNoMsg && !v2::is_grant(message);
  return is_whole_call(message) || is_long || is_properties(message) ? 2 : 1;
}
int swells(Bytes& message) {
  if (is_whole_call(message)) message.resize(std::max<std::size_t>(message.size(), 4100));
  return 1;
}
int loses_errors(Bytes& message) {
  return word_at(message, 3) != v2::kError;
}
int errs_otherwise(Bytes& message) {
  if (word_at(message, 3) == v2::kError) xdr::store_u32(message.data() + 20, 10);
  return 1;
}
/// Sends an ERROR without a reason.
Spoil complains() {
  return [calls = 0](Bytes& message) mutable {
    if (is_whole_call(message) && ++calls == 3)
      message =
          v2::Header{.xid = 1, .credit = 0x00400001, .type = v2::kError, .flags = v2::kResponse}.then({2});
    return 1;
  };
}
int stays_with_version_2(Bytes& message) {
  xdr::store_u32(message.data() + 4, 2);
  return 1;
}
Spoil changes_xids() {
  return on_the_next_connection([n = 0x12340000u](Bytes& message) mutable {
    const std::uint32_t xid = word_at(message, 0);
    for (std::size_t at = 0; at + 4 <= message.size() && !is_properties(message); at += 4)
      if (word_at(message, at / 4) == xid) xdr::store_u32(message.data() + at, n);
    return ++n, 1;
  });
}

/// Returns a misbehaviour other than silence that defies the provocation. By default the client sends each
/// call twice.
Spoil defiance(JudgedClient& lab, const Provocation& provocation) {
  const std::string row = rows_of(provocation.test).front();
  const auto is_one_of = [&](std::initializer_list<const char*> rows) {
    return std::find(rows.begin(), rows.end(), row) != rows.end();
  };
  if (is_one_of({"V2-054", "V2-030", "V2-087", "V2-088", "V2-021", "V2-070"})) return errs_otherwise;
  if (is_one_of({"V2-055", "V2-023", "V2-086", "V2-093"})) return loses_errors;
  if (std::string(provocation.test.name) == "V2_027_a_Reply_without_RESPONSE_is_refused")
    return errs_otherwise;
  if (is_one_of({"V2-028", "V2-107", "V2-004", "V2-026"})) return complains();
  if (is_one_of({"V2-036"})) return [](Bytes& message) { return 4 * twice(message); };
  if (is_one_of({"V2-059"})) return swells;
  if (is_one_of({"V2-010", "V2-047", "V2-064"})) return on_the_next_connection(swells);
  if (is_one_of({"V2-129", "V2-095", "V2-052", "V2-141", "V2-065"})) return changes_xids();
  if (is_one_of({"V2-013"})) return on_the_next_connection(stays_with_version_2);
  if (is_one_of({"V2-015"}))
    return [&lab](Bytes& message) {
      if (word_at(message, 1) == 1) lab.client().forget_versions();
      return 1;
    };
  return twice;
}

/// True if the provocation works without chunks. A repeated call with chunks ends its connection, because the
/// memory is no longer exposed when the second reply is written.
bool needs_no_chunks(const Provocation& provocation) {
  static constexpr const char* kNames[] = {"V2_084",   "V2_036", "V2_034",     "V2_041", "V2_039",
                                           "V2_062",   "V2_108", "V2_122_BAD", "V2_120", "V2_121",
                                           "V2_079_a", "V2_094", "V2_092"};
  return std::any_of(std::begin(kNames), std::end(kNames), [&](const char* name) {
    return std::string(provocation.test.name).rfind(name, 0) == 0;
  });
}

TEST(JudgedClientV2, a_client_that_defies_a_provocation_is_seen) {
  for (const Provocation* provocation : provocations_of(2)) {
    JudgedClient lab(2);
    lab.client().with_chunks = !needs_no_chunks(*provocation);
    if (needs_no_chunks(*provocation)) lab.spoil = twice;
    lab.serve(50);
    lab.spoil = defiance(lab, *provocation);
    const Result result = lab.provoke(*provocation, kDefianceNs);
    EXPECT_EQ(result.outcome, Outcome::Failed) << provocation->test.name << ": " << result.detail;
  }
}

}  // namespace
}  // namespace sluice::conformance
