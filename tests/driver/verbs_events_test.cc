// SPDX-License-Identifier: Apache-2.0
//
// Asynchronous events of an RDMA device, raised by a stub. The rest of the device keeps working after each of
// them.
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <thread>

#include "pmd/verbs/verbs.h"
#include "tests/driver/verbs_stub.h"

namespace sluice::rdma::conformance {
namespace {

using rdma::Condition;
using State = QueuePair::State;

constexpr QueuePairLimits kLimits{.send_depth = 16, .recv_depth = 8};

class VerbsEvents : public testing::Test {
 protected:
  void open(std::uint32_t shared_receives) {
    device_ = verbs::open({.device = {}, .max_queue_pairs = 2, .shared_receives = shared_receives});
    device_->prepare_queue_pairs(kLimits, 2);
  }
  /// Runs the reactor and the thread that polls the device's events until `condition` holds. The limit is
  /// generous: it only bounds a failing test.
  template <typename Condition>
  bool until(const Condition& condition) {
    const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (!condition() && std::chrono::steady_clock::now() < give_up) {
      device_->handle_events();
      turn();
    }
    return condition();
  }
  void turn() {
    WorkCompletion completions[16];
    flushed_ += device_->poll(completions);
  }
  Owned<QueuePair> connected() {
    EXPECT_TRUE(until([&] { return device_->has_queue_pair(); }));
    auto qp = device_->create_queue_pair(kLimits);
    RcAttributes attributes;
    attributes.local = device_->addresses()[0];
    attributes.remote = PeerAddress::from_ipv4(192, 0, 2, 9);
    EXPECT_TRUE(qp->connect(attributes));
    EXPECT_TRUE(until([&] { return qp->state() == State::ReadyToSend; }));
    return qp;
  }

  VerbsStub& stub_ = VerbsStub::get();
  std::unique_ptr<verbs::Verbs> device_;
  std::size_t flushed_ = 0;
};

TEST_F(VerbsEvents, a_queue_pair_that_the_device_has_ended_goes_to_error_and_no_other) {
  open(0);
  const auto ended = connected();
  const auto other = connected();
  stub_.raise(IBV_EVENT_QP_FATAL, static_cast<std::uint32_t>(ended->number()));
  EXPECT_TRUE(until([&] { return ended->state() == State::Error; }));
  EXPECT_TRUE(ended->is_broken());
  EXPECT_EQ(other->state(), State::ReadyToSend);
  EXPECT_FALSE(other->is_broken());
  EXPECT_EQ(device_->statistics().queue_pair_events, 1u);
}

TEST_F(VerbsEvents, an_address_that_changes_is_that_of_the_next_connection) {
  open(0);
  EXPECT_EQ(device_->addresses()[0], PeerAddress::from_ipv4(192, 0, 2, 1));
  stub_.set_address(7);
  stub_.raise(IBV_EVENT_GID_CHANGE);
  EXPECT_TRUE(until([&] { return device_->addresses()[0] == PeerAddress::from_ipv4(192, 0, 2, 7); }));
  EXPECT_EQ(connected()->state(), State::ReadyToSend);
  stub_.set_address(1);
}

TEST_F(VerbsEvents, shared_receives_that_fail_are_made_anew_with_the_device) {
  open(8);
  const auto qp = connected();
  const MemoryRegion memory = device_->allocate_memory(4096);
  const RecvWr wr{1, {memory.bytes.data(), 64, memory.lkey}};
  ASSERT_EQ(qp->post_recv({&wr, 1}), 1u);
  stub_.raise(IBV_EVENT_SRQ_ERR);
  EXPECT_TRUE(until([&] { return qp->state() == State::Error && flushed_ == 1; }));
  EXPECT_TRUE(qp->is_broken());
  EXPECT_EQ(device_->statistics().shared_receive_errors, 1u);
  EXPECT_TRUE(until([&] { return device_->statistics().device_returned == 1; }));
  EXPECT_EQ(device_->condition(), Condition::Up);
  EXPECT_EQ(connected()->state(), State::ReadyToSend);
}

TEST_F(VerbsEvents, a_device_that_fails_while_it_is_opened_again_is_opened_once_more) {
  open(0);
  stub_.raise(IBV_EVENT_DEVICE_FATAL);
  EXPECT_TRUE(until([&] { return device_->condition() != Condition::Up; }));
  // The set-up thread opens the device before the reactor handles the result of that step.
  while (device_->condition() != Condition::Up) {
    device_->handle_events();
    turn();
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  stub_.raise(IBV_EVENT_DEVICE_FATAL);
  EXPECT_TRUE(until([&] { return device_->statistics().device_lost == 2; }));
  EXPECT_TRUE(until([&] { return device_->statistics().device_returned == 2; }));
  EXPECT_EQ(connected()->state(), State::ReadyToSend);
}

}  // namespace
}  // namespace sluice::rdma::conformance
