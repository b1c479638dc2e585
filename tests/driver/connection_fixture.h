// SPDX-License-Identifier: Apache-2.0
//
// Parameters of the connection management tests: a DriverPair whose ends have managers.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "tests/driver/driver_fixture.h"

namespace sluice::rdma::conformance {

/// One end of a connection, and the events that its manager has reported.
struct ManagedEnd {
  ManagedEnd(Device& of, ConnectionManager& by) : device(of), manager(by) {
    const QueuePairLimits limits;
    qp = device.create_queue_pair(limits);
  }

  Device& device;
  ConnectionManager& manager;
  Owned<QueuePair> qp;
  std::optional<CmId> id;
  std::map<CmEventType, std::vector<CmEvent>> events;

  std::size_t count(CmEventType type) const {
    const auto at = events.find(type);
    return at == events.end() ? 0 : at->second.size();
  }
  const CmEvent& event(CmEventType type) const { return events.at(type).front(); }

  void turn() {
    WorkCompletion completions[16];
    device.poll(completions);
    CmEvent found[8];
    for (const CmEvent& event : std::span(found, manager.poll_events(found))) {
      if (event.type == CmEventType::ConnectRequest) id = event.id;
      EXPECT_TRUE(id && event.id == *id);
      events[event.type].push_back(event);
    }
  }
};

class ConnectionTest : public testing::TestWithParam<DriverParam> {
 protected:
  void SetUp() override {
    pair_ = GetParam().second();
    if (const char* const missing = pair_->missing()) GTEST_SKIP() << missing;
    right_manager().listen(kPort);
    renew();
  }
  void TearDown() override { left_.reset(), right_.reset(); }

  ConnectionManager& left_manager() { return *pair_->left_manager(); }
  ConnectionManager& right_manager() { return *pair_->right_manager(); }
  void renew() {
    left_.emplace(pair_->left(), left_manager());
    right_.emplace(pair_->right(), right_manager());
  }
  bool until(const std::function<bool()>& condition) {
    const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (!condition() && std::chrono::steady_clock::now() < give_up) turn();
    return condition();
  }
  void turn() {
    pair_->carry();
    left_->turn();
    right_->turn();
  }
  /// Runs until all pending events have arrived.
  void quiesce() {
    for (int i = 0; i < 2000; ++i) turn();
  }
  void ask(std::uint16_t port = kPort) {
    left_->id = left_->manager.connect(*left_->qp, port, kHello);
    ASSERT_TRUE(left_->id);
  }
  void request() {
    ask();
    ASSERT_TRUE(until([&] { return right_->count(CmEventType::ConnectRequest) > 0; }));
  }
  void establish() {
    request();
    ASSERT_TRUE(right_->manager.accept(*right_->id, *right_->qp, kYes));
    ASSERT_TRUE(until([&] {
      return left_->count(CmEventType::Established) == 1 && right_->count(CmEventType::Established) == 1;
    }));
  }
  static void expect_data(const CmEvent& event, std::span<const std::byte> given) {
    ASSERT_GE(event.private_data_bytes, given.size());
    EXPECT_TRUE(std::equal(given.begin(), given.end(), event.private_data));
  }

  static constexpr std::uint16_t kPort = 4243;
  static constexpr std::array<std::byte, 8> kHello{std::byte{1}, std::byte{2}, std::byte{3}};
  static constexpr std::array<std::byte, 5> kYes{std::byte{7}, std::byte{8}};
  static constexpr std::array<std::byte, 3> kNo{std::byte{9}, std::byte{10}};
  std::unique_ptr<DriverPair> pair_;
  std::optional<ManagedEnd> left_;  ///< connects
  std::optional<ManagedEnd> right_;
};

}  // namespace sluice::rdma::conformance
