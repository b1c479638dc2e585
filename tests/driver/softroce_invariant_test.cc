// SPDX-License-Identifier: Apache-2.0
//
// Internal errors of softroce: the behaviour of a queue pair whose packet sequence numbers contradict each
// other. Builds that abort on an invariant abort; a release build counts it and moves the queue pair to
// Error.
#include <thread>

#include "pmd/softroce/queue_pair.h"
#include "tests/driver/raw_peer.h"
#include "tests/unit/base/counted_invariants.h"

namespace sluice::rdma::softroce {

struct QueuePairProbe {
  static void skip_psns(SoftQueuePair& qp) {
    Requester& requester = qp.requester_;
    requester.psns_.open(psn_add(requester.psns_.next(), 5), 64);
    ++requester.queue_.started;  // as if the entry had been given its PSNs
    requester.queue_.entry(requester.queue_.next).packets = 1;
  }
  /// The entry at the head counts as acknowledged, although none of its packets was sent.
  static void acknowledge_unsent(SoftQueuePair& qp) {
    Requester& requester = qp.requester_;
    ++requester.queue_.started;
    requester.queue_.entry(requester.queue_.head).packets = 1;
    requester.queue_.entry(requester.queue_.head).first_psn =
        psn_add(requester.psns_.unacknowledged(), kPsnMask);
    qp.apply(requester.complete_sends());
  }
  static void execute_out_of_order(SoftQueuePair& qp) {
    Packet packet;
    packet.bth.psn = psn_add(qp.responder_.expected_psn_, 1);
    qp.apply(qp.responder_.accepted(packet, 1));
  }
  static void answer_beyond_the_read(SoftQueuePair& qp) {
    qp.responder_.reads_.push_back({.packets = 1, .next = 1});
  }
  static void add_entry(SoftQueuePair& qp, Sge sge) {
    qp.requester_.add({.wr_id = 7, .sges = {&sge, 1}, .opcode = SendOpcode::Send});
  }
};

}  // namespace sluice::rdma::softroce

namespace sluice::rdma::conformance {
namespace {

using namespace softroce;

class PsnInvariant : public RawPeerTest {
 protected:
  void SetUp() override {
    open();
    connect(own);
  }
  SoftQueuePair& qp() { return static_cast<SoftQueuePair&>(*own.qp); }
  void expect_error(const std::function<void()>& broken) {
    if constexpr (kAbortOnInvariant) {
      EXPECT_DEATH(broken(), "invariant psn_window does not hold");
    } else {
      const auto& failures = invariant_failures()[static_cast<std::size_t>(Invariant::psn_window)];
      const std::uint64_t before = failures;
      EXPECT_EQ(own.qp->state(), QueuePair::State::ReadyToSend);
      broken();
      EXPECT_EQ(failures, before + 1);
      EXPECT_EQ(own.qp->state(), QueuePair::State::Error);
    }
  }
};

using SoftRoceOwner = RawPeerTest;

TEST_F(SoftRoceOwner, a_lane_belongs_to_the_thread_that_polls_it) {
  open();
  device().poll({});
  std::thread([this] {
    const CountedInvariants counted;
    device().poll({});
    EXPECT_EQ(counted.failed(Invariant::object_owner), kAbortOnInvariant ? 1u : 0u);
  }).join();
}

TEST_F(PsnInvariant, a_request_is_sent_with_the_next_psn) {
  QueuePairProbe::add_entry(qp(), own.sge(0, 10));
  QueuePairProbe::skip_psns(qp());
  expect_error([&] { qp().transmit(); });
  poll();
  EXPECT_TRUE(sent.empty());
  if (!kAbortOnInvariant) {
    EXPECT_TRUE(completed(own, 7, WcStatus::WrFlushError));
  }
}

TEST_F(PsnInvariant, nothing_completes_that_was_not_sent) {
  QueuePairProbe::add_entry(qp(), own.sge(0, 10));
  expect_error([&] { QueuePairProbe::acknowledge_unsent(qp()); });
  if (!kAbortOnInvariant) {
    EXPECT_TRUE(completed(own, 7, WcStatus::WrFlushError));
  }
}

TEST_F(PsnInvariant, only_the_expected_request_is_executed) {
  own.receive(8, own.sge(0, 10));
  expect_error([&] { QueuePairProbe::execute_out_of_order(qp()); });
  if (!kAbortOnInvariant) {
    EXPECT_TRUE(completed(own, 8, WcStatus::WrFlushError));
  }
}

TEST_F(PsnInvariant, a_read_has_no_more_responses_than_packets) {
  QueuePairProbe::answer_beyond_the_read(qp());
  expect_error([&] { qp().transmit(); });
  EXPECT_EQ(count(Opcode::ReadResponseOnly), 0u);
}

}  // namespace
}  // namespace sluice::rdma::conformance
