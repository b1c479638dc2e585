// SPDX-License-Identifier: Apache-2.0
//
// The driver suite over the example driver, with the connection managers of programs without a control plane.
#include "tests/examples/copy_driver/copy_driver.h"
#include "controlplane/cm/device_manager.h"
#include "tests/driver/connection_fixture.h"

namespace sluice::rdma::conformance {
namespace {

std::uint64_t clock_ns() noexcept {
  return static_cast<std::uint64_t>(
      std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count());
}

class CopyPair final : public DriverPair {
 public:
  CopyPair() { examples::CopyDevice::pair(left_, right_); }
  Device& left() override { return left_; }
  Device& right() override { return right_; }
  ConnectionManager* left_manager() override { return &left_manager_; }
  ConnectionManager* right_manager() override { return &right_manager_; }

 private:
  examples::CopyDevice left_{"left", 1};
  examples::CopyDevice right_{"right", 2};
  cm::DeviceManager left_manager_{left_, &clock_ns, right_.addresses()[0]};
  cm::DeviceManager right_manager_{right_, &clock_ns};
};

DriverParam copy_driver() {
  return {"copy", [] { return std::make_unique<CopyPair>(); }};
}

INSTANTIATE_TEST_SUITE_P(Copy, DriverTest, testing::Values(copy_driver()), driver_name);
INSTANTIATE_TEST_SUITE_P(Copy, ConnectionTest, testing::Values(copy_driver()), driver_name);
INSTANTIATE_TEST_SUITE_P(Copy, Refusal, testing::Values(copy_driver()), driver_name);

}  // namespace
}  // namespace sluice::rdma::conformance
