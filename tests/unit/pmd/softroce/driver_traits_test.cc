// SPDX-License-Identifier: Apache-2.0
#include "pmd/softroce/driver_traits.h"

#include <gtest/gtest.h>

#include "dataplane/base/virtual_ethdev.h"

namespace sluice::rdma::softroce {
namespace {

TEST(DriverTraits, only_what_is_known_to_copy_is_sent_payload_where_it_lies) {
  EXPECT_TRUE(copies_what_it_takes("net_af_packet", "iface=eth1"));
  EXPECT_TRUE(copies_what_it_takes("net_vhost", "iface=/run/card.sock,client=1"));
  EXPECT_FALSE(copies_what_it_takes("net_bonding", "mode=1,slave=0000:03:00.0"));
  EXPECT_FALSE(copies_what_it_takes("net_virtio_user", "path=/run/card.sock"));
  EXPECT_FALSE(copies_what_it_takes("net_ixgbe", ""));
  EXPECT_FALSE(copies_what_it_takes("", ""));
}

TEST(DriverTraits, memif_copies_unless_the_other_side_has_its_memory) {
  EXPECT_TRUE(copies_what_it_takes("net_memif", "role=client,id=0"));
  EXPECT_TRUE(copies_what_it_takes("net_memif", "role=client,zero-copy=no"));
  EXPECT_FALSE(copies_what_it_takes("net_memif", "role=client,zero-copy=yes"));
}

TEST(DriverTraits, a_card_is_sent_payload_where_it_lies_only_if_it_says_when_it_has_read_it) {
  const EthdevTraits good{.driver = "net_ice",
                          .bus = "pci",
                          .sends_segments = true,
                          .frees_when_asked = true,
                          .addresses_are_virtual = true};
  EXPECT_EQ(packet_memory(good), PacketMemory::UntilFreed);
  EXPECT_EQ(why_copied(good), "");
  for (bool EthdevTraits::*each : {&EthdevTraits::sends_segments, &EthdevTraits::frees_when_asked,
                                   &EthdevTraits::addresses_are_virtual}) {
    EthdevTraits bad = good;
    bad.*each = false;
    EXPECT_EQ(packet_memory(bad), PacketMemory::Unknown);
    EXPECT_NE(why_copied(bad), "");
  }
  EthdevTraits igb = good;
  igb.driver = "net_e1000_igb";
  EXPECT_EQ(packet_memory(igb), PacketMemory::Unknown);
  EXPECT_EQ(why_copied(igb), "its driver stops when it is requested to free sent packets");
  EthdevTraits other = good;
  other.bus = "auxiliary";
  EXPECT_EQ(packet_memory(other), PacketMemory::UntilFreed);
}

TEST(DriverTraits, a_virtual_ethdev_passes_on_memory_that_it_does_not_copy) {
  const EthdevTraits bonding{.driver = "net_bonding",
                             .bus = "vdev",
                             .sends_segments = true,
                             .frees_when_asked = true,
                             .addresses_are_virtual = true};
  EXPECT_EQ(packet_memory(bonding), PacketMemory::Unknown);
  EXPECT_EQ(why_copied(bonding), "its driver passes packets on");
  EXPECT_EQ(packet_memory({.driver = "net_tap", .bus = "vdev"}), PacketMemory::UntilTaken);
}

TEST(DriverTraits, the_interface_of_the_kernel_is_named_by_the_arguments_of_its_drivers) {
  EXPECT_EQ(kernel_interface("net_af_packet", "iface=eth1,framesz=8192"), "eth1");
  EXPECT_EQ(kernel_interface("net_af_packet", "framesz=8192,iface=eth1"), "eth1");
  EXPECT_EQ(kernel_interface("net_tap", "iface=dtap0"), "dtap0");
  EXPECT_EQ(kernel_interface("net_tap", "mac=fixed,remote_iface=eth1"), "");
  EXPECT_EQ(kernel_interface("net_af_packet", ""), "");
  const auto [driver, arguments] = virtual_ethdev("net_tap12,mac=fixed,iface=dtap0");
  EXPECT_EQ(driver, "net_tap");
  EXPECT_EQ(kernel_interface(driver, arguments), "dtap0");
  EXPECT_EQ(virtual_ethdev("0000:03:00.0").arguments, "") << "a card";
  EXPECT_EQ(kernel_interface("net_vhost", "iface=/run/card.sock"), "") << "a socket";
  EXPECT_TRUE(creates_interface("net_tap"));
  EXPECT_FALSE(creates_interface("net_af_packet"));
}

}  // namespace
}  // namespace sluice::rdma::softroce
