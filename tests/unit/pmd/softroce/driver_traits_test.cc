// SPDX-License-Identifier: Apache-2.0
#include "pmd/softroce/driver_traits.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace sluice::rdma::softroce
