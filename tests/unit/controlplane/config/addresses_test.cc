// SPDX-License-Identifier: Apache-2.0
//
// Well-formed values that cannot work: addresses that no host can have, unreachable gateways, two listeners
// at one port, malformed paths, truncated exports.
#include "controlplane/config/addresses.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "controlplane/config/config.h"
#include "controlplane/config/upstreams.h"
#include "tests/unit/controlplane/lab.h"

namespace sluice::config {
namespace {

using lab::has;

std::string defect(const std::string& text) {
  try {
    parse(text, "f");
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

std::string device(const std::string& addresses, const std::string& gateways = "") {
  return "[device]\ndriver = \"softroce\"\nethdev = \"net_memif0\"\naddresses = [" + addresses +
         "]\ngateways = [" + gateways + "]\n";
}

TEST(Addresses, of_our_own_are_those_of_a_host) {
  const std::pair<const char*, const char*> cases[] = {
      {"\"192.0.2.255/24\"",
       "f:4: addresses has 192.0.2.255/24, which is the broadcast address of its network"},
      {"\"192.0.2.0/24\"", "which is the address of the network itself"},
      {"\"2001:db8::/64\"", "which is the address of the network itself"},
      {"\"0.0.0.0/24\"", "the unspecified address"},
      {"\"224.0.0.1/24\"", "a multicast group"},
      {"\"ff02::1/64\"", "a multicast group"},
      {"\"255.255.255.255\"", "the broadcast address"},
      {"\"127.0.0.1/8\"", "a loopback address"},
      {"\"::1\"", "a loopback address"},
      {"\"240.0.0.1/8\"", "a reserved address"},
      {"\"192.0.2.1/24\", \"192.0.2.1/25\"", "addresses has 192.0.2.1/25 twice"},
  };
  for (const auto& [addresses, expected] : cases)
    EXPECT_TRUE(has(defect(device(addresses)), expected)) << addresses << ": " << defect(device(addresses));
  for (const char* const good :
       {"\"192.0.2.1/24\"", "\"192.0.2.0/31\"", "\"192.0.2.1/31\"", "\"192.0.2.1\"", "\"2001:db8::1/64\"",
        "\"2001:db8::ffff:ffff:ffff:ffff/64\"", "\"fe80::1/64\", \"192.0.2.1/24\""})
    EXPECT_EQ(defect(device(good)), "");
}

/// Returns the configuration of an upstream at the address, preceded by `rest`.
std::string upstream_at(const std::string& address, const std::string& keys = "",
                        const std::string& rest = "") {
  return rest + "[[upstream]]\nname = \"nas\"\naddress = \"" + address + "\"\nprograms = [\"nfs4\"]\n" + keys;
}

TEST(Addresses, that_are_link_local_name_an_interface_where_the_kernel_connects_or_listens) {
  const std::string verbs = "[device]\ndriver = \"verbs\"\n";
  const std::string rdma = "transport = \"rdma\"\n";
  for (const std::string& good :
       {upstream_at("fe80::1%lo"), upstream_at("fe80::1%lo", rdma, verbs),
        std::string("[metrics]\naddress = \"[fe80::1%lo]:9464\"\n"),
        std::string("[page]\nallow_remote = true\naddress = \"[fe80::1%lo]:9465\"\n"),
        verbs + "[reverse]\nenabled = true\nlisten_address = \"fe80::2%lo\"\nserver = \"fe80::1%lo\"\n"})
    EXPECT_EQ(defect(good), "") << good;
  const std::pair<std::string, const char*> cases[] = {
      {upstream_at("fe80::1"), "f:3: address has fe80::1, which is on every link. Name the interface"},
      {upstream_at("fe80::1", rdma, verbs), "which is on every link"},
      {upstream_at("fe80::1%eth77"), "fe80::1%eth77, and this machine has no interface 'eth77'"},
      {upstream_at("2001:db8::1%lo"), "only addresses in fe80::/10 have one. Write 2001:db8::1."},
      {upstream_at("192.0.2.1%lo"), "only addresses in fe80::/10 have one. Write 192.0.2.1."},
      {"[metrics]\naddress = \"[fe80::1]:9464\"\n", "metrics.address names fe80::1, which is on every link"},
      {"[metrics]\naddress = \"[fe80::1%eth77]:9464\"\n", "no interface 'eth77'"},
      {"[metrics]\naddress = \"[::1%lo]:9464\"\n", "Write ::1."},
      {"[page]\nallow_remote = true\naddress = \"[fe80::1]:9465\"\n", "page.address names fe80::1, which"},
      {"[reverse]\nlisten_address = \"fe80::1\"\n", "f:2: listen_address is fe80::1, which is on every link"},
      {"[reverse]\nlisten_address = \"fe80::1%eth77\"\n", "no interface 'eth77'"},
      {verbs + "[reverse]\nserver = \"fe80::1\"\n", "server is fe80::1, which is on every link"},
      {"[reverse]\nmount_address = \"fe80::1\"\n", "mount_address is fe80::1, which is on every link"},
  };
  for (const auto& [text, expected] : cases)
    EXPECT_TRUE(has(defect(text), expected)) << text << ": " << defect(text);
}

TEST(Addresses, of_a_device_and_of_clients_have_no_zone) {
  const std::string softroce = device("\"fe80::2/64\"");
  const std::string reverse = softroce + "[reverse]\nenabled = true\n";
  EXPECT_EQ(defect(softroce + upstream_at("fe80::1", "transport = \"rdma\"\n")), "");
  EXPECT_EQ(defect(reverse + "server = \"fe80::1\"\nmount_address = \"fe80::1%lo\"\n"), "");
  const std::pair<std::string, const char*> cases[] = {
      {softroce + upstream_at("fe80::1%lo", "transport = \"rdma\"\n"),
       "whose zone is of no use because the device has one link. Write fe80::1."},
      {reverse + "server = \"fe80::1%lo\"\nmount_address = \"fe80::1%lo\"\n",
       "because the device has one link"},
      {reverse + "server = \"fe80::1\"\n[mount]\nenabled = true\n", "mount_address is needed"},
      {device("\"fe80::2%lo/64\""), "f:4: addresses has fe80::2%lo/64, and takes addresses without a zone"},
      {"[[export]]\npath = \"/a\"\nclients = [\"fe80::1%lo\"]\n",
       "clients has fe80::1%lo, and takes addresses without a zone"},
      {"[[client_class]]\nname = \"a\"\nclients = [\"fe80::%lo/64\"]\n", "without a zone"},
  };
  for (const auto& [text, expected] : cases)
    EXPECT_TRUE(has(defect(text), expected)) << text << ": " << defect(text);
}

/// The device of softroce reaches such an upstream, TCP does not.
TEST(Addresses, of_an_upstream_on_the_devices_link_are_not_for_mount) {
  const auto text = [](const char* programs, const char* rest) {
    return device("\"fe80::2/64\"") + "[[upstream]]\nname = \"nas\"\naddress = \"fe80::1\"\n" +
           "transport = \"rdma\"\nprograms = [\"" + programs + "\"]\n" + rest;
  };
  EXPECT_TRUE(has(defect(text("nfs3", "")), "f:8: address has fe80::1, at which MOUNT cannot be asked"))
      << defect(text("nfs3", ""));
  EXPECT_EQ(defect(text("nfs3", "[mount]\nenabled = false\n")), "");
  EXPECT_EQ(defect(text("nfs4", "")), "");
}

TEST(Addresses, of_gateways_are_in_a_network_of_ours) {
  const std::string own = "\"192.0.2.1/24\", \"2001:db8::1/64\"";
  EXPECT_EQ(defect(device(own, "\"192.0.2.254\", \"2001:db8::fe\"")), "");
  EXPECT_EQ(defect(device(own, "\"fe80::1\"")), "");
  EXPECT_TRUE(has(defect(device(own, "\"198.51.100.1\"")),
                  "f:5: gateways has 198.51.100.1, which is in none of the networks of addresses"));
  EXPECT_TRUE(has(defect(device(own, "\"192.0.2.1\"")), "which is among addresses too"));
  EXPECT_TRUE(has(defect(device(own, "\"224.0.0.1\"")), "a multicast group"));
  EXPECT_TRUE(has(defect(device(own, "\"192.0.2.2\", \"192.0.2.3\"")),
                  "another gateway has the same address family"));
}

TEST(Addresses, of_upstreams_are_those_of_hosts_and_there_once) {
  const auto upstream = [](const std::string& address) {
    return defect("[[upstream]]\nname = \"nas\"\nprograms = [\"nfs4\"]\naddress = [" + address + "]\n");
  };
  EXPECT_EQ(upstream("\"192.0.2.1\", \"127.0.0.1\", \"nas.example\""), "");
  EXPECT_TRUE(has(upstream("\"0.0.0.0\""), "f:4: address has 0.0.0.0, which is the unspecified address"));
  EXPECT_TRUE(has(upstream("\"::\""), "the unspecified address"));
  EXPECT_TRUE(has(upstream("\"192.0.2.1\", \"239.1.1.1\""), "a multicast group"));
  EXPECT_TRUE(has(upstream("\"255.255.255.255\""), "the broadcast address"));
  EXPECT_TRUE(has(upstream("\"192.0.2.1\", \"192.0.2.1\""), "address has 192.0.2.1 twice"));
}

TEST(Addresses, of_clients_are_those_that_a_client_can_have) {
  for (const std::string& table :
       {std::string("[[export]]\npath = \"/a\"\n"), std::string("[[client_class]]\nname = \"a\"\n")}) {
    EXPECT_EQ(defect(table + "clients = [\"0.0.0.0/0\", \"::/0\", \"192.0.2.0/24\"]\n"), "");
    EXPECT_TRUE(has(defect(table + "clients = [\"0.0.0.0\"]\n"), "to admit everybody"));
    EXPECT_TRUE(has(defect(table + "clients = [\"224.0.0.0/4\"]\n"), "multicast groups"));
    EXPECT_TRUE(has(defect(table + "clients = [\"255.255.255.255\"]\n"), "the broadcast address"));
    EXPECT_TRUE(has(defect(table + "clients = [\"10.0.0.0/8\", \"10.0.0.0/8\"]\n"),
                    "f:3: clients has 10.0.0.0/8 twice"));
  }
}

TEST(Addresses, of_the_reverse_gateway_are_those_of_hosts) {
  const auto reverse = [](const std::string& keys) {
    return defect(device("\"192.0.2.1/24\"") + "[reverse]\nenabled = true\n" + keys);
  };
  EXPECT_EQ(reverse("server = \"192.0.2.9\"\nlisten_address = \"0.0.0.0\"\n"), "");
  EXPECT_TRUE(has(reverse("server = \"192.0.2.1\"\n"), "which is among addresses in [device]"));
  EXPECT_TRUE(has(reverse("server = \"224.0.0.1\"\n"), "server is 224.0.0.1, which is a multicast group"));
  EXPECT_TRUE(has(reverse("server = \"192.0.2.9\"\nlisten_address = \"224.0.0.1\"\n"),
                  "listen_address is 224.0.0.1"));
}

TEST(Listeners, two_at_one_address_and_port_are_a_defect) {
  const std::string page = "[page]\naddress = \"127.0.0.1:9464\"\n";
  EXPECT_TRUE(has(defect(page), "page.address and metrics.address are both at TCP port 9464"));
  EXPECT_TRUE(has(defect(page), "f:2: "));
  EXPECT_EQ(defect(page + "[metrics]\naddress = \"127.0.0.2:9464\"\n"), "");
  EXPECT_EQ(defect(page + "[metrics]\naddress = \"[::1]:9464\"\n"), "");
  EXPECT_TRUE(has(defect(page + "[metrics]\naddress = \"[::]:9464\"\n"), "both at TCP port"));
  EXPECT_TRUE(has(defect(page + "[metrics]\naddress = \"0.0.0.0:9464\"\n"), "both at TCP port"));
  EXPECT_TRUE(has(defect(page + "[metrics]\naddress = \"localhost:9464\"\n"), "both at TCP port"));
  EXPECT_TRUE(has(defect("[mount]\nport = 9464\n"), "mount.port and metrics.address"));
  EXPECT_EQ(defect("[mount]\nport = 9464\nenabled = false\n"), "");
  EXPECT_EQ(defect("[mount]\nport = 0\n[kerberos]\nenabled = true\nport = 0\n"), "");
  EXPECT_TRUE(has(defect("[kerberos]\nenabled = true\nport = 2049\n[reverse]\nenabled = true\n"),
                  "reverse.listen_port and kerberos.port are both at TCP port 2049"));
  EXPECT_TRUE(
      has(defect("[metrics]\naddress = \"224.0.0.1:9464\"\n"), "metrics.address names a multicast group"));
}

TEST(Paths, have_neither_dot_segments_nor_control_characters) {
  const std::pair<const char*, const char*> keys[] = {{"", "exports_directory"},
                                                      {"[events]\n", "file"},
                                                      {"[locks]\n", "state"},
                                                      {"[admin]\n", "socket"},
                                                      {"[device]\n", "loopback_path"}};
  for (const auto& [table, key] : keys) {
    const std::string begin = table + std::string(key) + " = \"";
    EXPECT_EQ(defect(begin + "/a/.b/c..d\"\n"), "") << key;
    EXPECT_TRUE(has(defect(begin + "/a/../b\"\n"), "between slashes")) << key;
    EXPECT_TRUE(has(defect(begin + "/a/./b\"\n"), "between slashes")) << key;
    EXPECT_TRUE(has(defect(begin + "/a\\nb\"\n"), "control character")) << key;
    EXPECT_TRUE(has(defect(begin + "/a\\u007Fb\"\n"), "control character")) << key;
  }
  EXPECT_TRUE(has(defect("[[export]]\npath = \"/a\\tb\"\n"), "control character"));
  EXPECT_TRUE(has(defect("[[host_authentication.host]]\n"
                         "name = \"a\"\nkey_files = [\"/a/../b\"]\n"),
                  "without '.' and '..'"));
}

TEST(CutExports, an_export_that_does_not_say_who_may_have_it_does_not_start) {
  const auto start = [](const std::string& text) -> std::string {
    try {
      check_clients_of_exports(parse(text, "f"));
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "";
  };
  const std::string whole = "[[export]]\npath = \"/a\"\nclients = [\"192.0.2.1\"]\n";
  EXPECT_EQ(start(whole), "");
  EXPECT_EQ(start("[[export]]\npath = \"/a\"\nclients = []\n"), "");
  EXPECT_EQ(
      start("[[export]]\npath = \"/a\"\n"),
      "f: The [[export]] '/a' has no clients. Name the addresses that may mount it, or write 'clients = "
      "[]' if all "
      "may.\n");
  for (std::size_t bytes = std::string("[[export]]\n").size(); bytes + 1 < whole.size(); ++bytes) {
    std::string problem;
    try {
      problem = start(whole.substr(0, bytes));
    } catch (const ConfigError& error) {
      problem = error.what();
    }
    EXPECT_NE(problem, "") << whole.substr(0, bytes);
  }
  EXPECT_EQ(start(""), "");
}

}  // namespace
}  // namespace sluice::config
