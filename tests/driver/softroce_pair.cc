// SPDX-License-Identifier: Apache-2.0
//
// The driver suite over two softroce ports with a wire between them, good and bad.
#include "tests/driver/softroce_pair.h"

namespace sluice::rdma::conformance {
namespace {

DriverParam over(const char* name, const SoftRocePair::Options& options) {
  return {name, [=] { return std::make_unique<SoftRocePair>(options); }};
}

const DriverParam kPerfect = over("ipv4_mtu4096", {});
const DriverParam kIpv6Vlan =
    over("ipv6_vlan_mtu1024_copied", {.v6 = true, .vlan = 7, .in_place = false, .link_mtu = 1500});
const DriverParam kLossy1 = over("lossy_1_percent", {.faults = {.per_mille = 10, .seed = 11}});
const DriverParam kLossy10 = over("lossy_10_percent", {.faults = {.per_mille = 100, .seed = 12}});

INSTANTIATE_TEST_SUITE_P(SoftRoce, DriverTest, testing::Values(kPerfect, kIpv6Vlan, kLossy1, kLossy10),
                         driver_name);
INSTANTIATE_TEST_SUITE_P(SoftRoce, Refusal, testing::Values(kPerfect, kIpv6Vlan, kLossy1, kLossy10),
                         driver_name);

}  // namespace
}  // namespace sluice::rdma::conformance
