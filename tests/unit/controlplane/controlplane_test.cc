// SPDX-License-Identifier: Apache-2.0
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <rpc/rpc.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <sstream>

#include "controlplane/config/config.h"
#include "controlplane/config/describe.h"
#include "controlplane/mount/mount_server.h"
#include "controlplane/policy/admission.h"
#include "controlplane/topology.h"
#include "dataplane/base/setup_error.h"
#include "mount3.h"

namespace sluice {
namespace {

// --- Configuration

/// With what is not there by default.
constexpr const char* kEveryKey =
    "[reactor]\ncpus = [1]\n[device]\nvlan = 3\n[[client_class]]\nname = \"a\"\nclients = [\"10.0.0.0/8\"]\n"
    "[[upstream]]\nname = \"u\"\naddress = \"192.0.2.1\"\nprograms = [\"nfs4\"]\n";

TEST(Config, the_sample_is_accepted_and_says_the_defaults) {
  EXPECT_EQ(config::describe(config::load_file(SLUICE_SAMPLE_CONFIG)), config::describe(config::defaults()));
  EXPECT_EQ(config::describe(config::parse("", "x")), config::describe(config::defaults()));
}

TEST(Config, the_sample_has_every_key_and_says_what_it_is_for) {
  std::map<std::string, std::string> lines;  // by table and key
  std::string table;
  std::ifstream file(SLUICE_SAMPLE_CONFIG);
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("# ", 0) == 0) line.erase(0, 2);  // what is commented out is there too
    // A head stands alone on its line, but for a comment.
    const auto name = line.find_first_not_of('[');
    const auto end = line.find(']');
    const auto behind = end == std::string::npos ? end : line.find_first_not_of("] ", end);
    if (name != 0 && end != std::string::npos && (behind == std::string::npos || line[behind] == '#'))
      table = line.substr(name, end - name);
    const auto equals = line.find(" = ");
    if (equals != std::string::npos && line.find_first_of(" #") == equals)
      lines[table + '.' + line.substr(0, equals)] = line;
  }
  const auto described = config::describe(config::parse(kEveryKey, "f"));
  for (const auto& [name, value] : described.items()) {
    if (!value.is_structured()) {
      EXPECT_EQ(lines.count('.' + name), 1u) << name;
      continue;
    }
    const nlohmann::json& keys = value.is_array() ? value[0] : value;
    for (const auto& [key, ignored] : keys.items())
      EXPECT_EQ(lines.count(name + '.' + key), 1u) << name << '.' << key;
  }
}

TEST(Config, V1_180_V2_153_the_port_is_20049_unless_set) {
  EXPECT_EQ(config::defaults().block.port, 20049u);
  EXPECT_EQ(config::parse("[transport]\nport = 2049\n", "x").block.port, 2049u);
}

TEST(Config, reactors_take_the_rdma_ports_in_turn) {
  const config::Config config = config::parse(
      "[reactor]\ncount = 3\n[device]\ndriver = \"verbs\"\ndevices = [\"mlx5_0\", "
      "\"mlx5_1/2\"]\ntraffic_class = 104\nshared_receives = 512\n",
      "test");
  const segment::ConfigBlock& block = config.block;
  EXPECT_EQ(block.driver, segment::Driver::Verbs);
  EXPECT_EQ(block.traffic_class, 104u);
  EXPECT_EQ(block.shared_receives, 512u);
  EXPECT_GT(block.service_level, segment::kMaxServiceLevel);
  const char* devices[] = {"mlx5_0", "mlx5_1", "mlx5_0"};
  const std::uint32_t ports[] = {1, 2, 1};
  for (std::uint32_t reactor = 0; reactor < 3; ++reactor) {
    ASSERT_NE(block.verbs_port(reactor), nullptr);
    EXPECT_STREQ(block.verbs_port(reactor)->device, devices[reactor]);
    EXPECT_EQ(block.verbs_port(reactor)->port, ports[reactor]);
  }
  EXPECT_EQ(config::parse("[device]\ndriver = \"verbs\"\n", "test").block.verbs_port(0), nullptr);
}

TEST(Config, every_defect_is_named_with_file_and_line) {
  const std::pair<const char*, const char*> cases[] = {
      {"segmnt = \"x\"", "f:1: unknown key 'segmnt'"},
      {"\n[transport]\ncredits = 0", "f:3: credits has to be a whole number from 1 to 1024"},
      {"[transport]\ncredits = \"many\"", "f:2: credits has to be"},
      {"[reactor]\nidle = \"nap\"", "f:2: idle has to be one of \"spin\", \"backoff\""},
      {"[reactor]\ncpus = [1, 2, 3]", "f:2: cpus has to be a list"},
      {"[[export]]\nread_only = true", "path is needed"},
      {"[[export]]\npath = \"/a\"\nread_only = 1", "f:3: read_only has to be true or false"},
      {"[[export]]\npath = \"/a\"\n[[export]]\npath = \"/a\"", "there is an export '/a' already"},
      {"[[export]]\npath = \"/a\"\nclients = [\"10.0.0.0/33\"]", "f:3: clients takes addresses"},
      {"[[export]]\npath = \"/a\"\nclients = [\"host\"]", "f:3: clients takes addresses"},
      {"transport = 3", "f:1: transport has to be a table"},
      {"[transport\n", "f:1: "},
      {"[device]\ndriver = \"magic\"", "f:2: driver has to be one of"},
  };
  for (const auto& [text, expected] : cases) {
    try {
      config::parse(text, "f");
      ADD_FAILURE() << text;
    } catch (const config::ConfigError& error) {
      EXPECT_NE(std::string(error.what()).find(expected), std::string::npos) << error.what();
    }
  }
  // All of them at once.
  try {
    config::parse("a = 1\n[transport]\nport = 0\nb = 2\n", "f");
    ADD_FAILURE();
  } catch (const config::ConfigError& error) {
    const std::string text = error.what();
    EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 3);
  }
}

/// Every key that there is, with values of every wrong kind.
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
  const auto wrong_values = [](const nlohmann::json& right) -> std::vector<std::string> {
    if (right.is_boolean()) return {"1", "\"true\"", "[]", "{}"};
    if (right.is_number()) return {"-1", "1.5", "\"3\"", "true", "[1]", "99999999999999"};
    if (right.is_array()) return {"3", "\"x\"", "[true]", "[\"not an address\"]", "true"};
    return {"3", "true", "[]", '"' + std::string(600, 'x') + '"'};
  };
  std::size_t tried = 0;
  const auto try_all = [&](const std::string& head, int lines, const nlohmann::json& table,
                           const std::string& skip) {
    for (const auto& [key, right] : table.items()) {
      if (key == skip) continue;
      for (const std::string& wrong : wrong_values(right)) {
        refused(head + key + " = " + wrong + "\n", lines + 1, key);
        ++tried;
      }
    }
  };
  nlohmann::json all = config::describe(config::parse(kEveryKey, "f"));
  nlohmann::json top = nlohmann::json::object();
  for (const auto& [name, table] : all.items()) {
    if (name == "export")
      try_all("[[export]]\npath = \"/x\"\n", 2, table[0], "path");
    else if (name == "client_class")
      try_all("[[client_class]]\nname = \"a\"\n", 2, table[0], "name");
    else if (name == "upstream")
      try_all("[[upstream]]\n", 1, table[0], "");
    else if (table.is_object())
      try_all("[" + name + "]\n", 1, table, "");
    else
      top[name] = table;
    if (table.is_structured()) {
      refused(name + " = 3\n", 1, name);
      refused("[" + name + "]\nno_such_key = 1\n", table.is_array() ? 1 : 2,
              table.is_array() ? name : "no_such_key");
    }
  }
  try_all("", 0, top, "");
  EXPECT_GT(tried, 250u);
}

TEST(Config, what_contradicts_itself_is_refused) {
  const std::pair<const char*, const char*> cases[] = {
      {"[policy]\nmin_credits = 9\nmax_credits = 3\n", "min_credits is above max_credits"},
      {"[transport]\ncredits = 8\n[policy]\nmax_credits = 9\n",
       "max_credits has to be a whole number from 1 to 8"},
      {"[[client_class]]\nname = \"a\"\n", "clients is needed"},
      {"[[client_class]]\nclients = [\"10.0.0.0/8\"]\n", "name is needed"},
      {"[[client_class]]\nname = \"A b\"\nclients = [\"10.0.0.0/8\"]\n", "of small letters"},
      {"[[client_class]]\nname = \"default\"\nclients = [\"10.0.0.0/8\"]\n",
       "there is a class 'default' already"},
      {"[device]\ndriver = \"softroce\"\n", "needs ethdev"},
      {"[device]\ndriver = \"verbs\"\ndevices = [\"a\", \"b\"]\n", "needs a reactor that polls it"},
      {"[device]\ndevices = [\"mlx5_0/0\"]\n", "with a port from 1 to 9"},
      {"[device]\ndevices = [\"/1\"]\n", "takes names of RDMA devices"},
      {"[device]\ndevices = \"mlx5_0\"\n", "has to be a list of at most 8 RDMA devices"},
      {"[device]\nservice_level = 8\n", "whole number from 0 to 7"},
      {"[host_authentication]\nmethod = \"psk\"\n", "needs a key_file"},
      {"[[upstream]]\naddress = \"192.0.2.1\"\nprograms = [\"nfs4\"]\n", "name is needed"},
      {"[[upstream]]\nname = \"u\"\nprograms = [\"nfs4\"]\n", "address is needed"},
      {"[[upstream]]\nname = \"u\"\naddress = \"192.0.2.0/24\"\nprograms = [\"nfs4\"]\n",
       "address is needed"},
      {"[[upstream]]\nname = \"u\"\naddress = \"192.0.2.1\"\n", "programs is needed"},
      {"[[upstream]]\nname = \"u\"\naddress = \"::1\"\nprograms = [\"nfs5\"]\n", "programs takes \"nfs2\""},
      {"[[upstream]]\nname = \"u\"\naddress = \"::1\"\nprograms = [\"nfs4\", \"100003.4\"]\n",
       "has 100003.4 already"},
      {"[[upstream]]\nname = \"u\"\naddress = \"::1\"\nprograms = [\"nfs3\"]\n[[export]]\npath = \"/a\"\n",
       "take one of them out"},
      {"[reverse]\ningress = \"tcp\"\nserver = \"192.0.2.0/24\"\n",
       "server has to be an IPv4 or IPv6 address"},
      {"[reverse]\ningress = \"tcp\"\nclients = 64\ncalls = 64\n", "clients times calls is above 2048"},
      {"[reverse]\ningress = \"tcp\"\n[[export]]\npath = \"/a\"\n", "not for [[export]]"},
      {"[reverse]\ningress = \"tcp\"\n[[upstream]]\nname = \"u\"\naddress = \"::1\"\nprograms = [\"nfs3\"]\n",
       "MOUNT can ask that or the server of [reverse]"},
      {"[device]\ndriver = \"softroce\"\nethdev = \"x\"\naddresses = [\"192.0.2.1/24\"]\n[reverse]\ningress "
       "= \"tcp\"\n",
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

TEST(Config, a_reload_tells_what_takes_effect_and_what_wants_a_restart) {
  const auto before = config::parse("[[export]]\npath = \"/a\"\n[[export]]\npath = \"/b\"\n", "f");
  const auto after = config::parse(
      "log_level = \"debug\"\n[transport]\ncredits = 32\n[admin]\nread_group = "
      "\"adm\"\n[policy]\nmax_credits = 32\nslots = 7\n"
      "[[export]]\npath = \"/b\"\nread_only = true\n[[export]]\npath = \"/c\"\n",
      "f");
  const config::Changes changes = config::compare(before, after);
  EXPECT_EQ(changes.live, (std::vector<std::string>{"export./a", "export./b", "export./c", "log_level",
                                                    "policy.max_credits", "policy.slots"}));
  EXPECT_EQ(changes.restart_control, std::vector<std::string>{"admin.read_group"});
  EXPECT_EQ(changes.restart_both, std::vector<std::string>{"transport.credits"});
  const config::Config live = config::live_part(before, after);
  EXPECT_EQ(live.block.credits, 64u);
  EXPECT_EQ(live.admin_read_group, "");
  EXPECT_EQ(live.policy_slots, 7u);
  EXPECT_EQ(live.log_level, "debug");
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
  // There is a place for so many paths until the data plane is started again.
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
  // Where there are too many, one that is gone gives its number.
  config::Config many = config_of("efgh");
  config::keep_classes(next.block, many);
  ASSERT_EQ(many.classes.size(), segment::kMaxClasses);
  EXPECT_EQ(many.classes[5].name, "e");
  EXPECT_EQ(config::describe(many)["client_class"].size(), 4u);
}

TEST(Config, prefixes_of_both_families) {
  const auto config = config::parse(
      "[[export]]\npath = \"/a\"\nclients = [\"192.0.2.0/24\", \"2001:db8::/32\", \"10.1.2.3\"]\n", "f");
  const auto& entry = config.block.exports[0];
  ASSERT_EQ(entry.allowed_count, 3u);
  EXPECT_EQ(entry.allowed[0].prefix_bits, 96u + 24);
  EXPECT_EQ(entry.allowed[1].prefix_bits, 32u);
  EXPECT_EQ(entry.allowed[1].address.bytes[0], 0x20);
  EXPECT_EQ(entry.allowed[2].prefix_bits, 128u);
}

// --- Admission

TEST(Admission, limits_in_all_of_a_client_and_by_rate) {
  constexpr std::uint64_t kSecond = 1'000'000'000;
  policy::Admission admission(
      {.max_connections = 4, .max_requests_per_second = 10, .max_requests_per_second_per_client = 5});
  const auto a = PeerAddress::from_ipv4(10, 0, 0, 1);
  const auto b = PeerAddress::from_ipv4(10, 0, 0, 2);
  const auto c = PeerAddress::from_ipv4(10, 0, 0, 3);
  using policy::Verdict;
  EXPECT_EQ(admission.judge(a, 2, kSecond), Verdict::Admit);
  EXPECT_EQ(admission.judge(a, 2, kSecond), Verdict::Admit);
  EXPECT_EQ(admission.judge(a, 2, kSecond), Verdict::TooManyOfClient);
  EXPECT_EQ(admission.judge(b, 2, kSecond), Verdict::Admit);
  EXPECT_EQ(admission.judge(b, 2, kSecond), Verdict::Admit);
  EXPECT_EQ(admission.judge(c, 2, kSecond), Verdict::TooManyConnections);
  admission.disconnected(a);
  EXPECT_EQ(admission.judge(c, 2, kSecond), Verdict::Admit);
  for (int i = 0; i < 2; ++i) admission.judge(a, 2, kSecond);
  EXPECT_EQ(admission.judge(a, 2, kSecond), Verdict::TooFastOfClient);
  EXPECT_EQ(admission.judge(c, 2, kSecond), Verdict::TooManyConnections);
  EXPECT_EQ(admission.judge(c, 2, kSecond), Verdict::TooFast)
      << "the eleventh that is not its client's fault";
  admission.disconnected(c);
  EXPECT_EQ(admission.judge(a, 2, 2 * kSecond), Verdict::Admit);
  EXPECT_EQ(admission.count(Verdict::Admit), 6u);
  admission.set_draining(true);
  EXPECT_EQ(admission.judge(b, 9, 3 * kSecond), Verdict::Draining);
}

TEST(Admission, many_addresses_cannot_make_it_remember_without_bound) {
  policy::Admission admission(
      {.max_connections = 1, .max_requests_per_second = 1'000'000, .max_requests_per_second_per_client = 1});
  const auto first = PeerAddress::from_ipv4(10, 9, 9, 9);
  EXPECT_EQ(admission.judge(first, 1, 1), policy::Verdict::Admit);
  for (std::uint32_t i = 0; i < 20000; ++i)
    admission.judge(
        PeerAddress::from_ipv4(10, 0, static_cast<std::uint8_t>(i >> 8), static_cast<std::uint8_t>(i)), 1,
        1 + i);
  EXPECT_LE(admission.remembered(), 4097u);
  EXPECT_EQ(admission.connections(), 1u);
  admission.disconnected(first);
  EXPECT_EQ(admission.connections(), 0u);
}

TEST(Topology, cores_of_their_own_and_the_first_left_free) {
  using topology::Processor;
  const std::vector<Processor> four = {{0, 0, 0}, {1, 1, 0}, {2, 2, 0}, {3, 3, 0}};
  const auto two = topology::choose(four, 2);
  EXPECT_EQ(two[0].cpu, 1u);
  EXPECT_EQ(two[1].cpu, 2u);
  const std::vector<Processor> threads = {{0, 0, 0}, {2, 0, 0}, {1, 1, 0}, {3, 1, 0}};
  EXPECT_EQ(topology::choose(threads, 1)[0].cpu, 1u);
  EXPECT_EQ(topology::choose(threads, 2)[0].cpu, 1u);
  EXPECT_THROW(topology::choose(four, 5), SetupError);
  EXPECT_FALSE(topology::processors().empty());
}

// --- MOUNT

template <typename T>
xdrproc_t proc_of(bool_t (*function)(XDR*, T*)) {
  return reinterpret_cast<xdrproc_t>(reinterpret_cast<void (*)()>(function));
}

TEST(Mount, V1_182_clients_get_handles_over_tcp_and_udp) {
  const std::vector<std::byte> handle(24, std::byte{0x42});
  mount::MountServer server(
      0, false,
      {.mount = [&](const std::string& path, const PeerAddress& client) -> mount::MountAnswer {
         if (path == "/export" && client == PeerAddress::from_ipv4(127, 0, 0, 1))
           return {mount::MountStatus::Ok, handle};
         return {path == "/secret" ? mount::MountStatus::Acces : mount::MountStatus::NoEnt, {}};
       },
       .list =
           [] {
             return std::vector<std::string>{"/export", "/secret"};
           }});
  for (const bool tcp : {true, false}) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(server.port());
    int socket = RPC_ANYSOCK;
    CLIENT* client = tcp ? clnttcp_create(&address, 100005, 3, &socket, 0, 0)
                         : clntudp_create(&address, 100005, 3, timeval{1, 0}, &socket);
    ASSERT_NE(client, nullptr);
    const timeval wait{10, 0};
    const auto none = reinterpret_cast<xdrproc_t>(reinterpret_cast<void (*)()>(&xdr_void));
    const auto mnt = [&](const char* path) {
      char* argument = const_cast<char*>(path);
      mnt_res result{};
      EXPECT_EQ(clnt_call(client, 1, proc_of(&xdr_mnt_dirpath), reinterpret_cast<char*>(&argument),
                          proc_of(&xdr_mnt_res), reinterpret_cast<char*>(&result), wait),
                RPC_SUCCESS);
      const unsigned status = result.status;
      if (status == 0) {
        EXPECT_EQ(result.mnt_res_u.ok.fhandle.mnt_fhandle3_len, 24u);
        EXPECT_EQ(result.mnt_res_u.ok.fhandle.mnt_fhandle3_val[0], 0x42);
        EXPECT_EQ(result.mnt_res_u.ok.auth_flavors.auth_flavors_val[0], AUTH_SYS);
      }
      clnt_freeres(client, proc_of(&xdr_mnt_res), reinterpret_cast<char*>(&result));
      return status;
    };
    EXPECT_EQ(mnt("/export"), 0u);
    EXPECT_EQ(mnt("/secret"), 13u);
    EXPECT_EQ(mnt("/nothing"), 2u);
    EXPECT_EQ(clnt_call(client, 0, none, nullptr, none, nullptr, wait), RPC_SUCCESS);
    EXPECT_EQ(clnt_call(client, 4, none, nullptr, none, nullptr, wait), RPC_SUCCESS);
    EXPECT_EQ(clnt_call(client, 9, none, nullptr, none, nullptr, wait), RPC_PROCUNAVAIL);
    mnt_exports list = nullptr;
    EXPECT_EQ(
        clnt_call(client, 5, none, nullptr, proc_of(&xdr_mnt_exports), reinterpret_cast<char*>(&list), wait),
        RPC_SUCCESS);
    ASSERT_NE(list, nullptr);
    EXPECT_STREQ(list->path, "/export");
    EXPECT_STREQ(list->next->path, "/secret");
    clnt_freeres(client, proc_of(&xdr_mnt_exports), reinterpret_cast<char*>(&list));
    clnt_destroy(client);
  }
}

}  // namespace
}  // namespace sluice
