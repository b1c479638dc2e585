// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "pmd/softroce/softroce.h"
#include "tests/driver/driver_fixture.h"
#include "tests/driver/faulty_wire.h"

namespace sluice::rdma::conformance {

class SoftRocePair : public DriverPair {
 public:
  struct Options {
    WireFaults faults{};
    std::uint64_t one_way_ns = 0;  ///< of the wire; needs clock_ns
    bool v6 = false;
    std::uint16_t vlan = 0xFFFF;  ///< untagged
    bool in_place = true;
    std::uint16_t link_mtu = 4200;
    std::uint32_t max_queue_pairs = 16;
    std::uint64_t (*clock_ns)() noexcept = nullptr;  ///< null: the processor's clock
    bool expect_headers = true;
    std::uint32_t right_lanes = 1;  ///< reactors of the right port; right() is the device of the last
  };

  explicit SoftRocePair(const Options& options)
      : wire_(options.faults, {options.one_way_ns, options.clock_ns}) {
    static int made = 0;
    const std::string name = "sr" + std::to_string(made++);
    softroce::PortConfig config;
    config.vlan = options.vlan;
    config.link_mtu = options.link_mtu;
    config.transmit_in_place = options.in_place;
    config.max_queue_pairs = options.max_queue_pairs;
    config.clock_ns = options.clock_ns;
    config.expect_headers = options.expect_headers;
    config.name = name + "l";
    config.ethdev = wire_.left();
    config.addresses = {{address(options.v6, 1), 120}};
    left_port_ = softroce::Port::open(config);
    config.name = name + "r";
    config.ethdev = wire_.right();
    config.addresses = {{address(options.v6, 2), 120}};
    config.lanes = options.right_lanes;
    right_port_ = softroce::Port::open(config);
    left_ = left_port_->make_device(0);
    for (std::uint32_t lane = 0; lane < options.right_lanes; ++lane)
      right_.push_back(right_port_->make_device(lane));
  }
  softroce::SoftRoce& left() override { return *left_; }
  softroce::SoftRoce& right() override { return *right_.back(); }
  softroce::SoftRoce& right_lane(std::size_t lane) { return *right_[lane]; }
  void carry() override {
    wire_.carry();
    // Lanes without queue pairs of the test only forward packets to the others.
    for (std::size_t lane = 0; lane + 1 < right_.size(); ++lane) {
      WorkCompletion none[4];
      right_[lane]->poll(none);
    }
  }
  LinkAddress link_of_left() override { return left_port_->link_address(); }
  LinkAddress link_of_right() override { return right_port_->link_address(); }
  FaultyWire& wire() { return wire_; }

 private:
  static PeerAddress address(bool v6, std::uint8_t host) {
    if (!v6) return PeerAddress::from_ipv4(192, 0, 2, host);
    return {{0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, host}};
  }
  FaultyWire wire_;
  Owned<softroce::Port> left_port_;
  Owned<softroce::Port> right_port_;
  std::unique_ptr<softroce::SoftRoce> left_;
  std::vector<std::unique_ptr<softroce::SoftRoce>> right_;
};

}  // namespace sluice::rdma::conformance
