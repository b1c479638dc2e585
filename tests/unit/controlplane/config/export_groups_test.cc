// SPDX-License-Identifier: Apache-2.0
//
// Several upstreams for NFS version 3: permitted configurations and their effect.
#include "controlplane/config/upstreams.h"

#include <gtest/gtest.h>

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

TEST(OwnPorts, another_one_wants_a_restart) {
  const auto with = [](const char* port) { return config::parse(upstream("a", port, R"(["nfs4"])"), "f"); };
  const config::Changes changes = config::compare(with("listen_port = 20050"), with("listen_port = 20051"));
  EXPECT_TRUE(changes.live.empty());
  EXPECT_EQ(changes.restart_both, std::vector<std::string>{"upstream.a"});
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

  const auto otherwise =
      parsed(upstream("a", exports("\"/vol1\"") + "\nclients = [\"192.0.2.0/24\"]\nmount_port = 7") + b);
  EXPECT_EQ(config::compare(before, otherwise).live,
            (std::vector<std::string>{"upstream.a.clients", "upstream.a.mount_port"}));
  EXPECT_TRUE(config::compare(before, otherwise).restart_both.empty());
  EXPECT_EQ(config::live_part(before, otherwise).block.upstreams[0].allowed_count, 1u);
  EXPECT_EQ(config::live_part(before, otherwise).block.upstreams[0].mount_port, 7u);

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

/// Returns the slots of a data plane that serves one upstream.
segment::UpstreamPlaces places(std::uint32_t count) {
  segment::UpstreamPlaces places{.count = count, .names = {}, .changes = {}};
  places.names[0] = {'a'};
  for (std::uint32_t i = 1; i < count; ++i) places.changes[i] = 1;
  return places;
}

TEST(SpareUpstreams, one_with_exports_of_its_own_comes_by_a_reload_while_there_is_a_place) {
  const auto parsed = [](const std::string& text) {
    return config::parse("[forward]\nspare_upstreams = 1\n" + text, "f");
  };
  const std::string a = upstream("a", exports("\"/vol1\""));
  const std::string b = upstream("b", "prefix = \"/b\"");
  const std::string c = upstream("c", "prefix = \"/c\"");
  const auto before = parsed(a);
  const auto after = parsed(c + a + b);
  const config::Changes changes = config::compare(before, after, places(2));
  EXPECT_EQ(changes.live, std::vector<std::string>{"upstream.c"});
  EXPECT_EQ(changes.restart_both, std::vector<std::string>{"upstream.b"}) << "the place is taken";
  const config::Config live = config::live_part(before, after, places(2));
  ASSERT_EQ(live.block.upstream_count, 2u);
  EXPECT_STREQ(live.block.upstreams[0].name, "a");
  EXPECT_STREQ(live.block.upstreams[1].name, "c");
  EXPECT_STREQ(live.block.upstreams[1].prefix, "/c");
  EXPECT_EQ(config::compare(live, after, places(2)).live, std::vector<std::string>{});
  EXPECT_EQ(config::compare(live, after, places(3)).live, std::vector<std::string>{"upstream.b"});
  EXPECT_EQ(config::compare(before, after).live, std::vector<std::string>{}) << "no data plane has a place";
  EXPECT_EQ(config::live_part(before, after).block.upstream_count, 1u);
  segment::UpstreamPlaces taken = places(2);
  taken.names[1] = {'z'};
  EXPECT_EQ(config::live_part(before, after, taken).block.upstream_count, 1u) << "another one has it";
}

TEST(SpareUpstreams, settings_may_differ_from_those_of_the_first_and_programs_may_not) {
  const auto parsed = [](const std::string& text) {
    return config::parse("[forward]\nspare_upstreams = 1\n" + text, "f");
  };
  const std::string a = upstream("a", exports("\"/vol1\""), R"(["nfs3", "nfs4"])");
  const auto before = parsed(a);
  const std::string mine = "prefix = \"/b\"\n";
  EXPECT_EQ(config::compare(before, parsed(a + upstream("b", mine)), places(2)).live.size(), 1u);
  EXPECT_EQ(config::compare(
                before, parsed(a + upstream("b", mine + "port = 2050\nmount_port = 7\nclients = [\"::/0\"]")),
                places(2))
                .live.size(),
            1u)
      << "what its place can take";
  for (const char* const other : {"connections = 5", "call_timeout_s = 9", "privileged_port = true",
                                  "pnfs = \"pass\"", "referrals = \"pass\""}) {
    const auto after = parsed(a + upstream("b", mine + other));
    EXPECT_EQ(config::compare(before, after, places(2)).live, std::vector<std::string>{"upstream.b"})
        << other;
    EXPECT_EQ(config::live_part(before, after, places(2)).block.upstream_count, 2u) << other;
  }
  const auto programs = [&](const std::string& list) {
    return config::compare(before, parsed(a + upstream("b", mine, list)), places(2)).live.size();
  };
  EXPECT_EQ(programs(R"(["nfs3", "536871203.1"])"), 0u) << "a program that no place has";
  const auto plain = parsed(a + upstream("b", "", R"(["536871203.1"])"));
  EXPECT_TRUE(config::compare(before, plain, places(2)).live.empty()) << "it has no exports of its own";
  // Access control lists (nfsacl3) follow the files: all upstreams have them, or none.
  auto without = parsed(upstream("a", exports("\"/vol1\"")));
  const auto with = parsed(upstream("a", exports("\"/vol1\""), R"(["nfs3", "nfsacl3"])") +
                           upstream("b", mine, R"(["nfs3", "nfsacl3"])"));
  EXPECT_TRUE(config::compare(without, with, places(2)).live.empty());
}

TEST(SpareUpstreams, one_at_a_port_of_its_own_comes_by_a_reload_beside_one_that_has_a_port) {
  const auto parsed = [](const std::string& text) {
    auto config = config::parse("[forward]\nspare_upstreams = 2\n" + text, "f");
    config.block.driver = segment::Driver::SoftRoce;
    return config;
  };
  const auto at = [](const std::string& name, int port, const std::string& programs = R"(["nfs4"])") {
    return upstream(name, "listen_port = " + std::to_string(port), programs);
  };
  const std::vector<std::string> b{"upstream.b"};
  const auto before = parsed(at("a", 20050));
  const auto after = parsed(at("a", 20050) + at("b", 20051));
  EXPECT_EQ(config::compare(before, after, places(3)).live, b);
  const config::Config live = config::live_part(before, after, places(3));
  EXPECT_EQ(live.block.listen_ports(), (std::vector<std::uint16_t>{20049, 20050, 20051}));
  EXPECT_TRUE(config::compare(live, after, places(3)).live.empty());
  EXPECT_EQ(config::compare(live, before, places(3)).restart_both, b) << "its clients would be lost";
  EXPECT_EQ(config::compare(live, parsed(at("a", 20050) + at("b", 20052)), places(3)).restart_both, b);

  EXPECT_EQ(config::compare(before, after, places(1)).restart_both, b) << "there is no place";
  const auto waits = [&](const config::Config& running, const std::string& more) {
    return config::compare(running, parsed(at("a", 20050) + more), places(3)).restart_both == b;
  };
  EXPECT_TRUE(waits(before, at("b", 20051, R"(["nfs4", "536871203.1"])"))) << "a program that no place has";
  EXPECT_TRUE(waits(before, at("b", 20051, R"(["536871203.1"])")));
  EXPECT_FALSE(waits(before, at("b", 20051) + "connections = 5\n"));
  EXPECT_TRUE(waits(before, upstream("b", "prefix = \"/b\""))) << "nobody has exports of his own";
  auto loopback = before;
  auto more = after;
  loopback.block.driver = more.block.driver = segment::Driver::Loopback;
  EXPECT_EQ(config::compare(loopback, more, places(3)).restart_both, b) << "it listens at start only";

  // Both kinds are added together. A slot that has been in use accepts upstreams with exports only.
  const std::string c = upstream("c", "prefix = \"/c\"");
  const auto both = parsed(at("a", 20050) + c);
  EXPECT_EQ(config::compare(both, parsed(at("a", 20050) + c + at("b", 20051)), places(4)).live, b);
  auto freed = places(2);
  freed.names[1] = {'c'};
  EXPECT_EQ(config::compare(both, parsed(at("a", 20050) + at("b", 20051)), freed).restart_both, b);
}

TEST(SpareUpstreams, one_over_rdma_comes_by_a_reload_where_all_with_a_port_are_over_rdma) {
  const auto parsed = [](const std::string& text) {
    return config::parse("[forward]\nspare_upstreams = 2\n[device]\ndriver = \"verbs\"\n" + text, "f");
  };
  const auto at = [](const std::string& name, int port, const std::string& more = "") {
    return upstream(
        name, "transport = \"rdma\"\nconnections = 4\nlisten_port = " + std::to_string(port) + "\n" + more,
        R"(["nfs4"])");
  };
  const std::vector<std::string> b{"upstream.b"};
  const auto before = parsed(at("a", 20050));
  const auto after = parsed(at("a", 20050) + at("b", 20051));
  EXPECT_EQ(before.block.connections_to_servers(), 12u);
  EXPECT_EQ(after.block.connections_to_servers(), 16u) << "with a restart it would leave both places";
  EXPECT_EQ(config::compare(before, after, places(3)).live, b);
  const config::Config live = config::live_part(before, after, places(3));
  EXPECT_EQ(live.block.listen_ports(), (std::vector<std::uint16_t>{20049, 20050, 20051}));
  EXPECT_EQ(live.block.connections_to_servers(), 12u) << "as many as the data plane has";
  EXPECT_TRUE(config::compare(live, after, places(3)).live.empty());
  EXPECT_EQ(config::compare(live, before, places(3)).restart_both, b) << "its clients would be lost";

  const auto waits = [&](const config::Config& running, const std::string& more) {
    return config::compare(running, parsed(at("a", 20050) + more), places(3)).restart_both == b;
  };
  EXPECT_FALSE(waits(before, at("b", 20051, "call_timeout_s = 9\n")));
  EXPECT_TRUE(waits(
      before, upstream("b", "transport = \"rdma\"\nconnections = 5\nlisten_port = 20051\n", R"(["nfs4"])")))
      << "there are four for each slot";
  EXPECT_TRUE(waits(before, upstream("b", "listen_port = 20051", R"(["nfs4"])"))) << "places are over RDMA";
  const auto mixed = config::parse("[forward]\nspare_upstreams = 2\n[device]\ndriver = \"verbs\"\n" +
                                       at("a", 20050) + upstream("c", "listen_port = 20052", R"(["nfs4"])"),
                                   "f");
  EXPECT_EQ(mixed.block.connections_to_servers(), 4u) << "places are over TCP";
}

TEST(RemovedUpstreams, one_with_nothing_but_its_exports_goes_and_comes_back_by_a_reload) {
  const auto parsed = [](const std::string& text) { return config::parse(text, "f"); };
  const std::string a = upstream("a", exports("\"/vol1\""), R"(["nfs3", "nfs4"])");
  const std::string b = upstream("b", "prefix = \"/b\"");
  const auto both = parsed(a + b);
  config::Changes changes = config::compare(both, parsed(a));
  EXPECT_EQ(changes.live, std::vector<std::string>{"upstream.b"});
  EXPECT_TRUE(changes.restart_both.empty());
  const config::Config without = config::live_part(both, parsed(a));
  ASSERT_EQ(without.block.upstream_count, 2u) << "it keeps its place";
  EXPECT_EQ(without.block.upstreams[0].removed, 0u);
  EXPECT_EQ(without.block.upstreams[1].removed, 1u);
  EXPECT_EQ(config::describe(without), config::describe(parsed(a)));
  EXPECT_TRUE(config::compare(without, parsed(a)).live.empty()) << "it is removed already";

  changes = config::compare(without, both);
  EXPECT_EQ(changes.live, std::vector<std::string>{"upstream.b"});
  EXPECT_TRUE(changes.restart_both.empty());
  EXPECT_EQ(config::live_part(without, both).block.upstreams[1].removed, 0u);
  changes = config::compare(without, parsed(a + upstream("b", "prefix = \"/b\"\nconnections = 7")));
  EXPECT_EQ(changes.live, (std::vector<std::string>{"upstream.b", "upstream.b.connections"}));
  EXPECT_TRUE(changes.restart_both.empty());

  EXPECT_EQ(config::compare(both, parsed(b)).restart_both, std::vector<std::string>{"upstream.a"})
      << "NFS 4 goes with it";
  EXPECT_EQ(config::live_part(both, parsed(b)).block.upstreams[0].removed, 0u);
}

TEST(RemovedUpstreams,
     their_places_are_given_to_others_behind_the_spare_ones_who_went_first_before_the_rest) {
  const auto parsed = [](const std::string& listed) {
    std::string text;
    for (const char name : listed) text += upstream({name}, "prefix = \"/" + std::string{name} + "\"");
    return config::parse("[forward]\nspare_upstreams = 1\n" + text, "f");
  };
  segment::UpstreamPlaces served = places(4);
  served.names[1] = {'b'};
  served.names[2] = {'c'};
  auto running = parsed("abc");
  const auto reload = [&](const std::string& listed) {
    auto next = parsed(listed);
    const config::Changes changes = config::compare(running, next, served);
    const std::uint64_t generation = running.block.generation + 1;
    running = config::live_part(running, next, served);
    running.block.generation = generation;
    config::keep_upstreams(running.block, running.block);
    std::string names;
    for (std::uint32_t i = 0; i < running.block.upstream_count; ++i) {
      std::memcpy(served.names[i].data(), running.block.upstreams[i].name, segment::kMaxNameBytes);
      names += running.block.upstreams[i].name;
    }
    for (const std::string& key : changes.restart_both) names += " " + key;
    return names;
  };
  EXPECT_EQ(reload("ab"), "abc");
  EXPECT_EQ(reload("a"), "abc");
  EXPECT_EQ(reload("ax"), "abcx") << "a spare place";
  EXPECT_EQ(reload("axy"), "abyx") << "that of the one removed first";
  EXPECT_EQ(reload("abxy"), "abyx") << "it is back";
  EXPECT_EQ(reload("abxyz"), "abyx upstream.z") << "nobody has gone";
  EXPECT_EQ(reload("abxz"), "abzx") << "of one that goes by the same reload";
  EXPECT_EQ(reload("xz"), "abzx");
  EXPECT_EQ(reload("xzcd"), "aczx upstream.d") << "the first one is none that changes";
}

TEST(SpareUpstreams, there_are_none_without_one_to_be_made_like_nor_more_than_fit) {
  const std::string spare = "[forward]\nspare_upstreams = 7\n";
  const std::string none =
      "spare_upstreams needs an [[upstream]] with exports, prefix or listen_port, whose settings spare "
      "upstreams have. Add one, or remove spare_upstreams.";
  EXPECT_NE(refusal(spare).find(none), std::string::npos);
  EXPECT_NE(refusal(spare + upstream("a", "")).find(none), std::string::npos);
  const std::string a = upstream("a", exports("\"/vol1\""));
  EXPECT_EQ(refusal(spare + a), "");
  EXPECT_NE(refusal(spare + a + upstream("b", "prefix = \"/b\""))
                .find("spare_upstreams and the [[upstream]] tables exceed 8 together."),
            std::string::npos);
}

TEST(SpareUpstreams, upstreams_keep_their_order) {
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
  EXPECT_EQ(names(next), "xyd") << "hot_add take the places that are left";
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
