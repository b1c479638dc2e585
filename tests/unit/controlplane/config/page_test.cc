// SPDX-License-Identifier: Apache-2.0
//
// [page]: permitted addresses of the status page.
#include "controlplane/config/readers.h"

#include <gtest/gtest.h>

#include <string>

#include "controlplane/config/changes.h"
#include "tests/unit/controlplane/lab.h"

namespace sluice {
namespace {

using lab::has;

std::string defect(const std::string& keys) {
  try {
    config::parse("[page]\n" + keys, "f");
  } catch (const config::ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(PageConfig, there_is_no_page_unless_it_has_an_address) {
  EXPECT_EQ(config::defaults().page_address, "");
  EXPECT_EQ(defect("allow_remote = true\nname = \"a.example\"\n"), "");
}

TEST(PageConfig, an_address_that_others_can_reach_has_to_be_allowed) {
  for (const std::string address : {"0.0.0.0:1", "192.0.2.1:9465", "128.0.0.1:1", "[::]:9465",
                                    "[2001:db8::1]:1", "[::2]:1", "[::ffff:192.0.2.1]:1"}) {
    const std::string key = "address = \"" + address + "\"\n";
    EXPECT_TRUE(has(defect(key), "f:2: Other hosts can reach this address")) << address;
    EXPECT_TRUE(has(defect(key), "Set allow_remote = true")) << address;
    EXPECT_EQ(defect(key + "allow_remote = true\n"), "") << address;
  }
  for (const std::string address : {"127.0.0.1:9465", "127.9.9.9:0", "[::1]:65535", "localhost:1", ""})
    EXPECT_EQ(defect("address = \"" + address + "\"\n"), "") << address;
}

TEST(PageConfig, what_is_no_address_is_a_defect) {
  for (const std::string address :
       {"127.0.0.1", "9465", ":9465", "127.0.0.1:", "127.0.0.1:x", "127.0.0.1:65536", "::1:1", "[::1]",
        "[]:1", "[:1", "]:1", "sluice.example:1", "127.0.0.0/8:1", "http://127.0.0.1:1"})
    EXPECT_TRUE(has(defect("allow_remote = true\naddress = \"" + address + "\"\n"), "f:3: address has to be"))
        << address;
  for (const std::string name : {"a:1", "http://a", "a b", "a\\nb", "<script>", "\u20ac"})
    EXPECT_TRUE(has(defect("name = \"" + name + "\"\n"), "f:2: name has ")) << name;
  EXPECT_TRUE(has(defect("address = 9465\n"), "f:2: address has to be a string"));
  EXPECT_TRUE(has(defect("port = 9465\n"), "The key 'port' is unknown"));
}

TEST(PageConfig, a_change_wants_the_control_plane_restarted) {
  const auto changes =
      config::compare(config::defaults(), config::parse("[page]\naddress = \"[::1]:1\"\n", "f"), {});
  EXPECT_EQ(changes.restart_control, std::vector<std::string>{"page.address"});
  EXPECT_TRUE(changes.restart_both.empty());
}

}  // namespace
}  // namespace sluice
