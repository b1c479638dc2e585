// SPDX-License-Identifier: Apache-2.0
#include "controlplane/upstreams/address_table.h"

#include <gtest/gtest.h>

#include <cstring>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "controlplane/tasks/arena.h"
#include "tests/unit/controlplane/upstreams/book_lab.h"
#include "tests/unit/link_of_own.h"

namespace sluice::upstreams {
namespace {

using namespace lab;

TEST_F(Book, addresses_need_no_resolving) {
  open({"127.0.0.2", "::1"});
  EXPECT_EQ(addresses(), (std::vector<PeerAddress>{kOther, kSix}));
  EXPECT_EQ(book_->list().port, server_.port());
  EXPECT_EQ(names_->asked(), 0);
}

TEST_F(Book, a_name_has_the_place_of_its_host) {
  names_->set("nas", {kSix, kOther});
  open({"nas", "127.0.0.1"});
  EXPECT_EQ(addresses(), std::vector<PeerAddress>{kFour}) << "until it is resolved";
  until([&] { return addresses().size() == 3; });
  EXPECT_EQ(addresses(), (std::vector<PeerAddress>{kSix, kOther, kFour}));
}

TEST_F(Book, an_address_is_there_once) {
  names_->set("nas", {kFour, kOther, kFour});
  open({"127.0.0.1", "nas"});
  until([&] { return addresses().size() > 1; });
  EXPECT_EQ(addresses(), (std::vector<PeerAddress>{kFour, kOther}));
}

TEST_F(Book, no_more_addresses_are_used_than_there_is_room_for) {
  std::vector<PeerAddress> many;
  for (std::uint8_t i = 0; i < 40; ++i) many.push_back(PeerAddress::from_ipv4(127, 0, 1, i));
  names_->set("nas", many);
  open({"nas"});
  until([&] { return !addresses().empty(); });
  EXPECT_EQ(addresses().size(), segment::kMaxUpstreamAddresses);
}

/// A name server knows no interfaces.
TEST_F(Book, a_link_local_address_without_an_interface_is_not_used) {
  const CapturedLog log;
  PeerAddress on_link{{0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}};
  names_->set("nas", {on_link});
  open({"nas"});
  until([&] { return log.text().find("fe80::1, which is on every link") != std::string::npos; });
  EXPECT_TRUE(addresses().empty());
  names_->set("nas", {on_link, kFour});
  now_ns_ += kUrgentLookupNs;
  until([&] { return !addresses().empty(); });
  EXPECT_EQ(addresses(), std::vector<PeerAddress>{kFour});
  on_link.zone = 1;
  names_->set("nas", {on_link, kFour});
  now_ns_ += kLookupNs;
  until([&] { return addresses() == std::vector<PeerAddress>{kFour, on_link}; });
}

/// The kernel's connection management requires the interface, too.
TEST_F(Book, a_link_local_address_over_verbs_is_used_with_its_interface_only) {
  const CapturedLog log;
  PeerAddress on_link{{0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}};
  names_->set("nas", {on_link});
  open({"nas"}, segment::Transport::Rdma, segment::Driver::Verbs);
  until(
      [&] { return !addresses().empty() || log.text().find("which is on every link") != std::string::npos; });
  EXPECT_TRUE(addresses().empty());
  on_link.zone = 1;
  names_->set("nas", {on_link});
  now_ns_ += kLookupNs;
  until([&] { return addresses() == std::vector<PeerAddress>{on_link}; });
}

TEST_F(Book, a_link_local_address_over_rdma_may_be_on_the_only_link_of_the_device) {
  const PeerAddress on_link{{0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}};
  names_->set("nas", {on_link});
  open({"nas"}, segment::Transport::Rdma);
  until([&] { return addresses() == std::vector<PeerAddress>{on_link}; });
}

TEST(BookOnLink, an_upstream_is_called_at_its_link_local_address) {
  std::string why;
  std::thread([&] {
    why = make_link_of_own();
    if (!why.empty()) return;
    FakeServer server(*parse_address(kOnLinkOfOwn), 0);
    FakeServer other(kSix, server.port());
    segment::UpstreamConfig upstream;
    std::strcpy(upstream.name, "nas");
    upstream.port = server.port();
    upstream.route_count = 1;
    upstream.routes[0] = {100003, 4};
    std::strcpy(upstream.hosts[0].data(), kOnLinkOfOwn);
    std::strcpy(upstream.hosts[1].data(), "::1");
    upstream.host_count = 2;
    tasks::Arena arena({.threads = 1, .queued = 2});
    AddressTable book(upstream, segment::Driver::SoftRoce, arena, look_up);
    std::uint64_t now_ns = kStartNs;
    turn_until(book, now_ns, [&] {
      arena.deliver();
      server.pump();
      other.pump();
      return !server.calls.empty() && !other.calls.empty();
    });
    EXPECT_EQ(server.peer(), *parse_address(kOnLinkOfOwn));
  }).join();
  if (!why.empty()) GTEST_SKIP() << why;
}

TEST_F(Book, a_name_is_looked_up_again_after_a_while) {
  names_->set("nas", {kFour});
  open({"nas"});
  until([&] { return addresses().size() == 1; });
  names_->set("nas", {kOther});
  now_ns_ += kLookupNs - 1;
  turns(*book_, now_ns_);
  EXPECT_EQ(names_->asked(), 1);
  now_ns_ += 1;
  until([&] { return addresses() == std::vector<PeerAddress>{kFour, kOther}; });
}

TEST_F(Book, a_name_server_that_fails_takes_no_address_away) {
  const CapturedLog log;
  names_->set("nas", {kFour});
  open({"nas"});
  until([&] { return addresses().size() == 1; });
  names_->set("nas", {});
  now_ns_ += kLookupNs;
  until([&] { return log.text().find("nobody knows it") != std::string::npos; });
  EXPECT_EQ(addresses(), std::vector<PeerAddress>{kFour});
}

TEST_F(Book, a_name_that_cannot_be_resolved_is_said_once_and_tried_often) {
  const CapturedLog log;
  open({"nas"});
  // No lookup starts before the previous answer has arrived, however long it takes.
  const auto pass_time = [&] {
    arena_.deliver();
    turns(*book_, now_ns_);
    now_ns_ += kUrgentLookupNs;
  };
  while (names_->asked() < 5) pass_time();
  EXPECT_EQ(log.text(),
            "Upstream 'nas': 'nas' cannot be resolved (nobody knows it): nothing is sent to it until it can "
            "be resolved\n");
  names_->set("nas", {kFour});
  while (addresses().size() != 1) pass_time();
}

TEST_F(Book, failed_connections_hurry_a_lookup_but_not_each) {
  names_->set("nas", {kFour});
  open({"nas"});
  until([&] { return addresses().size() == 1; });
  book_->hurry(now_ns_);
  turns(*book_, now_ns_);
  EXPECT_EQ(names_->asked(), 1);
  now_ns_ += kUrgentLookupNs;
  book_->hurry(now_ns_);
  until_asked(2);
}

TEST_F(Book, a_name_that_finds_the_arena_full_is_looked_up_later) {
  const auto open_gate = std::make_shared<std::promise<void>>();
  const std::shared_future<void> gate = open_gate->get_future().share();
  for (int i = 0; i < 4; ++i)
    ASSERT_TRUE(arena_.start([gate] {
      gate.wait();
      return tasks::Arena::Done();
    }));
  names_->set("nas", {kFour});
  open({"nas"});
  turns(*book_, now_ns_);
  EXPECT_EQ(arena_.statistics().refused, 1u) << "asked once, not in each turn";
  open_gate->set_value();
  until([&] { return arena_.outstanding() == 0; });
  turns(*book_, now_ns_);
  EXPECT_EQ(names_->asked(), 0);
  now_ns_ += kCrowdedLookupNs;
  until([&] { return addresses() == std::vector<PeerAddress>{kFour}; });
}

TEST_F(Book, an_only_address_is_not_asked) {
  open({"127.0.0.1"});
  now_ns_ += 10 * segment::kAddressCheckNs;
  until([n = 20]() mutable { return n-- == 0; });
  EXPECT_EQ(server_.connections(), 0u);
}

TEST_F(Book, answers_and_missing_ones_are_counted) {
  const CapturedLog log;
  open({"127.0.0.1", "127.0.0.2"});
  check();
  EXPECT_EQ(server_.calls[0].procedure.program, 100003u);
  EXPECT_EQ(server_.calls[0].procedure.version, 4u);
  EXPECT_EQ(server_.calls[0].procedure.procedure, 0u);
  check();
  check();
  EXPECT_EQ(entry(0).answers, 3u);
  until([&] { return entry(1).failures == 2; });
  EXPECT_EQ(log.text(), "Upstream 'nas' does not answer at 127.0.0.2\n");
  now_ns_ += segment::kAddressCheckNs;
  until([&] { return entry(1).failures == 3 && other_.calls.size() == 2; });
  other_.answer(other_.calls[1], {});
  until([&] { return entry(1).answers == 1; });
  EXPECT_EQ(entry(1).failures, 0u);
  now_ns_ += segment::kAddressCheckNs;
  until([&] { return entry(0).failures > 0; });
  EXPECT_EQ(entry(0).answers, 0u) << "they are counted anew";
  EXPECT_NE(log.text().find("Upstream 'nas' answers again at 127.0.0.2\n"), std::string::npos) << log.text();
}

TEST_F(Book, a_server_without_the_program_does_not_count) {
  open({"127.0.0.1", "127.0.0.2"});
  now_ns_ += segment::kAddressCheckNs;
  until([&] { return server_.calls.size() == 1; });
  server_.answer(server_.calls[0], {}, rpc::AcceptStat::ProgUnavail);
  until([&] { return entry(0).failures == 1; });
  EXPECT_EQ(entry(0).answers, 0u);
}

TEST_F(Book, a_server_that_wants_a_better_credential_is_there) {
  open({"127.0.0.1", "127.0.0.2"});
  now_ns_ += segment::kAddressCheckNs;
  until([&] { return server_.calls.size() == 1; });
  server_.deny(server_.calls[0]);
  until([&] { return entry(0).answers == 1; });
}

TEST_F(Book, an_address_that_has_become_the_only_one_has_no_counts) {
  names_->set("nas", {kFour, kOther});
  open({"nas"});
  until([&] { return server_.calls.size() == 1; });
  server_.answer(server_.calls[0], {});
  until([&] { return entry(0).answers == 1; });
  other_.stop();
  now_ns_ += segment::kAddressCheckNs;
  until([&] { return entry(1).failures >= segment::kBadChecks; });
  names_->set("nas", {kFour});
  now_ns_ += kLookupNs;
  until([&] { return addresses().size() == 1; });
  EXPECT_EQ(entry(0).answers, 0u);
}

TEST_F(Book, what_a_name_leads_to_is_said_when_it_changes) {
  const CapturedLog log;
  names_->set("nas", {kFour});
  open({"nas"});
  const std::string found = "Upstream 'nas': 'nas' is at 127.0.0.1\n";
  until([&] { return log.text() == found; });
  now_ns_ += kLookupNs;
  until_asked(2);
  turns(*book_, now_ns_);
  EXPECT_EQ(log.text(), found);
}

TEST_F(Book, a_problem_that_comes_back_is_said_again) {
  const CapturedLog log;
  const std::string problem =
      "Upstream 'nas': 'nas' cannot be resolved (nobody knows it): its previous addresses stay in use\n";
  names_->set("nas", {kFour});
  open({"nas"});
  until([&] { return addresses().size() == 1; });
  names_->set("nas", {});
  now_ns_ += kLookupNs;
  until([&] { return log.text().ends_with(problem); });
  names_->set("nas", {kFour});
  now_ns_ += kLookupNs;
  until_asked(3);
  turns(*book_, now_ns_);
  names_->set("nas", {});
  now_ns_ += kLookupNs;
  until([&] { return log.text().ends_with(problem + problem); });
}

TEST_F(Book, the_name_of_an_address_that_does_not_answer_is_looked_up_again) {
  names_->set("nas", {kFour, kOther});
  open({"nas"});
  until([&] { return addresses().size() == 2; });
  for (std::uint32_t i = 0; i < segment::kBadChecks; ++i) {
    turns(*book_, now_ns_);
    now_ns_ += segment::kAddressCheckNs;
  }
  until_asked(2);
}

TEST_F(Book, counts_stay_with_their_address) {
  names_->set("nas", {kOther});
  open({"127.0.0.1", "nas"});
  until([&] { return server_.calls.size() == 1; });
  server_.answer(server_.calls[0], {});
  until([&] { return entry(0).answers == 1; });
  names_->set("nas", {kSix, kOther});
  now_ns_ += kLookupNs;
  until([&] { return addresses().size() == 3; });
  EXPECT_EQ(entry(0).answers, 1u);
  EXPECT_EQ(addresses()[1], kOther) << "the order of a name's addresses is no preference";
}

TEST_F(Book, a_reload_keeps_addresses_and_counts) {
  open({"127.0.0.1", "127.0.0.2"});
  check();
  check();
  until([&] { return entry(1).failures == 1; });
  reload(upstream_);
  EXPECT_EQ(addresses(), (std::vector<PeerAddress>{kFour, kOther}));
  EXPECT_EQ(entry(0).answers, 2u);
  EXPECT_EQ(entry(1).failures, 1u);
  EXPECT_EQ(entry(1).host, 1u);
}

TEST_F(Book, a_reload_that_changes_the_port_keeps_addresses_without_their_counts) {
  open({"127.0.0.1", "127.0.0.2"});
  check();
  upstream_.port = 1;
  reload(upstream_);
  EXPECT_EQ(addresses(), (std::vector<PeerAddress>{kFour, kOther}));
  EXPECT_EQ(entry(0).answers, 0u);
}

TEST_F(Book, a_lookup_that_a_reload_has_cut_short_begins_anew) {
  names_->set("nas", {kFour});
  open({"nas"});
  until([&] { return addresses().size() == 1; });
  now_ns_ += kLookupNs;
  book_->poll(PollSet(), now_ns_);
  names_->set("nas", {kFour, kOther});
  reload(upstream_);
  until([&] { return addresses().size() == 2; });
}

}  // namespace
}  // namespace sluice::upstreams
