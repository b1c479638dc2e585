// SPDX-License-Identifier: Apache-2.0
#include "dataplane/process/devices.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>

#include "dataplane/base/setup_error.h"
#include "tests/unit/process/process_lab.h"

namespace sluice::process {
namespace {

std::string said(const std::function<void()>& setup) {
  try {
    setup();
  } catch (const SetupError& error) {
    return error.what();
  }
  return "nothing";
}
bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(Devices, an_ethdev_that_dpdk_has_not_is_named) {
  segment::ConfigBlock config;
  config.driver = segment::Driver::SoftRoce;
  std::strcpy(config.ethdev, "net_memif7");
  const std::string problem = said([&] { Devices devices(config); });
  EXPECT_TRUE(contains(problem, "'net_memif7'")) << problem;
  EXPECT_TRUE(contains(problem, "Check ethdev in [device]")) << problem;
}

TEST(Devices, a_reverse_gateway_attaches_to_its_server_and_says_where_that_should_be) {
  segment::ConfigBlock config = loopback_config();
  config.reverse.in_use = 1;
  const std::string problem = said([&] { Devices devices(config); });
  EXPECT_TRUE(contains(problem, config.loopback_path)) << problem;
}

TEST(Devices, an_rdma_device_that_is_not_there_is_named_or_there_is_none_at_all) {
  segment::ConfigBlock config;
  config.driver = segment::Driver::Verbs;
  config.verbs_port_count = 1;
  std::strcpy(config.verbs_ports[0].device, "no_such_device");
  Devices devices(config);
  const std::string problem = said([&] { devices.make_device(config, 0); });
  EXPECT_TRUE(contains(problem, "no_such_device") || contains(problem, "has no RDMA device")) << problem;
}

TEST(Devices, loopback_devices_are_called_by_their_reactor_and_stand_on_one_file) {
  const segment::ConfigBlock config = loopback_config();
  Devices devices(config);
  const auto first = devices.make_device(config, 0);
  const auto second = devices.make_device(config, 1);
  EXPECT_EQ(first->name(), "loopback0");
  EXPECT_EQ(second->name(), "loopback1");
  EXPECT_EQ(devices.port(), nullptr);
  devices.poll_conditions();
}

TEST(Devices, virtual_ethdevs_are_told_from_addresses) {
  segment::ConfigBlock config;
  std::strcpy(config.ethdev, "net_af_packet0,iface=eth0");
  EXPECT_TRUE(is_vdev(config));
  std::strcpy(config.ethdev, "0000:03:00.0");
  EXPECT_FALSE(is_vdev(config));
}

}  // namespace
}  // namespace sluice::process
