// SPDX-License-Identifier: Apache-2.0
//
// The driver suite over two loopback devices in one process.
#include "pmd/loopback/loopback.h"
#include "tests/driver/connection_fixture.h"

namespace sluice::rdma::conformance {
namespace {

class LoopbackPair final : public DriverPair {
 public:
  Device& left() override { return *left_; }
  Device& right() override { return *right_; }

 private:
  std::shared_ptr<loopback::Fabric> fabric_ = loopback::Fabric::in_process({.links = 8});
  std::unique_ptr<Device> left_ = loopback::make_device(fabric_, {.name = "left"});
  std::unique_ptr<Device> right_ = loopback::make_device(fabric_, {.name = "right"});
};

DriverParam loopback_driver() {
  return {"loopback", [] { return std::make_unique<LoopbackPair>(); }};
}

INSTANTIATE_TEST_SUITE_P(Loopback, DriverTest, testing::Values(loopback_driver()), driver_name);
INSTANTIATE_TEST_SUITE_P(Loopback, ConnectionTest, testing::Values(loopback_driver()), driver_name);
INSTANTIATE_TEST_SUITE_P(Loopback, Refusal, testing::Values(loopback_driver()), driver_name);

}  // namespace
}  // namespace sluice::rdma::conformance
