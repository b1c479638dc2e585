// SPDX-License-Identifier: Apache-2.0
#include "dataplane/process/eal.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

namespace sluice::process {
namespace {

using Arguments = std::vector<std::string>;

/// What stands behind an option; "absent" without it.
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
}

TEST(Eal, hugepages_are_used_when_asked_for) {
  segment::ConfigBlock config;
  EXPECT_TRUE(has(eal_arguments(config, "name", 0), "--no-huge"));
  config.hugepages = 1;
  EXPECT_FALSE(has(eal_arguments(config, "name", 0), "--no-huge"));
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

}  // namespace
}  // namespace sluice::process
