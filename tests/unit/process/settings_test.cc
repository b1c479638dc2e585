// SPDX-License-Identifier: Apache-2.0
#include "dataplane/process/settings.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <memory>
#include <string>

#include "dataplane/base/setup_error.h"
#include "dataplane/gateway/rdma_upstream/relay.h"
#include "dataplane/gateway/tcp_clients/reverse_gateway.h"
#include "dataplane/gateway/tcp_upstream/upstreams.h"
#include "dataplane/process/devices.h"
#include "dataplane/reactor/config.h"
#include "dataplane/rpcrdma/engine.h"
#include "dataplane/service/memory/memory_service.h"
#include "dataplane/tcp/record_stream.h"
#include "pmd/loopback/fabric.h"
#include "pmd/loopback/loopback.h"
#include "pmd/softroce/port_config.h"
#include "tests/unit/process/process_lab.h"

namespace sluice::process {
namespace {

const segment::SharedUpstreamAddresses kAddresses{};

segment::ConfigBlock with_route(std::uint32_t program, std::uint32_t version) {
  segment::ConfigBlock config;
  config.upstream_count = 1;
  config.upstreams[0].route_count = 1;
  config.upstreams[0].routes[0] = {program, version};
  return config;
}

TEST(Settings, exports_keep_their_numbers_and_those_behind_the_last_are_left_out) {
  segment::ConfigBlock config;
  segment::ExportConfig& from = config.exports[2];
  from.in_use = from.read_only = from.all_squash = 1;
  from.root_squash = 0;
  from.anonuid = 7;
  from.anongid = 8;
  from.quota_bytes = 4096;
  std::strcpy(from.path, "/data");
  from.allowed_count = 1;
  from.allowed[0] = {PeerAddress::from_ipv4(10, 0, 0, 0), 104};
  from.host_count = 2;
  from.hosts = {HostName("a"), HostName("b")};
  const auto exports = export_options(config);
  ASSERT_EQ(exports.size(), 3u);
  EXPECT_FALSE(exports[0].in_use);
  const service::memory::ExportOptions& to = exports[2];
  EXPECT_TRUE(to.in_use && to.read_only && to.all_squash && !to.root_squash);
  EXPECT_EQ(to.path, "/data");
  EXPECT_EQ(to.anonuid, 7u);
  EXPECT_EQ(to.anongid, 8u);
  EXPECT_EQ(to.quota_bytes, 4096u);
  ASSERT_EQ(to.allowed.size(), 1u);
  EXPECT_EQ(to.allowed[0].bits, 104u);
  EXPECT_EQ(to.hosts, (std::vector{HostName("a"), HostName("b")}));
  EXPECT_TRUE(export_options({}).empty());
}

TEST(Settings, lists_of_an_export_are_no_longer_than_there_is_room) {
  segment::ConfigBlock config;
  config.exports[0].in_use = 1;
  config.exports[0].allowed_count = config.exports[0].host_count = ~std::uint32_t{0};
  const auto exports = export_options(config);
  ASSERT_EQ(exports.size(), 1u);
  EXPECT_EQ(exports[0].allowed.size(), segment::kMaxAllowed);
  EXPECT_EQ(exports[0].hosts.size(), segment::kMaxExportHosts);
}

TEST(Settings, files_are_served_unless_nfs3_goes_elsewhere) {
  EXPECT_TRUE(serves_memory({}));
  EXPECT_TRUE(serves_memory(with_route(100003, 4)));
  EXPECT_TRUE(serves_memory(with_route(100004, 3)));
  EXPECT_FALSE(serves_memory(with_route(100003, 3)));
  segment::ConfigBlock reverse;
  reverse.reverse.in_use = 1;
  EXPECT_FALSE(serves_memory(reverse));
  segment::ConfigBlock changed = with_route(100003, 3);
  changed.started_slots = changed.slots();
  changed.upstreams[0].routes[0].version = 4;
  EXPECT_FALSE(serves_memory(changed))
      << "a reload has changed the programs, and another may bring NFS 3 back";
}

TEST(Settings, clients_of_the_reverse_gateway_come_over_tcp) {
  segment::ConfigBlock config = with_route(100003, 4);
  EXPECT_FALSE(config.listen_ports().empty());
  config.reverse.in_use = 1;
  EXPECT_TRUE(config.listen_ports().empty());
}

TEST(Settings, memory_is_reserved_for_exports_that_are_served) {
  segment::ConfigBlock config;
  config.memory_bytes = 3u << 30;
  EXPECT_EQ(export_bytes(config), 3u << 30);
  config.reverse.in_use = 1;
  EXPECT_EQ(export_bytes(config), 16u << 20);
}

TEST(Settings, an_engine_is_sized_as_configured) {
  segment::ConfigBlock config;
  config.max_connections = 5;
  config.credits = 17;
  config.inline_bytes = 2048;
  config.reply_buffer_bytes = 3072;
  config.call_buffers = 3;
  config.large_reply_buffers = 4;
  const rpcrdma::EngineConfig engine = engine_config(config);
  EXPECT_EQ(engine.max_connections, 5u);
  EXPECT_EQ(engine.capacity.call_slots, 17u);
  EXPECT_EQ(engine.capacity.receive_bytes, 2048u);
  EXPECT_EQ(engine.capacity.reply_buffer_bytes, 3072u);
  EXPECT_EQ(engine.call_buffers, 3u);
  EXPECT_EQ(engine.reply_buffers, 4u);
  EXPECT_EQ(engine.call_buffer_bytes, (1u << 20) + (64u << 10));
  EXPECT_EQ(engine.callers, 0u);
  EXPECT_EQ(engine.capacity.requests, 0u);
}

TEST(Settings, a_device_has_queue_pairs_for_as_many_connections_as_a_file_may_have) {
  segment::ConfigBlock config;
  config.max_connections = 32;
  EXPECT_GT(queue_pairs_of_device(config), 32u) << "those being drained beside their successors";
  config.max_connections = segment::kMaxConnections;
  EXPECT_EQ(queue_pairs_of_device(config), segment::kMaxConnections);
  EXPECT_LE(queue_pairs_of_device(config), rdma::softroce::kMaxQueuePairs);
}

TEST(Settings, long_calls_have_the_data_of_one_write) {
  segment::ConfigBlock config;
  EXPECT_EQ(memory_config(config).max_io_bytes, 1u << 20);
  config.max_io_mib = segment::kMaxIoMib;
  EXPECT_EQ(memory_config(config).max_io_bytes, service::memory::kMaxTransferBytes);
  EXPECT_EQ(engine_config(config).call_buffer_bytes, (4u << 20) + (64u << 10));
}

TEST(Settings, upstreams_need_long_replies_and_callers_for_their_calls_back) {
  segment::ConfigBlock config = with_route(100003, 4);
  config.max_connections = 5;
  config.callback_clients = 64;
  const rpcrdma::EngineConfig engine = engine_config(config);
  EXPECT_EQ(engine.reply_buffer_bytes, tcp::kMaxRecordBytes);
  config.max_io_mib = 4;
  EXPECT_EQ(engine_config(config).reply_buffer_bytes, tcp::record_bytes(4u << 20));
  EXPECT_EQ(engine.callers, 5u);
  EXPECT_EQ(engine.capacity.requests, rpcrdma::kCallBacksAtOnce);
}

/// Returns the error with which the start is refused; empty if it succeeds.
std::string refusal(const std::function<void()>& start) {
  try {
    start();
    return "";
  } catch (const SetupError& error) {
    return error.what();
  }
}

TEST(Settings, a_pool_too_small_for_any_call_refuses_start_and_names_its_holders) {
  const auto fabric = rdma::loopback::Fabric::in_process({.links = 1});
  const auto device = rdma::loopback::make_device(fabric, {.name = "pools"});
  const auto engine = [&](const auto& change) {
    segment::ConfigBlock config;
    config.max_connections = 1;
    change(config);
    return refusal([&] { rpcrdma::Engine(*device, engine_config(config)); });
  };
  EXPECT_EQ(engine([](auto&) {}), "");
  EXPECT_EQ(engine([](auto& config) { config.call_buffers = 0; }),
            "call_buffers is 0, less than the sum of 1 for a call that is assembled from Read chunks.");
  EXPECT_EQ(
      engine([](auto& config) { config.large_reply_buffers = 0; }),
      "large_reply_buffers is 0, less than the sum of 1 for results that do not fit the buffer of their "
      "call slot.");
  rpcrdma::EngineConfig without_assembly;
  without_assembly.max_connections = 1;
  without_assembly.assembly_buffers = 0;
  EXPECT_EQ(refusal([&] { rpcrdma::Engine(*device, without_assembly); }),
            "assembly_buffers is 0, less than the sum of 1 for a continued message that is being assembled.");

  const auto segment = segment::Segment::in_memory();
  segment::ReactorArea* const area = &segment->layout().reactors[0];
  segment::ConfigBlock config;
  config.upstream_count = 1;
  config.reverse.record_buffers = 1;
  EXPECT_EQ(refusal([&] { reverse_gateway_config(config); }),
            "[reverse] record_buffers is 1, less than the sum of 1 for a long call, 1 for its reply.");
  EXPECT_EQ(refusal([&] { upstreams_config(config, *area, kAddresses, request_caches(config)); }), "");
  config.record_buffers = 0;
  EXPECT_EQ(refusal([&] { upstreams_config(config, *area, kAddresses, request_caches(config)); }),
            "[forward] record_buffers is 0, less than the sum of 1 for a call with a long reply, until it "
            "is released.");
  config.record_buffers = 1;
  config.item_buffers = 0;
  EXPECT_EQ(refusal([&] { upstreams_config(config, *area, kAddresses, request_caches(config)); }),
            "[forward] item_buffers is 0, less than the sum of 1 for a call with a short reply, until it is "
            "released.");
}

TEST(Settings, the_reverse_gateway_adds_its_connections_and_calls) {
  segment::ConfigBlock config;
  config.max_connections = 5;
  config.reverse.in_use = 1;
  config.reverse.connections = 3;
  config.reverse.calls = 32;
  config.reverse.server = PeerAddress::from_ipv4(10, 0, 0, 9);
  config.reverse.server_port = 1234;
  config.credits = 2;
  const rpcrdma::EngineConfig engine = engine_config(config);
  EXPECT_EQ(engine.max_connections, 8u);
  EXPECT_EQ(engine.capacity.requests, 32u);
  config.reverse.withheld = {.pnfs = 0, .referrals = 1};
  const tcp_clients::ReverseGatewayConfig gateway = reverse_gateway_config(config);
  EXPECT_FALSE(gateway.server_side.withheld.pnfs);
  EXPECT_TRUE(gateway.server_side.withheld.referrals);
  EXPECT_EQ(gateway.server.address, config.reverse.server);
  EXPECT_EQ(gateway.server.port, 1234u);
  EXPECT_EQ(gateway.server.credits_requested, 32u);
  EXPECT_FALSE(gateway.privileged_clients);
  config.reverse.privileged_clients = 1;
  EXPECT_TRUE(reverse_gateway_config(config).privileged_clients);
  EXPECT_EQ(dial_config(config).call_backs, 2u);
}

TEST(Settings, an_upstream_has_its_settings) {
  segment::UpstreamConfig from = rdma_upstream("far", 3);
  from.port = 1234;
  from.listen_port = 20050;
  from.call_timeout_s = 7;
  from.privileged_port = 1;
  from.withheld = {.pnfs = 1, .referrals = 0};
  from.handle_tag = 5;
  from.route_count = 2;
  from.routes[0] = {100003, 3};
  from.routes[1] = {100227, 3};
  const gateway::UpstreamSettings settings = upstream_settings(from);
  EXPECT_EQ(settings.name, "far");
  EXPECT_EQ(settings.transport, segment::Transport::Rdma);
  EXPECT_EQ(settings.port, 1234u);
  EXPECT_EQ(settings.listen_port, 20050u);
  EXPECT_EQ(settings.connections, 3u);
  EXPECT_EQ(settings.call_timeout_ns, 7'000'000'000u);
  EXPECT_TRUE(settings.privileged_port);
  EXPECT_TRUE(settings.withheld.pnfs);
  EXPECT_FALSE(settings.withheld.referrals);
  EXPECT_EQ(settings.handle_tag, 5u);
  ASSERT_EQ(settings.programs().size(), 2u);
  EXPECT_EQ(settings.programs()[1].program, 100227u);
}

TEST(Settings, every_slot_has_the_same_over_tcp) {
  segment::ConfigBlock config;
  config.upstream_count = 1;
  config.upstreams_max = 3;
  config.max_calls = 32;
  const auto segment = segment::Segment::in_memory();
  segment::ReactorArea& area = segment->layout().reactors[0];
  const auto caches = request_caches(config);
  const auto upstreams = upstreams_config(config, area, kAddresses, caches).upstreams;
  ASSERT_EQ(upstreams.size(), 3u);
  for (std::uint32_t i = 0; i < 3; ++i) {
    EXPECT_EQ(upstreams[i].number, i);
    EXPECT_EQ(upstreams[i].area, &area.upstreams[i]);
    EXPECT_EQ(upstreams[i].config.name, "");
    EXPECT_EQ(upstreams[i].config.addresses, &kAddresses);
    EXPECT_EQ(upstreams[i].config.max_calls, 32u);
    EXPECT_EQ(upstreams[i].config.shared_room(), segment::kMaxUpstreamConnections);
    EXPECT_EQ(upstreams[i].config.cache, caches.at(i).get());
  }
  EXPECT_NE(caches[1].get(), caches[2].get());
}

TEST(Settings, slots_follow_from_the_upstreams_of_the_start_unless_configured) {
  segment::ConfigBlock config;
  config.credits = 20;
  EXPECT_EQ(config.slots().count, 0u);
  EXPECT_TRUE(request_caches(config).empty());
  config.upstream_count = 2;
  config.upstreams[0] = rdma_upstream("far", 3);
  config.upstreams[1] = rdma_upstream("farther", 5);
  EXPECT_EQ(config.slots().count, 2u);
  EXPECT_EQ(config.slots().over_rdma, 2u);
  EXPECT_EQ(config.slots().rdma_connections, 5u) << "slots are alike";
  EXPECT_EQ(config.slots().over_tcp, 0u);
  EXPECT_TRUE(request_caches(config).empty());
  EXPECT_EQ(config.connections_to_servers(), 10u);
  config.upstreams_max = 2;
  EXPECT_NE(config.slots().over_tcp, 0u) << "they may change their transport";
  config.upstreams_max = 0;
  config.upstreams[0].transport = segment::Transport::Tcp;
  EXPECT_NE(config.slots().over_tcp, 0u);
  EXPECT_EQ(config.slots().over_rdma, 1u);
  EXPECT_EQ(config.connections_to_servers(), 5u);
  config.upstreams_max = 4;
  config.rdma_upstreams_max = 3;
  EXPECT_EQ(config.slots().count, 4u);
  EXPECT_EQ(config.connections_to_servers(), 15u);
  EXPECT_EQ(request_caches(config).size(), 4u);
  config.upstreams_max = 100;
  EXPECT_EQ(config.slots().count, segment::kMaxUpstreams);
  config.started_slots = config.slots();
  config.upstream_count = 1;
  config.upstreams_max = 0;
  EXPECT_EQ(config.slots().count, segment::kMaxUpstreams) << "those of the start stay";
}

TEST(Settings, a_slot_over_rdma_that_no_upstream_has_at_the_start_has_the_usual_connections) {
  segment::ConfigBlock config;
  config.upstream_count = 1;
  config.upstreams_max = 2;
  config.rdma_upstreams_max = 1;
  EXPECT_EQ(config.slots().rdma_connections, 16u);
  EXPECT_TRUE(config.slots().fit(rdma_upstream("far", 16)));
  EXPECT_FALSE(config.slots().fit(rdma_upstream("far", 17)));
}

TEST(Settings, what_a_data_plane_can_serve_follows_from_its_start) {
  segment::ConfigBlock started = with_route(100003, 4);
  segment::UpstreamConfig nfs3 = with_route(100003, 3).upstreams[0];
  EXPECT_TRUE(may_serve(started, started.upstreams[0]));
  EXPECT_FALSE(may_serve(started, nfs3)) << "NFS 3 is served from memory";
  EXPECT_FALSE(may_serve(started, rdma_upstream("far", 1))) << "nothing is for RDMA";
  started = with_route(100003, 3);
  EXPECT_TRUE(may_serve(started, nfs3));
  nfs3.listen_port = 20050;
  EXPECT_FALSE(may_serve(started, nfs3)) << "the loopback driver listens at the start only";
  started.driver = segment::Driver::Verbs;
  EXPECT_TRUE(may_serve(started, nfs3));
}

TEST(Settings, connections_to_upstreams_over_rdma_add_to_those_of_clients) {
  segment::ConfigBlock config;
  config.max_connections = 5;
  config.credits = 20;
  config.upstream_count = 1;
  config.upstreams[0] = rdma_upstream("far", 3);
  EXPECT_EQ(relay_config(config, kAddresses).server_side.connections, 3u);
  EXPECT_EQ(relay_config(config, kAddresses).server_side.calls, 32u);
  EXPECT_EQ(engine_config(config).max_connections, 8u);
  EXPECT_EQ(engine_config(config).capacity.requests, 32u);
}

TEST(Settings, a_reactor_gets_its_own_processor) {
  segment::ConfigBlock config;
  config.reactors = 2;
  config.cpus = {4, 6};
  config.numa_nodes = {0, 1};
  config.max_version = 1;
  config.idle = segment::IdlePolicy::Spin;
  config.reply_chunks_if_needed = 1;
  config.keep_alive_s = 3;
  config.probe_after_s = 4;
  config.version_1_memory_s = 5;
  config.hold_calls = 1;
  config.max_segments = 12;
  const reactor::ReactorConfig reactor = reactor_config(config, 1);
  EXPECT_EQ(reactor.number, 1u);
  EXPECT_EQ(reactor.cpu, 6u);
  EXPECT_EQ(reactor.numa_node, 1u);
  EXPECT_EQ(reactor.max_version, 1u);
  EXPECT_EQ(reactor.idle, segment::IdlePolicy::Spin);
  EXPECT_EQ(reactor.reply_chunks, rpcrdma::ReplyChunkPolicy::IfNeeded);
  EXPECT_EQ(reactor.version2.keep_alive_ns, 3'000'000'000u);
  EXPECT_EQ(reactor.probe_after_ns, 4'000'000'000u);
  EXPECT_EQ(reactor.version2.version_1_memory_ns, 5'000'000'000u);
  EXPECT_TRUE(reactor.version2.hold_calls);
  EXPECT_EQ(reactor.version2.parameters.max_segments, 12u);
  EXPECT_EQ(reactor_config({}, 0).reply_chunks, rpcrdma::ReplyChunkPolicy::Always);
}

}  // namespace
}  // namespace sluice::process
