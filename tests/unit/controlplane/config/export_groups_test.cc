// SPDX-License-Identifier: Apache-2.0
//
// Several upstreams for NFS version 3: permitted configurations and their effect.
#include "controlplane/config/upstreams.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "controlplane/config/changes.h"
#include "controlplane/config/config.h"
#include "controlplane/config/keys.h"
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
  const Json shown = config::describe(config::parse(text, "f"))["upstream"][2];
  EXPECT_EQ(shown["prefix"], "/c");
  EXPECT_EQ(shown["exports"], Json{"/vol1"});
}

/// Clients hold the tags in their file handles. A tag depends on nothing but the name, in every version of
/// the gateway.
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
       "f:6: upstream 'a' has nfs3 already. Several upstreams may have it if each has exports or a prefix."},
      {upstream("a", tagged) + upstream("b", ""),
       "upstream 'a' has nfs3 already. Several upstreams may have it"},
      {upstream("a", "") + upstream("b", tagged),
       "upstream 'a' has nfs3 already. Several upstreams may have it"},
      {upstream("a", "", R"(["nfs4"])") + upstream("b", "", R"(["nfs4"])"),
       "upstream 'a' has nfs4 already. Several upstreams may have it if each has a listen_port of its own."},
      {upstream("a", tagged, R"(["nfs3", "nfs4"])") + upstream("b", "prefix = \"/b\"", R"(["nfs3", "nfs4"])"),
       "upstream 'a' has nfs4 already"},
      {upstream("a", tagged, R"(["nfs4"])"), "require an upstream whose programs include \"nfs3\""},
      {upstream("a", tagged, R"(["nfs3", "nfs2"])"), "Remove nfs2 from programs"},
      {upstream("a", tagged, R"(["nfs3", "nfsacl2"])"), "Remove nfsacl2 from programs"},
      {upstream("a", tagged, R"(["nfs3", "mount3"])"), "Remove mount3 from programs"},
      {upstream("a", tagged, R"(["nfs3", "100005.2"])"), "Remove 100005.2 from programs"},
      {upstream("a", tagged, R"(["nfs3", "nlm4"])"), "Remove nlm4 from programs"},
      {rdma, "require an upstream over TCP"},
      {upstream("a", tagged, R"(["nfs3", "nfsacl3"])") + upstream("b", "prefix = \"/b\""),
       "nfsacl3 has to be in programs of all upstreams with exports or prefix, or of none"},
      {upstream("a", tagged) + upstream("b", tagged),
       "Clients would find /vol1 of upstream 'a' and /vol1 of this one at the same path. Give one of them a "
       "prefix."},
      {upstream("a", tagged) + upstream("b", exports("\"/vol1/below\"")), "at the same path"},
      {upstream("a", exports("\"/\"")) + upstream("b", "prefix = \"/b\""), "at the same path"},
      {upstream("a", "prefix = \"/a\"") + upstream("b", exports("\"/a/b\"")), "at the same path"},
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
      {upstream("a", tagged) + locks, "locks.enabled supports one upstream, without exports and prefix"},
  };
  for (const auto& [text, expected] : cases)
    EXPECT_NE(refusal(text).find(expected), std::string::npos) << text << refusal(text);
  // Similar configurations that are valid.
  EXPECT_EQ(
      refusal(upstream("a", exports("\"/vol1\", \"/vol1/below\"")) + upstream("b", exports("\"/vol10\""))),
      "");
  EXPECT_EQ(
      refusal(upstream("a", "exports = []\nprefix = \"\"", R"(["nfs3", "nfs2", "mount3", "nlm4"])") + locks),
      "");
  EXPECT_EQ(refusal(upstream("a", tagged, R"(["nfs3", "nfsacl3", "nfs4"])")), "");
}

TEST(OwnPorts, each_port_has_its_programs) {
  const std::string nfs4 = R"(["nfs4"])";
  const std::string text =
      upstream("a", "", R"(["nfs3", "nfs4"])") + upstream("b", "listen_port = 20050", nfs4) +
      upstream("c", "listen_port = 20051", nfs4) + upstream("d", "listen_port = 20051", R"(["400000.1"])");
  const config::Config config = config::parse(text, "f");
  EXPECT_EQ(config.block.listen_ports(), (std::vector<std::uint16_t>{20049, 20050, 20051}));
  EXPECT_EQ(config.block.services_at(20049), 0u);
  EXPECT_EQ(config.block.services_at(20051), 20051u);
  EXPECT_EQ(config.block.port_of(config.block.upstreams[0]), 20049u);
  EXPECT_EQ(config.block.port_of(config.block.upstreams[1]), 20050u);
  EXPECT_EQ(config::describe(config)["upstream"][1]["listen_port"], 20050);
  EXPECT_EQ(config::upstream_of(config.block, {100003, 4}), &config.block.upstreams[0]);
  EXPECT_EQ(config::upstream_of(config.block, {400000, 1}), nullptr);
}

TEST(OwnPorts, what_contradicts_itself_is_refused) {
  const std::string nfs4 = R"(["nfs4"])";
  const std::pair<std::string, const char*> cases[] = {
      {upstream("a", "listen_port = 20049", nfs4), "f:1: listen_port is the port of the other upstreams"},
      {upstream("a", "listen_port = 0", nfs4), "listen_port has to be"},
      {upstream("a", "listen_port = 70000", nfs4), "listen_port has to be"},
      {upstream("a", "listen_port = 20050", R"(["nfs4", "nfs3"])"), "Remove nfs3 from programs"},
      {upstream("a", "listen_port = 20050", R"(["nfsacl3"])"), "Remove nfsacl3 from programs"},
      {upstream("a", "listen_port = 20050", R"(["mount3"])"), "Remove mount3 from programs"},
      {upstream("a", "listen_port = 20050\nprefix = \"/a\"", nfs4),
       "require an upstream whose programs include \"nfs3\""},
      {upstream("a", "listen_port = 20050", nfs4) + upstream("b", "listen_port = 20050", nfs4),
       "upstream 'a' has nfs4 already"},
  };
  for (const auto& [text, expected] : cases)
    EXPECT_NE(refusal(text).find(expected), std::string::npos) << text << refusal(text);
}

TEST(ExportGroups, exports_change_with_a_reload) {
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
    EXPECT_EQ(config::compare(from, to).live, std::vector<std::string>{"upstream.a.exports"});
    const segment::UpstreamConfig then = config::live_part(from, to).block.upstreams[0];
    EXPECT_EQ(then.handle_tag, to.block.upstreams[0].handle_tag);
    EXPECT_EQ(then.export_count, to.block.upstreams[0].export_count);
  }
}

/// A running data plane. It has no names, because the plan follows from the configuration.
constexpr segment::UpstreamPlaces kDataPlane{.count = segment::kMaxUpstreams, .names = {}};

/// Reads a file with two upstream slots, on a device that listens at further ports at any time.
config::Config with_slots(const std::string& text, int slots = 2, const std::string& more = "") {
  return config::parse("[forward]\nupstreams_max = " + std::to_string(slots) + "\n" + more +
                           "[device]\ndriver = \"verbs\"\n" + text,
                       "f");
}
std::string at(const std::string& name, int port, const std::string& programs = R"(["nfs4"])") {
  return upstream(name, "listen_port = " + std::to_string(port), programs);
}
std::string over_rdma(const std::string& name, const std::string& more = "",
                      const std::string& programs = R"(["nfs3"])") {
  return upstream(name, "transport = \"rdma\"\nconnections = 4\n" + more, programs);
}

TEST(UpstreamSlots, one_of_any_kind_comes_by_a_reload_while_there_is_a_slot) {
  const std::string a = upstream("a", exports("\"/vol1\""));
  const auto before = with_slots(a);
  const std::vector<std::string> b{"upstream.b"};
  for (const std::string& more :
       {upstream("b", "prefix = \"/b\""), upstream("b", "prefix = \"/b\"\nconnections = 9\npnfs = \"pass\""),
        upstream("b", "", R"(["536871203.1"])"), upstream("b", "", R"(["nfs4"])"), at("b", 20051)}) {
    const auto after = with_slots(a + more);
    EXPECT_EQ(config::compare(before, after, kDataPlane).live, b) << more;
    EXPECT_TRUE(config::compare(before, after, kDataPlane).restart_both.empty()) << more;
    const config::Config live = config::live_part(before, after, kDataPlane);
    ASSERT_EQ(live.block.upstream_count, 2u) << more;
    EXPECT_STREQ(live.block.upstreams[1].name, "b");
    EXPECT_TRUE(config::compare(live, after, kDataPlane).live.empty()) << more;
    EXPECT_EQ(config::compare(before, after).restart_both, b) << "there is no data plane";
  }
  const auto two = with_slots(upstream("c", "prefix = \"/c\"") + a + upstream("b", "prefix = \"/b\""), 3);
  EXPECT_EQ(config::compare(before, two, kDataPlane).live, std::vector<std::string>{"upstream.c"});
  EXPECT_EQ(config::compare(before, two, kDataPlane).restart_both,
            (std::vector<std::string>{"forward.upstreams_max", "upstream.b"}))
      << "the slots of the start are taken";
  EXPECT_EQ(config::live_part(before, two, kDataPlane).block.slots().count, 2u);
}

TEST(UpstreamSlots, programs_and_ports_change_by_a_reload) {
  const auto before = with_slots(upstream("a", "", R"(["nfs3", "nfs4"])"));
  const auto after = with_slots(upstream("a", "", R"(["nfs3", "nfsacl3"])"));
  EXPECT_EQ(config::compare(before, after).live, std::vector<std::string>{"upstream.a.programs"});
  EXPECT_TRUE(config::takes(config::live_part(before, after).block.upstreams[0], {100227, 3}));
  EXPECT_EQ(config::compare(with_slots(at("a", 20050)), with_slots(at("a", 20051))).live,
            std::vector<std::string>{"upstream.a.listen_port"});
  auto loopback = with_slots(at("a", 20050));
  loopback.block.driver = segment::Driver::Loopback;
  EXPECT_EQ(config::compare(loopback, with_slots(at("a", 20051))).restart_both,
            (std::vector<std::string>{"device.driver", "upstream.a.listen_port"}))
      << "it listens at the start only";
}

TEST(UpstreamSlots, two_upstreams_exchange_their_programs_by_a_reload) {
  const auto before = with_slots(upstream("a", "", R"(["nfs3"])") + upstream("b", "", R"(["nfs4"])"));
  const auto after = with_slots(upstream("a", "", R"(["nfs4"])") + upstream("b", "", R"(["nfs3"])"));
  EXPECT_EQ(config::compare(before, after).live,
            (std::vector<std::string>{"upstream.a.programs", "upstream.b.programs"}));
}

/// The data plane has started without files, so it serves NFS 3 from an upstream until it ends.
TEST(UpstreamSlots, nfs3_goes_where_it_went_at_the_start) {
  const std::string files = "[[export]]\npath = \"/a\"\nclients = []\n";
  const std::string nfs4 = upstream("a", "", R"(["nfs4"])");
  const auto memory = with_slots(nfs4 + files);
  const auto forwarded = with_slots(upstream("a", "", R"(["nfs3"])"));
  EXPECT_EQ(config::compare(memory, forwarded).restart_both, std::vector<std::string>{"upstream.a.programs"});
  const auto to_memory = config::live_part(forwarded, memory);
  EXPECT_EQ(to_memory.block.exports[0].in_use, 0u);
  EXPECT_EQ(config::compare(forwarded, memory).restart_both, std::vector<std::string>{"export./a"});
}

TEST(UpstreamSlots, upstreams_over_rdma_come_while_there_are_connections_for_them) {
  const std::string one_more = "rdma_upstreams_max = 2\n";
  const auto before = with_slots(over_rdma("a"), 3, one_more);
  EXPECT_EQ(before.block.connections_to_servers(), 8u);
  const std::vector<std::string> b{"upstream.b"};
  const auto after =
      with_slots(over_rdma("a") + over_rdma("b", "listen_port = 20051", R"(["nfs4"])"), 3, one_more);
  EXPECT_EQ(config::compare(before, after, kDataPlane).live, b);
  const auto two = config::live_part(before, after, kDataPlane);
  EXPECT_EQ(two.block.connections_to_servers(), 8u) << "as many as the planes have room for";
  EXPECT_EQ(two.block.listen_ports(), (std::vector<std::uint16_t>{20049, 20051}));
  const auto three = with_slots(over_rdma("a") + over_rdma("b", "listen_port = 20051", R"(["nfs4"])") +
                                    over_rdma("c", "listen_port = 20052", R"(["nfs4"])"),
                                3, "rdma_upstreams_max = 3\n");
  EXPECT_EQ(config::compare(two, three, kDataPlane).restart_both,
            (std::vector<std::string>{"forward.rdma_upstreams_max", "upstream.c"}));
  const auto larger = with_slots(
      over_rdma("a") + upstream("b", "transport = \"rdma\"\nconnections = 5", R"(["nfs4"])"), 3, one_more);
  EXPECT_EQ(config::compare(before, larger, kDataPlane).restart_both, b) << "there are four for each";

  const auto both_kinds = with_slots(over_rdma("a") + upstream("b", "", R"(["nfs4"])"), 3, one_more);
  const auto changed = with_slots(over_rdma("a") + over_rdma("b", "", R"(["nfs4"])"), 3, one_more);
  EXPECT_EQ(config::compare(both_kinds, changed).live,
            (std::vector<std::string>{"upstream.b.port", "upstream.b.transport"}));
  EXPECT_EQ(config::live_part(both_kinds, changed).block.upstreams[1].port, 20049u);
}

TEST(UpstreamSlots, one_goes_and_comes_back_by_a_reload) {
  for (const std::string& b :
       {upstream("b", "prefix = \"/b\""), at("b", 20050), upstream("b", "", R"(["nfs4"])")}) {
    const std::string a = upstream("a", exports("\"/vol1\""));
    const auto both = with_slots(a + b);
    config::Changes changes = config::compare(both, with_slots(a));
    EXPECT_EQ(changes.live, std::vector<std::string>{"upstream.b"});
    EXPECT_TRUE(changes.restart_both.empty());
    const config::Config without = config::live_part(both, with_slots(a));
    ASSERT_EQ(without.block.upstream_count, 2u) << "it keeps its slot";
    EXPECT_EQ(without.block.upstreams[0].removed, 0u);
    EXPECT_EQ(without.block.upstreams[1].removed, 1u);
    EXPECT_EQ(config::describe(without), config::describe(with_slots(a)));
    EXPECT_TRUE(config::compare(without, with_slots(a)).live.empty()) << "it is removed already";
    changes = config::compare(without, both);
    EXPECT_EQ(changes.live, std::vector<std::string>{"upstream.b"});
    EXPECT_EQ(config::live_part(without, both).block.upstreams[1].removed, 0u);
  }
}

TEST(UpstreamSlots, those_of_removed_ones_are_given_to_others_behind_the_free_ones_who_went_first_first) {
  const auto parsed = [](const std::string& listed) {
    std::string text;
    for (const char name : listed) text += upstream({name}, "prefix = \"/" + std::string{name} + "\"");
    return with_slots(text, std::max(4, static_cast<int>(listed.size())));
  };
  auto running = parsed("abc");
  const auto reload = [&](const std::string& listed) {
    auto next = parsed(listed);
    const config::Changes changes = config::compare(running, next, kDataPlane);
    const std::uint64_t generation = running.block.generation + 1;
    const segment::ConfigBlock before = running.block;
    running = config::live_part(running, next, kDataPlane);
    running.block.generation = generation;
    config::keep_upstreams(before, running.block);
    std::string names;
    for (std::uint32_t i = 0; i < running.block.upstream_count; ++i) names += running.block.upstreams[i].name;
    for (const std::string& key : changes.restart_both) names += " " + key;
    return names;
  };
  EXPECT_EQ(reload("ab"), "abc");
  EXPECT_EQ(reload("a"), "abc");
  EXPECT_EQ(reload("ax"), "abcx") << "a free slot";
  EXPECT_EQ(reload("axy"), "abyx") << "that of the one removed first";
  EXPECT_EQ(reload("abxy"), "abyx") << "it is back";
  EXPECT_EQ(reload("abxyz"), "abyx forward.upstreams_max upstream.z") << "nobody has gone";
  EXPECT_EQ(reload("abxz"), "abzx") << "of one that goes by the same reload";
}

/// Clients find both at the same port under the same program, so both cannot be served.
TEST(UpstreamSlots, a_newcomer_has_the_slot_of_the_removed_one_that_it_replaces) {
  const auto before = with_slots(upstream("a", "", R"(["nfs3"])") + upstream("b", "", R"(["nfs4"])"), 4);
  const auto after = with_slots(upstream("a", "", R"(["nfs3"])") + upstream("c", "", R"(["nfs4"])"), 4);
  EXPECT_EQ(config::compare(before, after, kDataPlane).live,
            (std::vector<std::string>{"upstream.b", "upstream.c"}));
  const auto live = config::live_part(before, after, kDataPlane).block;
  ASSERT_EQ(live.upstream_count, 2u);
  EXPECT_STREQ(live.upstreams[1].name, "c");
  const auto of_both = with_slots(upstream("c", "", R"(["nfs3", "nfs4"])"), 4);
  EXPECT_EQ(config::compare(before, of_both, kDataPlane).restart_both, std::vector<std::string>{"upstream.c"})
      << "one of the two slots is not enough";
}

TEST(UpstreamSlots, there_are_enough_for_the_file) {
  const std::string a = upstream("a", exports("\"/vol1\""));
  const std::string b = upstream("b", "prefix = \"/b\"");
  EXPECT_EQ(refusal("[forward]\nupstreams_max = 1\n" + a), "");
  EXPECT_NE(
      refusal("[forward]\nupstreams_max = 1\n" + a + b).find("more [[upstream]] tables than upstreams_max"),
      std::string::npos);
  EXPECT_NE(refusal("[forward]\nrdma_upstreams_max = 2\n" + a).find("exceeds the number of slots"),
            std::string::npos);
  EXPECT_NE(refusal("[forward]\nrdma_upstreams_max = 1\n[device]\ndriver = \"verbs\"\n" + over_rdma("a") +
                    over_rdma("b", "", R"(["nfs4"])"))
                .find("more upstreams over RDMA than rdma_upstreams_max"),
            std::string::npos);
  EXPECT_NE(refusal("[forward]\nspare_upstreams = 1\n" + a).find("spare_upstreams has become upstreams_max"),
            std::string::npos);
}

TEST(UpstreamSlots, upstreams_keep_their_order) {
  const auto names = [](const segment::ConfigBlock& block) {
    std::string all;
    for (std::uint32_t i = 0; i < block.upstream_count; ++i) all += block.upstreams[i].name;
    return all;
  };
  const auto block_of = [](const std::string& listed) {
    std::string text;
    for (const char name : listed) text += upstream({name}, "prefix = \"/" + std::string{name} + "\"");
    return config::parse(text, "f").block;
  };
  segment::ConfigBlock next = block_of("dcxab");
  config::keep_upstreams(block_of("abcd"), next);
  EXPECT_EQ(names(next), "abcdx");
  next = block_of("xdy");
  config::keep_upstreams(block_of("abcd"), next);
  EXPECT_EQ(names(next), "xyd") << "others take the slots that are left";
  next = block_of("axcy");
  config::keep_upstreams(block_of("abc"), next);
  EXPECT_EQ(names(next), "axcy");
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
