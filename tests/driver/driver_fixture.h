// SPDX-License-Identifier: Apache-2.0
//
// What a driver gives to be judged by the driver suite: two devices and a way to connect queue pairs between
// them.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#include "pmd/rdma.h"

namespace sluice::rdma::conformance {

/// Two devices that can reach each other. One thread drives both.
class DriverPair {
 public:
  virtual ~DriverPair() = default;
  virtual Device& left() = 0;
  virtual Device& right() = 0;
};

using MakeDriverPair = std::function<std::unique_ptr<DriverPair>()>;

/// A queue pair with memory of its own and the work completions it got.
struct Endpoint {
  Device* device = nullptr;
  std::unique_ptr<QueuePair> qp;
  MemoryRegion memory;
  std::vector<WorkCompletion> completions;

  Sge sge(std::size_t at, std::uint32_t bytes) const {
    return {memory.bytes.data() + at, bytes, memory.lkey};
  }
  bool post(SendOpcode opcode, std::uint64_t wr_id, std::vector<Sge> sges, std::uint64_t remote = 0,
            Rkey rkey = {}, std::uint8_t flags = kSignaled) {
    const SendWr wr{.wr_id = wr_id,
                    .sges = sges,
                    .remote_address = remote,
                    .rkey = rkey,
                    .opcode = opcode,
                    .flags = flags};
    return qp->post_send({&wr, 1}) == 1;
  }
  bool receive(std::uint64_t wr_id, Sge into) {
    const RecvWr wr{wr_id, into};
    return qp->post_recv({&wr, 1}) == 1;
  }
  const WorkCompletion* find(std::uint64_t wr_id) const {
    for (const WorkCompletion& wc : completions)
      if (wc.wr_id == wr_id) return &wc;
    return nullptr;
  }
};

inline constexpr std::size_t kEndpointBytes = 4u << 20;

class DriverTest : public testing::TestWithParam<std::pair<const char*, MakeDriverPair>> {
 protected:
  void SetUp() override {
    pair_ = GetParam().second();
    pair_->right().connection_manager()->listen(kPort);
    connect();
  }
  void TearDown() override {
    a.qp.reset();
    b.qp.reset();
  }

  /// Makes fresh queue pairs a (left, which connects) and b (right).
  void connect(QueuePairLimits limits = {}) {
    prepare(a, pair_->left(), limits);
    prepare(b, pair_->right(), limits);
    establish();
  }
  void prepare(Endpoint& endpoint, Device& device, const QueuePairLimits& limits) {
    endpoint.qp.reset();
    endpoint.device = &device;
    endpoint.qp = device.create_queue_pair(limits);
    if (endpoint.memory.bytes.empty()) endpoint.memory = device.allocate_memory(kEndpointBytes);
    endpoint.completions.clear();
  }
  void establish() {
    ASSERT_TRUE(pair_->left().connection_manager()->connect(*a.qp, kPort, {}).has_value());
    bool up = false;
    for (int i = 0; i < kPatience && !up; ++i) {
      CmEvent events[8];
      std::size_t count = pair_->right().connection_manager()->poll_events(events);
      for (const CmEvent& event : std::span(events, count))
        if (event.type == CmEventType::ConnectRequest) {
          ASSERT_TRUE(pair_->right().connection_manager()->accept(event.id, *b.qp, {}));
        }
      count = pair_->left().connection_manager()->poll_events(events);
      for (const CmEvent& event : std::span(events, count)) up = up || event.type == CmEventType::Established;
    }
    ASSERT_TRUE(up);
  }

  void turn() {
    for (Endpoint* endpoint : {&a, &b}) {
      WorkCompletion wcs[16];
      const std::size_t count = endpoint->device->poll(wcs);
      for (const WorkCompletion& wc : std::span(wcs, count)) {
        Endpoint& owner = a.qp && wc.qp == a.qp->number() && endpoint == &a ? a : b;
        owner.completions.push_back(wc);
      }
    }
  }
  bool until(const std::function<bool()>& condition) {
    for (int i = 0; i < kPatience; ++i) {
      if (condition()) return true;
      turn();
    }
    return condition();
  }
  void quiesce() {
    for (int i = 0; i < 300; ++i) turn();
  }
  WcStatus status_of(Endpoint& endpoint, std::uint64_t wr_id) {
    EXPECT_TRUE(until([&] { return endpoint.find(wr_id) != nullptr; })) << wr_id;
    const WorkCompletion* wc = endpoint.find(wr_id);
    return wc != nullptr ? wc->status : WcStatus::RetryExceeded;
  }
  struct Window {
    MemoryWindow window;
    Rkey rkey{};
    std::uint64_t address = 0;
  };
  static Window expose(Endpoint& endpoint, std::size_t at, std::size_t bytes, AccessFlags access) {
    Window w{endpoint.device->allocate_window(), {}, 0};
    const auto range = endpoint.memory.bytes.subspan(at, bytes);
    const auto rkey = endpoint.qp->bind_window(w.window, range, endpoint.memory.lkey, access);
    EXPECT_TRUE(rkey.has_value());
    w.rkey = rkey.value_or(Rkey{});
    w.address = reinterpret_cast<std::uintptr_t>(range.data());
    return w;
  }
  static void fill(Endpoint& endpoint, std::size_t at, std::size_t bytes, std::uint32_t seed) {
    for (std::size_t i = 0; i < bytes; ++i)
      endpoint.memory.bytes[at + i] = static_cast<std::byte>(i * 37 + seed * 11 + (i >> 9));
  }
  static bool same(const Endpoint& x, std::size_t x_at, const Endpoint& y, std::size_t y_at,
                   std::size_t bytes) {
    return std::memcmp(x.memory.bytes.data() + x_at, y.memory.bytes.data() + y_at, bytes) == 0;
  }

  static constexpr std::uint16_t kPort = 4242;
  static constexpr int kPatience = 100'000;
  std::unique_ptr<DriverPair> pair_;
  Endpoint a;
  Endpoint b;
};

}  // namespace sluice::rdma::conformance
