// SPDX-License-Identifier: Apache-2.0
//
// Conflicts of a configuration with this host. Each defect is a sentence that names the key and the remedy.
#include "controlplane/config/machine.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <optional>
#include <string>

#include "tests/unit/controlplane/lab.h"

namespace sluice {
namespace {

using lab::has;

std::string defects_of(const std::string& text) {
  try {
    config::Config config = config::parse(text, "test");
    config::check_machine(config);
  } catch (const config::ConfigError& error) {
    return error.what();
  }
  return "";
}

constexpr std::uint64_t kGiB = 1u << 30;

config::Machine machine(std::uint32_t processors, std::initializer_list<int> allowed) {
  config::Machine known;
  known.processors = processors;
  CPU_ZERO(&known.allowed);
  for (const int each : allowed) CPU_SET(each, &known.allowed);
  known.memory.pages_bytes = 16 * kGiB;
  known.mtu_of = [](const std::string& interface) {
    return interface == "eth1" ? std::optional<std::uint32_t>(1500) : std::nullopt;
  };
  known.has_address = [](const PeerAddress& address) {
    return address == PeerAddress::from_ipv4(192, 0, 2, 1);
  };
  return known;
}

config::Findings found(const std::string& text, const config::Machine& on) {
  return config::judge(config::parse(text, "test"), on);
}

TEST(Machine, more_clients_of_an_nfs4_upstream_than_it_may_call_back_are_a_note) {
  const std::string upstream =
      "[[upstream]]\nname = \"a\"\naddress = \"192.0.2.1\"\nprograms = [\"nfs3\", \"nfs4\"]\n";
  const std::string many = "[transport]\nmax_connections = 128\n";
  const config::Machine on = machine(2, {0, 1});
  EXPECT_TRUE(has(found(many + upstream, on).notes, "callback_clients in [forward] is 64"))
      << found(many + upstream, on).notes;
  EXPECT_EQ(found(many + upstream + "[forward]\ncallback_clients = 128\n", on).notes, "");
  EXPECT_EQ(found(many, on).notes, "") << "nothing calls back";
}

TEST(Machine, a_server_that_is_the_gateway_itself_is_a_defect) {
  const auto loops = [](const std::string& text) { return found(text, machine(4, {0, 1, 2, 3})).defects; };
  const auto upstream = [](const std::string& address, const std::string& more = "") {
    return "[[upstream]]\nname = \"nas\"\nprograms = [\"nfs4\"]\naddress = " + address + "\n" + more;
  };
  const std::string kerberos = "[kerberos]\nenabled = true\n";
  EXPECT_EQ(loops(upstream("[\"nas.example\", \"127.0.0.1\"]") + kerberos),
            "upstream 'nas' is at 127.0.0.1 port 2049, where this gateway itself listens (kerberos.port). "
            "Calls would return to the gateway. Name the server's address, or change a port.\n");
  EXPECT_TRUE(has(loops(upstream("\"192.0.2.1\"") + kerberos), "is at 192.0.2.1 port 2049"));
  EXPECT_TRUE(has(loops(upstream("\"::1\"") + kerberos), "is at ::1 port 2049"));
  EXPECT_EQ(loops(upstream("\"192.0.2.1\"")), "") << "nothing of ours listens there";
  EXPECT_EQ(loops(upstream("\"192.0.2.9\"") + kerberos), "") << "another host";
  EXPECT_EQ(loops(upstream("\"192.0.2.1\"", "port = 2050\n") + kerberos), "");
  EXPECT_TRUE(has(loops("[[upstream]]\nname = \"nas\"\nprograms = [\"nfs3\"]\naddress = \"127.0.0.1\"\n"
                        "mount_port = 20048\n"),
                  "MOUNT of upstream 'nas' is at 127.0.0.1 port 20048"));
}

TEST(Machine, addresses_of_its_interfaces_are_known) {
  const config::Machine here = config::this_machine();
  EXPECT_TRUE(here.has_address(PeerAddress::from_ipv4(127, 0, 0, 1)));
  EXPECT_FALSE(here.has_address(PeerAddress::from_ipv4(192, 0, 2, 77)));
}

TEST(Machine, processors_that_there_are_not_are_defects_and_those_of_others_are_notes) {
  const std::string two = "[reactor]\ncount = 2\ncpus = [0, 1]\n";
  EXPECT_EQ(found(two, machine(2, {0, 1})).defects, "");
  EXPECT_EQ(found(two, machine(2, {0, 1})).notes, "");
  EXPECT_TRUE(
      has(found(two, machine(1, {0})).defects, "names processor 1, and the last one of this machine is 0"));
  const config::Findings confined = found(two, machine(4, {0, 2, 3}));
  EXPECT_EQ(confined.defects, "");
  EXPECT_TRUE(has(confined.notes, "names processor 1, and this process may run on 0,2-3 only"))
      << confined.notes;
  const std::string eight = "[reactor]\ncount = 8\n";
  EXPECT_TRUE(has(found(eight, machine(4, {0})).defects, "count in [reactor] is 8, and this machine has 4"));
  EXPECT_EQ(found(eight, machine(8, {0})).defects, "");
  EXPECT_TRUE(has(found(eight, machine(8, {0})).notes, "may run on 0 only"));
}

TEST(Machine, processors_that_dpdk_does_not_number_are_no_reactors) {
  const config::Findings named = found("[reactor]\ncount = 2\ncpus = [127, 128]\n", machine(256, {127, 128}));
  EXPECT_EQ(named.defects,
            "cpus in [reactor] names processor 128, and DPDK takes processors up to 127. Name others, or "
            "remove cpus.\n");
  const std::string two = "[reactor]\ncount = 2\n";
  EXPECT_EQ(found(two, machine(256, {126, 127})).notes, "");
  EXPECT_TRUE(has(found(two, machine(256, {127, 128})).notes, "may run on 127-128 only"))
      << found(two, machine(256, {127, 128})).notes;
}

TEST(Machine, memory_that_there_is_not_is_a_defect_and_a_limit_of_this_process_a_note) {
  config::Machine on = machine(2, {0, 1});
  EXPECT_TRUE(has(found("[memory]\nsize_mib = 200000\n", on).defects, "this machine has 16384 MiB"));
  EXPECT_EQ(found("[memory]\nsize_mib = 1024\n", on).defects, "");
  on.memory.limits.push_back({.bytes = kGiB / 2, .file = "/x/memory.max"});
  const config::Findings limited = found("[memory]\nsize_mib = 1024\n", on);
  EXPECT_EQ(limited.defects, "");
  EXPECT_TRUE(has(limited.notes, "may use 512 MiB (/x/memory.max)")) << limited.notes;
}

TEST(Machine, an_interface_that_takes_shorter_packets_is_a_note) {
  const auto device = [](const std::string& ethdev, int mtu) {
    return "[device]\ndriver = \"softroce\"\nethdev = \"" + ethdev +
           "\"\naddresses = [\"192.0.2.1/24\"]\nmtu = " + std::to_string(mtu) + "\n";
  };
  const config::Machine on = machine(2, {0, 1});
  const std::string said = found(device("net_af_packet0,iface=eth1,framesz=8192", 1501), on).notes;
  EXPECT_TRUE(has(said, "mtu in [device] is 1501, and the interface 'eth1' takes packets of 1500 bytes"))
      << said;
  EXPECT_EQ(found(device("net_af_packet0,iface=eth1", 1501), on).defects, "");
  EXPECT_FALSE(has(found(device("net_af_packet0,iface=eth1", 1500), on).notes, "mtu in [device]"));
  for (const char* const other :
       {"net_af_packet0,framesz=8192,iface=eth1", "net_pcap1,iface=eth1", "net_af_xdp12,iface=eth1"})
    EXPECT_TRUE(has(found(device(other, 1501), on).notes, "mtu in [device] is 1501")) << other;
  for (const char* const own : {"net_tap0,iface=dtap0", "net_af_packet0,other_iface=eth2", "net_af_packet0"})
    EXPECT_FALSE(has(found(device(own, 1501), on).notes, "interface")) << own;
  EXPECT_EQ(found(device("net_vhost0,iface=eth1", 4200), on).defects, "");
  EXPECT_EQ(found(device("net_af_packet0,iface=eth2", 4200), on).defects, "");
  EXPECT_TRUE(has(found(device("net_af_packet0,iface=eth2", 4200), on).notes,
                  "the interface 'eth2', which does not exist"));
}

TEST(Machine, key_files_have_to_be_there) {
  const std::string hosts =
      "[[host_authentication.host]]\nname = \"a\"\nkey_files = [\"/nonexistent/c.key\"]\n";
  const std::string said = defects_of("[host_authentication]\nmethod = \"psk\"\n" + hosts);
  EXPECT_TRUE(
      has(said, "key_files of host 'a' has '/nonexistent/c.key', which this user cannot read (No such file"))
      << said;
}

TEST(Machine, key_files_that_root_reads_and_the_service_does_not_are_a_note) {
  if (::geteuid() != 0) GTEST_SKIP() << "Only root may change the owner of a file.";
  const std::string folder = testing::TempDir() + "sluice-keys-" + std::to_string(::getpid());
  const std::string file = folder + "/a.key";
  std::filesystem::create_directory(folder);
  std::ofstream(file) << std::string(44, 'k');
  const std::string text =
      "[host_authentication]\nmethod = \"psk\"\nname = \"g\"\n[[host_authentication.host]]\n"
      "name = \"a\"\nkey_files = [\"" +
      file + "\"]\n";
  config::Machine on = machine(2, {0, 1});
  constexpr std::uint32_t kUser = 64'001;
  constexpr std::uint32_t kGroup = 64'002;
  on.service_user = config::User{.name = "sluice-controlplane", .id = kUser, .groups = {kGroup}};
  const auto notes = [&](std::uint32_t file_owner, mode_t file_mode, std::uint32_t folder_group,
                         mode_t folder_mode) {
    EXPECT_EQ(::chown(file.c_str(), file_owner, 0), 0);
    EXPECT_EQ(::chmod(file.c_str(), file_mode), 0);
    EXPECT_EQ(::chown(folder.c_str(), 0, folder_group), 0);
    EXPECT_EQ(::chmod(folder.c_str(), folder_mode), 0);
    const config::Findings all = found(text, on);
    EXPECT_EQ(all.defects, "");
    return all.notes;
  };
  EXPECT_EQ(notes(0, 0600, 0, 0755),
            "key_files of host 'a' has '" + file +
                "', which the user 'sluice-controlplane' of the service cannot read, because "
                "it may not read the file. Run 'chown sluice-controlplane " +
                file + "' and 'chmod 600 " + file + "'.\n");
  EXPECT_TRUE(has(notes(kUser, 0200, 0, 0755), "read the file")) << "the owner's bits count alone";
  EXPECT_TRUE(has(notes(kUser, 0600, 0, 0750), "search the directory '" + folder + "'"));
  EXPECT_TRUE(has(notes(kUser, 0600, kGroup, 0740), "search the directory"));
  EXPECT_EQ(notes(kUser, 0600, kGroup, 0750), "");
  EXPECT_EQ(notes(kUser, 0600, 0, 0711), "");
  on.service_user.reset();
  EXPECT_EQ(notes(0, 0600, 0, 0700), "") << "no root, or no such user";
  std::filesystem::remove_all(folder);
}

TEST(Machine, groups_have_to_exist) {
  EXPECT_EQ(defects_of("[admin]\nchange_group = \"no-such-group\"\n"),
            "change_group in [admin] is 'no-such-group', and this machine has no such group. Create it with "
            "groupadd, or write \"\" for none.\n");
  EXPECT_EQ(defects_of("[admin]\nread_group = \"no-such-group\"\n").find("read_group in [admin]"), 0u);
  EXPECT_EQ(defects_of("[admin]\nchange_group = \"root\"\nread_group = \"daemon\"\n"), "");
}

TEST(Machine, a_directory_is_no_file) {
  EXPECT_EQ(defects_of("[admin]\nsocket = \"/tmp\"\n"),
            "socket in [admin] is '/tmp', which is a directory. Name a file in it.\n");
  EXPECT_EQ(defects_of("[events]\nfile = \"/tmp\"\n"),
            "file in [events] is '/tmp', which is a directory. Name a file in it.\n");
  EXPECT_EQ(defects_of("[events]\nfile = \"/no/such/folder/events\"\n"),
            "file in [events] is '/no/such/folder/events', and there is no directory '/no/such/folder'. "
            "Create it, or name another file.\n");
  EXPECT_EQ(defects_of("[events]\nfile = \"/tmp/events\"\n"), "");
  EXPECT_EQ(defects_of("[host_authentication]\nmethod = \"psk\"\n[[host_authentication.host]]\nname = \"a\"\n"
                       "key_files = [\"/tmp\"]\n"),
            "key_files of host 'a' has '/tmp', which is a directory. Name the file.\n");
}

TEST(Machine, changes_that_a_former_release_saved_are_not_ignored) {
  config::Machine on = machine(2, {0, 1});
  on.former_changes = testing::TempDir() + "sluice-saved-" + std::to_string(::getpid());
  EXPECT_EQ(found("", on).defects, "");
  std::ofstream(on.former_changes) << "removed_exports = [\"/export\"]\n";
  EXPECT_EQ(
      found("", on).defects,
      on.former_changes +
          " is no longer read. Move each [[export]] in it, with its clients, to a file *.toml in "
          "exports_directory, delete the exports in its list removed_exports from the configuration, and "
          "remove the file.\n");
  std::filesystem::remove(on.former_changes);
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
      "test:3: The exports '/a/b' and '/a' overlap. Rename one, so that neither lies in the other.\n";
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
