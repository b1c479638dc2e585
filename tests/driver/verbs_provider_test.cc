// SPDX-License-Identifier: Apache-2.0
//
// The features that the verbs driver requests from a provider, where a NIC supports more than rxe. Tested
// with a stub.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "dataplane/base/setup_error.h"
#include "pmd/verbs/verbs.h"
#include "tests/driver/verbs_stub.h"

namespace sluice::rdma::conformance {
namespace {

constexpr QueuePairLimits kLimits{.send_depth = 16, .recv_depth = 8};

class VerbsProvider : public testing::Test {
 protected:
  Owned<QueuePair> connected() {
    auto qp = device_->create_queue_pair(kLimits);
    RcAttributes attributes;
    attributes.local = device_->addresses()[0];
    attributes.remote = PeerAddress::from_ipv4(192, 0, 2, 9);
    EXPECT_TRUE(qp->connect(attributes));
    while (qp->state() == QueuePair::State::Init) device_->poll({});
    return qp;
  }
  bool is_inlined(QueuePair& qp, std::uint32_t bytes) {
    const Sge sge{memory_.bytes.data(), bytes, memory_.lkey};
    const SendWr send{.wr_id = 1, .sges = {&sge, 1}, .flags = kSignaled};
    EXPECT_EQ(qp.post_send({&send, 1}), 1u);
    return stub_.posted().back().inlined;
  }

  VerbsStub& stub_ = VerbsStub::get();
  std::unique_ptr<verbs::Verbs> device_ = verbs::open({.device = {}, .max_queue_pairs = 4});
  const MemoryRegion memory_ = device_->allocate_memory(std::size_t{3} << 20);
};

TEST_F(VerbsProvider, is_given_whole_huge_pages_and_may_order_what_it_writes_as_it_likes) {
  constexpr std::uintptr_t kHugePage = 2u << 20;
  const VerbsStub::Registered& region = stub_.registered().back();
  EXPECT_EQ(region.at, memory_.bytes.data());
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(region.at) % kHugePage, 0u);
  EXPECT_EQ(memory_.bytes.size(), std::size_t{3} << 20);
  EXPECT_NE(region.access & IBV_ACCESS_RELAXED_ORDERING, 0);
}

TEST_F(VerbsProvider, is_told_that_one_thread_posts) {
  const auto qp = connected();
  EXPECT_TRUE(stub_.made_for_one_thread());
  EXPECT_EQ(stub_.domains_of_threads(), 2u);
}

TEST_F(VerbsProvider, gets_its_domains_back) {
  device_.reset();
  EXPECT_EQ(stub_.domains_of_threads(), 0u);
}

TEST_F(VerbsProvider, takes_as_much_inline_data_as_it_has_room_for) {
  stub_.take_inline(101);  // irdma
  const auto first = connected();
  EXPECT_TRUE(is_inlined(*first, 96));
  EXPECT_FALSE(is_inlined(*first, 102));
  const std::uint32_t refused = stub_.refused();
  const auto second = connected();
  EXPECT_TRUE(is_inlined(*second, 96));
  EXPECT_EQ(stub_.refused(), refused) << "what it takes is known";
}

/// The table of GIDs of a port may have more entries than an octet counts, and the index of a queue pair's
/// GID is an octet.
class GidTable : public VerbsProvider {
 protected:
  static constexpr std::size_t kEntries = 1000;

  ~GidTable() override { stub_.set_gids(1, 0); }
  void open_with_addresses_from(std::size_t index) {
    stub_.set_gids(kEntries, index);
    device_.reset();
    device_ = verbs::open({.device = {}, .max_queue_pairs = 4});
  }
};

TEST_F(GidTable, of_any_length_has_the_addresses_whose_index_is_an_octet) {
  open_with_addresses_from(254);
  ASSERT_EQ(device_->addresses().size(), 2u);
  EXPECT_EQ(device_->addresses()[0], PeerAddress::from_ipv4(192, 0, 2, 1));
  EXPECT_EQ(device_->addresses()[1], PeerAddress::from_ipv4(192, 0, 2, 2));
}

TEST_F(GidTable, gives_a_queue_pair_the_index_of_its_address) {
  open_with_addresses_from(255);
  const auto qp = connected();
  EXPECT_EQ(qp->state(), QueuePair::State::ReadyToSend);
  EXPECT_EQ(stub_.address_vector().grh.sgid_index, 255u);
}

TEST_F(GidTable, without_an_address_that_a_queue_pair_can_have_is_refused_with_a_sentence) {
  try {
    open_with_addresses_from(256);
    ADD_FAILURE();
  } catch (const SetupError& error) {
    EXPECT_NE(std::string(error.what()).find("no RoCEv2 address in the first 256 entries of its GID table"),
              std::string::npos)
        << error.what();
  }
}

TEST_F(GidTable, that_grows_leaves_a_connection_without_its_address_unconnected) {
  stub_.set_gids(kEntries, 256);
  auto qp = device_->create_queue_pair(kLimits);
  RcAttributes attributes;
  attributes.local = PeerAddress::from_ipv4(192, 0, 2, 1);
  attributes.remote = PeerAddress::from_ipv4(192, 0, 2, 9);
  EXPECT_TRUE(qp->connect(attributes));
  while (qp->state() == QueuePair::State::Init) device_->poll({});
  EXPECT_EQ(qp->state(), QueuePair::State::Error);
}

}  // namespace
}  // namespace sluice::rdma::conformance
