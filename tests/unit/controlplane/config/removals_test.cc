// SPDX-License-Identifier: Apache-2.0
//
// Exports and restrictions that a truncated or empty file would remove or lift, and how a file states that
// this is intended.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "controlplane/config/changes.h"

namespace sluice::config {
namespace {

const std::string kExport =
    "[[export]]\npath = \"/secret\"\nread_only = true\nclients = [\"192.0.2.1\"]\nquota_mib = 7\n";
const std::string kUpstream =
    "[[upstream]]\nname = \"nas\"\naddress = \"192.0.2.9\"\nprograms = [\"nfs4\"]\n";

std::string unsaid(const std::string& running, const std::string& next) {
  return unsaid_removals(parse(running, "f"), parse(next, "f"));
}

std::size_t exports_of(const std::string& text) {
  const Config config = parse(text, "f");
  return static_cast<std::size_t>(
      std::count_if(config.block.exports.begin(), config.block.exports.end(),
                    [](const segment::ExportConfig& entry) { return entry.in_use != 0; }));
}

TEST(Removals, nothing_is_exported_that_the_file_does_not_name) {
  EXPECT_EQ(exports_of(""), 0u);
  EXPECT_EQ(exports_of("log_level = \"info\"\n[transport]\nport = 20049\n"), 0u);
  EXPECT_EQ(exports_of("export = []\n"), 0u);
  EXPECT_EQ(exports_of(kExport), 1u);
  EXPECT_EQ(defaults().block.exports[0].in_use, 0u);
}

TEST(Removals, the_last_export_and_the_last_upstream_go_only_by_an_empty_list) {
  EXPECT_NE(unsaid(kExport, "").find("Write 'export = []'"), std::string::npos);
  EXPECT_EQ(unsaid(kExport, "export = []\n"), "");
  EXPECT_EQ(unsaid(kExport, "[[export]]\npath = \"/other\"\n"), "");
  EXPECT_NE(unsaid(kUpstream, "log_level = \"info\"\n").find("Write 'upstream = []'"), std::string::npos);
  EXPECT_EQ(unsaid(kUpstream, "upstream = []\n"), "");
  EXPECT_EQ(unsaid("", ""), "");
}

TEST(Removals, an_entry_that_is_cut_short_opens_nothing) {
  for (std::size_t bytes = 0; bytes < kExport.size(); ++bytes) {
    std::string problems;
    try {
      problems = unsaid(kExport, kExport.substr(0, bytes));
    } catch (const ConfigError& error) {
      problems = error.what();
    }
    // Only the final newline may be missing.
    EXPECT_EQ(problems.empty(), bytes + 1 == kExport.size()) << kExport.substr(0, bytes);
  }
  EXPECT_EQ(unsaid(kExport, kExport), "");
}

TEST(Removals, a_restriction_is_lifted_only_by_its_default_value) {
  EXPECT_NE(unsaid(kExport, "[[export]]\npath = \"/secret\"\nread_only = true\nquota_mib = 7\n")
                .find("export./secret.clients is [\"192.0.2.1"),
            std::string::npos);
  EXPECT_EQ(
      unsaid(kExport, "[[export]]\npath = \"/secret\"\nread_only = false\nclients = []\nquota_mib = 0\n"),
      "");
  const std::string limit = "[admission]\nmax_connections = 3\n";
  EXPECT_NE(unsaid(limit, "").find("admission.max_connections is 3"), std::string::npos);
  EXPECT_EQ(unsaid(limit, "[admission]\nmax_connections = 0\n"), "");
  for (const std::string key : {"max_requests_per_second", "max_requests_per_second_per_client"}) {
    const std::string rate = "[admission]\n" + key + " = ";
    EXPECT_NE(unsaid(rate + "3\n", "").find("admission." + key + " is 3"), std::string::npos);
    EXPECT_EQ(unsaid(rate + "3\n", rate + "1000\n"), "");
  }
  const std::string policy = "[policy]\nmax_connections_per_client = 2\n";
  EXPECT_NE(unsaid(policy, "").find("policy.max_connections_per_client is 2"), std::string::npos);
  const std::string of_class = "[[client_class]]\nname = \"a\"\nclients = [\"192.0.2.0/24\"]\n";
  EXPECT_NE(unsaid(of_class + "max_connections_per_client = 2\n", of_class)
                .find("client_class.a.max_connections_per_client is 2"),
            std::string::npos);
  EXPECT_NE(unsaid(kUpstream + "clients = [\"192.0.2.1\"]\n", kUpstream).find("upstream.nas.clients"),
            std::string::npos);
}

TEST(Removals, what_was_changed_without_the_file_needs_no_word) {
  Config running = parse("[[export]]\npath = \"/a\"\n", "f");
  running.block.exports[0].read_only = 1;
  EXPECT_EQ(unsaid_removals(running, parse("[[export]]\npath = \"/a\"\n", "f")), "");
  Config added = parse("", "f");
  added.block.exports[0] = running.block.exports[0];
  EXPECT_EQ(unsaid_removals(added, parse("", "f")), "");
}

TEST(Removals, a_reload_is_compared_with_the_reload_before) {
  const Config first = parse("[[export]]\npath = \"/a\"\n", "f");
  const Config second = parse("[admission]\nmax_connections = 3\n[[export]]\npath = \"/a\"\n", "f");
  EXPECT_NE(unsaid_removals(live_part(first, second), first), "");
}

TEST(Removals, what_becomes_stricter_needs_no_word) {
  EXPECT_EQ(
      unsaid("[[export]]\npath = \"/a\"\nroot_squash = false\nanonuid = 1\n", "[[export]]\npath = \"/a\"\n"),
      "");
  EXPECT_EQ(unsaid("[admission]\nmax_requests_per_second = 100000\n", ""), "");
}

}  // namespace
}  // namespace sluice::config
