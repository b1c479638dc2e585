// SPDX-License-Identifier: Apache-2.0
//
// RPC-over-RDMA calls of a client whose device has no memory windows, over every model of such a provider and
// in both versions, by regions and through the pool.
#include <algorithm>
#include <string>
#include <vector>

#include "dataplane/rpcrdma/engine.h"
#include "dataplane/rpcrdma/requester/requester.h"
#include "tests/conformance/lab.h"
#include "tests/conformance/raw_call.h"
#include "tests/driver/verbs_regions_fixture.h"

namespace sluice::rdma::conformance {
namespace {

using sluice::conformance::TestService;

constexpr std::uint32_t kCalls = 60;
constexpr std::uint32_t kPlaceBytes = 65536;
constexpr std::uint32_t kPoolBytes = 8192;
constexpr std::byte kUntouched{0xEE};
constexpr int kBoth = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;

struct Job {
  std::uint32_t bytes = 0;
  std::uint32_t at = 0;
  std::uint32_t ended = 0;
  rpcrdma::CallStatus status{};
  bool placed = false;
};

void completed(void* context, const rpcrdma::Reply& reply) noexcept {
  Job& job = *static_cast<Job*>(context);
  ++job.ended;
  job.status = reply.status();
  job.placed = job.status == rpcrdma::CallStatus::Ok &&
               reply.item(0, job.bytes).where == rpcrdma::ItemResult::Where::Placed;
}

class RegionCalls : public WindowLess {
 protected:
  void start(std::uint32_t version, bool pool) {
    version_ = version;
    client_engine_ = engine_on(*client_);
    server_engine_ = engine_on(*server_);
    service_ = std::make_unique<TestService>(*server_);
    server_engine_->add_service(*service_);
    requester_ = std::make_unique<rpcrdma::Requester>(
        client_engine_->requester_context(), *client_,
        rpcrdma::RequesterConfig{.requests = 32,
                                 .windows = 64,
                                 .domain = client_->allocate_domain(),
                                 .pool_buffer_bytes = pool ? kPoolBytes : 0,
                                 .pool_buffers = pool ? 8u : 0});
    memory_ = client_->allocate_memory(std::size_t{kCalls} * kPlaceBytes);
    registered_ = regions_of_memory();
    connect_ends();
  }
  void finish() {
    requester_->cancel_all();
    close();
    EXPECT_TRUE(requester_->balanced());
    requester_.reset();
    client_engine_.reset();
    server_engine_.reset();
    service_.reset();
    server_ = WindowLess::open(false);
    client_ = WindowLess::open(true);
  }
  /// Runs a test in both versions, with and without a pool.
  template <typename Test>
  void in_each_form(const Test& test) {
    for (const std::uint32_t version : {1u, 2u})
      for (const bool pool : {false, true}) {
        SCOPED_TRACE("version " + std::to_string(version) + (pool ? ", with a pool" : ""));
        ASSERT_NO_FATAL_FAILURE(start(version, pool));
        test();
        if (testing::Test::HasFatalFailure()) return;
        ASSERT_NO_FATAL_FAILURE(finish());
      }
  }
  void close() {
    client_end_->close(rpcrdma::CloseReason::LocalClose);
    server_end_->close(rpcrdma::CloseReason::LocalClose);
    until([&] {
      return client_end_->state() == rpcrdma::Connection::State::Closed &&
             server_end_->state() == rpcrdma::Connection::State::Closed;
    });
  }
  static std::unique_ptr<rpcrdma::Engine> engine_on(Device& device) {
    rpcrdma::EngineConfig config;
    config.max_connections = 2;
    config.capacity.requests = 32;
    return std::make_unique<rpcrdma::Engine>(device, config);
  }
  void connect_ends() {
    client_end_ = open(*client_engine_, *client_, requester_.get());
    server_end_ = open(*server_engine_, *server_, nullptr);
    connect(client_end_->queue_pair(), server_end_->queue_pair());
    const auto ready = [](rpcrdma::Connection& end) {
      return end.queue_pair().state() == QueuePair::State::ReadyToSend;
    };
    until([&] { return ready(*client_end_) && ready(*server_end_); });
    client_end_->established();
    server_end_->established();
  }
  rpcrdma::Connection* open(rpcrdma::Engine& engine, Device& device, rpcrdma::Requester* requester) const {
    rpcrdma::ConnectionConfig config;
    config.active = requester != nullptr;
    config.credit_grant = config.active ? 0 : 32;
    config.credits_requested = config.active ? 32 : 0;
    config.send_inline_bytes = config.receive_inline_bytes;
    config.max_version = version_;
    QueuePairLimits limits = engine.queue_pair_limits();
    if (requester != nullptr) limits.domain = requester->domain();
    rpcrdma::Connection* const connection = engine.free_connection();
    connection->open(device.create_queue_pair(limits), config, PeerAddress::from_ipv4(192, 0, 2, 9),
                     requester);
    return connection;
  }
  template <typename Condition>
  void until(const Condition& condition) {
    const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (!condition() && std::chrono::steady_clock::now() < give_up) turn();
    ASSERT_TRUE(condition());
  }
  void turn() {
    now_ns_ += 20'000;
    client_engine_->poll(now_ns_);
    server_engine_->poll(now_ns_);
    client_->handle_events();
    server_->handle_events();
  }
  /// Submits a call whose result, of `bytes`, belongs to the job's own place.
  rpcrdma::SubmittedXid source(Job& job, std::uint32_t number, std::uint32_t bytes) {
    job = {.bytes = bytes, .at = number * kPlaceBytes};
    std::fill_n(memory_.bytes.begin() + job.at, kPlaceBytes, kUntouched);
    const rdma::Sge piece{memory_.bytes.data() + job.at, bytes, memory_.lkey};
    const rpcrdma::WriteItem item{.pieces = {&piece, 1}};
    return requester_->submit({.payload = sluice::conformance::test_call(0, TestService::kSource, {bytes}),
                               .writes = {&item, 1},
                               .max_reply_bytes = 64,
                               .completion = &completed,
                               .context = &job});
  }
  void expect_placed(const Job& job) {
    EXPECT_EQ(job.ended, 1u);
    EXPECT_EQ(job.status, rpcrdma::CallStatus::Ok);
    EXPECT_TRUE(job.placed);
    EXPECT_TRUE(sluice::conformance::has_pattern(memory_.bytes.subspan(job.at, job.bytes), 1)) << job.bytes;
    EXPECT_EQ(memory_.bytes[job.at + job.bytes], kUntouched) << job.bytes;
  }
  /// Returns the number of regions that begin in the callers' memory.
  std::size_t regions_of_memory() {
    std::size_t sum = 0;
    for (std::uint32_t i = 0; i < kCalls; ++i)
      sum += stub_.regions_at(memory_.bytes.data() + std::size_t{i} * kPlaceBytes);
    return sum;
  }

  std::uint32_t version_ = 1;
  std::unique_ptr<rpcrdma::Engine> client_engine_;
  std::unique_ptr<rpcrdma::Engine> server_engine_;
  std::unique_ptr<TestService> service_;
  std::unique_ptr<rpcrdma::Requester> requester_;
  rpcrdma::Connection* client_end_ = nullptr;
  rpcrdma::Connection* server_end_ = nullptr;
  MemoryRegion memory_;
  std::size_t registered_ = 0;  ///< regions_of_memory() without calls
  std::uint64_t now_ns_ = 1;
};

INSTANTIATE_TEST_SUITE_P(, RegionCalls, testing::ValuesIn(window_less_providers()), name_of_provider);

TEST_P(RegionCalls, V1_141_V2_071_every_call_ends_once_with_its_data_in_its_place_alone) {
  in_each_form([&] {
    std::vector<Job> jobs(kCalls);
    std::uint32_t submitted = 0;
    const auto ended = [&] {
      return static_cast<std::uint32_t>(
          std::count_if(jobs.begin(), jobs.end(), [](const Job& job) { return job.ended > 0; }));
    };
    until([&] {
      while (submitted < kCalls &&
             source(jobs[submitted], submitted, 1000 + 977 * (submitted % 12) * (1 + submitted % 4)))
        ++submitted;
      return ended() == kCalls;
    });
    for (const Job& job : jobs) expect_placed(job);
    EXPECT_EQ(regions_of_memory(), registered_);
    EXPECT_GT(client_->statistics().call_regions_registered, 0u);
  });
}

TEST_P(RegionCalls, V1_140_arguments_are_read_from_regions_and_from_the_pool) {
  in_each_form([&] {
    for (const std::uint32_t bytes : {5000u, kPoolBytes, kPoolBytes + 4, 60'000u}) {
      Job job{.bytes = bytes};
      sluice::conformance::fill_pattern(memory_.bytes.first(bytes), 7);
      const rdma::Sge piece{memory_.bytes.data(), bytes, memory_.lkey};
      const rpcrdma::ReadItem item{rpcrdma::Position{44}, {&piece, 1}};
      ASSERT_TRUE(
          requester_->submit({.payload = sluice::conformance::test_call(0, TestService::kSink, {bytes}),
                              .reads = {&item, 1},
                              .max_reply_bytes = 64,
                              .completion = &completed,
                              .context = &job}));
      until([&] { return job.ended == 1; });
      EXPECT_EQ(job.status, rpcrdma::CallStatus::Ok);
      ASSERT_EQ(service_->last_data.size(), bytes);
      EXPECT_TRUE(std::equal(service_->last_data.begin(), service_->last_data.end(), memory_.bytes.begin()));
    }
  });
}

TEST_P(RegionCalls, the_pool_alone_is_readable_and_writable_and_is_cleared_after_each_call) {
  start(1, true);
  std::vector<Job> jobs(kCalls);
  for (std::uint32_t i = 0; i < kCalls; ++i) {
    ASSERT_TRUE(source(jobs[i], i, kPoolBytes - 4 * i));
    until([&] { return jobs[i].ended == 1; });
    expect_placed(jobs[i]);
  }
  const auto& all = stub_.registered();
  const auto pool = std::find_if(all.rbegin(), all.rend(),
                                 [](const auto& region) { return (region.access & kBoth) == kBoth; });
  ASSERT_NE(pool, all.rend());
  EXPECT_FALSE(pool->at >= memory_.bytes.data() && pool->at < memory_.bytes.data() + memory_.bytes.size());
  EXPECT_EQ(std::count(pool->at, pool->at + pool->bytes, std::byte{0}),
            static_cast<std::ptrdiff_t>(pool->bytes));
  // Only the first calls, which did not wait for the pool's key, had regions.
  EXPECT_LE(client_->statistics().call_regions_registered, 2u);
  finish();
}

TEST_P(RegionCalls, V1_120_a_long_reply_arrives_in_a_reply_chunk) {
  in_each_form([&] {
    for (const std::uint32_t bytes : {5000u, 60'000u}) {
      struct Long {
        std::uint32_t bytes;
        bool good = false;
        bool ended = false;
      } reply{bytes};
      ASSERT_TRUE(requester_->submit(
          {.payload = sluice::conformance::test_call(0, TestService::kList, {bytes}),
           .max_reply_bytes = 64 + bytes,
           .offer_reply_chunk = true,
           .completion =
               [](void* context, const rpcrdma::Reply& got) noexcept {
                 Long& of = *static_cast<Long*>(context);
                 of.ended = true;
                 const auto message = got.message();
                 of.good = got.status() == rpcrdma::CallStatus::Ok && message.size() >= 28 + of.bytes &&
                           sluice::conformance::has_pattern(message.subspan(28, of.bytes), 1);
               },
           .context = &reply}));
      until([&] { return reply.ended; });
      EXPECT_TRUE(reply.good) << bytes;
    }
  });
}

TEST_P(RegionCalls, V1_142_a_call_cancelled_while_its_memory_is_registered_returns_it_deregistered) {
  in_each_form([&] {
    Job first;
    ASSERT_TRUE(source(first, 0, 4000));
    until([&] { return first.ended == 1; });
    stub_.hold_registrations(true);
    Job job;
    const rpcrdma::SubmittedXid xid = source(job, 1, 50'000);
    ASSERT_TRUE(xid);
    for (int i = 0; i < 10; ++i) turn();
    EXPECT_TRUE(requester_->cancel(*xid));
    for (int i = 0; i < 10; ++i) turn();
    EXPECT_EQ(job.ended, 0u);
    stub_.hold_registrations(false);
    until([&] { return job.ended == 1; });
    EXPECT_EQ(job.status, rpcrdma::CallStatus::Cancelled);
    EXPECT_EQ(regions_of_memory(), registered_);
    EXPECT_EQ(memory_.bytes[job.at], kUntouched);
  });
}

TEST_P(RegionCalls, V1_152_calls_are_sent_again_on_the_next_connection_with_new_regions) {
  in_each_form([&] {
    std::vector<Job> jobs(20);
    for (std::uint32_t i = 0; i < 20; ++i) ASSERT_TRUE(source(jobs[i], i, 2000 + 3000 * i));
    for (int i = 0; i < 3; ++i) turn();
    close();
    EXPECT_EQ(regions_of_memory(), registered_);
    connect_ends();
    until(
        [&] { return std::all_of(jobs.begin(), jobs.end(), [](const Job& job) { return job.ended == 1; }); });
    for (const Job& job : jobs) expect_placed(job);
  });
}

TEST_P(RegionCalls, a_refused_registration_ends_the_connection_and_its_calls_wait_for_the_next) {
  in_each_form([&] {
    Job first;
    ASSERT_TRUE(source(first, 0, 4000));
    until([&] { return first.ended == 1; });
    stub_.refuse_memory(12);
    std::vector<Job> jobs(5);
    for (std::uint32_t i = 0; i < 5; ++i) ASSERT_TRUE(source(jobs[i], i + 1, 50'000));
    until([&] { return client_end_->state() == rpcrdma::Connection::State::Closed; });
    EXPECT_EQ(client_end_->close_reason(), rpcrdma::CloseReason::InvalidationError);
    stub_.refuse_memory(0);
    close();
    connect_ends();
    until(
        [&] { return std::all_of(jobs.begin(), jobs.end(), [](const Job& job) { return job.ended == 1; }); });
    for (const Job& job : jobs) expect_placed(job);
  });
}

}  // namespace
}  // namespace sluice::rdma::conformance
