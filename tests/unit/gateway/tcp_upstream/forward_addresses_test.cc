// SPDX-License-Identifier: Apache-2.0
//
// Upstreams with several addresses. The current address stays in use while it works, another one replaces it
// when it fails, and no call is lost.
#include "tests/unit/gateway/tcp_upstream/echoed_calls.h"
#include "tests/unit/gateway/tcp_upstream/void_port.h"

namespace sluice::tcp_upstream_test {
namespace {

using Counter = segment::UpstreamCounter;

const PeerAddress kFirst = PeerAddress::from_ipv4(127, 0, 0, 1);
const PeerAddress kSecondAddress = PeerAddress::from_ipv4(127, 0, 0, 2);

/// A server with two addresses, each of which is a separate fake upstream.
struct Group : testing::Test {
  Group()
      : lab({.shared_connections = 1,
             .addresses = {{.address = kFirst}, {.address = kSecondAddress, .host = 1}}}) {
    lab.beside = [this] { other.poll(); };
    lab.upstream.answer = echo;
    other.answer = echo;
  }
  /// Makes a call and returns the word in the reply.
  std::uint32_t asked(std::uint32_t word) {
    const Outcome outcome = lab.call(client, {.payload = plain(word), .max_reply_bytes = 64});
    return outcome.message.size() > 6 * xdr::kUnit ? word_at(outcome.message, 6) : 0;
  }
  std::size_t submit(std::uint32_t word) {
    return client.submit({.payload = plain(word), .max_reply_bytes = 64});
  }
  bool answered(std::size_t call) { return client.finished[call].has_value(); }
  /// Sets the counters of the control plane: consecutive answers to NULL, and missing answers.
  void health(std::uint32_t first, std::uint32_t missing = 0, std::uint32_t second = 9) {
    lab.set_addresses({{.address = kFirst, .answers = first, .failures = missing},
                       {.address = kSecondAddress, .answers = second, .host = 1}});
    wait(1);
  }
  void wait(std::uint64_t seconds) {
    for (std::uint64_t i = 0; i < seconds; ++i) {
      lab.pass(kSecond);
      lab.turns(4);
    }
  }
  /// Makes the first address refuse connections, so that the second is used.
  void fail_over() {
    lab.upstream.shut();
    ASSERT_EQ(asked(1), 1u);
    ASSERT_EQ(other.calls.size(), 1u);
    lab.upstream.reopen();
  }
  PeerAddress in_use() const { return lab.area->address.read().value_or(PeerAddress{}); }

  ForwardLab lab;
  FakeUpstream other{kSecondAddress, lab.upstream.port()};
  LabClient& client = lab.add_client();
};

TEST_F(Group, the_first_address_is_used) {
  EXPECT_EQ(asked(7), 7u);
  EXPECT_EQ(lab.upstream.calls.size(), 1u);
  EXPECT_EQ(in_use(), kFirst);
  EXPECT_EQ(lab.count(Counter::address_changes), 0u);
}

TEST_F(Group, another_one_takes_the_place_of_one_that_refuses) {
  lab.upstream.shut();
  EXPECT_EQ(asked(7), 7u);
  EXPECT_EQ(other.calls.size(), 1u);
  EXPECT_EQ(in_use(), kSecondAddress);
  EXPECT_EQ(lab.count(Counter::address_changes), 1u);
}

TEST_F(Group, what_was_outstanding_goes_to_the_other_address) {
  lab.upstream.answer = nullptr;
  const std::size_t call = submit(7);
  ASSERT_TRUE(lab.until([&] { return lab.upstream.calls.size() == 1; }));
  lab.upstream.shut();
  lab.upstream.close(0);
  ASSERT_TRUE(lab.until([&] { return answered(call); }));
  EXPECT_EQ(word_at(client.finished[call]->message, 6), 7u);
  ASSERT_EQ(other.calls.size(), 1u);
  EXPECT_EQ(other.calls[0].xid(), lab.upstream.calls[0].xid()) << "by which the server knows it";
  EXPECT_EQ(other.peer_port(0), lab.upstream.peer_port(0)) << "and by its port";
}

TEST_F(Group, the_one_in_use_stays_while_it_works) {
  fail_over();
  wait(600);
  EXPECT_EQ(asked(2), 2u);
  EXPECT_EQ(other.connections(), 1u);
  EXPECT_EQ(lab.upstream.connections(), 0u);
}

TEST_F(Group, a_connection_that_ends_says_nothing_about_its_address) {
  asked(1);
  for (std::uint32_t i = 0; i < 5; ++i) {
    lab.upstream.close(lab.upstream.connections() - 1);
    EXPECT_EQ(asked(i), i);
  }
  EXPECT_EQ(other.connections(), 0u);
}

TEST_F(Group, a_silent_one_is_left_for_another) {
  lab.upstream.answer = nullptr;
  const std::size_t call = submit(7);
  wait((tcp_upstream::kSilenceNs + tcp_upstream::kFirstProbeAnswerNs) / kSecond + 4);
  ASSERT_TRUE(lab.until([&] { return answered(call); }));
  EXPECT_EQ(in_use(), kSecondAddress);
  EXPECT_EQ(lab.count(Counter::silent_resets), 1u);
}

TEST_F(Group, if_all_refuse_they_are_tried_in_turn_until_one_does_not) {
  lab.upstream.shut();
  other.shut();
  const std::size_t call = submit(7);
  wait(100);
  EXPECT_FALSE(answered(call));
  EXPECT_GT(lab.count(Counter::address_changes), 4u);
  other.reopen();
  wait(2 * tcp_upstream::kAwayNs / kSecond);
  ASSERT_TRUE(lab.until([&] { return answered(call); }));
  EXPECT_EQ(other.calls.size(), 1u);
}

TEST_F(Group, a_preferred_one_is_used_again_when_it_has_been_well_for_a_while) {
  health(20);
  fail_over();
  health(20 + tcp_upstream::kGraceAnswers - 1);
  EXPECT_EQ(asked(2), 2u);
  EXPECT_EQ(other.calls.size(), 2u) << "not yet";
  health(20 + tcp_upstream::kGraceAnswers);
  EXPECT_EQ(asked(3), 3u);
  EXPECT_EQ(lab.upstream.calls.size(), 1u);
  EXPECT_EQ(in_use(), kFirst);
  EXPECT_EQ(lab.count(Counter::moves), 1u);
  EXPECT_EQ(lab.count(Counter::resent), 0u);
}

TEST_F(Group, answers_are_counted_from_a_missing_one_on) {
  health(20);
  fail_over();
  health(0, 1);
  health(tcp_upstream::kGraceAnswers);
  EXPECT_EQ(asked(3), 3u);
  EXPECT_EQ(lab.upstream.calls.size(), 1u);
}

TEST_F(Group, nothing_is_returned_to_while_nobody_looks) {
  health(20);
  fail_over();
  wait(3600);
  EXPECT_EQ(asked(2), 2u);
  EXPECT_EQ(other.calls.size(), 2u);
}

TEST_F(Group, one_that_does_not_answer_the_control_plane_is_left_for_one_that_does) {
  asked(1);
  health(0, segment::kBadChecks - 1);
  EXPECT_EQ(in_use(), kFirst) << "once may be chance";
  health(0, segment::kBadChecks, 0);
  EXPECT_EQ(in_use(), kFirst) << "the other does not answer either";
  health(0, segment::kBadChecks);
  EXPECT_EQ(in_use(), kSecondAddress);
  EXPECT_EQ(asked(2), 2u);
  EXPECT_EQ(other.calls.size(), 1u);
}

TEST_F(Group, a_move_waits_for_the_calls_that_are_under_way) {
  lab.upstream.answer = nullptr;
  const std::size_t before = submit(1);
  ASSERT_TRUE(lab.until([&] { return lab.upstream.calls.size() == 1; }));
  health(0, segment::kBadChecks);
  const std::size_t after = submit(2);
  lab.turns();
  EXPECT_EQ(lab.upstream.calls.size(), 1u) << "what comes now is not sent there any more";
  EXPECT_TRUE(other.calls.empty()) << "nor is it sent before the other has an answer";
  lab.upstream.send(0, record(echo(lab.upstream.calls[0])));
  ASSERT_TRUE(lab.until([&] { return answered(before) && answered(after); }));
  EXPECT_EQ(other.calls.size(), 1u);
  EXPECT_EQ(lab.count(Counter::resent), 0u);
}

TEST_F(Group, a_move_waits_no_longer_than_its_limit) {
  lab.upstream.answer = nullptr;
  const std::size_t call = submit(1);
  ASSERT_TRUE(lab.until([&] { return lab.upstream.calls.size() == 1; }));
  health(0, segment::kBadChecks);
  wait(tcp_upstream::kMoveNs / kSecond + 2);
  ASSERT_TRUE(lab.until([&] { return answered(call); }));
  EXPECT_EQ(lab.count(Counter::resent), 1u);
  EXPECT_EQ(other.calls.size(), 1u);
}

TEST_F(Group, connections_follow_another_port) {
  FakeUpstream there;
  there.answer = echo;
  lab.beside = [&] { there.poll(); };
  lab.upstream.answer = nullptr;
  const std::size_t before = submit(1);
  ASSERT_TRUE(lab.until([&] { return lab.upstream.calls.size() == 1; }));
  lab.set_addresses({{.address = kFirst}}, there.port());
  wait(1);
  const std::size_t after = submit(2);
  lab.turns();
  EXPECT_TRUE(there.calls.empty()) << "a call is under way";
  lab.upstream.send(0, record(echo(lab.upstream.calls[0])));
  ASSERT_TRUE(lab.until([&] { return answered(before) && answered(after); }));
  EXPECT_EQ(there.calls.size(), 1u);
  EXPECT_EQ(lab.upstream.calls.size(), 1u);
  EXPECT_EQ(lab.count(Counter::resent), 0u);
  EXPECT_FALSE(lab.upstream.open(0));
}

TEST_F(Group, connections_follow_a_name_that_leads_elsewhere) {
  asked(1);
  lab.set_addresses({{.address = kSecondAddress}});
  wait(1);
  EXPECT_EQ(asked(2), 2u);
  EXPECT_EQ(other.calls.size(), 1u);
  EXPECT_FALSE(lab.upstream.open(0));
}

TEST_F(Group, an_address_stays_when_the_list_says_nothing) {
  asked(1);
  lab.set_addresses({});
  wait(1);
  EXPECT_EQ(asked(2), 2u);
  EXPECT_EQ(lab.upstream.connections(), 1u);
  lab.upstream.close(0);
  EXPECT_EQ(asked(3), 3u) << "nor is it forgotten for the next connection";
}

TEST(ForwardAddresses, calls_wait_for_a_name_to_be_resolved) {
  ForwardLab lab({.shared_connections = 1, .addresses = {}});
  LabClient& client = lab.add_client();
  lab.upstream.answer = echo;
  const std::size_t call = client.submit({.payload = plain(7), .max_reply_bytes = 64});
  lab.turns();
  EXPECT_FALSE(client.finished[call].has_value());
  EXPECT_GT(lab.count(Counter::connect_failures), 0u);
  lab.set_addresses({{.address = kFirst}});
  lab.pass(kSecond);
  lab.turns();
  lab.pass(tcp_upstream::kLastRetryNs);
  ASSERT_TRUE(lab.until([&] { return client.finished[call].has_value(); }));
  EXPECT_EQ(word_at(client.finished[call]->message, 6), 7u);
}

TEST(ForwardAddresses, one_may_be_of_the_other_family) {
  ForwardLab lab({.shared_connections = 1,
                  .addresses = {{.address = {{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}}},
                                {.address = kFirst}}});  // no server listens at ::1
  LabClient& client = lab.add_client();
  lab.upstream.answer = echo;
  EXPECT_EQ(word_at(lab.call(client, {.payload = plain(7), .max_reply_bytes = 64}).message, 6), 7u);
  EXPECT_EQ(lab.count(Counter::connect_failures), 1u);
}

TEST(ForwardAddresses, one_at_which_no_connection_comes_about_is_left) {
  ForwardLab lab({.shared_connections = 1, .addresses = {{.address = kSecondAddress}, {.address = kFirst}}});
  const Void nothing("127.0.0.2", lab.upstream.port());
  LabClient& client = lab.add_client();
  lab.upstream.answer = echo;
  const std::size_t call = client.submit({.payload = plain(7), .max_reply_bytes = 64});
  lab.turns();
  EXPECT_EQ(lab.count(Counter::address_changes), 0u);
  lab.pass(tcp_upstream::kConnectNs);
  lab.turns();
  EXPECT_EQ(lab.count(Counter::address_changes), 1u);
  ASSERT_TRUE(lab.until([&] { return client.finished[call].has_value(); }));
}

TEST(ForwardAddresses, an_only_one_is_waited_for) {
  ForwardLab lab({.shared_connections = 1, .addresses = {{.address = kSecondAddress}}});
  const Void nothing("127.0.0.2", lab.upstream.port());
  lab.add_client().submit({.payload = plain(7), .max_reply_bytes = 64});
  lab.turns();
  lab.pass(tcp_upstream::kConnectNs);
  lab.turns();
  EXPECT_EQ(lab.count(Counter::connect_failures), 0u);
}

}  // namespace
}  // namespace sluice::tcp_upstream_test
