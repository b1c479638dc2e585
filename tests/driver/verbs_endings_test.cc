// SPDX-License-Identifier: Apache-2.0
//
// Queue pairs that end, and devices that are closed because they do not end them, over models of providers.
#include <string>

#include "tests/driver/verbs_model_fixture.h"

namespace sluice::rdma::conformance {
namespace {

class EndingQueuePair : public VerbsModel {};

TEST_F(EndingQueuePair, returns_a_shared_receive_that_the_device_completes_late) {
  for (const Provider& provider : kProviders) {
    if (!provider.shared_receives || !provider.last_receive_event) continue;
    constexpr std::uint32_t kShared = 32;
    open(provider, Interface::Newest, kShared);
    EXPECT_EQ(stub_.shared_receives(), kShared);
    for (int round = 0; round < 3; ++round) {
      auto qp = connected();
      stub_.deliver_late(static_cast<std::uint32_t>(qp->number()));
      qp.reset();
      // Without handle_events(), which would take the event before the queue pair is destroyed.
      while (stub_.queue_pairs() > 0) device_->poll({});
    }
    for (int i = 0; i < 100; ++i) turn();
    EXPECT_EQ(stub_.shared_receives(), kShared) << provider.name;
  }
}

TEST_F(EndingQueuePair, ends_without_the_event_of_the_last_receive) {
  open(model("rxe"), Interface::Newest, 32);
  for (int round = 0; round < 8; ++round) {
    auto qp = connected();
    qp.reset();
    EXPECT_TRUE(until([&] { return stub_.queue_pairs() == 0; }));
  }
}

TEST_F(EndingQueuePair, that_is_never_flushed_makes_the_device_broken) {
  Provider provider = kFullProvider;
  provider.flush = Provider::Flush::Never;
  flush_limit_ns_ = 20'000'000;
  open(provider);
  auto ended = connected();
  const auto other = connected();
  const RecvWr receive{9, {memory_.bytes.data(), 64, memory_.lkey}};
  ASSERT_EQ(ended->post_recv({&receive, 1}), 1u);
  ended->to_error();
  EXPECT_TRUE(until([&] { return completions_.size() == 1; }));
  EXPECT_EQ(completions_[0].status, WcStatus::WrFlushError);
  EXPECT_EQ(device_->statistics().flush_timeouts, 1u);
  EXPECT_TRUE(until([&] { return device_->statistics().device_returned == 1; }));
  EXPECT_EQ(device_->condition(), rdma::Condition::Up);
  EXPECT_EQ(connected()->state(), State::ReadyToSend);
}

TEST_F(EndingQueuePair, that_is_never_flushed_does_not_make_the_device_removed) {
  Provider provider = kFullProvider;
  provider.flush = Provider::Flush::Never;
  flush_limit_ns_ = 20'000'000;
  open(provider);
  const auto ended = connected();
  const RecvWr receive{9, {memory_.bytes.data(), 64, memory_.lkey}};
  ASSERT_EQ(ended->post_recv({&receive, 1}), 1u);
  ended->to_error();
  bool broken = false;
  EXPECT_TRUE(until([&] {
    EXPECT_NE(device_->condition(), rdma::Condition::Gone);
    broken = broken || device_->condition() == rdma::Condition::Broken;
    return device_->statistics().device_returned == 1;
  }));
  EXPECT_TRUE(broken);
  EXPECT_EQ(device_->statistics().flush_timeouts, 1u);
  EXPECT_EQ(device_->statistics().device_lost, 0u);
  EXPECT_EQ(notice("did not flush queue pair"), kWarning);
}

TEST_F(EndingQueuePair, of_a_device_with_an_error_does_not_make_it_removed) {
  for (const ibv_event_type event : {IBV_EVENT_DEVICE_FATAL, IBV_EVENT_CQ_ERR}) {
    open(kFullProvider);
    const auto qp = connected();
    stub_.raise(event);
    EXPECT_TRUE(until([&] {
      EXPECT_NE(device_->condition(), rdma::Condition::Gone);
      return device_->statistics().device_returned == 1;
    }));
    EXPECT_EQ(qp->state(), State::Error);
    EXPECT_EQ(device_->statistics().device_lost, 1u);
  }
}

TEST_F(EndingQueuePair, waits_for_its_own_last_receive_although_an_earlier_one_had_its_number) {
  constexpr std::uint32_t kShared = 32;
  open(kFullProvider, Interface::Newest, kShared);
  auto first = connected();
  const auto number = static_cast<std::uint32_t>(first->number());
  const std::uint32_t before = stub_.queue_pairs();
  const RecvWr receive{9, {memory_.bytes.data(), 64, memory_.lkey}};
  ASSERT_EQ(first->post_recv({&receive, 1}), 1u);
  first->to_error();
  EXPECT_TRUE(until([&] { return completions_.size() == 1; }));
  stub_.raise(IBV_EVENT_QP_LAST_WQE_REACHED, number);  // once more, after the wait for it
  device_->handle_events();
  first.reset();
  EXPECT_TRUE(until([&] { return stub_.queue_pairs() < before; }));
  stub_.delay_last_receives(true);
  stub_.set_next_number(number);
  auto second = connected();
  ASSERT_EQ(static_cast<std::uint32_t>(second->number()), number);
  stub_.deliver_late(number);
  second.reset();
  while (stub_.queue_pairs() >= before) device_->poll({});
  stub_.delay_last_receives(false);
  for (int i = 0; i < 100; ++i) turn();
  EXPECT_EQ(stub_.shared_receives(), kShared) << "the queue pair was destroyed before its last Receive";
}

// --- Errors of work requests

class FailedWork : public VerbsModel {
 protected:
  /// Posts a Send whose retries are exhausted, and returns its completion.
  WorkCompletion failed(QueuePair& qp) {
    completions_.clear();
    stub_.lose_peer();
    const SendWr send{.wr_id = 1, .sges = {}, .flags = kSignaled};
    EXPECT_EQ(qp.post_send({&send, 1}), 1u);
    stub_.give_up();
    EXPECT_TRUE(until([&] { return !completions_.empty(); }));
    stub_.find_peer();
    return completions_.empty() ? WorkCompletion{} : completions_[0];
  }
};

TEST_F(FailedWork, has_the_devices_own_number_of_the_error) {
  for (const Interface interface : {Interface::Classic, Interface::Extended}) {
    open(kFullProvider, interface);
    const auto qp = connected();
    const WorkCompletion completion = failed(*qp);
    EXPECT_EQ(completion.status, WcStatus::RetryExceeded);
    EXPECT_EQ(completion.vendor_error, kVendorError);
  }
}

TEST_F(FailedWork, is_a_warning_and_the_features_of_the_device_are_none) {
  open(kFullProvider);
  EXPECT_EQ(notice("memory windows: yes"), kInformation);
  const auto qp = connected();
  failed(*qp);
  EXPECT_EQ(notice("vendor error"), kWarning);
}

TEST_F(FailedWork, makes_a_poll_call_the_kernel_once_for_a_queue_pair_and_only_where_the_provider_does) {
  for (const Provider& provider : kProviders) {
    open(provider);
    const auto qp = connected();
    stub_.watch_this_thread();
    for (int i = 0; i < 100; ++i) device_->poll({});
    stub_.lose_peer();
    const SendWr send{.wr_id = 1, .sges = {}, .flags = kSignaled};
    for (int i = 0; i < 3; ++i) ASSERT_EQ(qp->post_send({&send, 1}), 1u);
    device_->poll({});
    EXPECT_TRUE(stub_.noted().empty()) << provider.name;
    stub_.give_up();
    WorkCompletion some[16];
    std::size_t count = 0;
    while (count < 3) count += device_->poll(some);
    EXPECT_EQ(stub_.noted().size(), provider.poll_calls_kernel ? 1u : 0u) << provider.name;
    stub_.watch_no_thread();
    stub_.find_peer();
  }
}

}  // namespace
}  // namespace sluice::rdma::conformance
