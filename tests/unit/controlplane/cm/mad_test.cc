// SPDX-License-Identifier: Apache-2.0
#include "controlplane/cm/mad.h"

#include <gtest/gtest.h>

namespace sluice::cm {
namespace {

TEST(CmMad, V1_181_V2_153_ports_are_named_by_the_ip_services_of_infiniband) {
  EXPECT_EQ(service_id(20049), 0x0000000001064E51u);
  EXPECT_EQ(port_of(0x0000000001064E51u), std::uint16_t{20049});
  EXPECT_EQ(port_of(0x0000000001114E51u), std::nullopt);  // UDP's port space
  EXPECT_EQ(port_of(0x1000000001064E51u), std::nullopt);
}

}  // namespace
}  // namespace sluice::cm
