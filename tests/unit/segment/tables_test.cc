// SPDX-License-Identifier: Apache-2.0
//
// Tables of the segment: histograms, traces and small queries of the configuration, at the limits of their
// ranges.
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <thread>

#include "dataplane/segment/calls.h"
#include "dataplane/segment/config_block.h"

namespace sluice::segment {
namespace {

TEST(Histogram, no_value_and_the_largest) {
  auto histogram = std::make_unique<Histogram>();
  EXPECT_EQ(histogram->percentile(0.5), 0u);
  EXPECT_EQ(histogram->count(), 0u);
  histogram->record(7);
  histogram->record(20);
  EXPECT_EQ(histogram->count(), 2u);
  EXPECT_EQ(histogram->sum(), 27u);
  EXPECT_EQ(histogram->percentile(0.0), 7u);
  EXPECT_EQ(histogram->percentile(0.5), 20u);
  EXPECT_EQ(histogram->percentile(1.0), 20u);
}

TEST(Histogram, what_is_longer_than_its_range_counts_in_the_last_bucket) {
  constexpr std::uint64_t kRange = std::uint64_t{1} << Histogram::kMaxBits;
  constexpr std::uint32_t kLast = Histogram::kBuckets - 1;
  EXPECT_EQ(Histogram::upper_bound(kLast), kRange - 1);
  EXPECT_EQ(Histogram::bucket_of(kRange - 1), kLast);
  EXPECT_EQ(Histogram::bucket_of(kRange), kLast);
  EXPECT_EQ(Histogram::bucket_of(~std::uint64_t{0}), kLast);
  // The previous bucket ends where a 32nd of the last power of two begins.
  EXPECT_EQ(Histogram::upper_bound(kLast - 1), kRange - kRange / 64 - 1);
  EXPECT_EQ(Histogram::bucket_of(kRange - kRange / 64 - 1), kLast - 1);
  auto histogram = std::make_unique<Histogram>();
  histogram->record(~std::uint64_t{0});
  EXPECT_EQ(histogram->in_bucket(kLast), 1u);
  EXPECT_EQ(histogram->percentile(1.0), kRange - 1);
}

TEST(Histogram, buckets_are_exact_below_64_and_halve_their_precision_with_each_power_of_two) {
  for (std::uint32_t value = 0; value < 64; ++value) {
    EXPECT_EQ(Histogram::bucket_of(value), value);
    EXPECT_EQ(Histogram::upper_bound(value), value);
  }
  EXPECT_EQ(Histogram::bucket_of(64), 64u);
  EXPECT_EQ(Histogram::bucket_of(65), 64u);
  EXPECT_EQ(Histogram::upper_bound(64), 65u);
  EXPECT_EQ(Histogram::upper_bound(95), 127u);
  EXPECT_EQ(Histogram::upper_bound(96), 131u);
}

TEST(Histogram, merging_adds_every_bucket_and_the_sum) {
  auto a = std::make_unique<Histogram>();
  auto b = std::make_unique<Histogram>();
  a->record(5);
  b->record(5);
  b->record(0);
  b->record(~std::uint64_t{0} >> 8);
  a->merge(*b);
  EXPECT_EQ(a->count(), 4u);
  EXPECT_EQ(a->in_bucket(5), 2u);
  EXPECT_EQ(a->in_bucket(0), 1u);
  EXPECT_EQ(a->in_bucket(Histogram::kBuckets - 1), 1u);
  EXPECT_EQ(a->sum(), 10u + (~std::uint64_t{0} >> 8));
}

TEST(Trace, a_ring_keeps_the_newest_records_in_their_places) {
  auto ring = std::make_unique<TraceRing>();
  for (std::uint32_t xid = 0; xid < TraceRing::kRecords + 2; ++xid) {
    TraceRecord record;
    record.xid = xid;
    EXPECT_EQ(ring->written, xid);
    ring->add(record);
  }
  EXPECT_EQ(ring->written, TraceRing::kRecords + 2);
  EXPECT_EQ(ring->records[0].read()->xid, TraceRing::kRecords);
  EXPECT_EQ(ring->records[1].read()->xid, TraceRing::kRecords + 1);
  EXPECT_EQ(ring->records[2].read()->xid, 2u);
}

TEST(SlowCalls, a_reader_knows_by_its_number_that_a_record_was_overwritten) {
  auto ring = std::make_unique<SlowCallRing>();
  for (std::uint64_t i = 0; i < SlowCallRing::kRecords + 1; ++i)
    ring->add({.number = ring->written.load(), .ended_ns = 1000 + i, .peer = {}, .call = {}});
  EXPECT_EQ(ring->records[0].read()->number, SlowCallRing::kRecords);
  EXPECT_EQ(ring->records[0].read()->ended_ns, 1000u + SlowCallRing::kRecords);
  EXPECT_EQ(ring->records[1].read()->number, 1u);
}

/// A reader that runs concurrently with the writer gets a whole record or none.
TEST(SlowCalls, a_reader_beside_the_writer_never_sees_half_a_record) {
  auto ring = std::make_unique<SlowCallRing>();
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    for (std::uint64_t i = 0; !stop; ++i) {
      SlowCall slow{.number = i, .ended_ns = i, .upstream_ns = i, .peer = {}, .call = {}};
      slow.call.state_ns.fill(i);
      ring->add(slow);
    }
  });
  while (ring->written.load() < 2 * SlowCallRing::kRecords) std::this_thread::yield();
  std::size_t whole = 0;
  for (std::size_t i = 0; whole < 10'000; ++i) {
    const auto slow = ring->records[i % SlowCallRing::kRecords].read();
    if (!slow) continue;
    ++whole;
    EXPECT_EQ(slow->ended_ns, slow->number);
    EXPECT_EQ(slow->upstream_ns, slow->number);
    for (const std::uint64_t ns : slow->call.state_ns) EXPECT_EQ(ns, slow->number);
  }
  stop = true;
  writer.join();
}

TEST(CallTable, calls_are_counted_by_what_became_of_them) {
  auto use = std::make_unique<ProcedureUse>();
  use->count(CallStatus::success);
  use->count(CallStatus::rdma_error);
  use->count(CallStatus::rdma_error);
  EXPECT_EQ(use->calls[static_cast<std::size_t>(CallStatus::success)], 1u);
  EXPECT_EQ(use->calls[static_cast<std::size_t>(CallStatus::rdma_error)], 2u);
  EXPECT_EQ(use->calls[static_cast<std::size_t>(CallStatus::garbage_args)], 0u);
}

TEST(ConfigBlock, connections_are_those_of_clients_and_of_the_reverse_gateway_when_there_is_one) {
  ConfigBlock config;
  config.max_connections = 10;
  config.reverse.connections = 3;
  EXPECT_EQ(config.all_connections(), 10u);
  config.reverse.in_use = 1;
  EXPECT_EQ(config.all_connections(), 13u);
}

TEST(ConfigBlock, reactors_share_the_ports_in_turn) {
  ConfigBlock config;
  EXPECT_EQ(config.verbs_port(0), nullptr);
  config.verbs_port_count = 1;
  EXPECT_EQ(config.verbs_port(3), &config.verbs_ports[0]);
  config.verbs_port_count = 2;
  EXPECT_EQ(config.verbs_port(0), &config.verbs_ports[0]);
  EXPECT_EQ(config.verbs_port(1), &config.verbs_ports[1]);
  EXPECT_EQ(config.verbs_port(2), &config.verbs_ports[0]);
}

}  // namespace
}  // namespace sluice::segment
