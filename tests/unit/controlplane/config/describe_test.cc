// SPDX-License-Identifier: Apache-2.0
//
// Descriptions of configurations, and the changes of a reload.
#include "controlplane/config/changes.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <map>
#include <string>

#include "controlplane/config/keys.h"
#include "tests/unit/controlplane/config/every_key.h"

namespace sluice {
namespace {

TEST(Config, the_sample_is_accepted_and_says_the_defaults) {
  Json sample = config::describe(config::load_file(SLUICE_SAMPLE_CONFIG));
  EXPECT_EQ(sample["export"].size(), 1u);  // nothing is exported by default
  sample["export"] = Json::array();
  EXPECT_EQ(sample, config::describe(config::defaults()));
  EXPECT_EQ(config::describe(config::parse("", "x")), config::describe(config::defaults()));
}

TEST(Config, the_sample_has_every_key_and_says_what_it_is_for) {
  std::map<std::string, std::string> lines;  // by table and key
  std::string table;
  std::ifstream file(SLUICE_SAMPLE_CONFIG);
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("# ", 0) == 0) line.erase(0, 2);  // keys that are commented out count too
    // A table header is alone on its line, except for a comment.
    const auto name = line.find_first_not_of('[');
    const auto end = line.find(']');
    const auto behind = end == std::string::npos ? end : line.find_first_not_of("] ", end);
    if (name != 0 && end != std::string::npos && (behind == std::string::npos || line[behind] == '#'))
      table = line.substr(name, end - name);
    const auto equals = line.find(" = ");
    if (equals != std::string::npos && line.find_first_of(" #") == equals)
      lines[table + '.' + line.substr(0, equals)] = line;
  }
  const auto described = config::describe(config::parse(lab::kEveryKey, "f"));
  for (const auto& [name, value] : described.items()) {
    if (!(value.is_array() || value.is_object())) {
      EXPECT_EQ(lines.count('.' + name), 1u) << name;
      continue;
    }
    const Json& keys = value.is_array() ? value[0] : value;
    for (const auto& [key, of] : keys.items()) {
      const std::string full = name + '.' + key;
      if (!of.is_array() || of.empty() || !of[0].is_object()) {
        EXPECT_EQ(lines.count(full), 1u) << full;
        continue;
      }
      for (const auto& [inner, ignored] : of[0].items())
        EXPECT_EQ(lines.count(full + '.' + inner), 1u) << full << '.' << inner;
    }
  }
}

TEST(Config, a_reload_tells_what_takes_effect_and_what_wants_a_restart) {
  const auto before = config::parse("[[export]]\npath = \"/a\"\n[[export]]\npath = \"/b\"\n", "f");
  const auto after = config::parse(
      "log_level = \"debug\"\n[observability]\nslow_call_ms = 250\n[transport]\ncredits = "
      "32\n[admin]\nread_group = "
      "\"adm\"\n[kerberos]\nenabled = true\n[policy]\nmax_credits = 32\nslots = 7\n"
      "[[export]]\npath = \"/b\"\nread_only = true\n[[export]]\npath = \"/c\"\n",
      "f");
  const config::Changes changes = config::compare(before, after);
  EXPECT_EQ(changes.live,
            (std::vector<std::string>{"export./a", "export./b", "export./c", "log_level",
                                      "observability.slow_call_ms", "policy.max_credits", "policy.slots"}));
  EXPECT_EQ(changes.restart_control, (std::vector<std::string>{"admin.read_group", "kerberos.enabled"}));
  EXPECT_EQ(changes.restart_both, std::vector<std::string>{"transport.credits"});
  const config::Config live = config::live_part(before, after);
  EXPECT_EQ(live.block.credits, 64u);
  EXPECT_EQ(live.admin_read_group, "");
  EXPECT_EQ(live.policy_slots, 7u);
  EXPECT_EQ(live.log_level, "debug");
  EXPECT_EQ(live.block.slow_call_ms, 250u);
}

TEST(Config, addresses_and_ports_of_upstreams_change_with_a_reload) {
  const auto upstream = [](const std::string& name, const std::string& rest) {
    return "[[upstream]]\nname = \"" + name + "\"\n" + rest;
  };
  const auto before = config::parse(upstream("a", "address = \"192.0.2.1\"\nprograms = [\"nfs4\"]\n") +
                                        upstream("b", "address = \"192.0.2.2\"\nprograms = [\"nfs3\"]\n"),
                                    "f");
  const auto after = config::parse(
      upstream("c", "address = \"192.0.2.3\"\nprograms = [\"mount3\"]\n") +
          upstream("b", "address = [\"nas\", \"192.0.2.5\"]\nprograms = [\"nfs3\", \"nlm4\"]\nport = 7\n") +
          upstream("a", "address = \"192.0.2.1\"\nprograms = [\"nfs4\"]\n"),
      "f");
  const config::Changes changes = config::compare(before, after);
  EXPECT_EQ(changes.live,
            (std::vector<std::string>{"upstream.b.address", "upstream.b.port", "upstream.b.programs"}));
  EXPECT_EQ(changes.restart_both, std::vector<std::string>{"upstream.c"});
  const config::Config live = config::live_part(before, after);
  ASSERT_EQ(live.block.upstream_count, 2u);
  EXPECT_STREQ(live.block.upstreams[0].hosts[0].data(), "192.0.2.1");
  EXPECT_EQ(live.block.upstreams[1].host_count, 2u);
  EXPECT_STREQ(live.block.upstreams[1].hosts[0].data(), "nas");
  EXPECT_STREQ(live.block.upstreams[1].hosts[1].data(), "192.0.2.5");
  EXPECT_EQ(live.block.upstreams[1].port, 7u);
  EXPECT_EQ(live.block.upstreams[1].route_count, 2u);
  EXPECT_TRUE(config::compare(before, live).restart_both.empty()) << "nothing else has changed";
}

TEST(Config, the_settings_of_an_upstream_change_with_a_reload) {
  const auto parsed = [](const std::string& rest, const std::string& more = "") {
    return config::parse(
        "[[upstream]]\nname = \"u\"\naddress = \"192.0.2.1\"\nprograms = [\"nfs3\"]\n" + rest + more, "f");
  };
  const std::string settings =
      "connections = 7\ncall_timeout_s = 9\nprivileged_port = true\npnfs = \"pass\"\nreferrals = \"pass\"\n"
      "mount_port = 8\nclients = [\"192.0.2.0/24\"]\n";
  const auto before = parsed("");
  const auto after = parsed(settings);
  const config::Changes changes = config::compare(before, after);
  EXPECT_EQ(changes.live,
            (std::vector<std::string>{"upstream.u.call_timeout_s", "upstream.u.clients",
                                      "upstream.u.connections", "upstream.u.mount_port", "upstream.u.pnfs",
                                      "upstream.u.privileged_port", "upstream.u.referrals"}));
  EXPECT_TRUE(changes.restart_both.empty());
  EXPECT_TRUE(changes.restart_control.empty());
  const segment::UpstreamConfig live = config::live_part(before, after).block.upstreams[0];
  EXPECT_EQ(live.connections, 7u);
  EXPECT_EQ(live.call_timeout_s, 9u);
  EXPECT_EQ(live.privileged_port, 1u);
  EXPECT_EQ(live.withheld.pnfs, 0u);
  EXPECT_EQ(live.withheld.referrals, 0u);
  EXPECT_EQ(live.mount_port, 8u);
  EXPECT_EQ(live.allowed_count, 1u);
  const std::string kerberos = "[kerberos]\nenabled = true\n";
  EXPECT_EQ(config::compare(parsed("", kerberos), parsed(settings, kerberos)).restart_control,
            (std::vector<std::string>{"upstream.u.clients", "upstream.u.privileged_port"}))
      << "its server reads them at the start";
}

TEST(Config, an_upstream_over_rdma_has_no_more_connections_than_at_the_start) {
  const auto with = [](int connections) {
    return config::parse(
        "[device]\ndriver = \"verbs\"\n[[upstream]]\nname = \"u\"\ntransport = \"rdma\"\n"
        "address = \"192.0.2.1\"\nprograms = [\"nfs3\"]\nconnections = " +
            std::to_string(connections) + "\n",
        "f");
  };
  const std::vector<std::string> key{"upstream.u.connections"};
  const auto started = with(8);
  EXPECT_EQ(config::compare(started, with(9)).restart_both, key);
  EXPECT_EQ(config::live_part(started, with(9)).block.upstreams[0].connections, 8u);
  EXPECT_EQ(config::compare(started, with(2)).live, key);
  const auto fewer = config::live_part(started, with(2));
  EXPECT_EQ(fewer.block.upstreams[0].connections, 2u);
  EXPECT_EQ(fewer.block.connections_to_servers(), 8u) << "as many as the planes have room for";
  EXPECT_EQ(config::live_part(fewer, with(8)).block.upstreams[0].connections, 8u);
  EXPECT_EQ(config::live_part(fewer, with(9)).block.upstreams[0].connections, 2u);
}

/// The port and the connections of the other transport would be applied to the present one.
TEST(Config, an_upstream_that_fits_no_slot_waits_for_a_restart_with_all_keys) {
  const auto over = [](const std::string& transport) {
    return config::parse(
        "[device]\ndriver = \"verbs\"\n[[upstream]]\nname = \"u\"\naddress = \"192.0.2.1\"\n"
        "programs = [\"nfs3\"]\n" +
            transport,
        "f");
  };
  const auto before = over("");
  const auto after = over("transport = \"rdma\"\ncall_timeout_s = 9\n");
  const config::Changes changes = config::compare(before, after);
  EXPECT_TRUE(changes.live.empty());
  EXPECT_EQ(changes.restart_both,
            (std::vector<std::string>{"upstream.u.call_timeout_s", "upstream.u.connections",
                                      "upstream.u.port", "upstream.u.transport"}));
  const segment::UpstreamConfig live = config::live_part(before, after).block.upstreams[0];
  EXPECT_EQ(live.port, 2049u);
  EXPECT_EQ(live.connections, 4u);
  EXPECT_EQ(live.call_timeout_s, 0u);
}

TEST(Config, an_upstream_may_be_called_like_a_part_of_one) {
  const auto port = [](const std::string& rest) {
    return config::parse(
        "[[upstream]]\nname = \"port\"\naddress = \"192.0.2.1\"\nprograms = [\"nfs4\"]\n" + rest, "f");
  };
  EXPECT_EQ(config::compare(port(""), port("listen_port = 64")).restart_both,
            std::vector<std::string>{"upstream.port.listen_port"});
}

TEST(Config, hosts_and_their_keys_change_with_a_reload) {
  const std::string host = "[[host_authentication.host]]\nname = ";
  const auto before =
      config::parse(host + "\"a\"\nkey_files = [\"/a\"]\n" + host + "\"b\"\nkey_files = [\"/b\"]\n", "f");
  const auto after = config::parse(
      host + "\"b\"\nkey_files = [\"/b\", \"/c\"]\n" + host + "\"c.example\"\nkey_files = [\"/c\"]\n", "f");
  const config::Changes changes = config::compare(before, after);
  EXPECT_EQ(changes.live,
            (std::vector<std::string>{"host_authentication.host.a", "host_authentication.host.b",
                                      "host_authentication.host.c.example"}));
  EXPECT_TRUE(changes.restart_control.empty() && changes.restart_both.empty());
  const config::Config live = config::live_part(before, after);
  EXPECT_EQ(config::describe(live), config::describe(after));
  const config::Config none = config::parse("", "f");
  EXPECT_EQ(config::compare(none, before).live,
            (std::vector<std::string>{"host_authentication.host.a", "host_authentication.host.b"}));
}

TEST(Config, the_hosts_of_an_export_change_with_a_reload) {
  const std::string text =
      "[host_authentication]\nmethod = \"psk\"\n[[host_authentication.host]]\nname = \"a\"\nkey_files = "
      "[\"/a\"]\n"
      "[[export]]\npath = \"/x\"\n";
  const auto before = config::parse(text, "f");
  const auto after = config::parse(text + "hosts = [\"a\"]\n", "f");
  EXPECT_EQ(config::compare(before, after).live, std::vector<std::string>{"export./x"});
  EXPECT_EQ(config::describe(config::live_part(before, after)), config::describe(after));
}

TEST(Config, an_export_keeps_its_place_whatever_comes_and_goes) {
  const auto block_of = [](const std::string& paths) {
    std::string text;
    for (const char path : paths) text += std::string("[[export]]\npath = \"/") + path + "\"\n";
    return config::parse(text, "f").block;
  };
  segment::ConfigBlock block = block_of("abc");
  segment::ConfigBlock next = block_of("cd");
  config::keep_places(block, next);
  EXPECT_STREQ(next.exports[2].path, "/c");
  EXPECT_STREQ(next.exports[3].path, "/d");
  EXPECT_EQ(next.exports[0].in_use + next.exports[1].in_use, 0u);
  segment::ConfigBlock again = block_of("dab");
  config::keep_places(next, again);
  EXPECT_STREQ(again.exports[0].path, "/a");
  EXPECT_EQ(again.exports[0].in_use, 1u);
  EXPECT_EQ(again.exports[2].in_use, 0u);
  EXPECT_EQ(again.exports[3].in_use, 1u);
  // The table of paths is full until the data plane is restarted.
  for (std::size_t i = 0; i < again.exports.size(); ++i)
    std::snprintf(again.exports[i].path, sizeof again.exports[i].path, "/old%zu", i);
  segment::ConfigBlock more = block_of("z");
  EXPECT_THROW(config::keep_places(again, more), config::ConfigError);
}

TEST(Config, a_class_keeps_its_number_whatever_comes_and_goes) {
  const auto config_of = [](const std::string& names) {
    std::string text;
    for (const char name : names)
      text += std::string("[[client_class]]\nname = \"") + name + "\"\nclients = [\"10.0.0.0/8\"]\n";
    return config::parse(text, "f");
  };
  config::Config before = config_of("abc");
  config::Config next = config_of("dc");
  config::keep_classes(before.block, next);
  ASSERT_EQ(next.classes.size(), 5u);
  EXPECT_EQ(next.classes[3].name, "c");
  EXPECT_EQ(next.classes[4].name, "d");
  EXPECT_TRUE(next.classes[1].clients.empty());
  EXPECT_EQ(config::describe(next)["client_class"].size(), 2u);
  EXPECT_EQ(next.block.class_count, 5u);
  EXPECT_STREQ(next.block.class_names[4].data(), "d");
  // When all class numbers are used, one of a removed class is reused.
  config::Config many = config_of("efgh");
  config::keep_classes(next.block, many);
  ASSERT_EQ(many.classes.size(), segment::kMaxClasses);
  EXPECT_EQ(many.classes[5].name, "e");
  EXPECT_EQ(config::describe(many)["client_class"].size(), 4u);
}

}  // namespace
}  // namespace sluice
