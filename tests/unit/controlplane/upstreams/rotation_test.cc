// SPDX-License-Identifier: Apache-2.0
//
// Name servers that rotate, shuffle or ration their answers. Tests both planes together: the data plane
// selects among the addresses that the control plane publishes.
#include <algorithm>
#include <cstring>
#include <random>

#include "dataplane/gateway/tcp_upstream/upstream_addresses.h"
#include "tests/unit/controlplane/upstreams/book_lab.h"

namespace sluice::upstreams {
namespace {

using namespace lab;
using Answer = std::vector<PeerAddress>;

/// The number of minutes in which the data plane must not change its address.
constexpr int kMinutes = 12;

class Rotation : public Book {
 protected:
  /// Starts servers with these addresses, which answer NULL.
  void serve(const Answer& addresses) {
    for (const PeerAddress& address : addresses) {
      if (address == kFour || address == kOther) continue;
      more_.push_back(std::make_unique<FakeServer>(address, server_.port()));
      at_.push_back(address);
    }
  }
  /// Stops the server at this address, so that connections to it are refused.
  void stop(const PeerAddress& address) { server_at(address).stop(); }
  FakeServer& server_at(const PeerAddress& address) {
    if (address == kFour) return server_;
    if (address == kOther) return other_;
    return *more_[static_cast<std::size_t>(std::find(at_.begin(), at_.end(), address) - at_.begin())];
  }
  static void answer_all(FakeServer& server) {
    server.pump();
    for (const auto& call : std::exchange(server.calls, {})) server.answer(call, {});
  }
  /// Publishes the book's list, and polls the data plane's selection.
  void choose() {
    segment::UpstreamAddressTable table{};
    table[0] = book_->list();
    shared_.write(table);
    chosen_.poll(now_ns_);
    if (chosen_.current() == nullptr) return;
    moves_ += current_ && *current_ != *chosen_.current();
    current_ = *chosen_.current();
  }
  /// Polls until `done`; every server answers.
  void serve_until(const std::function<bool()>& done) {
    until([&] {
      answer_all(server_);
      answer_all(other_);
      for (const auto& server : more_) answer_all(*server);
      return done();
    });
    choose();
  }
  void check_all() {
    now_ns_ += segment::kAddressCheckNs;
    if (book_->list().count < 2) return;
    const segment::UpstreamAddressList before = book_->list();
    serve_until([&] {
      for (std::uint32_t i = 0; i < before.count; ++i)
        if (entry(i).answers == before.addresses[i].answers &&
            entry(i).failures == before.addresses[i].failures)
          return false;
      return true;
    });
  }
  /// Polls until the book has the results of all lookups that are due.
  void take_results() {
    serve_turns();
    serve_until([&] { return arena_.outstanding() == 0; });
    serve_turns();
  }
  void serve_turns() {
    int left = 2;
    serve_until([&] { return left-- == 0; });
  }
  /// Passes a minute in which the name server gives this answer once (empty: the lookup fails), and checks
  /// all addresses.
  void minute(const Answer& answer) {
    take_results();
    names_->set("nas", answer);
    const int asked = names_->asked();
    now_ns_ += kLookupNs;
    serve_until([&] { return names_->asked() > asked; });
    take_results();
    check_all();
  }

  std::vector<std::unique_ptr<FakeServer>> more_;
  std::vector<PeerAddress> at_;  ///< addresses of more_
  segment::SharedUpstreamAddresses shared_{};
  tcp_upstream::Addresses chosen_{shared_, "nas"};
  std::optional<PeerAddress> current_;
  int moves_ = 0;
};

const PeerAddress kThird = PeerAddress::from_ipv4(127, 0, 0, 3);
const Answer kAll{kFour, kOther, kThird};

TEST_F(Rotation, answers_that_rotate_move_nothing) {
  serve(kAll);
  open({"nas"});
  Answer answer = kAll;
  for (int i = 0; i < kMinutes; ++i) {
    minute(answer);
    std::rotate(answer.begin(), answer.begin() + 1, answer.end());
  }
  EXPECT_EQ(moves_, 0);
  EXPECT_EQ(addresses(), kAll) << "in the places that they had first";
}

TEST_F(Rotation, answers_that_are_shuffled_and_incomplete_move_nothing) {
  serve(kAll);
  open({"nas"});
  std::mt19937 random(7);
  Answer answer = kAll;
  for (int i = 0; i < kMinutes; ++i) {
    std::shuffle(answer.begin(), answer.end(), random);
    minute({answer[0], answer[1]});
  }
  EXPECT_EQ(moves_, 0);
  EXPECT_EQ(addresses().size(), 3u);
}

TEST_F(Rotation, answers_with_one_address_at_a_time_move_nothing) {
  serve(kAll);
  open({"nas"});
  for (std::size_t i = 0; i < kMinutes; ++i) minute({kAll[i % kAll.size()]});
  EXPECT_EQ(moves_, 0);
  EXPECT_EQ(addresses(), kAll);
}

TEST_F(Rotation, failures_of_the_name_server_between_answers_move_nothing) {
  serve(kAll);
  open({"nas"});
  for (std::size_t i = 0; i < kMinutes; ++i)
    minute(i % 2 == 0 ? Answer{kAll[i / 2 % kAll.size()]} : Answer{});
  EXPECT_EQ(moves_, 0);
  EXPECT_EQ(addresses(), kAll);
}

TEST_F(Rotation, an_address_that_is_removed_and_answers_is_left_after_an_hour) {
  serve({kFour, kOther});
  open({"nas"});
  minute({kFour, kOther});
  const std::uint64_t removed_ns = now_ns_ + kLookupNs;
  while (now_ns_ < removed_ns + kUnlistedNs - 2 * kLookupNs) minute({kOther});
  EXPECT_EQ(current_, kFour);
  while (now_ns_ < removed_ns + kUnlistedNs) minute({kOther});
  minute({kOther});
  EXPECT_EQ(current_, kOther);
  EXPECT_EQ(addresses(), Answer{kOther});
}

TEST_F(Rotation, an_address_that_is_removed_and_does_not_answer_is_left_with_two_checks) {
  const CapturedLog log;
  serve({kFour, kOther});
  open({"nas"});
  minute({kFour, kOther});
  ASSERT_EQ(current_, kFour);
  stop(kFour);
  for (std::uint32_t i = 0; i < segment::kBadChecks; ++i) check_all();
  EXPECT_EQ(current_, kOther);
  minute({kOther});
  EXPECT_EQ(addresses(), Answer{kOther});
  EXPECT_TRUE(log.text().ends_with("Upstream 'nas': 'nas' is at 127.0.0.2\n")) << log.text();
}

TEST_F(Rotation, an_address_that_comes_back_has_another_hour) {
  serve({kFour, kOther});
  open({"nas"});
  minute({kFour, kOther});
  const auto pass_half_an_hour = [&] {
    for (const std::uint64_t end = now_ns_ + kUnlistedNs / 2; now_ns_ < end;) minute({kOther});
  };
  pass_half_an_hour();
  minute({kOther, kFour});
  pass_half_an_hour();
  EXPECT_EQ(current_, kFour);
  EXPECT_EQ(moves_, 0);
}

TEST_F(Rotation, no_more_unlisted_addresses_are_kept_than_there_may_be) {
  Answer many{kFour};
  for (std::uint8_t i = 0; i < 20; ++i) many.push_back(PeerAddress::from_ipv4(127, 0, 1, i));
  serve(many);
  open({"nas"});
  for (const PeerAddress& address : many) minute({address});
  EXPECT_EQ(addresses().size(), kMaxUnlisted + 1);
  EXPECT_EQ(addresses().back(), many.back());
  EXPECT_EQ(moves_, 0);
}

TEST_F(Rotation, unlisted_addresses_take_no_room_from_those_of_another_host) {
  Answer first;
  Answer second;
  for (std::uint8_t i = 0; i < 8; ++i) {
    first.push_back(PeerAddress::from_ipv4(127, 0, 1, i));
    second.push_back(PeerAddress::from_ipv4(127, 0, 2, i));
  }
  serve(first);
  serve(second);
  open({"nas", "127.0.0.1"});
  minute(first);
  minute(second);
  ASSERT_EQ(addresses().size(), segment::kMaxUpstreamAddresses);
  EXPECT_EQ(addresses().back(), kFour);
  EXPECT_EQ(addresses().front(), first.front());
}

TEST_F(Rotation, an_address_that_has_changed_its_name_has_the_place_of_the_new_one) {
  serve(kAll);
  names_->set("other", {kThird});
  open({"nas", "other"});
  minute({kThird, kFour});
  EXPECT_EQ(entry(0).host, 0u);
  minute({kFour});
  EXPECT_EQ(addresses(), (Answer{kFour, kThird}));
  EXPECT_EQ(entry(1).host, 1u);
}

}  // namespace
}  // namespace sluice::upstreams
