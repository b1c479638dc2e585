// SPDX-License-Identifier: Apache-2.0
#include "dataplane/process/memory_table.h"

#include <gtest/gtest.h>

#include <set>
#include <string_view>

#include "dataplane/base/cache_line.h"
#include "dataplane/gateway/rdma_server/server_connection.h"
#include "dataplane/rpcrdma/engine.h"
#include "dataplane/segment/segment.h"
#include "dataplane/service/cross_reactor_call.h"
#include "dataplane/tcp/record_stream.h"

namespace sluice::process {
namespace {

std::uint64_t reserved(const segment::ConfigBlock& config, std::string_view what) {
  for (const segment::MemoryInfo& line : memory_table(config))
    if (std::string_view(line.what).starts_with(what)) return line.reserved_bytes;
  ADD_FAILURE() << "no line " << what;
  return 0;
}

TEST(MemoryTable, what_each_connection_has_is_summed_over_all_reactors) {
  segment::ConfigBlock config;
  config.reactors = 2;
  config.max_connections = 3;
  config.credits = 5;
  config.inline_bytes = 4096;
  config.reply_buffer_bytes = 8192;
  config.shared_receives = 7;
  EXPECT_EQ(reserved(config, "Receive buffers"),
            2u * 3 * (5 + rpcrdma::kSpareReceives) * buffer_stride(4096));
  EXPECT_EQ(reserved(config, "reply buffers of call slots"), 2u * 3 * 5 * buffer_stride(8192));
  EXPECT_EQ(reserved(config, "Receives that connections share"), 2u * 7 * 4096);
  EXPECT_EQ(reserved(config, "shared segment"), sizeof(segment::ControlPart) + sizeof(segment::DataPart));
}

TEST(MemoryTable, reactors_without_the_files_need_memory_for_them) {
  segment::ConfigBlock config;
  config.memory_bytes = 64u << 20;
  config.max_files = 1000;
  const char* const line = "what reactors read of the files";
  config.reactors = 1;
  EXPECT_EQ(reserved(config, line), 0u);
  config.reactors = 3;
  const std::uint64_t calls = service::kMaxRemoteCalls * sizeof(service::RemoteCall);
  EXPECT_EQ(reserved(config, line), 1000u * 128 + 2 * (calls + (64u << 20) / 4096 * 4));
  config.upstream_count = 1;
  config.upstreams[0].route_count = 1;
  config.upstreams[0].routes[0] = {100003, 3};
  EXPECT_EQ(reserved(config, line), 0u) << "the files are an upstream's";
}

TEST(MemoryTable, receives_for_replies_and_the_fewest_call_slots_count_too) {
  segment::ConfigBlock config;
  config.reactors = 2;
  config.max_connections = 3;
  config.credits = 1;
  config.inline_bytes = 4096;
  const std::uint64_t slots = rpcrdma::kLeastSlots;
  EXPECT_GT(slots, 1u);
  EXPECT_EQ(reserved(config, "call slots"),
            2u * 3 * slots * (sizeof(rpcrdma::CallSlot) + sizeof(service::CallStorage)));
  EXPECT_EQ(reserved(config, "Receive buffers"),
            2u * 3 * (slots + rpcrdma::kSpareReceives) * buffer_stride(4096));
  config.upstream_count = 1;
  EXPECT_EQ(reserved(config, "Receive buffers"),
            2u * 3 * (slots + rpcrdma::kCallBacksAtOnce + rpcrdma::kSpareReceives) * buffer_stride(4096));
  config.reverse.in_use = 1;
  config.reverse.connections = 2;
  config.reverse.calls = 100;
  EXPECT_EQ(reserved(config, "Receive buffers"),
            2u * (3 + 2) * (slots + 100 + rpcrdma::kSpareReceives) * buffer_stride(4096));
}

TEST(MemoryTable, file_data_and_gateways_count_where_they_are_in_use) {
  segment::ConfigBlock config;
  config.memory_bytes = 5ull << 30;
  EXPECT_EQ(reserved(config, "file data"), 5ull << 30);
  EXPECT_EQ(reserved(config, "replies of upstreams"), 0u);
  EXPECT_EQ(reserved(config, "calls and replies of the reverse gateway"), 0u);
  config.upstream_count = 1;
  EXPECT_GE(reserved(config, "replies of upstreams"),
            std::uint64_t{config.record_buffers} * tcp::kMaxRecordBytes);
  EXPECT_EQ(reserved(config, "calls kept"), std::uint64_t{config.request_cache} * 2048);
  EXPECT_EQ(reserved(config, "large reply buffers"),
            std::uint64_t{config.large_reply_buffers} * tcp::kMaxRecordBytes);
  config.max_io_mib = 4;
  EXPECT_GE(reserved(config, "replies of upstreams"),
            std::uint64_t{config.record_buffers} * tcp::record_bytes(4u << 20));
  config.upstreams[0].transport = segment::Transport::Rdma;
  config.upstreams[0].connections = 8;
  EXPECT_GE(reserved(config, "calls and replies of RDMA upstreams"),
            (config.record_buffers + 8ull * rdma_server::kLongBuffers) * tcp::record_bytes(4u << 20));
  config.upstreams[0].transport = segment::Transport::Tcp;
  config.max_io_mib = 1;
  const std::uint64_t of_one = reserved(config, "replies of upstreams");
  config.upstreams_max = 3;
  EXPECT_EQ(reserved(config, "replies of upstreams"), 3 * of_one);
  EXPECT_EQ(reserved(config, "calls kept"), 3 * std::uint64_t{config.request_cache} * 2048);
  config.reverse.in_use = 1;
  EXPECT_GE(reserved(config, "calls and replies of the reverse gateway"),
            std::uint64_t{config.reverse.record_buffers} * tcp::kMaxRecordBytes);
  config.max_io_mib = 4;
  EXPECT_GE(reserved(config, "calls and replies of the reverse gateway"),
            (config.reverse.record_buffers +
             std::uint64_t{config.reverse.connections} * rdma_server::kLongBuffers) *
                tcp::record_bytes(4u << 20));
  EXPECT_LT(reserved(config, "file data"), 5ull << 30);
}

TEST(MemoryTable, slots_over_rdma_count_as_such) {
  segment::ConfigBlock config;
  config.upstream_count = 1;
  config.upstreams[0].transport = segment::Transport::Rdma;
  const std::uint64_t of_one = reserved(config, "calls and replies of RDMA upstreams");
  EXPECT_GT(of_one, std::uint64_t{config.record_buffers} * tcp::kMaxRecordBytes);
  EXPECT_EQ(reserved(config, "replies of upstreams"), 0u) << "no upstream over TCP can come";
  EXPECT_EQ(reserved(config, "calls kept"), 0u);
  config.upstreams_max = 3;
  config.rdma_upstreams_max = 2;
  EXPECT_EQ(reserved(config, "calls and replies of RDMA upstreams"), 2 * of_one);
  EXPECT_EQ(reserved(config, "calls kept"), 3 * std::uint64_t{config.request_cache} * 2048);
}

TEST(MemoryTable, long_calls_are_joined_from_chunks_and_from_parts) {
  segment::ConfigBlock config;
  config.reactors = 2;
  config.call_buffers = 5;
  const rpcrdma::EngineConfig engine;
  EXPECT_EQ(reserved(config, "long-call buffers"),
            std::uint64_t{2} * (5 + engine.assembly_buffers) * engine.call_buffer_bytes);
}

TEST(MemoryTable, short_ones_have_a_buffer_for_each_connection_and_some_to_lend) {
  segment::ConfigBlock config;
  config.max_connections = 10;
  const std::uint64_t ten = reserved(config, "buffers for short ones of both");
  config.max_connections = 11;
  EXPECT_EQ(reserved(config, "buffers for short ones of both") - ten, 4u * 16384);
  EXPECT_GT(ten, 10u * 4 * 16384);
}

TEST(MemoryTable, short_calls_that_wait_for_an_upstream_have_as_many_as_it_has_short_replies) {
  segment::ConfigBlock config;
  const std::uint64_t without = reserved(config, "buffers for short ones of both");
  config.upstream_count = 1;
  config.item_buffers = 1;
  EXPECT_EQ(reserved(config, "buffers for short ones of both"), without) << "never fewer than otherwise";
  config.item_buffers = rpcrdma::kLentSmall + 100;
  EXPECT_EQ(reserved(config, "buffers for short ones of both") - without, 100u * 16384);
}

TEST(MemoryTable, the_driver_has_its_own_line) {
  segment::ConfigBlock config;
  config.dpdk_memory_mib = 10;
  EXPECT_GT(reserved(config, "loopback wires"), 0u);
  config.driver = segment::Driver::SoftRoce;
  EXPECT_EQ(reserved(config, "packet buffers (DPDK)"), 10u << 20);
  config.driver = segment::Driver::Verbs;
  EXPECT_EQ(reserved(config, "DPDK's own"), 10u << 20);
}

TEST(MemoryTable, names_are_whole_and_different) {
  std::set<std::string_view> names;
  const segment::MemoryTable table = memory_table({});
  for (const segment::MemoryInfo& line : table) {
    const std::string_view what(line.what);
    if (what.empty()) continue;
    EXPECT_LT(what.size(), sizeof line.what - 1) << what;
    EXPECT_TRUE(names.insert(what).second) << what;
  }
  EXPECT_EQ(names.size(), 16u);
}

}  // namespace
}  // namespace sluice::process
