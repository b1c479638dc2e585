// SPDX-License-Identifier: Apache-2.0
//
// What is wrong with a configuration on this machine: each defect is a sentence that names the key and says what to do.
#include "controlplane/config/machine.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <string>

namespace sluice {
namespace {

std::string defects_of(const std::string& text) {
  try {
    config::check_machine(config::parse(text, "test"));
  } catch (const config::ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(Machine, groups_have_to_exist) {
  EXPECT_EQ(
      defects_of("[admin]\nchange_group = \"no-such-group\"\n"),
      "change_group in [admin] is 'no-such-group', and this machine has no such group: groupadd makes it, "
      "\"\" is for none.\n");
  EXPECT_EQ(defects_of("[admin]\nread_group = \"no-such-group\"\n").find("read_group in [admin]"), 0u);
  EXPECT_EQ(defects_of("[admin]\nchange_group = \"root\"\nread_group = \"daemon\"\n"), "");
}

TEST(Machine, a_directory_is_no_file) {
  EXPECT_EQ(defects_of("[admin]\nsocket = \"/tmp\"\n"),
            "socket in [admin] is '/tmp', which is a directory: name a file in it.\n");
  EXPECT_EQ(defects_of("[events]\nfile = \"/tmp\"\n"),
            "file in [events] is '/tmp', which is a directory: name a file in it.\n");
  EXPECT_EQ(defects_of("[events]\nfile = \"/no/such/folder/events\"\n"),
            "file in [events] is '/no/such/folder/events', and there is no directory '/no/such/folder': make "
            "it, or "
            "name another file.\n");
  EXPECT_EQ(defects_of("[events]\nfile = \"/tmp/events\"\n"), "");
  EXPECT_EQ(defects_of("[host_authentication]\nmethod = \"psk\"\n[[host_authentication.host]]\nname = \"a\"\n"
                       "key_files = [\"/tmp\"]\n"),
            "key_files of host 'a' has '/tmp', which is a directory: name the file.\n");
}

TEST(Machine, exports_neither_overlap_nor_end_in_a_slash) {
  const auto problem = [](const std::string& one, const std::string& other) -> std::string {
    try {
      config::parse("[[export]]\npath = \"" + one + "\"\n[[export]]\npath = \"" + other + "\"\n", "test");
    } catch (const config::ConfigError& error) {
      return error.what();
    }
    return "";
  };
  const std::string overlap =
      "test:3: exports '/a/b' and '/a' overlap: rename one, so that neither lies in the other.\n";
  EXPECT_EQ(problem("/a", "/a/b"), overlap);
  EXPECT_NE(problem("/a/b/c", "/a").find("overlap"), std::string::npos);
  EXPECT_NE(problem("/", "/a").find("overlap"), std::string::npos);
  EXPECT_EQ(problem("/a", "/ab"), "");
  EXPECT_EQ(problem("/x/a", "/x/b"), "");
  EXPECT_NE(problem("/a/", "/b").find("has a '/' too many"), std::string::npos);
  EXPECT_NE(problem("/a//b", "/b").find("has a '/' too many"), std::string::npos);
  EXPECT_NE(problem("/a/./b", "/b").find("between slashes"), std::string::npos);
  EXPECT_NE(problem("/..", "/b").find("between slashes"), std::string::npos);
}

TEST(Machine, an_export_that_is_added_later_does_not_overlap_either) {
  const config::Config running = config::parse("[[export]]\npath = \"/a\"\n", "test");
  EXPECT_THROW(config::parse_export("[[export]]\npath = \"/a/b\"\n", running), config::ConfigError);
  EXPECT_NO_THROW(config::parse_export("[[export]]\npath = \"/a\"\n", running));
}

}  // namespace
}  // namespace sluice
