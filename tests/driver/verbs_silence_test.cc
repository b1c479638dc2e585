// SPDX-License-Identifier: Apache-2.0
//
// A client that lost power, with an RDMA device. The engine's probe of an idle connection is an RDMA Write of
// no bytes. When the device gives up on the probe, the connection's slots are free. The device is a stub,
// because no real device reports the work requests that it was given.
#include <gtest/gtest.h>

#include "dataplane/rpcrdma/engine.h"
#include "dataplane/segment/config_block.h"
#include "pmd/verbs/verbs.h"
#include "tests/driver/verbs_stub.h"

namespace sluice::rdma::conformance {
namespace {

constexpr std::uint64_t kMs = 1'000'000;
constexpr std::uint64_t kSecond = 1'000 * kMs;

class VerbsSilence : public testing::Test {
 protected:
  VerbsSilence() : device_(verbs::open({.device = {}, .max_queue_pairs = 1})) {
    rpcrdma::EngineConfig config;
    config.max_connections = 1;
    engine_ = std::make_unique<rpcrdma::Engine>(*device_, config);
    connection_ = engine_->free_connection();
    rpcrdma::ConnectionConfig connection;
    connection.credit_grant = 8;
    connection.probe_after_ns = segment::ConfigBlock{}.probe_after_s * kSecond;
    connection_->open(device_->create_queue_pair(engine_->queue_pair_limits()), connection,
                      PeerAddress::from_ipv4(192, 0, 2, 9), nullptr);
    RcAttributes attributes;
    attributes.local = device_->addresses()[0];
    attributes.remote = PeerAddress::from_ipv4(192, 0, 2, 9);
    attributes.retry_count = 6;
    EXPECT_TRUE(connection_->queue_pair().connect(attributes));
    while (connection_->queue_pair().state() == QueuePair::State::Init) engine_->poll(now_ns_);
    connection_->established();
  }
  void pass(std::uint64_t ns) {
    for (const std::uint64_t end = now_ns_ + ns; now_ns_ < end; now_ns_ += kMs) engine_->poll(now_ns_);
  }

  std::unique_ptr<verbs::Verbs> device_;
  std::unique_ptr<rpcrdma::Engine> engine_;
  rpcrdma::Connection* connection_ = nullptr;
  std::uint64_t now_ns_ = kSecond;
  VerbsStub& stub_ = VerbsStub::get();
};

TEST_F(VerbsSilence, a_client_that_lost_power_is_found_out_by_a_write_of_no_bytes) {
  pass(9 * kSecond);
  EXPECT_TRUE(stub_.posted().empty());
  pass(3 * kSecond);
  ASSERT_EQ(stub_.posted().size(), 1u);
  EXPECT_EQ(stub_.posted()[0].opcode, IBV_WR_RDMA_WRITE);
  EXPECT_EQ(stub_.posted()[0].bytes, 0u);
  EXPECT_TRUE(stub_.posted()[0].signaled);
  EXPECT_TRUE(connection_->is_open());  // the probe was acknowledged
  EXPECT_EQ(stub_.attributes().retry_cnt, 6u);
  stub_.lose_peer();
  pass(12 * kSecond);
  EXPECT_EQ(stub_.posted().size(), 2u);  // no further probe while the device retries
  EXPECT_TRUE(connection_->is_open());
  stub_.give_up();
  pass(10 * kMs);
  EXPECT_EQ(connection_->close_reason(), rpcrdma::CloseReason::TransportError);
  EXPECT_EQ(connection_->failure().status, WcStatus::RetryExceeded);
  EXPECT_EQ(connection_->failure().vendor_error, kVendorError);
  const rpcrdma::Connection* closed = nullptr;
  while ((closed = engine_->take_closed()) == nullptr) pass(kMs);  // the set-up thread ends the queue pair
  EXPECT_EQ(closed, connection_);
  while (stub_.queue_pairs() != 1) pass(kMs);  // the one created in advance
  while (!device_->has_queue_pair()) pass(kMs);
  EXPECT_NE(device_->create_queue_pair(engine_->queue_pair_limits()), nullptr);
  EXPECT_EQ(engine_->free_connection(), connection_);
}

}  // namespace
}  // namespace sluice::rdma::conformance
