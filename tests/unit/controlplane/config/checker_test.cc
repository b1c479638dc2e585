// SPDX-License-Identifier: Apache-2.0
//
// Configurations that must be refused. Each defect is reported with its line.
#include "controlplane/config/readers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "controlplane/config/keys.h"
#include "tests/unit/controlplane/config/every_key.h"

namespace sluice {
namespace {

const std::string kOverRdma =
    "[device]\ndriver = \"verbs\"\n[[upstream]]\nname = \"u\"\ntransport = \"rdma\"\nprograms = [\"nfs4\"]\n";

TEST(Config, every_defect_is_named_with_file_and_line) {
  const std::pair<std::string, const char*> cases[] = {
      {"segmnt = \"x\"", "f:1: The key 'segmnt' is unknown"},
      {"\n[transport]\ncredits = 0", "f:3: credits has to be a whole number from 1 to 1024"},
      {"[transport]\ncredits = \"many\"", "f:2: credits has to be"},
      {"[reactor]\nidle = \"nap\"", "f:2: idle has to be one of \"spin\", \"backoff\""},
      {"[reactor]\ncpus = [1, 2, 3]", "f:2: cpus has to be a list"},
      {"[[export]]\nread_only = true", "path is needed"},
      {"[[export]]\npath = \"/a\"\nread_only = 1", "f:3: read_only has to be true or false"},
      {"[[export]]\npath = \"/a\"\n[[export]]\npath = \"/a\"", "There is an export '/a' already"},
      {"[[export]]\npath = \"/a\"\nclients = [\"10.0.0.0/33\"]", "f:3: clients takes addresses"},
      {"[[export]]\npath = \"/a\"\nclients = [\"host\"]", "f:3: clients takes addresses"},
      {"transport = 3", "f:1: transport has to be a table"},
      {"[transport\n", "f:1: "},
      {"[device]\ndriver = \"magic\"", "f:2: driver has to be one of"},
      {"\n[locks]\nenabled = true",
       "f:2: locks.enabled requires an upstream whose programs include \"nfs3\""},
      {"[locks]\nstate = \"locks\"", "f:1: state has to be the path of a file, from '/', or empty."},
      {"[locks]\nport = 65536", "f:2: port has to be a whole number from 0 to 65535"},
  };
  for (const auto& [text, expected] : cases) {
    try {
      config::parse(text, "f");
      ADD_FAILURE() << text;
    } catch (const config::ConfigError& error) {
      EXPECT_NE(std::string(error.what()).find(expected), std::string::npos) << error.what();
    }
  }
  // All defects are reported together.
  try {
    config::parse("a = 1\n[transport]\nport = 0\nb = 2\n", "f");
    ADD_FAILURE();
  } catch (const config::ConfigError& error) {
    const std::string text = error.what();
    EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 3);
  }
}

/// Checks each key with values of every wrong type.
TEST(Config, no_key_takes_a_value_of_another_kind) {
  const auto refused = [](const std::string& text, int line, const std::string& key) {
    try {
      config::parse(text, "f");
      ADD_FAILURE() << text;
    } catch (const config::ConfigError& error) {
      const std::string expected = "f:" + std::to_string(line) + ": ";
      const std::string what = error.what();
      EXPECT_NE(what.find(expected), std::string::npos) << text << what;
      EXPECT_NE(what.find(key), std::string::npos) << text << what;
      EXPECT_GT(what.size(), expected.size() + key.size() + 10) << "says what is allowed";
    }
  };
  const auto wrong_values = [](const Json& right) -> std::vector<std::string> {
    if (right.is_boolean()) return {"1", "\"true\"", "[]", "{}"};
    if (right.is_number()) return {"-1", "1.5", "\"3\"", "true", "[1]", "99999999999999"};
    if (right.is_array()) return {"3", "\"not an address\"", "[true]", "[\"not an address\"]", "true"};
    return {"3", "true", "[]", '"' + std::string(600, 'x') + '"'};
  };
  std::size_t tried = 0;
  const auto try_all = [&](const std::string& head, int lines, const Json& table, const std::string& skip) {
    for (const auto& [key, right] : table.items()) {
      if (key == skip) continue;
      for (const std::string& wrong : wrong_values(right)) {
        refused(head + key + " = " + wrong + "\n", lines + 1, key);
        ++tried;
      }
    }
  };
  Json all = config::describe(config::parse(lab::kEveryKey, "f"));
  Json top = Json::object();
  for (const auto& [name, table] : all.items()) {
    if (name == "export")
      try_all("[[export]]\npath = \"/x\"\n", 2, table[0], "path");
    else if (name == "client_class")
      try_all("[[client_class]]\nname = \"a\"\n", 2, table[0], "name");
    else if (name == "upstream")
      try_all("[[upstream]]\n", 1, table[0], "");
    else if (name == "host_authentication")
      try_all("[[host_authentication.host]]\n", 1, table["host"][0], "");
    if (table.is_object())
      try_all("[" + name + "]\n", 1, table, "");
    else if (!table.is_array())
      top[name] = table;
    if ((table.is_array() || table.is_object())) {
      refused(name + " = 3\n", 1, name);
      refused("[" + name + "]\nno_such_key = 1\n", table.is_array() ? 1 : 2,
              table.is_array() ? name : "no_such_key");
    }
  }
  try_all("", 0, top, "");
  EXPECT_GT(tried, 250u);
}

TEST(Config, a_class_that_a_host_names_needs_no_addresses) {
  const std::string text = "[[client_class]]\nname = \"gold\"\n";
  EXPECT_THROW(config::parse(text, "f"), config::ConfigError);
  const auto config = config::parse(
      text + "[[host_authentication.host]]\nname = \"a\"\nkey_files = [\"/k\"]\nclass = \"gold\"\n", "f");
  EXPECT_EQ(config::describe(config)["client_class"].size(), 1u);
}

TEST(Config, an_export_takes_hosts_that_can_show_their_names) {
  const std::string host =
      "[host_authentication]\nmethod = \"psk\"\n[[host_authentication.host]]\nname = \"a\"\n"
      "key_files = [\"/k\"]\n";
  const auto config = config::parse(host + "[[export]]\npath = \"/x\"\nhosts = [\"a\"]\n", "f");
  EXPECT_EQ(config.block.exports[0].host_count, 1u);
  EXPECT_EQ(config.block.exports[0].hosts[0].view(), "a");
  EXPECT_EQ(config::describe(config)["export"][0]["hosts"], Json{"a"});
  const std::string text = "[[export]]\npath = \"/y\"\nhosts = [\"a\"]\n";
  EXPECT_EQ(config::parse_export(text, config).hosts[0].view(), "a");
  EXPECT_THROW(config::parse_export(text, config::defaults()), config::ConfigError);
}

TEST(Config, what_contradicts_itself_is_refused) {
  const std::pair<std::string, const char*> cases[] = {
      {"[policy]\nmin_credits = 9\nmax_credits = 3\n", "min_credits is above max_credits"},
      {"[transport]\ncredits = 8\n[policy]\nmax_credits = 9\n",
       "max_credits has to be a whole number from 1 to 8"},
      {"[[client_class]]\nname = \"a\"\n", "clients is needed"},
      {"[[client_class]]\nclients = [\"10.0.0.0/8\"]\n", "name is needed"},
      {"[[client_class]]\nname = \"A b\"\nclients = [\"10.0.0.0/8\"]\n", "of small letters"},
      {"[[client_class]]\nname = \"default\"\nclients = [\"10.0.0.0/8\"]\n",
       "There is a class 'default' already"},
      {"[device]\ndriver = \"softroce\"\n", "needs ethdev"},
      {"[device]\ndriver = \"verbs\"\ndevices = [\"a\", \"b\"]\n", "needs a reactor that polls it"},
      {"[device]\ndevices = [\"mlx5_0/0\"]\n", "with a port from 1 to 9"},
      {"[device]\ndevices = [\"/1\"]\n", "takes names of RDMA devices"},
      {"[device]\ndevices = \"mlx5_0\"\n", "has to be a list of at most 8 RDMA devices"},
      {"[device]\nservice_level = 8\n", "whole number from 0 to 7"},
      {"[host_authentication]\nmethod = \"psk\"\n", "needs hosts"},
      {"[host_authentication]\nrequired = true\n", "required needs a method"},
      {"[[host_authentication.host]]\nkey_files = [\"/k\"]\n", "name is needed"},
      {"[[host_authentication.host]]\nname = \"a b\"\nkey_files = [\"/k\"]\n", "without spaces"},
      {"[[host_authentication.host]]\nname = \"a\"\n", "key_files is needed"},
      {"[[host_authentication.host]]\nname = \"a\"\nkey_files = []\n", "a list of 1 to 4 files"},
      {"[[host_authentication.host]]\nname = \"a\"\nkey_files = [\"/1\", \"/2\", \"/3\", \"/4\", \"/5\"]\n",
       "a list of 1 to 4 files"},
      {"[[host_authentication.host]]\nname = \"a\"\nkey_files = [\"k\"]\n", "paths that start with '/'"},
      {"[[host_authentication.host]]\nname = \"a\"\nkey_files = [\"/k\"]\nclass = \"gold\"\n",
       "and there is no such [[client_class]]"},
      {"[[host_authentication.host]]\nname = \"a\"\nkey_files = [\"/k\"]\n"
       "[[host_authentication.host]]\nname = \"a\"\nkey_files = [\"/l\"]\n",
       "There is a host 'a' already"},
      {"[[export]]\npath = \"/a\"\nhosts = [\"a\"]\n", "f:3: hosts names 'a', and there is no such"},
      {"[[export]]\npath = \"/a\"\nhosts = [\"\"]\n", "hosts takes the name"},
      {"[[export]]\npath = \"/a\"\nhosts = [\"a\"]\n[[host_authentication.host]]\nname = \"a\"\nkey_files = "
       "[\"/k\"]\n",
       "hosts needs a host_authentication.method other than"},
      {"[[export]]\npath = \"/a\"\nhosts = "
       "[\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\","
       "\"\",\"\"]\n",
       "a list of at most 16 names"},
      {"[[host_authentication.host]]\nname = \"sluice\"\nkey_files = [\"/k\"]\n",
       "has the name of this gateway"},
      {"[[upstream]]\naddress = \"192.0.2.1\"\nprograms = [\"nfs4\"]\n", "name is needed"},
      {"[[upstream]]\nname = \"u\"\ntransport = \"rdma\"\naddress = \"::1\"\nprograms = [\"nfs4\"]\n",
       "The loopback driver reaches no server"},
      {kOverRdma + "address = [\"::1\", \"::2\"]\n", "has one address"},
      {kOverRdma + "address = \"::1\"\nmax_calls = 16\n", "max_calls is a key of [forward] now"},
      {kOverRdma + "address = \"::1\"\nprivileged_port = true\n",
       "privileged_port is for an upstream over TCP"},
      {kOverRdma + "address = \"::1\"\nconnections = 64\n", "the memory windows of a device set"},
      {"[[upstream]]\nname = \"u\"\nprograms = [\"nfs4\"]\n", "address is needed"},
      {"[[upstream]]\nname = \"u\"\naddress = \"192.0.2.0/24\"\nprograms = [\"nfs4\"]\n",
       "address has to be an IPv4 or IPv6 address such as \"192.0.2.10\", or a host name, or a list of "
       "them."},
      {"[[upstream]]\nname = \"u\"\naddress = \"192.0.2.256\"\nprograms = [\"nfs4\"]\n", "address has to be"},
      {"[[upstream]]\nname = \"u\"\naddress = \"nas_1\"\nprograms = [\"nfs4\"]\n", "address has to be"},
      {"[[upstream]]\nname = \"u\"\naddress = [\"nas\", 7]\nprograms = [\"nfs4\"]\n", "address has to be"},
      {"[[upstream]]\nname = \"u\"\naddress = []\nprograms = [\"nfs4\"]\n", "address takes 1 to 8"},
      {"[[upstream]]\nname = \"u\"\naddress = \"192.0.2.1\"\n", "programs is needed"},
      {"[[upstream]]\nname = \"u\"\naddress = \"::1\"\nprograms = [\"nfs5\"]\n", "programs takes \"nfs2\""},
      {"[[upstream]]\nname = \"u\"\naddress = \"::1\"\nprograms = [\"nfs4\", \"100003.4\"]\n",
       "has 100003.4 twice"},
      {"[[upstream]]\nname = \"u\"\naddress = \"::1\"\nprograms = [\"nfs3\"]\n[[export]]\npath = \"/a\"\n",
       "Remove one of them"},
      {"[reverse]\nenabled = true\nserver = \"::1\"\npnfs = \"no\"\n", "pnfs has to be"},
      {"[reverse]\nenabled = true\nserver = \"192.0.2.0/24\"\n", "server has to be an IPv4 or IPv6 address"},
      {"[reverse]\nenabled = true\nconnections = 64\ncalls = 64\n", "connections times calls exceed 2048"},
      {"[reverse]\nenabled = true\n[[export]]\npath = \"/a\"\n", "not for [[export]]"},
      {"[reverse]\nenabled = true\n[[upstream]]\nname = \"u\"\naddress = \"::1\"\nprograms = [\"nfs3\"]\n",
       "MOUNT serves either that or the server of [reverse]"},
      {"[device]\ndriver = \"softroce\"\nethdev = \"x\"\naddresses = [\"192.0.2.1/24\"]\n[reverse]\nenabled "
       "= true\n",
       "server is needed"},
      {"[[upstream]]\nname = \"u\"\naddress = \"::1\"\nprograms = [\"nfs3\"]\n"
       "[[upstream]]\nname = \"v\"\naddress = \"::2\"\nprograms = [\"nfs3\"]\n",
       "upstream 'u' has nfs3 already"},
  };
  for (const auto& [text, expected] : cases) {
    try {
      config::parse(text, "f");
      ADD_FAILURE() << text;
    } catch (const config::ConfigError& error) {
      EXPECT_NE(std::string(error.what()).find(expected), std::string::npos) << error.what();
    }
  }
}

}  // namespace
}  // namespace sluice
