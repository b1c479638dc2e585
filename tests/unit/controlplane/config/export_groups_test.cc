// SPDX-License-Identifier: Apache-2.0
//
// Several upstreams for NFS version 3: what an operator may write, and what it means.
#include "controlplane/config/export_groups.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "controlplane/config/config.h"
#include "controlplane/config/describe.h"
#include "dataplane/base/export_path.h"

namespace sluice {
namespace {

std::string upstream(const std::string& name, const std::string& rest,
                     const std::string& programs = R"(["nfs3"])") {
  return "[[upstream]]\nname = \"" + name + "\"\naddress = \"::1\"\nprograms = " + programs + "\n" + rest +
         "\n";
}
std::string exports(const std::string& paths) {
  return "exports = [" + paths + "]";
}

std::string refusal(const std::string& text) {
  try {
    config::parse(text, "f");
    return "";
  } catch (const config::ConfigError& error) {
    return error.what();
  }
}

TEST(ExportGroups, three_filers_have_their_parts) {
  const std::string text = upstream("a", exports(R"("/vol1", "/home")")) + upstream("b", "prefix = \"/b\"") +
                           upstream("c", "prefix = \"/c\"\n" + exports("\"/vol1\"")) +
                           upstream("d", "", R"(["nfs4"])");
  const segment::ConfigBlock block = config::parse(text, "f").block;
  ASSERT_EQ(block.upstream_count, 4u);
  EXPECT_EQ(block.upstreams[0].export_count, 2u);
  EXPECT_STREQ(block.upstreams[0].exports[1].data(), "/home");
  EXPECT_STREQ(block.upstreams[1].prefix, "/b");
  EXPECT_EQ(block.upstreams[1].export_count, 0u);
  EXPECT_EQ(block.upstreams[3].handle_tag, 0u) << "not for NFS 3";
  for (int i = 0; i < 3; ++i) EXPECT_NE(block.upstreams[i].handle_tag, 0u);
  const nlohmann::json shown = config::describe(config::parse(text, "f"))["upstream"][2];
  EXPECT_EQ(shown["prefix"], "/c");
  EXPECT_EQ(shown["exports"], nlohmann::json{"/vol1"});
}

/// Clients have them in their file handles: neither order nor anything else but the name may change them, in no version.
TEST(ExportGroups, tags_follow_from_names) {
  const std::string a = upstream("a", exports("\"/vol1\""));
  const std::string b = upstream("b", exports("\"/vol2\""));
  const segment::ConfigBlock one = config::parse(a + b, "f").block;
  const segment::ConfigBlock other = config::parse(upstream("z", "", R"(["nfs4"])") + b + a, "f").block;
  EXPECT_EQ(one.upstreams[0].handle_tag, other.upstreams[2].handle_tag);
  EXPECT_EQ(one.upstreams[1].handle_tag, other.upstreams[1].handle_tag);
  EXPECT_NE(one.upstreams[0].handle_tag, one.upstreams[1].handle_tag);
  EXPECT_EQ(one.upstreams[0].handle_tag, 0xCD93A249u) << "clients that have mounted lose their files";
}

TEST(ExportGroups, what_contradicts_itself_is_refused) {
  const std::string tagged = exports("\"/vol1\"");
  const std::string locks = "[locks]\nenabled = true\n";
  std::string many;
  for (int i = 0; i < 17; ++i) many += (i > 0 ? ", \"/v" : "\"/v") + std::to_string(i) + "\"";
  const std::string rdma =
      "[device]\ndriver = \"verbs\"\n" + upstream("a", "transport = \"rdma\"\n" + tagged);
  const std::pair<std::string, const char*> cases[] = {
      {upstream("a", "") + upstream("b", ""),
       "f:6: upstream 'a' has nfs3 already: several may have it if each says by exports or prefix what is "
       "its."},
      {upstream("a", tagged) + upstream("b", ""), "upstream 'a' has nfs3 already: several may have it"},
      {upstream("a", "") + upstream("b", tagged), "upstream 'a' has nfs3 already: several may have it"},
      {upstream("a", "", R"(["nfs4"])") + upstream("b", "", R"(["nfs4"])"),
       "upstream 'a' has nfs4 already: it goes to one upstream."},
      {upstream("a", tagged, R"(["nfs3", "nfs4"])") + upstream("b", "prefix = \"/b\"", R"(["nfs3", "nfs4"])"),
       "upstream 'a' has nfs4 already"},
      {upstream("a", tagged, R"(["nfs4"])"), "are for an upstream whose programs include \"nfs3\""},
      {upstream("a", tagged, R"(["nfs3", "nfs2"])"), "remove nfs2 from programs"},
      {upstream("a", tagged, R"(["nfs3", "nfsacl2"])"), "remove nfsacl2 from programs"},
      {upstream("a", tagged, R"(["nfs3", "mount3"])"), "remove mount3 from programs"},
      {upstream("a", tagged, R"(["nfs3", "100005.2"])"), "remove 100005.2 from programs"},
      {upstream("a", tagged, R"(["nfs3", "nlm4"])"), "remove nlm4 from programs"},
      {rdma, "are for an upstream over TCP"},
      {upstream("a", tagged, R"(["nfs3", "nfsacl3"])") + upstream("b", "prefix = \"/b\""),
       "nfsacl3 has to be in programs of all upstreams with exports or prefix, or of none"},
      {upstream("a", tagged) + upstream("b", tagged),
       "clients would find /vol1 of upstream 'a' and /vol1 of this one at the same place: give one of them a "
       "prefix."},
      {upstream("a", tagged) + upstream("b", exports("\"/vol1/below\"")), "at the same place"},
      {upstream("a", exports("\"/\"")) + upstream("b", "prefix = \"/b\""), "at the same place"},
      {upstream("a", "prefix = \"/a\"") + upstream("b", exports("\"/a/b\"")), "at the same place"},
      {upstream("a", "prefix = \"/a\"") + upstream("b", "prefix = \"/x\"\n" + exports("\"/\"")) +
           upstream("c", exports("\"/x\"")),
       "/x of upstream 'b' and /x of this one"},
      {upstream("a", exports("\"vol1\"")), "exports takes paths of the upstream such as \"/vol1\""},
      {upstream("a", exports("\"/vol1/\"")), "exports takes paths"},
      {upstream("a", exports("\"/vol1/../vol2\"")), "exports takes paths"},
      {upstream("a", exports("7")), "exports takes paths"},
      {upstream("a", exports(many)), "a list of at most 16 paths"},
      {upstream("a", "exports = \"/vol1\""), "a list of at most 16 paths"},
      {upstream("a", "prefix = \"nas\""), "prefix has to be a path such as \"/nas1\""},
      {upstream("a", "prefix = \"/\""), "prefix has to be a path"},
      {upstream("a", tagged) + locks, "locks.enabled is for one upstream without exports and prefix"},
  };
  for (const auto& [text, expected] : cases)
    EXPECT_NE(refusal(text).find(expected), std::string::npos) << text << refusal(text);
  // And what resembles these is not.
  EXPECT_EQ(
      refusal(upstream("a", exports("\"/vol1\", \"/vol1/below\"")) + upstream("b", exports("\"/vol10\""))),
      "");
  EXPECT_EQ(
      refusal(upstream("a", "exports = []\nprefix = \"\"", R"(["nfs3", "nfs2", "mount3", "nlm4"])") + locks),
      "");
  EXPECT_EQ(refusal(upstream("a", tagged, R"(["nfs3", "nfsacl3", "nfs4"])")), "");
}

TEST(ExportGroups, exports_change_with_a_reload_and_whether_there_are_any_does_not) {
  const auto parsed = [](const std::string& text) { return config::parse(text, "f"); };
  const std::string b = upstream("b", "prefix = \"/b\"");
  const auto before = parsed(upstream("a", exports("\"/vol1\"")) + b);
  const auto after = parsed(b + upstream("a", "prefix = \"/a\"\n" + exports("\"/vol1\", \"/vol2\"")));
  const config::Changes changes = config::compare(before, after);
  EXPECT_EQ(changes.live, (std::vector<std::string>{"upstream.a.exports", "upstream.a.prefix"}));
  EXPECT_TRUE(changes.restart_both.empty());
  const segment::ConfigBlock live = config::live_part(before, after).block;
  EXPECT_EQ(live.upstreams[0].export_count, 2u);
  EXPECT_STREQ(live.upstreams[0].exports[1].data(), "/vol2");
  EXPECT_STREQ(live.upstreams[0].prefix, "/a");

  const auto without = parsed(upstream("a", ""));
  const auto with = parsed(upstream("a", exports("\"/vol1\"")));
  for (const auto& [from, to] : {std::pair(without, with), std::pair(with, without)}) {
    EXPECT_TRUE(config::compare(from, to).live.empty());
    EXPECT_EQ(config::compare(from, to).restart_both, std::vector<std::string>{"upstream.a"});
    const segment::UpstreamConfig kept = config::live_part(from, to).block.upstreams[0];
    EXPECT_EQ(kept.handle_tag, from.block.upstreams[0].handle_tag);
    EXPECT_EQ(kept.export_count, from.block.upstreams[0].export_count);
  }
}

TEST(ExportPath, plain_paths_and_what_is_below) {
  for (const char* const path : {"/", "/a", "/a/b", "/.a", "/..a/b...", "/a b"})
    EXPECT_TRUE(is_plain_path(path)) << path;
  for (const char* const path : {"", "a", "//", "/a/", "/a//b", "/.", "/..", "/a/.", "/a/../b", "/a/.."})
    EXPECT_FALSE(is_plain_path(path)) << path;
  EXPECT_TRUE(is_at_or_below("/a/b", "/a"));
  EXPECT_TRUE(is_at_or_below("/a", "/a"));
  EXPECT_TRUE(is_at_or_below("/a", "/"));
  EXPECT_FALSE(is_at_or_below("/ab", "/a"));
  EXPECT_FALSE(is_at_or_below("/a", "/a/b"));
}

}  // namespace
}  // namespace sluice
