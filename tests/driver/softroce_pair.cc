// SPDX-License-Identifier: Apache-2.0
//
// The driver suite over two softroce ports with a wire between them, good and bad.
#include "tests/driver/softroce_pair.h"

#include "controlplane/cm/device_manager.h"
#include "tests/driver/connection_fixture.h"

namespace sluice::rdma::conformance {
namespace {

std::uint64_t clock_ns() noexcept {
  return static_cast<std::uint64_t>(
      std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count());
}

/// A pair with the connection managers of programs that have no control plane.
class ManagedPair final : public SoftRocePair {
 public:
  using SoftRocePair::SoftRocePair;
  ConnectionManager* left_manager() override { return &left_manager_; }
  ConnectionManager* right_manager() override { return &right_manager_; }

 private:
  static cm::AgentConfig impatient() {
    cm::AgentConfig config;
    config.response_timeout = 12;  // 17 ms
    return config;
  }
  cm::DeviceManager left_manager_{left(), &clock_ns, right().addresses()[0], impatient()};
  cm::DeviceManager right_manager_{right(), &clock_ns, {}, impatient()};
};

DriverParam over(const char* name, const SoftRocePair::Options& options) {
  return {name, [=] { return std::make_unique<ManagedPair>(options); }};
}

const DriverParam kPerfect = over("ipv4_mtu4096", {});
const DriverParam kIpv6Vlan =
    over("ipv6_vlan_mtu1024_copied", {.v6 = true, .vlan = 7, .in_place = false, .link_mtu = 1500});
const DriverParam kLossy1 = over("lossy_1_percent", {.faults = {.per_mille = 10, .seed = 11}});
const DriverParam kLossy10 = over("lossy_10_percent", {.faults = {.per_mille = 100, .seed = 12}});

INSTANTIATE_TEST_SUITE_P(SoftRoce, DriverTest, testing::Values(kPerfect, kIpv6Vlan, kLossy1, kLossy10),
                         driver_name);
INSTANTIATE_TEST_SUITE_P(SoftRoce, ConnectionTest, testing::Values(kPerfect, kIpv6Vlan, kLossy1, kLossy10),
                         driver_name);
INSTANTIATE_TEST_SUITE_P(SoftRoce, Refusal, testing::Values(kPerfect, kIpv6Vlan, kLossy1, kLossy10),
                         driver_name);

}  // namespace
}  // namespace sluice::rdma::conformance
