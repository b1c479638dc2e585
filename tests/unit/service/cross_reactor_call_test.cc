// SPDX-License-Identifier: Apache-2.0
//
// Two threads play two reactors: one has calls, the other has the service.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <deque>
#include <memory>
#include <thread>

#include "dataplane/service/cross_reactor_call.h"

namespace sluice::service {
namespace {

constexpr rdma::Lkey kOwnersKey{11};
constexpr rdma::Lkey kCallersKey{22};

/// Returns the sum of its arguments. It requests more memory for every third call, answers every fifth later,
/// and places announced data.
class SummingService final : public Service {
 public:
  const service::Binding& binding() const noexcept override { return binding_; }
  Placement place(Call& call) noexcept override {
    call.state<std::uint64_t>() = 7;
    if (call.placed_bytes() == 1) {
      call.complete(rpc::AcceptStat::GarbageArgs);
      return Placement::Reply;
    }
    if (call.placed_bytes() == 2) return Placement::Assemble;
    call.add_sink_piece({sink_.data(), 32, kOwnersKey});
    return Placement::Sink;
  }
  Execution execute(Call& call) noexcept override {
    xdr::Reader reader(call.arguments());
    const std::uint32_t a = reader.u32();
    const std::uint32_t b = reader.u32();
    if (call.peer_host().view() != "caller") {
      call.complete(rpc::AcceptStat::SystemErr);
      return Execution::Started;
    }
    if (a % 3 == 0 && !call.require_results(512)) return Execution::NeedsMemory;
    if (a % 7 == 0) {
      call.deny(rpc::AuthStat::TooWeak);
      return Execution::Started;
    }
    call.results().u32(a + b);
    call.results().u32(static_cast<std::uint32_t>(call.state<std::uint64_t>()));
    call.add_result_piece({sink_.data(), 16, kOwnersKey});
    call.add_result_item(16);
    if (a % 5 == 0)
      later_.push_back(&call);
    else
      call.complete(rpc::AcceptStat::Success);
    return Execution::Started;
  }
  void release(Call& call) noexcept override {
    static_cast<void>(call);
    released_.fetch_add(1, std::memory_order_relaxed);
  }
  void finish_later() {
    while (!later_.empty()) {
      later_.front()->complete(rpc::AcceptStat::Success);
      later_.pop_front();
    }
  }
  std::uint64_t released() const { return released_.load(std::memory_order_relaxed); }

 private:
  service::Binding binding_{};
  std::array<std::byte, 64> sink_{};
  std::deque<Call*> later_;
  std::atomic<std::uint64_t> released_{0};
};

class FakeClient final : public Client {
 public:
  explicit FakeClient(std::uint16_t number = 0) : number_(number) {}
  std::uint16_t number() const noexcept override { return number_; }
  void limit_credits(std::uint32_t) noexcept override {}
  void disconnect() noexcept override {}
  bool call_back(std::span<const std::byte>, CallBackDone, void*) noexcept override { return false; }

 private:
  std::uint16_t number_;
};

class TransportCall final : public Call, private CallHost {
 public:
  TransportCall() : Call(static_cast<CallHost&>(*this), storage_) {
    peer_ = &own_peer_;
    peer_host_ = &own_peer_host_;
    client_ = &own_client_;
  }
  TransportCall(FakeClient& client, RemoteService& service) : TransportCall() {
    client_ = &client;
    start(1, 1);
    service.execute(*this);
  }
  void start(std::uint32_t a, std::uint32_t b, std::uint32_t placed_bytes = 0) {
    xdr::store_u32(bytes.data(), a);
    xdr::store_u32(bytes.data() + 4, b);
    arguments_ = message_ = bytes;
    results_offset_ = rpc::kMinReplyBytes;
    placed_bytes_ = placed_bytes;
    results_ = xdr::Writer(small);
    piece_count_ = item_count_ = 0;
    auth_error_ = rpc::AuthStat::Ok;
    done = denied = waits = false;
    placement.reset();
    has_state_ = false;
  }
  std::uint32_t result(std::size_t at) const {
    return xdr::load_u32((grown > 0 && memory ? large.data() + rpc::kMinReplyBytes : small.data()) + at);
  }
  const rdma::Sge& piece(std::size_t i) const { return pieces()[i]; }
  using Call::items;
  using Call::pieces;
  std::uint32_t results_offset() const { return results_offset_; }

  bool memory = true;
  int grown = 0;
  bool done = false;
  bool denied = false;
  bool waits = false;
  std::optional<Placement> placement;
  rpc::AcceptStat stat{};
  std::array<std::byte, 8> bytes{};
  std::array<std::byte, 64> small{};
  std::array<std::byte, 512 + rpc::kMinReplyBytes> large{};

 private:
  CallStorage storage_;
  PeerAddress own_peer_;
  HostName own_peer_host_{"caller"};
  FakeClient own_client_;

  void on_complete(Call&, rpc::AcceptStat accepted) noexcept override {
    stat = accepted;
    denied = auth_error_ != rpc::AuthStat::Ok;
    done = true;
  }
  bool on_grow_results(Call&, std::size_t wanted) noexcept override {
    ++grown;
    if (!memory) return false;
    EXPECT_EQ(wanted, 512u);
    results_ = xdr::Writer(std::span(large).subspan(rpc::kMinReplyBytes));
    return true;
  }
  void on_placed(Call&, Placement where) noexcept override { placement = where; }
  void on_await_memory(Call&) noexcept override { waits = true; }
};

struct TwoReactors {
  TwoReactors() {
    owner = std::thread([this] {
      while (!stop.load(std::memory_order_acquire)) {
        if (!rings.serve()) std::this_thread::yield();
        service.finish_later();
      }
      while (rings.serve()) {
      }
    });
  }
  ~TwoReactors() {
    stop.store(true, std::memory_order_release);
    owner.join();
  }
  template <typename Condition>
  void until(Condition condition) {
    while (!condition())
      if (!rings.collect()) std::this_thread::yield();
  }

  SummingService service;
  CrossReactorCall rings{{{kOwnersKey, kCallersKey}}, 1};
  RemoteService remote{rings, service};
  std::atomic<bool> stop{false};
  std::thread owner;
};

TEST(CrossReactorCall, calls_are_served_by_the_other_reactor_and_come_back_whole) {
  TwoReactors two;
  std::vector<std::unique_ptr<TransportCall>> calls;
  for (int i = 0; i < 64; ++i) calls.push_back(std::make_unique<TransportCall>());
  for (std::uint32_t round = 0; round < 300; ++round) {
    for (std::uint32_t i = 0; i < calls.size(); ++i) {
      calls[i]->grown = 0;
      calls[i]->start(round + i, i);
      ASSERT_EQ(two.remote.execute(*calls[i]), Execution::Started);
    }
    for (std::uint32_t i = 0; i < calls.size(); ++i) {
      TransportCall& call = *calls[i];
      const std::uint32_t a = round + i;
      two.until([&] { return call.done; });
      ASSERT_EQ(call.grown, a % 3 == 0 ? 1 : 0);
      ASSERT_EQ(call.denied, a % 7 == 0);
      if (!call.denied) {
        ASSERT_EQ(call.stat, rpc::AcceptStat::Success);
        ASSERT_EQ(call.result(0), a + i);
        ASSERT_EQ(call.results().position(), 8u);
        ASSERT_EQ(call.items().size(), 1u);
        ASSERT_EQ(call.piece(0).lkey, kCallersKey);
      }
      two.remote.release(call);
    }
  }
  two.until([&] { return two.service.released() == 300 * 64; });
}

TEST(CrossReactorCall, placement_comes_later_and_state_stays_with_the_call) {
  TwoReactors two;
  TransportCall call;
  call.start(1, 2, 30);
  ASSERT_EQ(two.remote.place(call), Placement::Later);
  two.until([&] { return call.placement.has_value(); });
  EXPECT_EQ(call.placement, Placement::Sink);
  ASSERT_EQ(call.pieces().size(), 1u);
  EXPECT_EQ(call.piece(0).lkey, kCallersKey);
  ASSERT_EQ(two.remote.execute(call), Execution::Started);
  two.until([&] { return call.done; });
  EXPECT_EQ(call.result(0), 3u);
  EXPECT_EQ(call.result(4), 7u);
  two.remote.release(call);

  call.start(1, 2, 1);
  ASSERT_EQ(two.remote.place(call), Placement::Later);
  two.until([&] { return call.done; });
  EXPECT_EQ(call.stat, rpc::AcceptStat::GarbageArgs);
  two.remote.release(call);

  call.start(1, 2, 2);
  ASSERT_EQ(two.remote.place(call), Placement::Later);
  two.until([&] { return call.placement.has_value(); });
  EXPECT_EQ(call.placement, Placement::Assemble);
  two.remote.release(call);
}

TEST(CrossReactorCall, a_call_without_memory_waits_and_comes_again) {
  TwoReactors two;
  TransportCall call;
  call.memory = false;
  call.start(3, 1);
  two.remote.execute(call);
  two.until([&] { return call.waits; });
  call.memory = true;
  two.remote.execute(call);
  two.until([&] { return call.done; });
  EXPECT_EQ(call.result(0), 4u);
  two.remote.release(call);
}

/// Defers every decision: the placement of arguments, the request for memory, and the results, which are a
/// whole reply.
class LateService final : public Service {
 public:
  const service::Binding& binding() const noexcept override { return binding_; }
  Placement place(Call& call) noexcept override {
    to_place = &call;
    return Placement::Later;
  }
  Execution execute(Call& call) noexcept override {
    message = call.message();
    if (!call.require_results(512)) {
      short_of_memory = &call;
      return Execution::Started;
    }
    to_complete = &call;
    return Execution::Started;
  }
  Call* to_place = nullptr;
  Call* short_of_memory = nullptr;
  Call* to_complete = nullptr;
  std::span<const std::byte> message;

 private:
  service::Binding binding_{};
};

TEST(CrossReactorCall, a_service_that_decides_later_is_heard_at_each_step) {
  LateService service;
  CrossReactorCall rings({}, 1);
  RemoteService remote(rings, service);
  TransportCall call;
  call.start(1, 2, 30);
  ASSERT_EQ(remote.place(call), Placement::Later);
  const auto exchange = [&] {
    while (rings.serve() | rings.collect()) {
    }
  };
  exchange();
  ASSERT_NE(service.to_place, nullptr);
  EXPECT_FALSE(call.placement.has_value()) << "answered before the service has decided";
  service.to_place->placed(Placement::Assemble);
  exchange();
  EXPECT_EQ(call.placement, Placement::Assemble);

  call.memory = false;
  remote.execute(call);
  exchange();
  ASSERT_NE(service.short_of_memory, nullptr);
  EXPECT_EQ(call.grown, 0);
  service.short_of_memory->await_memory();
  exchange();
  EXPECT_TRUE(call.waits);
  EXPECT_EQ(call.grown, 1);
  EXPECT_EQ(service.message.data(), call.message().data());
  EXPECT_EQ(service.message.size(), call.bytes.size());

  call.memory = true;
  remote.execute(call);
  exchange();
  service.short_of_memory->await_memory();
  exchange();
  ASSERT_NE(service.to_complete, nullptr) << "called again with the memory that the caller obtained";
  service.to_complete->write_whole_reply();
  service.to_complete->results().u32(0x01020304);
  service.to_complete->complete(rpc::AcceptStat::Success);
  exchange();
  EXPECT_TRUE(call.done);
  EXPECT_EQ(call.results_offset(), xdr::kUnit);
  remote.release(call);
  exchange();
}

/// Names `pieces` pieces of a sink, and returns results without items. It counts its releases.
class PlainService final : public Service {
 public:
  const service::Binding& binding() const noexcept override { return binding_; }
  Placement place(Call& call) noexcept override {
    for (std::uint32_t i = 0; i < pieces; ++i) call.add_sink_piece({sink_.data() + i, i + 1, kOwnersKey});
    return Placement::Sink;
  }
  Execution execute(Call& call) noexcept override {
    for (std::uint32_t i = 0; i < words; ++i) call.results().u32(i);
    call.complete(rpc::AcceptStat::Success);
    return Execution::Started;
  }
  void release(Call&) noexcept override { ++released; }
  std::uint32_t pieces = 1;
  std::uint32_t words = 1;
  int released = 0;
  const std::byte* sink() const { return sink_.data(); }

 private:
  service::Binding binding_{};
  std::array<std::byte, 64> sink_{};
};

struct PlainSite {
  PlainService service;
  CrossReactorCall rings{{{kOwnersKey, kCallersKey}}, 1};
  RemoteService remote{rings, service};
  TransportCall call;
};

TEST(CrossReactorCall, a_call_whose_reply_has_no_items_is_released_with_its_answer) {
  PlainSite site;
  site.call.start(1, 2, 30);
  site.remote.place(site.call);
  site.rings.serve();
  site.rings.collect();
  EXPECT_EQ(site.service.released, 0) << "the data is not there yet";
  site.remote.execute(site.call);
  site.rings.serve();
  EXPECT_EQ(site.service.released, 1);
  site.rings.collect();
  EXPECT_TRUE(site.call.done);
  EXPECT_TRUE(site.rings.balanced()) << "the ticket is back before the reply is sent";
  site.remote.release(site.call);
  EXPECT_FALSE(site.rings.serve());
  EXPECT_EQ(site.service.released, 1);
}

TEST(CrossReactorCall, a_call_that_ends_between_its_steps_is_released_once) {
  PlainSite site;
  site.call.start(1, 2, 30);
  site.remote.place(site.call);
  site.rings.serve();
  site.rings.collect();
  site.remote.release(site.call);
  site.rings.serve();
  site.rings.collect();
  EXPECT_EQ(site.service.released, 1);
  EXPECT_TRUE(site.rings.balanced());
}

TEST(CrossReactorCall, every_piece_of_a_sink_crosses) {
  PlainSite site;
  site.service.pieces = 5;
  site.call.start(1, 2, 30);
  site.remote.place(site.call);
  site.rings.serve();
  site.rings.collect();
  ASSERT_EQ(site.call.pieces().size(), 5u);
  for (std::uint32_t i = 0; i < 5; ++i) {
    EXPECT_EQ(site.call.piece(i).address, site.service.sink() + i);
    EXPECT_EQ(site.call.piece(i).length, i + 1);
    EXPECT_EQ(site.call.piece(i).lkey, kCallersKey);
  }
}

/// Waits for something with state, then needs room for results.
class StatefulService final : public Service {
 public:
  const service::Binding& binding() const noexcept override { return binding_; }
  Execution execute(Call& call) noexcept override {
    if (!call.has_state()) {
      ++started;
      call.state<std::uint32_t>() = 7;
      waiting_ = &call;
      return Execution::Started;
    }
    call.results().u32(call.state<std::uint32_t>());
    call.complete(rpc::AcceptStat::Success);
    return Execution::Started;
  }
  void go_on() {
    if (!waiting_->require_results(512)) waiting_->await_memory();
  }
  int started = 0;

 private:
  service::Binding binding_{};
  Call* waiting_ = nullptr;
};

TEST(CrossReactorCall, a_call_that_waits_for_memory_keeps_its_state) {
  StatefulService service;
  CrossReactorCall rings({}, 1);
  RemoteService remote(rings, service);
  TransportCall call;
  call.start(1, 1);
  remote.execute(call);
  rings.serve();
  service.go_on();
  rings.collect();  // the caller has the memory at once
  rings.serve();
  EXPECT_EQ(service.started, 1);
  rings.collect();
  EXPECT_TRUE(call.done);
  EXPECT_EQ(call.result(0), 7u);
  remote.release(call);
}

TEST(CrossReactorCall, results_that_do_not_fit_have_failed) {
  PlainSite site;
  for (const std::uint32_t words : {16u, 17u}) {
    site.service.words = words;
    site.call.start(1, 2);
    site.remote.execute(site.call);
    site.rings.serve();
    site.rings.collect();
    EXPECT_TRUE(site.call.done);
    EXPECT_EQ(site.call.results().ok(), words == 16);
    EXPECT_EQ(site.call.results().position(), 64u);
  }
}

/// Both reactors in one thread, and two clients.
struct SharedTickets {
  static constexpr std::uint32_t kMost = kMaxRemoteCalls / 4;

  void call(FakeClient& client, std::uint32_t count = 1) {
    for (std::uint32_t i = 0; i < count; ++i)
      calls.push_back(std::make_unique<TransportCall>(client, remote));
  }
  void exchange() {
    while (rings.serve() | rings.collect()) {
    }
  }
  std::size_t done() const {
    return static_cast<std::size_t>(
        std::count_if(calls.begin(), calls.end(), [](const auto& call) { return call->done; }));
  }
  void release_all() {
    for (const auto& call : calls) remote.release(*call);
    calls.clear();
    exchange();
  }

  SummingService service;
  CrossReactorCall rings{{}, 4};
  RemoteService remote{rings, service};
  FakeClient greedy{0};
  FakeClient modest{1};
  std::vector<std::unique_ptr<TransportCall>> calls;
};

TEST(CrossReactorCall, calls_beyond_a_clients_share_wait_and_are_served_in_their_order) {
  SharedTickets lab;
  lab.call(lab.greedy, SharedTickets::kMost + 3);
  EXPECT_EQ(lab.rings.waiting(), 3u);
  EXPECT_EQ(lab.rings.waits(), 3u);
  lab.exchange();
  EXPECT_EQ(lab.done(), SharedTickets::kMost);
  EXPECT_FALSE(lab.calls[SharedTickets::kMost]->done);
  lab.remote.release(*lab.calls[0]);
  lab.exchange();
  EXPECT_TRUE(lab.calls[SharedTickets::kMost]->done);
  EXPECT_FALSE(lab.calls[SharedTickets::kMost + 1]->done);
  for (std::uint32_t i = 1; i < SharedTickets::kMost; ++i) lab.remote.release(*lab.calls[i]);
  lab.exchange();
  EXPECT_EQ(lab.done(), lab.calls.size());
  EXPECT_EQ(lab.rings.waiting(), 0u);
}

TEST(CrossReactorCall, a_client_is_served_whatever_another_one_has_handed_over) {
  SharedTickets lab;
  lab.call(lab.greedy, SharedTickets::kMost + 100);
  lab.call(lab.modest);
  lab.exchange();
  EXPECT_TRUE(lab.calls.back()->done);
  EXPECT_FALSE(lab.calls[SharedTickets::kMost]->done);
}

TEST(CrossReactorCall, a_call_that_ends_while_it_waits_takes_nobodys_turn) {
  SharedTickets lab;
  lab.call(lab.greedy, SharedTickets::kMost + 2);
  lab.remote.release(*lab.calls[SharedTickets::kMost]);
  EXPECT_EQ(lab.rings.waiting(), 1u);
  lab.exchange();
  lab.remote.release(*lab.calls[0]);
  lab.exchange();
  EXPECT_FALSE(lab.calls[SharedTickets::kMost]->done);
  EXPECT_TRUE(lab.calls[SharedTickets::kMost + 1]->done);
}

TEST(CrossReactorCall, the_next_client_of_a_number_finds_its_share_whole) {
  SharedTickets lab;
  lab.call(lab.greedy, SharedTickets::kMost + 5);
  lab.remote.client_gone(lab.greedy);
  EXPECT_EQ(lab.rings.waiting(), 0u);
  EXPECT_EQ(lab.done(), 5u) << "calls that nobody serves any more end";
  lab.exchange();
  EXPECT_EQ(lab.done(), lab.calls.size());
  lab.release_all();
  lab.call(lab.greedy, SharedTickets::kMost);
  EXPECT_EQ(lab.rings.waiting(), 0u);
  lab.exchange();
  EXPECT_EQ(lab.done(), SharedTickets::kMost);
}

}  // namespace
}  // namespace sluice::service
