// SPDX-License-Identifier: Apache-2.0
//
// Reduction of credits: only clients whose own calls wait in the gateway are affected. Tests cover the cause
// and the duration.
#include <algorithm>

#include "tests/unit/gateway/tcp_upstream/echoed_calls.h"

namespace sluice::tcp_upstream_test {
namespace {

using Counter = segment::UpstreamCounter;

constexpr std::uint32_t kCredits = 16;
constexpr tcp_upstream::Route kOther{0x20000124, 1};

Bytes call_to(std::uint32_t program = 0x20000123) {
  return call_of(program, 1, 7, words({1}));
}
struct Credits : testing::Test {
  explicit Credits(ForwardOptions options = {.credits = kCredits, .shared_connections = 1})
      : lab(std::move(options)) {
    lab.upstream.answer = echo;
  }
  LabClient& warmed_client() {
    LabClient& client = lab.add_client();
    lab.call(client, {.payload = call_to(), .max_reply_bytes = 64});
    client.finished.clear();
    return client;
  }
  void submit(LabClient& client, std::uint32_t calls, std::uint32_t program = 0x20000123) {
    for (std::uint32_t i = 0; i < calls; ++i)
      client.submit({.payload = call_to(program), .max_reply_bytes = 64});
  }
  std::uint32_t grant(std::uint16_t number) {
    return static_cast<std::uint32_t>(lab.engine->connection(number).responder().grant());
  }
  void intervals(int count) {
    for (int i = 0; i < count; ++i) {
      lab.pass(tcp_upstream::kCreditIntervalNs + tcp_upstream::kTickNs);
      lab.turns(5);
    }
  }
  bool granted(std::uint16_t number, std::uint32_t credits) {
    return bool{lab.until([&] {
      lab.pass(tcp_upstream::kCreditIntervalNs);
      return grant(number) == credits;
    })};
  }

  ForwardLab lab;
};

TEST_F(Credits, a_call_that_the_upstream_is_long_about_costs_nobody_any) {
  LabClient& client = warmed_client();
  warmed_client();
  lab.upstream.answer = nullptr;
  submit(client, 3);
  intervals(50);
  EXPECT_EQ(grant(0), kCredits);
  EXPECT_EQ(grant(1), kCredits);
  EXPECT_EQ(lab.area->credit_limit.load(), 0u);
}

TEST_F(Credits, clients_whose_calls_cannot_be_sent_are_granted_one_at_last_and_the_others_all) {
  LabClient& client = warmed_client();
  warmed_client();
  lab.upstream.shut();
  lab.upstream.close(0);
  lab.turns(20);
  submit(client, 2);
  intervals(10);
  EXPECT_EQ(grant(0), 1u);
  EXPECT_EQ(grant(1), kCredits) << "nothing of it waits";
  EXPECT_EQ(lab.area->credit_limit.load(), 1u);
  lab.upstream.reopen();
  bool some = false;
  ASSERT_TRUE(lab.until([&] {
    lab.pass(tcp_upstream::kCreditIntervalNs);
    some = some || (grant(0) > 1 && grant(0) < kCredits);
    return grant(0) == kCredits;
  }));
  EXPECT_TRUE(some) << "twice as many each time, not all at once";
  EXPECT_TRUE(lab.until([&] { return client.finished.back().has_value(); }));
}

struct FewNumbers : Credits {
  /// Each of eight clients has one, and eight are lent, so one client has at most eight.
  FewNumbers() : Credits({.credits = kCredits, .shared_connections = 1, .max_calls = 16}) {}
};

TEST_F(FewNumbers, a_client_with_more_calls_than_its_share_is_granted_its_share) {
  LabClient& greedy = warmed_client();
  LabClient& modest = warmed_client();
  lab.upstream.answer = nullptr;
  submit(modest, 1);
  submit(greedy, kCredits);
  ASSERT_TRUE(lab.until([&] { return lab.count(Counter::waits_number) == kCredits - 8; }));
  intervals(10);
  EXPECT_EQ(grant(0), 8u) << "as many as it can have at the upstream";
  EXPECT_EQ(grant(1), kCredits);
  lab.upstream.answer = echo;
  for (const auto& call : std::vector(lab.upstream.calls.end() - 9, lab.upstream.calls.end()))
    lab.upstream.send(call.connection, record(echo(call)));
  EXPECT_TRUE(granted(0, kCredits));
}

struct TwoUpstreams : Credits {
  TwoUpstreams() : Credits({.credits = kCredits, .shared_connections = 1, .hung_routes = {kOther}}) {}
};

TEST_F(TwoUpstreams, one_that_hangs_takes_nothing_of_what_there_is_for_the_other) {
  LabClient& client = warmed_client();
  lab.hung->shut();
  submit(client, 3, kOther.program);
  intervals(10);
  EXPECT_EQ(lab.hung_area->credit_limit.load(), 1u) << "for itself";
  EXPECT_EQ(grant(0), kCredits);
  client.finished.clear();
  submit(client, kCredits - 3);
  EXPECT_TRUE(lab.until([&] {
    return std::all_of(client.finished.begin(), client.finished.end(),
                       [](const auto& outcome) { return outcome.has_value(); });
  }));
}

TEST_F(TwoUpstreams, each_has_its_limit_beside_the_calls_that_the_other_holds) {
  LabClient& client = warmed_client();
  lab.hung->shut();
  lab.upstream.shut();
  lab.upstream.close(0);
  lab.turns(20);
  submit(client, 5, kOther.program);
  submit(client, 2);
  intervals(10);
  EXPECT_EQ(lab.area->credit_limit.load(), 1u);
  EXPECT_EQ(lab.hung_area->credit_limit.load(), 1u);
  EXPECT_EQ(grant(0), 6u) << "one call beside five";
  lab.upstream.reopen();
  EXPECT_TRUE(granted(0, kCredits)) << "this upstream has no reason left";
  EXPECT_EQ(lab.hung_area->credit_limit.load(), 1u);
}

TEST_F(TwoUpstreams, limits_go_with_their_client) {
  LabClient& client = warmed_client();
  lab.hung->shut();
  lab.upstream.shut();
  lab.upstream.close(0);
  lab.turns(20);
  submit(client, 1, kOther.program);
  submit(client, 1);
  intervals(10);
  ASSERT_EQ(grant(0), 2u);
  lab.disconnect(client);
  intervals(1);
  LabClient& next = lab.add_client();
  ASSERT_TRUE(lab.engine->connection(0).is_open()) << "in the place of the other";
  submit(next, 1, kOther.program);
  intervals(10);
  EXPECT_EQ(lab.hung_area->credit_limit.load(), 1u);
  EXPECT_EQ(grant(0), kCredits) << "it has no calls at the other upstream";
}

struct CreditsWithASpare : Credits {
  CreditsWithASpare()
      : Credits({.credits = kCredits,
                 .shared_connections = 1,
                 .hung_routes = {{ulb::kNfsProgram, 3}},
                 .hung_is_spare = true,
                 .routes = {{0x20000123, 1}}}) {}
};

TEST_F(CreditsWithASpare, an_upstream_counts_from_when_it_has_come) {
  LabClient& client = warmed_client();
  lab.upstream.shut();
  lab.upstream.close(0);
  lab.turns(20);
  submit(client, 2);
  intervals(10);
  EXPECT_EQ(grant(0), 1u);
  lab.bring(7);
  EXPECT_TRUE(granted(0, kCredits));
}

}  // namespace
}  // namespace sluice::tcp_upstream_test
