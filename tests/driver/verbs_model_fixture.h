// SPDX-License-Identifier: Apache-2.0
//
// A verbs device over a model of a provider (verbs_models.h), with one thread that is both the reactor and
// the thread that handles the device's events.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "pmd/verbs/verbs.h"
#include "tests/driver/verbs_stub.h"

namespace sluice::rdma::conformance {

inline constexpr QueuePairLimits kModelLimits{.send_depth = 128, .recv_depth = 8};

class VerbsModel : public testing::Test {
 protected:
  using State = QueuePair::State;
  using Interface = verbs::Interface;

  ~VerbsModel() override {
    device_.reset();
    stub_.find_peer();
    stub_.select(kFullProvider);
  }
  void open(const Provider& provider, Interface interface = Interface::Newest,
            std::uint32_t shared_receives = 0) {
    device_.reset();
    stub_.select(provider);
    device_ = verbs::open({.device = {},
                           .max_queue_pairs = 4,
                           .interface = interface,
                           .shared_receives = shared_receives,
                           .flush_limit_ns = flush_limit_ns_});
    memory_ = device_->allocate_memory(1 << 16);
  }
  static const Provider& model(std::string_view name) {
    for (const Provider& provider : kProviders)
      if (provider.name == name) return provider;
    ADD_FAILURE() << name;
    return kFullProvider;
  }
  Owned<QueuePair> connected(const QueuePairLimits& limits = kModelLimits) {
    auto qp = device_->create_queue_pair(limits);
    RcAttributes attributes;
    attributes.local = device_->addresses()[0];
    attributes.remote = PeerAddress::from_ipv4(192, 0, 2, 9);
    EXPECT_TRUE(qp->connect(attributes));
    EXPECT_TRUE(until([&] { return qp->state() != State::Init; }));
    EXPECT_EQ(qp->state(), State::ReadyToSend);
    return qp;
  }
  /// Runs the reactor until `condition` holds. The limit is generous: it only bounds a failing test.
  template <typename Condition>
  bool until(const Condition& condition) {
    const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    bool holds = condition();
    for (; !holds && std::chrono::steady_clock::now() < give_up; holds = condition()) turn();
    return holds;
  }
  void turn() {
    WorkCompletion some[16];
    const std::size_t count = device_->poll(some);
    completions_.insert(completions_.end(), some, some + count);
    device_->handle_events();
  }
  /// Posts a work request and returns the status of its completion.
  WcStatus result(QueuePair& qp, const SendWr& wr) {
    completions_.clear();
    EXPECT_EQ(qp.post_send({&wr, 1}), 1u);
    EXPECT_TRUE(until([&] { return !completions_.empty(); }));
    return completions_.empty() ? WcStatus::WrFlushError : completions_[0].status;
  }

  bool has_notice(std::string_view part) { return notice(part) != kNoNotice; }
  /// Takes notices up to the first one with this part, and returns its kind.
  Notice notice(std::string_view part) {
    std::string text;
    while (const Notice kind = device_->take_notice(text))
      if (text.find(part) != std::string::npos) return kind;
    return kNoNotice;
  }

  VerbsStub& stub_ = VerbsStub::get();
  std::uint64_t flush_limit_ns_ = 60'000'000'000;
  std::unique_ptr<verbs::Verbs> device_;
  MemoryRegion memory_;
  std::vector<WorkCompletion> completions_;
};

}  // namespace sluice::rdma::conformance
