// SPDX-License-Identifier: Apache-2.0
//
// Work requests that the provider refuses: in the middle of a chain, of windows that are bound, and of a
// connection's messages. The queue pair ends, each work request completes once, and the connection is closed
// because of the transport. The device is a stub, because no real one refuses a valid work request.
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <vector>

#include "dataplane/rpcrdma/engine.h"
#include "dataplane/rpcrdma/requester/requester.h"
#include "pmd/verbs/verbs.h"
#include "tests/conformance/raw_call.h"
#include "tests/driver/verbs_stub.h"

namespace sluice::rdma::conformance {
namespace {

using State = QueuePair::State;

/// The parameter selects the extended interface of libibverbs.
class VerbsRefused : public testing::TestWithParam<bool> {
 protected:
  VerbsRefused() {
    stub_.provide_extended(GetParam());
    device_ = verbs::open({.device = {},
                           .max_queue_pairs = 4,
                           .interface = GetParam() ? verbs::Interface::Extended : verbs::Interface::Classic});
  }
  ~VerbsRefused() override { stub_.accept_posts(); }

  bool extended() const { return GetParam(); }
  RcAttributes attributes() const {
    RcAttributes attributes;
    attributes.local = device_->addresses()[0];
    attributes.remote = PeerAddress::from_ipv4(192, 0, 2, 9);
    return attributes;
  }
  /// Calls `turn` until `condition` holds. The limit is generous: it only bounds a failing test.
  static bool until(const std::function<bool()>& condition, const std::function<void()>& turn) {
    const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    bool holds = condition();
    for (; !holds && std::chrono::steady_clock::now() < give_up; holds = condition()) turn();
    return holds;
  }

  VerbsStub& stub_ = VerbsStub::get();
  std::unique_ptr<verbs::Verbs> device_;
};

// --- The queue pair

class RefusedPosts : public VerbsRefused {
 protected:
  static constexpr QueuePairLimits kLimits{.send_depth = 64, .recv_depth = 8};
  static constexpr std::uint64_t kReceive = 1000;

  Owned<QueuePair> connected() {
    auto qp = device_->create_queue_pair(kLimits);
    EXPECT_EQ(device_->has_extended_posting(), extended());
    const RecvWr receive{kReceive, {memory_.bytes.data(), 64, memory_.lkey}};
    EXPECT_EQ(qp->post_recv({&receive, 1}), 1u);
    EXPECT_TRUE(qp->connect(attributes()));
    EXPECT_TRUE(until([&] { return qp->state() == State::ReadyToSend; }));
    return qp;
  }
  bool until(const std::function<bool()>& condition) {
    return VerbsRefused::until(condition, [this] { turn(); });
  }
  void turn() {
    WorkCompletion some[4];
    const std::size_t count = device_->poll(some);
    completions_.insert(completions_.end(), some, some + count);
  }
  /// Posts `count` Sends with consecutive numbers from zero.
  std::size_t send(QueuePair& qp, std::size_t count, std::uint8_t flags = kSignaled) {
    std::vector<SendWr> wrs(count);
    for (std::size_t i = 0; i < count; ++i) wrs[i] = {.wr_id = i, .flags = flags};
    return qp.post_send(wrs);
  }
  /// Checks that `count` Sends and the Receive complete once and in order. Of the first `good`, which the
  /// provider has accepted, those succeed that it executed before the set-up thread ended the queue pair.
  void expect_completions(std::size_t count, std::size_t good) {
    ASSERT_TRUE(until([&] { return completions_.size() >= count + 1; }));
    for (int i = 0; i < 1000; ++i) turn();
    ASSERT_EQ(completions_.size(), count + 1);
    std::uint64_t next = 0;
    bool flushed = false;
    for (const WorkCompletion& completion : completions_) {
      if (completion.opcode == WcOpcode::Receive) {
        EXPECT_EQ(completion.wr_id, kReceive);
        EXPECT_EQ(completion.status, WcStatus::WrFlushError);
        continue;
      }
      EXPECT_EQ(completion.wr_id, next);
      flushed |= next >= good || completion.status != WcStatus::Success;
      EXPECT_EQ(completion.status, flushed ? WcStatus::WrFlushError : WcStatus::Success) << next;
      ++next;
    }
  }

  const MemoryRegion memory_ = device_->allocate_memory(4096);
  std::vector<WorkCompletion> completions_;
};

INSTANTIATE_TEST_SUITE_P(, RefusedPosts, testing::Bool(),
                         [](const auto& extended) { return extended.param ? "Extended" : "Classic"; });

TEST_P(RefusedPosts, in_the_middle_of_a_chain_end_the_queue_pair) {
  const auto qp = connected();
  stub_.refuse_posts_after(2);
  EXPECT_FALSE(qp->is_broken());
  EXPECT_EQ(send(*qp, 6), 6u);
  EXPECT_EQ(qp->state(), State::Error);
  EXPECT_TRUE(qp->is_broken());
  EXPECT_EQ(device_->statistics().post_failures, 1u);
  expect_completions(6, extended() ? 0 : 2);
}

TEST_P(RefusedPosts, behind_a_chain_that_was_posted_end_the_queue_pair) {
  constexpr std::size_t kSends = 40;  // three chains
  const auto qp = connected();
  stub_.refuse_posts_after(20);
  EXPECT_EQ(send(*qp, kSends), kSends);
  EXPECT_EQ(qp->state(), State::Error);
  expect_completions(kSends, extended() ? 0 : 20);
}

TEST_P(RefusedPosts, of_a_queue_pair_that_ended_reach_no_device) {
  const auto qp = connected();
  stub_.refuse_posts_after(0);
  EXPECT_EQ(send(*qp, 1), 1u);
  stub_.accept_posts();
  const std::size_t posted = stub_.posted().size();
  const SendWr another{.wr_id = 1, .flags = kSignaled};
  EXPECT_EQ(qp->post_send({&another, 1}), 1u);
  expect_completions(2, 0);
  EXPECT_EQ(stub_.posted().size(), posted);
}

TEST_P(RefusedPosts, that_bind_a_window_leave_it_for_another_queue_pair) {
  const MemoryWindow windows[] = {device_->allocate_window(), device_->allocate_window()};
  const auto bind = [&](QueuePair& qp, MemoryWindow window) {
    return qp.bind_window(window, memory_.bytes.first(64), memory_.lkey, kRemoteRead);
  };
  const auto qp = connected();
  stub_.refuse_posts_after(1);
  EXPECT_TRUE(bind(*qp, windows[0]));
  const auto second = bind(*qp, windows[1]);
  EXPECT_EQ(second.has_value(), extended()) << "the extended interface posts with the next poll";
  ASSERT_TRUE(until([&] { return qp->state() == State::Error; }));
  EXPECT_TRUE(qp->is_broken());
  EXPECT_FALSE(bind(*qp, windows[0])) << "the queue pair has ended";
  EXPECT_TRUE(until([&] { return !completions_.empty(); }));
  stub_.accept_posts();
  const auto next = connected();
  for (const MemoryWindow window : windows) {
    std::optional<Rkey> rkey;
    EXPECT_TRUE(until([&] { return (rkey = bind(*next, window)).has_value(); }));
    EXPECT_NE(rkey, second);
  }
  EXPECT_EQ(next->state(), State::ReadyToSend);
  EXPECT_FALSE(next->is_broken());
}

TEST_P(RefusedPosts, are_not_those_of_a_queue_pair_that_this_side_ends) {
  const auto qp = connected();
  qp->to_error();
  EXPECT_FALSE(qp->is_broken());
  expect_completions(0, 0);
}

// --- The connection

/// A connection of a client.
class RefusedCalls : public VerbsRefused {
 protected:
  RefusedCalls() {
    rpcrdma::EngineConfig config;
    config.max_connections = 1;
    config.capacity.requests = 16;
    engine_ = std::make_unique<rpcrdma::Engine>(*device_, config);
    memory_ = device_->allocate_memory(1u << 20);
    requester_ = std::make_unique<rpcrdma::Requester>(engine_->requester_context(), *device_,
                                                      rpcrdma::RequesterConfig{.requests = 16});
    connection_ = engine_->free_connection();
    rpcrdma::ConnectionConfig connection;
    connection.active = true;
    connection.credit_grant = 0;
    connection.credits_requested = 16;
    connection_->open(device_->create_queue_pair(engine_->queue_pair_limits()), connection,
                      PeerAddress::from_ipv4(192, 0, 2, 9), requester_.get());
    EXPECT_TRUE(connection_->queue_pair().connect(attributes()));
    EXPECT_TRUE(until([&] { return connection_->queue_pair().state() == State::ReadyToSend; }));
    connection_->established();
  }
  ~RefusedCalls() override {
    if (connection_->is_open()) connection_->close(rpcrdma::CloseReason::LocalClose);
    EXPECT_TRUE(until([&] { return engine_->take_closed() != nullptr; }));
  }
  bool until(const std::function<bool()>& condition) {
    return VerbsRefused::until(condition, [this] { engine_->poll(now_ns_ += 1'000'000); });
  }
  static void ended(void* context, const rpcrdma::Reply& reply) noexcept {
    *static_cast<std::optional<rpcrdma::CallStatus>*>(context) = reply.status();
  }
  /// Submits a call with two Read chunks, so that two windows are bound before its Send.
  void submit() {
    const Sge pieces[] = {{memory_.bytes.data(), 8192, memory_.lkey},
                          {memory_.bytes.data() + 8192, 8192, memory_.lkey}};
    const rpcrdma::ReadItem items[] = {{.position = rpcrdma::Position{44}, .pieces = {pieces, 2}}};
    const auto payload =
        sluice::conformance::test_call(0, sluice::conformance::TestService::kSink, {16384, 7});
    rpcrdma::Request request{
        .payload = payload, .max_reply_bytes = 64, .completion = &ended, .context = &status_};
    request.reads = items;
    EXPECT_TRUE(requester_->submit(request));
  }
  void expect_end_of_connection() {
    EXPECT_TRUE(until([&] { return !connection_->is_open(); }));
    EXPECT_EQ(connection_->close_reason(), rpcrdma::CloseReason::TransportError);
    EXPECT_EQ(device_->statistics().post_failures, 1u);
    EXPECT_FALSE(status_) << "the call is sent on the next connection";
  }

  std::unique_ptr<rpcrdma::Engine> engine_;
  std::unique_ptr<rpcrdma::Requester> requester_;
  rpcrdma::Connection* connection_ = nullptr;
  MemoryRegion memory_;
  std::uint64_t now_ns_ = 1'000'000'000;
  std::optional<rpcrdma::CallStatus> status_;
};

INSTANTIATE_TEST_SUITE_P(, RefusedCalls, testing::Bool(),
                         [](const auto& extended) { return extended.param ? "Extended" : "Classic"; });

TEST_P(RefusedCalls, whose_first_window_is_refused_end_the_connection_because_of_the_transport) {
  stub_.refuse_posts_after(0);
  submit();
  expect_end_of_connection();
}

TEST_P(RefusedCalls, whose_second_window_is_refused_end_the_connection_because_of_the_transport) {
  stub_.refuse_posts_after(1);
  submit();
  expect_end_of_connection();
}

TEST_P(RefusedCalls, whose_send_is_refused_end_the_connection_because_of_the_transport) {
  stub_.refuse_posts_after(2);
  submit();
  expect_end_of_connection();
}

}  // namespace
}  // namespace sluice::rdma::conformance
