// SPDX-License-Identifier: Apache-2.0
#include "dataplane/process/start.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "dataplane/base/setup_error.h"
#include "tests/unit/process/process_lab.h"

namespace sluice::process {
namespace {

using Arguments = std::vector<std::string>;

/// Returns the argument that follows an option, or "absent" without the option.
std::string value_of(const Arguments& arguments, const std::string& option) {
  const auto at = std::find(arguments.begin(), arguments.end(), option);
  if (at == arguments.end()) return "absent";
  return at + 1 == arguments.end() ? "" : *(at + 1);
}
bool has(const Arguments& arguments, const std::string& option) {
  return std::find(arguments.begin(), arguments.end(), option) != arguments.end();
}

segment::ConfigBlock softroce(const char* ethdev) {
  segment::ConfigBlock config;
  config.driver = segment::Driver::SoftRoce;
  std::strcpy(config.ethdev, ethdev);
  return config;
}

TEST(Eal, each_reactor_has_a_pinned_lcore_beside_the_main_thread) {
  segment::ConfigBlock config;
  config.reactors = 2;
  config.cpus = {5, 7};
  config.dpdk_memory_mib = 64;
  const Arguments arguments = eal_arguments(config, "name", 2);
  EXPECT_EQ(value_of(arguments, "--lcores"), "0@2,1@5,2@7");
  EXPECT_EQ(value_of(arguments, "-m"), "64");
  EXPECT_EQ(value_of(arguments, "--file-prefix"), "name");
  EXPECT_EQ(value_of(eal_arguments(config, "/run/sluice/segment", 2), "--file-prefix"),
            "-run-sluice-segment");
}

TEST(Eal, hugepages_are_used_when_asked_for) {
  segment::ConfigBlock config;
  EXPECT_TRUE(has(eal_arguments(config, "name", 0), "--no-huge"));
  config.hugepages = 1;
  EXPECT_FALSE(has(eal_arguments(config, "name", 0), "--no-huge"));
}

TEST(Eal, who_asks_for_hugepages_is_told_of_them_when_dpdk_does_not_start) {
  segment::ConfigBlock config;
  EXPECT_EQ(advice_on_eal(config).find("hugepages"), std::string::npos);
  config.hugepages = 1;
  EXPECT_NE(advice_on_eal(config).find("write access to /dev/hugepages"), std::string::npos);
}

TEST(Eal, devices_are_probed_for_softroce_only) {
  const Arguments loopback = eal_arguments({}, "name", 0);
  EXPECT_TRUE(has(loopback, "--no-pci"));
  EXPECT_FALSE(has(loopback, "--vdev"));
  const Arguments vdev = eal_arguments(softroce("net_memif0,role=server"), "name", 0);
  EXPECT_TRUE(has(vdev, "--no-pci"));
  EXPECT_EQ(value_of(vdev, "--vdev"), "net_memif0,role=server");
  const Arguments pci = eal_arguments(softroce("0000:03:00.0"), "name", 0);
  EXPECT_FALSE(has(pci, "--no-pci"));
  EXPECT_EQ(value_of(pci, "-a"), "0000:03:00.0");
}

TEST(Eal, the_main_thread_takes_the_first_processor_that_no_reactor_has) {
  segment::ConfigBlock config;
  config.reactors = 2;
  config.cpus = {1, 2, 4};  // the last is for the main thread
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  for (const int cpu : {1, 2, 4, 5}) CPU_SET(cpu, &allowed);
  EXPECT_EQ(main_cpu(config, allowed, 9), 4u);
  CPU_CLR(4, &allowed);
  CPU_CLR(5, &allowed);
  EXPECT_EQ(main_cpu(config, allowed, 9), 9u);
}

TEST(MemifSocket, is_a_file_of_ours_where_we_listen) {
  EXPECT_EQ(memif_listener("net_memif0,role=server,id=0,socket=/a/b.sock,socket-abstract=no"), "/a/b.sock");
  EXPECT_EQ(memif_listener("net_memif0,socket-abstract=no,socket=/a/b.sock,role=master"), "/a/b.sock");
  EXPECT_EQ(memif_listener("net_memif0,role=client,socket=/a/b.sock,socket-abstract=no"), "");
  EXPECT_EQ(memif_listener("net_memif0,role=server,socket=/a/b.sock"), "");  // an abstract one
  EXPECT_EQ(memif_listener("net_memif0,role=server,socket=/a/b.sock,socket-abstract=yes"), "");
  EXPECT_EQ(memif_listener("net_af_packet0,role=server,socket=/a/b.sock,socket-abstract=no"), "");
}

TEST(MemifSocket, of_a_killed_process_is_removed_and_that_of_a_living_one_stays) {
  const std::string path = "/tmp/" + unique_name("memif");
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strcpy(address.sun_path, path.c_str());
  const int living = ::socket(AF_UNIX, SOCK_SEQPACKET, 0);
  ASSERT_EQ(::bind(living, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  ASSERT_EQ(::listen(living, 1), 0);
  try {
    remove_stale_socket(path);
    ADD_FAILURE();
  } catch (const SetupError& error) {
    EXPECT_NE(std::string(error.what()).find("listens on the memif socket " + path), std::string::npos);
  }
  EXPECT_TRUE(std::filesystem::exists(path));
  ::close(living);
  remove_stale_socket(path);
  EXPECT_FALSE(std::filesystem::exists(path));
  remove_stale_socket(path);  // the socket does not exist
  std::ofstream(path) << "a file";
  remove_stale_socket(path);
  EXPECT_TRUE(std::filesystem::exists(path));
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace sluice::process
