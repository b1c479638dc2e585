// SPDX-License-Identifier: Apache-2.0
//
// Parameters of the driver suite: two devices and a way to connect queue pairs between them.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "pmd/device.h"

namespace sluice::rdma::conformance {

/// Two devices that can reach each other. One thread drives both.
class DriverPair {
 public:
  virtual ~DriverPair() = default;
  virtual Device& left() = 0;
  virtual Device& right() = 0;
  /// Delivers packets between the devices, for drivers whose wire is part of the test.
  virtual void carry() {}
  /// Status at the sender of a message that is too long for its Receive.
  virtual WcStatus refusal_of_too_long() { return WcStatus::RemoteInvalidRequest; }
  /// Whether an access through a window is checked against the window's bounds, not only its region's.
  virtual bool holds_window_bounds() { return true; }
  /// Returns the status of a request that breaks a local rule: `named`, unless the device only flushes it.
  virtual WcStatus local_error(WcStatus named) { return named; }
  /// Whether queue pairs share Receives: a message is received even if its queue pair has posted none or a
  /// short one.
  virtual bool shares_receives() { return false; }
  /// Why the device cannot be opened as this pair needs it; null if it can. All tests are skipped then.
  virtual const char* missing() { return nullptr; }
  /// Gives the peer of a queue pair access to memory, if its device has no windows: the other end can be
  /// tested then. Returns nothing if the pair cannot do that.
  virtual std::optional<Rkey> expose(QueuePairNumber, std::span<std::byte>, AccessFlags) {
    return std::nullopt;
  }
  /// Whether poll() itself moves the data, instead of a card.
  virtual bool moves_data() { return true; }
  /// Connection managers of both ends, either the driver's or the process's. They do not outlive the devices.
  virtual ConnectionManager* left_manager() { return left().connection_manager(); }
  virtual ConnectionManager* right_manager() { return right().connection_manager(); }
  /// Addresses to connect, where the driver has no connection manager.
  virtual PeerAddress left_address() { return left().addresses()[0]; }
  virtual PeerAddress right_address() { return right().addresses()[0]; }
  virtual LinkAddress link_of_left() { return {}; }
  virtual LinkAddress link_of_right() { return {}; }
};

/// Skips the rest of the running test, from any function that it calls.
[[noreturn]] inline void skip_rest(const char* reason) {
  [&] { GTEST_SKIP() << reason; }();
  // GoogleTest ends the test without another result.
  throw testing::AssertionException(
      testing::TestPartResult(testing::TestPartResult::kSkip, __FILE__, __LINE__, reason));
}

using MakeDriverPair = std::function<std::unique_ptr<DriverPair>()>;

/// A queue pair with its memory and the work completions that it has received.
struct Endpoint {
  Device* device = nullptr;
  Owned<QueuePair> qp;
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

using DriverParam = std::pair<const char*, MakeDriverPair>;

class DriverTest : public testing::TestWithParam<DriverParam> {
 protected:
  void SetUp() override {
    pair_ = GetParam().second();
    if (const char* const missing = pair_->missing()) GTEST_SKIP() << missing;
    if (ConnectionManager* cm = pair_->right().connection_manager()) cm->listen(kPort);
    connect();
  }
  void TearDown() override {
    a.qp.reset();
    b.qp.reset();
  }

  /// Creates fresh queue pairs a (left, which connects) and b (right).
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
    if (pair_->left().connection_manager() == nullptr) return establish_by_attributes();
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
  /// Connects a and b with the attributes that connection management in the control plane would agree on.
  void establish_by_attributes() {
    const PeerAddress left = pair_->left_address();
    const PeerAddress right = pair_->right_address();
    const std::uint32_t left_psn = next_psn_;  // about to wrap at first
    const std::uint32_t right_psn = next_psn_ + 10;
    next_psn_ += 0x654321;
    attributes_.path_mtu =
        path_mtu_ != 0 ? path_mtu_ : std::min(pair_->left().max_path_mtu(), pair_->right().max_path_mtu());
    RcAttributes of_a = attributes_;
    of_a.local = left;
    of_a.remote = right;
    of_a.remote_link = pair_->link_of_right();
    of_a.remote_qp = b.qp->number();
    of_a.send_psn = left_psn & 0xFFFFFF;
    of_a.receive_psn = right_psn & 0xFFFFFF;
    RcAttributes of_b = attributes_;
    of_b.local = right;
    of_b.remote = left;
    of_b.remote_link = pair_->link_of_left();
    of_b.remote_qp = a.qp->number();
    of_b.send_psn = of_a.receive_psn;
    of_b.receive_psn = of_a.send_psn;
    ASSERT_TRUE(a.qp->connect(of_a));
    ASSERT_TRUE(b.qp->connect(of_b));
    const auto ready = [](const Endpoint& of) { return of.qp->state() == QueuePair::State::ReadyToSend; };
    ASSERT_TRUE(until([&] { return ready(a) && ready(b); }));
  }

  void turn() {
    pair_->carry();
    for (Endpoint* endpoint : {&a, &b}) {
      WorkCompletion wcs[16];
      const std::size_t count = endpoint->device->poll(wcs);
      for (const WorkCompletion& wc : std::span(wcs, count)) {
        Endpoint& owner = a.qp && wc.qp == a.qp->number() && endpoint == &a ? a : b;
        owner.completions.push_back(wc);
      }
    }
  }
  /// Runs iterations until `condition` holds. The limit is generous: it only bounds a failing test.
  bool until(const std::function<bool()>& condition) {
    const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (std::chrono::steady_clock::now() < give_up) {
      for (int i = 0; i < 100; ++i) {
        if (condition()) return true;
        turn();
      }
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
    MemoryWindow window{};
    Rkey rkey{};
    std::uint64_t address = 0;
  };
  static bool has_windows(const Endpoint& endpoint) { return endpoint.device->limits().max_windows > 0; }
  static bool has_regions(const Endpoint& endpoint) { return endpoint.device->limits().max_call_regions > 0; }
  std::optional<Rkey> register_region(Endpoint& endpoint, MemoryWindow window, std::span<std::byte> bytes,
                                      AccessFlags access) {
    constexpr std::uint64_t kRegistration = 0x7E610;
    std::erase_if(endpoint.completions, [](const auto& done) { return done.wr_id == kRegistration; });
    if (!endpoint.qp->register_region(window, bytes, endpoint.memory.lkey, access, kRegistration)) return {};
    if (status_of(endpoint, kRegistration) != WcStatus::Success) return {};
    return endpoint.find(kRegistration)->rkey;
  }
  Window expose(Endpoint& endpoint, std::size_t at, std::size_t bytes, AccessFlags access) {
    Window w;
    const auto range = endpoint.memory.bytes.subspan(at, bytes);
    std::optional<Rkey> rkey;
    if (has_windows(endpoint)) {
      w.window = endpoint.device->allocate_window();
      rkey = endpoint.qp->bind_window(w.window, range, endpoint.memory.lkey, access);
      endpoint.device->poll({});  // submits the bind: no later request does
    } else if (has_regions(endpoint)) {
      w.window = endpoint.device->allocate_window();
      rkey = register_region(endpoint, w.window, range, access);
    } else {
      rkey = pair_->expose(endpoint.qp->number(), range, access);
    }
    if (!rkey && !has_windows(endpoint) && !has_regions(endpoint))
      skip_rest("the device has no memory windows");
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
  RcAttributes attributes_;     ///< given to both sides by establish_by_attributes()
  std::uint16_t path_mtu_ = 0;  ///< zero: the largest that both support
  std::uint32_t next_psn_ = 0xFFFFF0;
  Endpoint a;
  Endpoint b;
};

/// An access that has to be refused: the initiator gets RemoteAccessError, no byte is written, and both queue
/// pairs go to Error.
class Refusal : public DriverTest {
 protected:
  void expect_refused(SendOpcode opcode, std::uint64_t address, Rkey rkey, std::uint32_t bytes) {
    std::memset(a.memory.bytes.data(), 0x11, 8192);
    std::memset(b.memory.bytes.data(), 0x22, 8192);
    b.completions.clear();
    ASSERT_TRUE(a.receive(76, a.sge(8192, 64)));  // the device may report the end by its flush
    ASSERT_TRUE(b.post(opcode, 77, {b.sge(0, bytes)}, address, rkey));
    EXPECT_EQ(status_of(b, 77), WcStatus::RemoteAccessError);
    EXPECT_EQ(b.qp->state(), QueuePair::State::Error);
    for (std::size_t i = 0; i < 8192; ++i) {
      ASSERT_EQ(a.memory.bytes[i], std::byte{0x11});
      ASSERT_EQ(b.memory.bytes[i], std::byte{0x22});
    }
    EXPECT_TRUE(until([&] { return a.qp->state() == QueuePair::State::Error; }));
    connect();
  }
};

inline constexpr const char* kNoWindows = "the device has no memory windows";

inline std::string driver_name(const testing::TestParamInfo<DriverParam>& info) {
  return info.param.first;
}

}  // namespace sluice::rdma::conformance
