// SPDX-License-Identifier: Apache-2.0
#include "controlplane/config/config.h"

#include <gtest/gtest.h>

#include <utility>

#include "controlplane/config/reverse.h"
#include "controlplane/config/upstreams.h"

namespace sluice {
namespace {

TEST(Config, V1_180_V2_153_the_port_is_20049_unless_set) {
  EXPECT_EQ(config::defaults().block.port, 20049u);
  EXPECT_EQ(config::parse("[transport]\nport = 2049\n", "x").block.port, 2049u);
}

TEST(Config, reactors_take_the_rdma_ports_in_turn) {
  const config::Config config = config::parse(
      "[reactor]\ncount = 3\n[device]\ndriver = \"verbs\"\ndevices = [\"mlx5_0\", "
      "\"mlx5_1/2\"]\ntraffic_class = 104\nshared_receives = 512\n",
      "test");
  const segment::ConfigBlock& block = config.block;
  EXPECT_EQ(block.driver, segment::Driver::Verbs);
  EXPECT_EQ(block.traffic_class, 104u);
  EXPECT_EQ(block.shared_receives, 512u);
  EXPECT_GT(block.service_level, segment::kMaxServiceLevel);
  const char* devices[] = {"mlx5_0", "mlx5_1", "mlx5_0"};
  const std::uint32_t ports[] = {1, 2, 1};
  for (std::uint32_t reactor = 0; reactor < 3; ++reactor) {
    ASSERT_NE(block.verbs_port(reactor), nullptr);
    EXPECT_STREQ(block.verbs_port(reactor)->device, devices[reactor]);
    EXPECT_EQ(block.verbs_port(reactor)->port, ports[reactor]);
  }
  EXPECT_EQ(config::parse("[device]\ndriver = \"verbs\"\n", "test").block.verbs_port(0), nullptr);
}

TEST(Config, mount_has_the_clients_of_an_upstream_and_of_the_reverse_gateway) {
  const auto upstream = config::parse(
      "[[upstream]]\nname = \"u\"\naddress = \"::1\"\nprograms = [\"nfs3\"]\nclients = [\"192.0.2.0/24\"]\n",
      "f");
  const auto reverse =
      config::parse("[reverse]\ningress = \"tcp\"\nserver = \"::1\"\nallowed = [\"192.0.2.0/24\"]\n", "f");
  for (const segment::UpstreamConfig& asked :
       {upstream.block.upstreams[0], config::mount_of_server(reverse.block.reverse)}) {
    ASSERT_EQ(asked.allowed_count, 1u);
    EXPECT_EQ(asked.allowed[0].address, PeerAddress::from_ipv4(192, 0, 2, 0));
    EXPECT_EQ(asked.allowed[0].prefix_bits, 96u + 24);
  }
  EXPECT_EQ(config::describe_upstreams(upstream.block)[0]["clients"], nlohmann::json({"192.0.2.0/24"}));
}

TEST(Config, an_upstream_over_rdma_has_defaults_of_its_own) {
  const std::string rdma =
      "[device]\ndriver = \"verbs\"\n[[upstream]]\nname = \"u\"\ntransport = \"rdma\"\naddress = \"::1\"\n"
      "programs = [\"nfs4\"]\n";
  const segment::ConfigBlock block = config::parse(rdma, "f").block;
  EXPECT_EQ(block.upstreams[0].transport, segment::Transport::Rdma);
  EXPECT_EQ(block.upstreams[0].port, 20049u);
  EXPECT_EQ(block.upstreams[0].connections, 16u);
  EXPECT_EQ(block.all_connections(), block.max_connections + 16);
  EXPECT_EQ(block.calls_to_upstream(), 2 * block.credits) << "one more than a client's, up to a power of two";
  EXPECT_EQ(config::describe_upstreams(block)[0]["transport"], "rdma");
  EXPECT_EQ(config::parse(rdma + "[transport]\ncredits = 1024\n", "f").block.calls_to_upstream(),
            segment::kMaxCallsToUpstream);
  const segment::ConfigBlock chosen = config::parse(rdma + "port = 7\nconnections = 3\n", "f").block;
  EXPECT_EQ(chosen.upstreams[0].port, 7u);
  EXPECT_EQ(chosen.all_connections(), chosen.max_connections + 3);
  EXPECT_EQ(config::parse("[[upstream]]\nname = \"u\"\naddress = \"::1\"\nprograms = [\"nfs4\"]\n", "f")
                .block.upstreams[0]
                .port,
            2049u);
}

TEST(Config, what_gateways_withhold_is_chosen_for_each) {
  const auto withheld = [](const std::string& keys) {
    const auto upstream =
        config::parse("[[upstream]]\nname = \"u\"\naddress = \"::1\"\nprograms = [\"nfs4\"]\n" + keys, "f");
    const auto reverse = config::parse("[reverse]\ningress = \"tcp\"\nserver = \"::1\"\n" + keys, "f");
    const segment::WithheldConfig& one = upstream.block.upstreams[0].withheld;
    const segment::WithheldConfig& other = reverse.block.reverse.withheld;
    EXPECT_EQ(one.pnfs, other.pnfs);
    EXPECT_EQ(one.referrals, other.referrals);
    for (const auto& shown :
         {config::describe_upstreams(upstream.block)[0], config::describe_reverse(reverse.block)}) {
      EXPECT_EQ(shown["pnfs"], one.pnfs != 0 ? "hide" : "pass");
      EXPECT_EQ(shown["referrals"], one.referrals != 0 ? "hide" : "pass");
    }
    return std::pair{one.pnfs != 0, one.referrals != 0};
  };
  EXPECT_EQ(withheld(""), std::pair(true, true));
  EXPECT_EQ(withheld("pnfs = \"pass\"\n"), std::pair(false, true));
  EXPECT_EQ(withheld("referrals = \"pass\"\n"), std::pair(true, false));
  EXPECT_EQ(withheld("pnfs = \"hide\"\nreferrals = \"hide\"\n"), std::pair(true, true));
}

TEST(Config, prefixes_of_both_families) {
  const auto config = config::parse(
      "[[export]]\npath = \"/a\"\nclients = [\"192.0.2.0/24\", \"2001:db8::/32\", \"10.1.2.3\"]\n", "f");
  const auto& entry = config.block.exports[0];
  ASSERT_EQ(entry.allowed_count, 3u);
  EXPECT_EQ(entry.allowed[0].prefix_bits, 96u + 24);
  EXPECT_EQ(entry.allowed[1].prefix_bits, 32u);
  EXPECT_EQ(entry.allowed[1].address.bytes[0], 0x20);
  EXPECT_EQ(entry.allowed[2].prefix_bits, 128u);
}

}  // namespace
}  // namespace sluice
