// SPDX-License-Identifier: Apache-2.0
//
// The driver suite over two softroce ports with a wire between them, and what else is asked of softroce on a
// bad wire.
#include "pmd/softroce/softroce.h"
#include "tests/driver/driver_fixture.h"
#include "tests/driver/faulty_wire.h"

namespace sluice::rdma::conformance {
namespace {

class SoftRocePair final : public DriverPair {
 public:
  SoftRocePair(const WireFaults& faults, bool v6, std::uint16_t vlan, bool in_place, std::uint16_t link_mtu)
      : wire_(faults) {
    static int made = 0;
    const std::string name = "sr" + std::to_string(made++);
    softroce::PortConfig config;
    config.vlan = vlan;
    config.link_mtu = link_mtu;
    config.transmit_in_place = in_place;
    config.max_queue_pairs = 16;
    config.name = name + "l";
    config.ethdev = wire_.left();
    config.addresses = {{address(v6, 1), 120}};
    left_port_ = softroce::Port::open(config);
    config.name = name + "r";
    config.ethdev = wire_.right();
    config.addresses = {{address(v6, 2), 120}};
    right_port_ = softroce::Port::open(config);
    left_ = left_port_->make_device(0);
    right_ = right_port_->make_device(0);
  }
  softroce::SoftRoce& left() override { return *left_; }
  softroce::SoftRoce& right() override { return *right_; }
  void carry() override { wire_.carry(); }
  LinkAddress link_of_left() override { return left_port_->link_address(); }
  LinkAddress link_of_right() override { return right_port_->link_address(); }
  FaultyWire& wire() { return wire_; }

 private:
  static PeerAddress address(bool v6, std::uint8_t host) {
    if (!v6) return PeerAddress::from_ipv4(192, 0, 2, host);
    return {{0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, host}};
  }
  FaultyWire wire_;
  std::shared_ptr<softroce::Port> left_port_;
  std::shared_ptr<softroce::Port> right_port_;
  std::unique_ptr<softroce::SoftRoce> left_;
  std::unique_ptr<softroce::SoftRoce> right_;
};

constexpr std::uint16_t kUntagged = 0xFFFF;

DriverParam over(const char* name, WireFaults faults, bool v6 = false, std::uint16_t vlan = kUntagged,
                 bool in_place = true, std::uint16_t link_mtu = 4200) {
  return {name, [=] { return std::make_unique<SoftRocePair>(faults, v6, vlan, in_place, link_mtu); }};
}

const DriverParam kPerfect = over("ipv4_mtu4096", {});
const DriverParam kIpv6Vlan = over("ipv6_vlan_mtu1024_copied", {}, true, 7, false, 1500);
const DriverParam kLossy1 = over("lossy_1_percent", {.per_mille = 10, .seed = 11});
const DriverParam kLossy10 = over("lossy_10_percent", {.per_mille = 100, .seed = 12});

INSTANTIATE_TEST_SUITE_P(SoftRoce, DriverTest, testing::Values(kPerfect, kIpv6Vlan, kLossy1, kLossy10),
                         driver_name);
INSTANTIATE_TEST_SUITE_P(SoftRoce, Refusal, testing::Values(kPerfect, kIpv6Vlan, kLossy1, kLossy10),
                         driver_name);

}  // namespace
}  // namespace sluice::rdma::conformance
