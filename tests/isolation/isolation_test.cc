// SPDX-License-Identifier: Apache-2.0
//
// One client that behaves, among as many hostile peers as the server takes: its calls are answered, and within
// few turns more than when it is alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <tuple>

#include "tests/conformance/raw_call.h"
#include "tests/conformance/v2_lab.h"
#include "tests/isolation/attacks.h"

namespace sluice::isolation {

using conformance::RawCall;
using conformance::test_call;
using conformance::word_at;
namespace v2 = conformance::v2;

namespace {

constexpr std::uint32_t kMegabyte = 1u << 20;
constexpr std::uint32_t kListBytes = 8192;
constexpr std::uint64_t kMostTurns = 5000;  ///< that a call may take before the test gives up
constexpr std::uint64_t kSpareTurns = 16;   ///< a call among others may take so many more than one alone

/// The client that behaves; speaks one version.
class Victim {
 public:
  Victim(Site& site, std::uint32_t version)
      : site_(site), version_(version), peer_(site.make_peer("victim", 64)) {
    site.expect_victim(true);
    peer_->connect();
    for (std::uint64_t i = 0; i < kMostTurns && !peer_->connected(); ++i) turn();
    site.expect_victim(false);
    if (version == 2)
      peer_->raw().send(v2::Header{.xid = 1, .credit = 0x00400040, .type = v2::kConnProp}.then({0}));
    for (int i = 0; i < 20; ++i) turn();
  }

  enum class Operation { Null, List, Read, Write, Authenticate };
  static constexpr Operation kOperations[] = {Operation::Null, Operation::List, Operation::Read,
                                              Operation::Write, Operation::Authenticate};

  /// The turns that it takes; `others` have theirs meanwhile.
  std::uint64_t run(Operation operation, Attackers* others = nullptr) {
    others_ = others;
    const std::uint64_t begin = site_.turns();
    peer_->raw().inbox.clear();
    ++xid_;
    switch (operation) {
      case Operation::Null:
        EXPECT_TRUE(succeeds(ask({}, {}, {}, test_call(xid_, TestService::kNull))));
        break;
      case Operation::List:
        list();
        break;
      case Operation::Read:
        read();
        break;
      case Operation::Write:
        write();
        break;
      case Operation::Authenticate:
        authenticate();
        break;
    }
    return site_.turns() - begin;
  }
  bool lost() const { return peer_->lost(); }
  void turn() {
    site_.turn();
    if (others_ != nullptr) others_->turn();
    peer_->poll();
  }

 private:
  using Segments = std::vector<rpcrdma::Segment>;

  Bytes ask(const std::vector<conformance::RawRead>& reads, const std::vector<Segments>& writes,
            const std::optional<Segments>& reply, const Bytes& payload) {
    if (version_ == 1)
      peer_->raw().send(RawCall{.xid = xid_, .reads = reads, .writes = writes, .reply = reply}.with(payload));
    else
      peer_->raw().send(
          v2::Header{.xid = xid_, .credit = 0x00400010, .reads = reads, .writes = writes, .reply = reply}
              .with(payload));
    const std::uint64_t begin = site_.turns();
    while (site_.turns() - begin < kMostTurns && !lost()) {
      turn();
      for (const conformance::Received& received : peer_->raw().inbox)
        if (word_at(received.bytes, 0) == xid_) return received.bytes;
    }
    return {};
  }
  /// Without chunks in its header.
  bool succeeds(const Bytes& answer) const {
    return version_ == 1 ? conformance::accept_stat(answer) == 0 : v2::is_success(answer, xid_);
  }
  void list() {
    const auto memory = peer_->raw().expose(kListBytes + 1024, rdma::kRemoteWrite);
    const Bytes answer =
        ask({}, {}, Segments{memory.segment}, test_call(xid_, TestService::kList, {kListBytes}));
    ASSERT_FALSE(answer.empty());
    // The RPC reply is where the Reply chunk says: 24 bytes of header, a count word, the data.
    EXPECT_EQ(word_at(memory.bytes, 0), xid_);
    EXPECT_TRUE(conformance::has_pattern(memory.bytes.subspan(28, kListBytes), 1));
  }
  void read() {
    const auto memory = peer_->raw().expose(kMegabyte, rdma::kRemoteWrite);
    const Bytes answer = ask({}, {{memory.segment}}, {}, test_call(xid_, TestService::kSource, {kMegabyte}));
    ASSERT_FALSE(answer.empty());
    EXPECT_TRUE(conformance::has_pattern(memory.bytes, 1));
  }
  void write() {
    const auto memory = peer_->raw().expose(kMegabyte, rdma::kRemoteRead);
    conformance::fill_pattern(memory.bytes, xid_);
    constexpr std::uint32_t kPosition = 44;
    const Bytes answer = ask({{.position = kPosition, .segment = memory.segment}}, {}, {},
                             test_call(xid_, TestService::kSink, {kMegabyte}));
    ASSERT_TRUE(succeeds(answer));
    EXPECT_TRUE(conformance::has_pattern(site_.service().last_data, xid_));
  }
  /// Host authentication is sent by the control plane, and comes in properties of version 2.
  void authenticate() {
    if (version_ == 1) return;
    ASSERT_TRUE(site_.victim()->send_host_authentication(Bytes(64)));
    const auto has_come = [this] {
      return std::any_of(peer_->raw().inbox.begin(), peer_->raw().inbox.end(),
                         [](const auto& received) { return word_at(received.bytes, 3) == v2::kConnProp; });
    };
    const std::uint64_t begin = site_.turns();
    while (site_.turns() - begin < kMostTurns && !lost() && !has_come()) turn();
    EXPECT_TRUE(has_come());
  }

  Site& site_;
  const std::uint32_t version_;
  std::unique_ptr<Peer> peer_;
  Attackers* others_ = nullptr;
  std::uint32_t xid_ = 0x9000'0000;
};

class Isolation : public testing::TestWithParam<std::tuple<std::size_t, std::uint32_t>> {
 protected:
  const Attack& attack() const { return attacks()[std::get<0>(GetParam())]; }
  std::uint32_t version() const { return std::get<1>(GetParam()); }
  SiteOptions options() const { return {.hold_calls = attack().hold_calls, .callers = attack().callers}; }
};

TEST_P(Isolation, the_others_are_served) {
  std::vector<std::uint64_t> alone;
  {
    Site site(options());
    Victim victim(site, version());
    for (const auto operation : Victim::kOperations) alone.push_back(victim.run(operation));
  }
  Site site(options());
  Victim victim(site, version());
  Attackers attackers(site, attack());
  for (int i = 0; i < 300; ++i) {
    site.turn();
    attackers.turn();
  }
  std::uint64_t worst = 0;
  for (int round = 0; round < 5; ++round)
    for (std::size_t i = 0; i < std::size(Victim::kOperations); ++i) {
      const std::uint64_t turns = victim.run(Victim::kOperations[i], &attackers);
      EXPECT_LE(turns, alone[i] + kSpareTurns) << "operation " << i << " in round " << round;
      worst = std::max(worst, turns - std::min(turns, alone[i]));
      if (HasFailure()) return;
    }
  RecordProperty("most_turns_more_than_alone", std::to_string(worst));
  EXPECT_FALSE(victim.lost());
}

TEST_P(Isolation, who_holds_something_is_ended_and_everything_comes_back) {
  Site site(options());
  Victim victim(site, version());
  Attackers attackers(site, attack());
  constexpr std::uint64_t kStepNs = 40'000'000;
  for (std::uint64_t passed = 0; passed < 70 * kSecond; passed += kStepNs) {
    site.turn(kStepNs);
    attackers.turn();
    victim.turn();
  }
  if (attack().ends) {
    EXPECT_GE(site.ends().size(), Site::kConnections - 1);
  }
  EXPECT_FALSE(victim.lost());
  attackers.leave();
  site.service().complete_later();
  for (int i = 0; i < 2000; ++i) victim.turn();
  EXPECT_EQ(site.open_connections(), 1u);
  victim.run(Victim::Operation::Write);
  site.victim()->close(rpcrdma::CloseReason::LocalClose);
  for (int i = 0; i < 100; ++i) victim.turn();
  EXPECT_TRUE(site.engine().all_closed());
  EXPECT_TRUE(site.engine().memory_balanced());
}

INSTANTIATE_TEST_SUITE_P(, Isolation,
                         testing::Combine(testing::Range(std::size_t{0}, attacks().size()),
                                          testing::Values(1u, 2u)),
                         [](const auto& info) {
                           return std::string(attacks()[std::get<0>(info.param)].name) + "_v" +
                                  std::to_string(std::get<1>(info.param));
                         });

}  // namespace
}  // namespace sluice::isolation
