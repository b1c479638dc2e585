// SPDX-License-Identifier: Apache-2.0
#include "controlplane/config/config.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <utility>

#include "controlplane/config/addresses.h"
#include "controlplane/config/keys.h"
#include "controlplane/config/machine.h"
#include "controlplane/config/upstreams.h"
#include "dataplane/base/text_file.h"

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

TEST(Config, the_priority_follows_from_the_traffic_class_unless_it_is_set) {
  const segment::ConfigBlock block = config::parse("[device]\ntraffic_class = 104\n", "test").block;
  EXPECT_EQ(block.traffic_class, 104u);
  EXPECT_EQ(block.cnp_traffic_class, 192u);
  EXPECT_EQ(block.priority(), 3u);
  const auto set =
      config::parse("[device]\ntraffic_class = 104\nservice_level = 5\ncnp_traffic_class = 8\n", "test");
  EXPECT_EQ(set.block.priority(), 5u);
  EXPECT_EQ(set.block.cnp_traffic_class, 8u);
}

TEST(Config, mount_has_the_clients_of_an_upstream_and_of_the_reverse_gateway) {
  const auto upstream = config::parse(
      "[[upstream]]\nname = \"u\"\naddress = \"::1\"\nprograms = [\"nfs3\"]\nclients = [\"192.0.2.0/24\"]\n",
      "f");
  const auto reverse =
      config::parse("[reverse]\nenabled = true\nserver = \"::1\"\nallowed = [\"192.0.2.0/24\"]\n", "f");
  for (const segment::UpstreamConfig& asked :
       {upstream.block.upstreams[0], config::mount_of_server(reverse.block.reverse)}) {
    ASSERT_EQ(asked.allowed_count, 1u);
    EXPECT_EQ(asked.allowed[0].address, PeerAddress::from_ipv4(192, 0, 2, 0));
    EXPECT_EQ(asked.allowed[0].prefix_bits, 96u + 24);
  }
  EXPECT_EQ(config::describe_upstreams(upstream.block)[0]["clients"], Json::array({"192.0.2.0/24"}));
}

TEST(Config, the_reverse_gateway_may_require_privileged_ports) {
  const std::string reverse = "[reverse]\nenabled = true\nserver = \"::1\"\n";
  const config::Config any = config::parse(reverse, "f");
  EXPECT_EQ(any.block.reverse.privileged_clients, 0u);
  EXPECT_EQ(config::describe(any)["reverse"]["privileged_clients"], false);
  const config::Config some = config::parse(reverse + "privileged_clients = true\n", "f");
  EXPECT_EQ(some.block.reverse.privileged_clients, 1u);
  EXPECT_EQ(config::describe(some)["reverse"]["privileged_clients"], true);
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
    const auto reverse = config::parse("[reverse]\nenabled = true\nserver = \"::1\"\n" + keys, "f");
    const segment::WithheldConfig& one = upstream.block.upstreams[0].withheld;
    const segment::WithheldConfig& other = reverse.block.reverse.withheld;
    EXPECT_EQ(one.pnfs, other.pnfs);
    EXPECT_EQ(one.referrals, other.referrals);
    for (const auto& shown :
         {config::describe_upstreams(upstream.block)[0], config::describe(reverse)["reverse"]}) {
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

TEST(Config, the_text_of_a_prefix_is_that_prefix) {
  for (const char* text :
       {"192.0.2.0/24", "0.0.0.0/0", "10.1.2.3/32", "2001:db8::/32", "::/0", "::ffff:0.0.0.0/40"}) {
    segment::AllowedPrefix prefix;
    ASSERT_TRUE(config::parse_prefix(text, prefix)) << text;
    EXPECT_EQ(config::to_text(prefix), text);
  }
}

/// The file under the path that an operator has given.
class ConfigFile : public testing::Test {
 protected:
  ConfigFile() { EXPECT_NE(::mkdtemp(folder_.data()), nullptr); }
  ~ConfigFile() override { std::filesystem::remove_all(folder_); }

  std::string path() const { return folder_ + "/sluice.toml"; }
  void write(const std::string& text) { std::ofstream(path(), std::ios::binary) << text; }
  static std::string defects(const std::string& file) {
    try {
      config::load_file(file);
    } catch (const config::ConfigError& error) {
      return error.what();
    }
    return {};
  }

  std::string folder_ = "/tmp/sluice-config-test-XXXXXX";
};

TEST_F(ConfigFile, that_is_read_has_its_absolute_path) {
  write("segment = \"of-the-file\"\n# \xc3\xa9\xf0\x9f\x98\x80\n");
  const config::Config read = config::load_file(path());
  EXPECT_EQ(read.segment, "of-the-file");
  EXPECT_EQ(read.file, path());
}

TEST_F(ConfigFile, that_names_a_processor_which_this_machine_does_not_have_is_refused) {
  write("[reactor]\ncount = 2\ncpus = [0, 4095]\n");
  EXPECT_EQ(
      defects(path()).find("cpus in [reactor] names processor 4095, and the last one of this machine is "),
      0u)
      << defects(path());
}

TEST_F(ConfigFile, of_another_kind_is_refused_with_a_sentence_and_waits_for_nobody) {
  EXPECT_NE(defects(folder_).find(folder_ + " is a directory. Name the file in it."), std::string::npos);
  EXPECT_NE(defects(path()).find("No such file"), std::string::npos);
  EXPECT_NE(defects("/dev/zero").find("is a pipe or a device"), std::string::npos);
  ASSERT_EQ(::mkfifo(path().c_str(), 0600), 0);
  EXPECT_NE(defects(path()).find("is a pipe or a device"), std::string::npos);
}

TEST_F(ConfigFile, of_any_length_is_read_to_a_limit) {
  write(std::string(kMaxTextBytes, '#'));
  EXPECT_EQ(defects(path()), "");
  write(std::string(kMaxTextBytes + 1, '#'));
  EXPECT_NE(defects(path()).find("has more than 1 MiB"), std::string::npos);
  std::filesystem::resize_file(path(), std::uintmax_t{1} << 40);
  EXPECT_NE(defects(path()).find("has more than 1 MiB"), std::string::npos);
}

TEST_F(ConfigFile, that_is_not_utf_8_is_refused_with_its_line) {
  const std::string good = "# one\n# two \xc3\xa9\n";
  for (const char* bad :
       {"segment = \"\xff\"\n", "# \xc3\n", "# \xed\xa0\x80\n", "# \xc0\xaf\n", "\xf0\x9f\x98"}) {
    write(good + bad + "\n");
    EXPECT_NE(defects(path()).find(path() + ":3: this line is not UTF-8 text"), std::string::npos)
        << defects(path());
  }
}

TEST(Config, names_that_lead_elsewhere_are_defects) {
  const auto defect = [](const std::string& text) {
    try {
      config::parse(text, "f");
    } catch (const config::ConfigError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  for (const char* name : {"", "../x", "a/b", ".hidden", "/", "/run/", "/run//x", "/run/../x", "//x"})
    EXPECT_NE(defect("segment = \"" + std::string(name) + "\"\n").find("f:1: segment has to be"),
              std::string::npos)
        << name;
  for (const char* name : {"x", "a.b", "/run/sluice/segment", "/x"})
    EXPECT_EQ(config::parse("segment = \"" + std::string(name) + "\"\n", "f").segment, name);
  for (const char* socket : {"", "admin.sock", "./x"})
    EXPECT_NE(defect("[admin]\nsocket = \"" + std::string(socket) + "\"\n").find("f:2: socket has to be"),
              std::string::npos)
        << socket;
  for (const char* address :
       {"127.0.0.1", ":9464", "127.0.0.1:", "127.0.0.1:x", "host:70000", "::1:9464", "[::1]9464"})
    EXPECT_NE(
        defect("[metrics]\naddress = \"" + std::string(address) + "\"\n").find("f:2: address has to be"),
        std::string::npos)
        << address;
  for (const char* address : {"", "127.0.0.1:9464", "[::1]:9464", "localhost:0"})
    EXPECT_EQ(defect("[metrics]\naddress = \"" + std::string(address) + "\"\n"), "") << address;
}

}  // namespace
}  // namespace sluice
