// SPDX-License-Identifier: Apache-2.0
//
// RPC-over-RDMA, both versions, over softroce on wires that drop, duplicate, reorder, delay and corrupt
// frames.
#include <gtest/gtest.h>

#include <chrono>
#include <map>

#include "dataplane/rpcrdma/engine.h"
#include "dataplane/rpcrdma/requester/requester.h"
#include "dataplane/segment/config_block.h"
#include "tests/conformance/lab.h"
#include "tests/conformance/raw_call.h"
#include "tests/driver/softroce_pair.h"

namespace sluice::rdma::conformance {
namespace {

using sluice::conformance::Bytes;
using sluice::conformance::TestService;

struct Case {
  const char* name;
  std::uint32_t version;
  std::uint32_t per_mille;
  std::uint8_t read_depth = 16;  ///< RDMA Reads that the server may have outstanding
};

class Faulty : public testing::TestWithParam<Case> {
 protected:
  struct End {
    Device* device = nullptr;
    std::unique_ptr<rpcrdma::Engine> engine;
    rpcrdma::Connection* connection = nullptr;
  };

  void SetUp() override {
    options_.faults = {.per_mille = GetParam().per_mille, .seed = 7};
    pair_ = std::make_unique<SoftRocePair>(options_);
    ends_[0].device = &pair_->left();
    ends_[1].device = &pair_->right();
    for (End& end : ends_) {
      rpcrdma::EngineConfig engine;
      engine.max_connections = max_connections_;
      engine.capacity.requests = 32;
      end.engine = std::make_unique<rpcrdma::Engine>(*end.device, engine);
    }
    service_ = std::make_unique<TestService>(*ends_[1].device);
    ends_[1].engine->add_service(*service_);
    requester_ = std::make_unique<rpcrdma::Requester>(ends_[0].engine->requester_context(), *ends_[0].device,
                                                      rpcrdma::RequesterConfig{.requests = 32});
    memory_ = ends_[0].device->allocate_memory(2u << 20);
    connect();
  }
  void TearDown() override {
    for (End& end : ends_) end.connection->close(rpcrdma::CloseReason::LocalClose);
    for (int i = 0; i < 2000; ++i) turn();
  }

  void connect() {
    for (int side = 0; side < 2; ++side) {
      End& end = ends_[side];
      end.connection = end.engine->free_connection();
      rpcrdma::ConnectionConfig config;
      config.active = side == 0;
      config.credit_grant = side == 0 ? 0 : 32;
      config.credits_requested = side == 0 ? 32 : 0;
      config.send_inline_bytes = config.receive_inline_bytes;
      config.max_version = GetParam().version;
      config.probe_after_ns = probe_after_ns_;
      end.connection->open(end.device->create_queue_pair(end.engine->queue_pair_limits()), config,
                           PeerAddress::from_ipv4(192, 0, 2, 9), side == 0 ? requester_.get() : nullptr);
    }
    for (int side = 0; side < 2; ++side) {
      RcAttributes attributes;
      attributes.local = ends_[side].device->addresses()[0];
      attributes.remote = ends_[1 - side].device->addresses()[0];
      attributes.remote_link = side == 0 ? pair_->link_of_right() : pair_->link_of_left();
      attributes.remote_qp = ends_[1 - side].connection->queue_pair().number();
      attributes.send_psn = side == 0 ? 100 : 200;
      attributes.receive_psn = side == 0 ? 200 : 100;
      attributes.path_mtu = 1024;
      attributes.ack_timeout = ack_timeout_;
      (side == 0 ? attributes.responder_resources : attributes.initiator_depth) = GetParam().read_depth;
      ASSERT_TRUE(ends_[side].connection->queue_pair().connect(attributes));
    }
    for (End& end : ends_) end.connection->established();
  }

  void turn() {
    pair_->carry();
    now_ns_ += 20'000;
    for (End& end : ends_) end.engine->poll(now_ns_);
  }

  SoftRocePair::Options options_;
  std::uint32_t max_connections_ = 2;
  std::uint8_t ack_timeout_ = 10;  // 4 ms
  std::unique_ptr<SoftRocePair> pair_;
  End ends_[2];
  std::unique_ptr<TestService> service_;
  std::unique_ptr<rpcrdma::Requester> requester_;
  MemoryRegion memory_;
  std::uint64_t now_ns_ = 1;
  std::uint64_t probe_after_ns_ = 0;
};

struct Job {
  std::uint32_t tag = 0;
  std::uint32_t bytes = 0;
  std::uint32_t at = 0;
  std::map<std::uint32_t, int>* ended = nullptr;
  bool good = false;
  const MemoryRegion* memory = nullptr;
};

void completed(void* context, const rpcrdma::Reply& reply) noexcept {
  Job& job = *static_cast<Job*>(context);
  ++(*job.ended)[job.tag];
  if (reply.status() != rpcrdma::CallStatus::Ok) return;
  const auto message = reply.message();
  switch (job.tag % 4) {
    case 0:  // NULL
      job.good = message.size() == 24;
      break;
    case 1:  // NAME, continued or by a long call: returns the length
      job.good = message.size() == 28 && xdr::load_u32(&message[24]) == job.bytes;
      break;
    case 2:  // LIST: the answer is long
      job.good = message.size() == 28 + xdr::padded(job.bytes) &&
                 sluice::conformance::has_pattern(message.subspan(28, job.bytes), 1);
      break;
    case 3:  // SOURCE, by a Write chunk
      job.good = reply.item(0, job.bytes).where == rpcrdma::ItemResult::Where::Placed &&
                 sluice::conformance::has_pattern(job.memory->bytes.subspan(job.at, job.bytes), 1);
      break;
  }
}

TEST_P(Faulty, V2_032_V2_084_every_call_ends_once_with_what_it_asked_for) {
  std::map<std::uint32_t, int> ended;
  std::vector<std::unique_ptr<Job>> jobs;
  constexpr std::uint32_t kCalls = 240;
  std::uint32_t submitted = 0;
  // Generous: it only limits how long a failing test runs.
  const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (ended.size() < kCalls && std::chrono::steady_clock::now() < give_up) {
    while (submitted < kCalls && requester_->free_requests() > 8) {
      const std::uint32_t tag = submitted;
      jobs.push_back(std::make_unique<Job>(Job{.tag = tag, .ended = &ended, .memory = &memory_}));
      Job& job = *jobs.back();
      rpcrdma::Request request{
          .payload = {}, .max_reply_bytes = 64, .completion = &completed, .context = &job};
      Bytes payload = sluice::conformance::test_call(0, TestService::kNull);
      rdma::Sge piece;
      rpcrdma::WriteItem item;
      job.bytes = 1000 + 977 * (tag % 12);
      if (tag % 4 == 1) {
        payload = sluice::conformance::test_call(0, TestService::kName, {job.bytes});
        payload.resize(44 + xdr::padded(job.bytes));
      } else if (tag % 4 == 2) {
        payload = sluice::conformance::test_call(0, TestService::kList, {job.bytes});
        request.max_reply_bytes = 64 + job.bytes;
      } else if (tag % 4 == 3) {
        job.bytes *= 4;
        job.at = tag % 32 * 65536;
        payload = sluice::conformance::test_call(0, TestService::kSource, {job.bytes});
        piece = {memory_.bytes.data() + job.at, job.bytes, memory_.lkey};
        item.pieces = {&piece, 1};
        request.writes = {&item, 1};
      }
      request.payload = payload;
      if (!requester_->submit(request)) {
        jobs.pop_back();
        break;
      }
      ++submitted;
    }
    turn();
    if (!ends_[0].connection->is_open() || !ends_[1].connection->is_open()) break;
  }
  for (const End& end : ends_)
    EXPECT_TRUE(end.connection->is_open())
        << "close reason " << static_cast<int>(end.connection->close_reason());
  ASSERT_EQ(ended.size(), kCalls);
  for (const auto& job : jobs) {
    EXPECT_EQ(ended[job->tag], 1);
    EXPECT_TRUE(job->good) << job->tag;
  }
  EXPECT_EQ(service_->executed.size(), kCalls);
  EXPECT_EQ(ends_[0].connection->version(), GetParam().version);
  if (GetParam().version == 2) {
    EXPECT_GT(ends_[0].engine->counters().parts_received, 10u);
    EXPECT_GT(ends_[1].engine->counters().remote_invalidations, 10u);
  }
  if (GetParam().per_mille > 0) {
    EXPECT_GT(pair_->wire().counts().dropped, 0u);
  }
}

/// The client's port refuses more RDMA Reads than were agreed, so one Read too many would end the connection.
class ReadDepth : public Faulty {};
TEST_P(ReadDepth, V1_057_V2_045_sixteen_calls_with_read_chunks_are_served) {
  constexpr std::uint32_t kCalls = 16;
  constexpr std::uint32_t kBytes = 12'000;
  std::map<std::uint32_t, int> ended;
  std::vector<Job> jobs(kCalls);
  sluice::conformance::fill_pattern(memory_.bytes, 7);
  // The first reply grants the credits.
  const Bytes null = sluice::conformance::test_call(0, TestService::kNull);
  Job first{.tag = 0, .ended = &ended, .memory = &memory_};
  ASSERT_TRUE(requester_->submit(
      {.payload = null, .max_reply_bytes = 64, .completion = &completed, .context = &first}));
  const auto run_until = [&](std::size_t count) {
    const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (ended.size() < count && ends_[0].connection->is_open() &&
           std::chrono::steady_clock::now() < give_up)
      turn();
  };
  run_until(1);
  for (std::uint32_t i = 0; i < kCalls; ++i) {
    jobs[i] = {.tag = 1 + 4 * i, .bytes = kBytes, .ended = &ended, .memory = &memory_};
    // The argument has four pieces that are not adjacent, so it takes four RDMA Reads.
    rdma::Sge pieces[4];
    for (std::uint32_t p = 0; p < 4; ++p)
      pieces[p] = {memory_.bytes.data() + 65536 * i + 4096 * p, kBytes / 4, memory_.lkey};
    const rpcrdma::ReadItem item{rpcrdma::Position{44}, pieces};
    ASSERT_TRUE(
        requester_->submit({.payload = sluice::conformance::test_call(0, TestService::kSink, {kBytes}),
                            .reads = {&item, 1},
                            .max_reply_bytes = 64,
                            .completion =
                                [](void* context, const rpcrdma::Reply& reply) noexcept {
                                  Job& job = *static_cast<Job*>(context);
                                  ++(*job.ended)[job.tag];
                                  job.good = reply.status() == rpcrdma::CallStatus::Ok &&
                                             xdr::load_u32(&reply.message()[24]) == job.bytes;
                                },
                            .context = &jobs[i]}));
  }
  run_until(1 + kCalls);
  EXPECT_TRUE(ends_[0].connection->is_open());
  EXPECT_TRUE(ends_[1].connection->is_open());
  for (const Job& job : jobs) EXPECT_TRUE(job.good) << job.tag;
  EXPECT_GE(ends_[1].engine->counters().rdma_reads, 4 * kCalls);
}

/// No work request is outstanding, so no retransmission detects the loss of the peer.
class LivenessTimer : public Faulty {
 protected:
  LivenessTimer() { probe_after_ns_ = 5'000'000; }
};
TEST_P(LivenessTimer, a_peer_that_acknowledges_is_kept) {
  for (int i = 0; i < 3000; ++i) turn();  // 60 ms
  EXPECT_TRUE(ends_[0].connection->is_open());
  EXPECT_TRUE(ends_[1].connection->is_open());
  EXPECT_GE(ends_[0].engine->counters().probes_sent, 2u);
  EXPECT_GE(ends_[1].engine->counters().probes_sent, 2u);
}

TEST_P(LivenessTimer, a_peer_that_is_gone_is_found_out) {
  const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (ends_[1].connection->is_open() && std::chrono::steady_clock::now() < give_up) {
    pair_->carry();
    ends_[1].engine->poll(now_ns_ += 20'000);
  }
  EXPECT_EQ(ends_[1].connection->close_reason(), rpcrdma::CloseReason::TransportError);
}
/// Uses a gateway's default settings, and checks the time to detection with them.
class LostPower : public Faulty {
 protected:
  LostPower() {
    probe_after_ns_ = segment::ConfigBlock{}.probe_after_s * kSecond;
    ack_timeout_ = 17;  // controlplane/cm: 0.5 s, and seven retries
    max_connections_ = 1;
    options_.max_queue_pairs = 1;
    options_.clock_ns = []() noexcept { return clock_ns_; };
  }
  void pass(std::uint64_t ns) {
    for (const std::uint64_t end = clock_ns_ + ns; clock_ns_ < end;) {
      now_ns_ = clock_ns_ += kSecond / 1000;
      for (int i = 0; i < 4; ++i) {
        pair_->carry();
        for (End& end_of : ends_) end_of.engine->poll(now_ns_);
      }
    }
  }
  static constexpr std::uint64_t kSecond = 1'000'000'000;
  static inline std::uint64_t clock_ns_ = kSecond;
};
TEST_P(LostPower, an_idle_client_is_missed_within_thirty_seconds_and_its_places_are_free) {
  pass(25 * kSecond);  // idle, but alive
  ASSERT_TRUE(ends_[1].connection->is_open());
  const std::uint64_t probes = ends_[1].engine->counters().probes_sent;
  EXPECT_GE(probes, 2u);
  EXPECT_LE(probes, 3u);
  pair_->wire().lose = [](bool, std::span<const std::byte>) { return true; };
  pass(9 * kSecond / 2);
  EXPECT_TRUE(ends_[1].connection->is_open());  // a link may be down for some seconds
  std::uint64_t gone_ns = clock_ns_;
  while (ends_[1].connection->is_open() && clock_ns_ - gone_ns < 30 * kSecond) pass(kSecond / 10);
  pass(kSecond / 100);
  EXPECT_EQ(ends_[1].connection->close_reason(), rpcrdma::CloseReason::TransportError);
  EXPECT_LT(clock_ns_ - gone_ns + 9 * kSecond / 2, 30 * kSecond);
  EXPECT_EQ(ends_[1].engine->take_closed(), ends_[1].connection);
  EXPECT_NE(ends_[1].device->create_queue_pair(ends_[1].engine->queue_pair_limits()), nullptr);
  EXPECT_EQ(ends_[1].engine->free_connection(), ends_[1].connection);
}
INSTANTIATE_TEST_SUITE_P(Versions, LostPower, testing::Values(Case{"v1", 1, 0}, Case{"v2", 2, 0}),
                         [](const auto& chosen) { return std::string(chosen.param.name); });

INSTANTIATE_TEST_SUITE_P(Versions, LivenessTimer, testing::Values(Case{"v1", 1, 0}, Case{"v2", 2, 0}),
                         [](const auto& chosen) { return std::string(chosen.param.name); });

INSTANTIATE_TEST_SUITE_P(Depths, ReadDepth,
                         testing::Values(Case{"v1_one", 1, 0, 1}, Case{"v1_one_on_a_bad_link", 1, 20, 1},
                                         Case{"v1_three", 1, 0, 3}, Case{"v2_one", 2, 0, 1}),
                         [](const auto& chosen) { return std::string(chosen.param.name); });

INSTANTIATE_TEST_SUITE_P(Wires, Faulty,
                         testing::Values(Case{"v1_clean", 1, 0}, Case{"v1_1_percent", 1, 10},
                                         Case{"v1_5_percent", 1, 50}, Case{"v2_clean", 2, 0},
                                         Case{"v2_1_percent", 2, 10}, Case{"v2_5_percent", 2, 50}),
                         [](const auto& chosen) { return std::string(chosen.param.name); });

}  // namespace
}  // namespace sluice::rdma::conformance
