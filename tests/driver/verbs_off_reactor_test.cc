// SPDX-License-Identifier: Apache-2.0
//
// The reactor opens and closes connections without calling the kernel, because on a NIC each call takes up to
// milliseconds. The device is a stub, which records the calls of the reactor's thread.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "dataplane/base/setup_error.h"
#include "pmd/verbs/verbs.h"
#include "tests/driver/verbs_stub.h"

namespace sluice::rdma::conformance {
namespace {

using State = QueuePair::State;

class VerbsOffReactor : public testing::Test {
 protected:
  explicit VerbsOffReactor(std::uint32_t shared_receives = 0)
      : device_(
            verbs::open({.device = {}, .max_queue_pairs = kQueuePairs, .shared_receives = shared_receives})) {
    device_->prepare_queue_pairs(kLimits, kQueuePairs);
  }

  /// Runs the reactor until `condition` holds. The limit is generous: it only bounds a failing test.
  template <typename Condition>
  bool until(const Condition& condition) {
    const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (!condition() && std::chrono::steady_clock::now() < give_up) turn();
    return condition();
  }
  void turn() {
    WorkCompletion completions[16];
    const std::size_t count = device_->poll(completions);
    completions_.insert(completions_.end(), completions, completions + count);
  }
  Owned<QueuePair> take() {
    EXPECT_TRUE(until([&] { return device_->has_queue_pair(); }));
    return device_->create_queue_pair(kLimits);
  }
  RcAttributes attributes() const {
    RcAttributes attributes;
    attributes.local = device_->addresses()[0];
    attributes.remote = PeerAddress::from_ipv4(192, 0, 2, 9);
    return attributes;
  }
  void connect(QueuePair& qp) {
    ASSERT_TRUE(qp.connect(attributes()));
    EXPECT_TRUE(until([&] { return qp.state() == State::ReadyToSend; }));
  }
  void receive(QueuePair& qp, std::uint64_t wr_id) {
    const RecvWr wr{wr_id, {memory_.bytes.data(), 64, memory_.lkey}};
    ASSERT_EQ(qp.post_recv({&wr, 1}), 1u);
  }

  static constexpr std::uint32_t kQueuePairs = 3;
  static constexpr QueuePairLimits kLimits{.send_depth = 16, .recv_depth = 8};
  VerbsStub& stub_ = VerbsStub::get();
  std::unique_ptr<verbs::Verbs> device_;
  const MemoryRegion memory_ = device_->allocate_memory(4096);
  std::vector<WorkCompletion> completions_;
};

TEST_F(VerbsOffReactor, what_setup_calls_is_noted) {
  stub_.watch_this_thread();
  device_->allocate_window();
  EXPECT_EQ(stub_.noted(), std::vector<std::string>{"ibv_alloc_mw"});
}

TEST_F(VerbsOffReactor, connections_come_and_go_without_a_call_into_the_kernel) {
  const MemoryWindow window = device_->allocate_window();
  const std::uint32_t windows = stub_.windows_made();
  stub_.watch_this_thread();
  for (int round = 0; round < 20; ++round) {
    auto qp = take();
    receive(*qp, 1);
    connect(*qp);
    if (round == 0) {
      EXPECT_TRUE(qp->bind_window(window, memory_.bytes.first(64), memory_.lkey, kRemoteRead));
    }
    const SendWr send{.wr_id = 2, .sges = {}, .flags = kSignaled};
    ASSERT_EQ(qp->post_send({&send, 1}), 1u);
    ASSERT_TRUE(until([&] { return completions_.size() == 1; }));
    qp->to_error();
    ASSERT_TRUE(until([&] { return completions_.size() == 2; }));
    EXPECT_EQ(completions_[1].status, WcStatus::WrFlushError);
    completions_.clear();
  }
  EXPECT_EQ(stub_.noted(), std::vector<std::string>{});
  EXPECT_EQ(stub_.windows_made(), windows + 1) << "a window that was bound is made anew";
  // Another queue pair can bind the window again.
  auto qp = take();
  connect(*qp);
  EXPECT_TRUE(qp->bind_window(window, memory_.bytes.first(64), memory_.lkey, kRemoteRead));
}

TEST_F(VerbsOffReactor, a_device_goes_and_comes_back_without_a_call_into_the_kernel) {
  std::vector<Owned<QueuePair>> taken;
  for (std::uint32_t i = 0; i < kQueuePairs; ++i) {
    taken.push_back(take());
    receive(*taken.back(), i);
  }
  connect(*taken[0]);
  ASSERT_TRUE(taken[1]->connect(attributes()));
  const MemoryWindow window = device_->allocate_window();
  EXPECT_TRUE(taken[0]->bind_window(window, memory_.bytes.first(64), memory_.lkey, kRemoteRead));
  stub_.raise(IBV_EVENT_DEVICE_FATAL);
  stub_.watch_this_thread();
  std::atomic<bool> done{false};
  std::thread looks([&] {
    while (!done) device_->handle_events();
  });
  EXPECT_TRUE(
      until([&] { return completions_.size() == kQueuePairs + 1; }));  // including the window's completion
  for (const auto& qp : taken) EXPECT_TRUE(qp->state() == State::Error && qp->is_broken());
  EXPECT_TRUE(until([&] { return device_->statistics().device_returned == 1; }));
  EXPECT_EQ(device_->statistics().device_lost, 1u);
  EXPECT_EQ(device_->condition(), rdma::Condition::Up);
  taken.clear();
  auto next = take();
  connect(*next);
  EXPECT_TRUE(next->bind_window(window, memory_.bytes.first(64), memory_.lkey, kRemoteRead));
  done = true;
  looks.join();
  EXPECT_EQ(stub_.noted(), std::vector<std::string>{});
}

TEST_F(VerbsOffReactor, some_are_made_ahead_and_the_reactor_knows_whether_one_is_there) {
  EXPECT_TRUE(device_->has_queue_pair());
  std::vector<Owned<QueuePair>> taken;
  for (std::uint32_t i = 0; i < 4 * kQueuePairs; ++i) taken.push_back(take());
  std::set<QueuePairNumber> numbers;
  for (const auto& qp : taken) numbers.insert(qp->number());
  EXPECT_EQ(numbers.size(), taken.size());
}

TEST_F(VerbsOffReactor, one_that_ends_while_it_is_connected_is_flushed) {
  auto qp = take();
  receive(*qp, 1);
  ASSERT_TRUE(qp->connect(attributes()));
  qp->to_error();
  ASSERT_TRUE(until([&] { return completions_.size() == 1; }));
  EXPECT_EQ(completions_[0].status, WcStatus::WrFlushError);
  for (int i = 0; i < 1000; ++i) turn();
  EXPECT_EQ(qp->state(), State::Error);
  EXPECT_FALSE(qp->is_broken());
}

TEST_F(VerbsOffReactor, one_that_the_device_cannot_connect_goes_to_error) {
  auto qp = take();
  receive(*qp, 1);
  RcAttributes unknown = attributes();
  unknown.local = PeerAddress::from_ipv4(192, 0, 2, 77);
  ASSERT_TRUE(qp->connect(unknown));
  EXPECT_TRUE(until([&] { return qp->state() == State::Error && completions_.size() == 1; }));
  EXPECT_TRUE(qp->is_broken());
}

TEST_F(VerbsOffReactor, one_destroyed_with_work_outstanding_is_the_devices_no_more) {
  auto qp = take();
  connect(*qp);
  receive(*qp, 1);
  const std::uint32_t before = stub_.queue_pairs();
  qp.reset();
  EXPECT_EQ(stub_.queue_pairs(), before - 1);
}

TEST_F(VerbsOffReactor, a_refusal_is_said_once_and_the_next_is_tried) {
  std::vector<Owned<QueuePair>> taken;
  stub_.refuse_queue_pairs(true);
  bool refused = false;
  while (!refused && taken.size() < 100) try {
      taken.push_back(take());
    } catch (const SetupError& error) {
      refused = true;
      EXPECT_NE(std::string(error.what()).find("Lower [transport] credits"), std::string::npos)
          << error.what();
    }
  EXPECT_TRUE(refused);
  stub_.refuse_queue_pairs(false);
  EXPECT_TRUE(until([&] {
    try {
      return take() != nullptr;
    } catch (const SetupError&) {
      return false;
    }
  }));
}

class SlowToError : public VerbsOffReactor {
 protected:
  explicit SlowToError(std::uint32_t shared_receives = 0) : VerbsOffReactor(shared_receives) {}
  /// The peer may write to the memory of outstanding Receives until the device has moved the queue pair to
  /// Error.
  void nothing_is_flushed_before_the_device_has_let_go() {
    auto qp = take();
    connect(*qp);
    receive(*qp, 1);
    stub_.hold_errors(true);
    qp->to_error();
    receive(*qp, 2);
    const SendWr send{.wr_id = 3, .sges = {}, .flags = kSignaled};
    ASSERT_EQ(qp->post_send({&send, 1}), 1u);
    for (int i = 0; i < 1000; ++i) turn();
    EXPECT_TRUE(completions_.empty());
    stub_.hold_errors(false);
    EXPECT_TRUE(until([&] { return completions_.size() == 3; }));
    for (const WorkCompletion& completion : completions_)
      EXPECT_EQ(completion.status, WcStatus::WrFlushError);
  }
};
class SlowToErrorWithSharedReceives : public SlowToError {
 protected:
  SlowToErrorWithSharedReceives() : SlowToError(8) {}
};

TEST_F(SlowToError, nothing_is_flushed_before_the_device_has_let_go) {
  nothing_is_flushed_before_the_device_has_let_go();
}

TEST_F(SlowToErrorWithSharedReceives, one_with_a_message_for_a_queue_pair_that_has_ended_is_posted_again) {
  const std::size_t all = stub_.shared_receives();
  auto qp = take();
  connect(*qp);
  const auto number = static_cast<std::uint32_t>(qp->number());
  stub_.deliver(number);
  stub_.hold_errors(true);
  qp.reset();
  turn();
  stub_.deliver(number);
  turn();
  EXPECT_EQ(stub_.shared_receives(), all);
  stub_.hold_errors(false);
}

TEST_F(SlowToErrorWithSharedReceives, nothing_is_flushed_before_the_device_has_let_go) {
  nothing_is_flushed_before_the_device_has_let_go();
}

}  // namespace
}  // namespace sluice::rdma::conformance
