// SPDX-License-Identifier: Apache-2.0
//
// The features that the verbs driver requests from a provider, where a NIC supports more than rxe. Tested
// with a stub.
#include <gtest/gtest.h>

#include <cerrno>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "dataplane/base/setup_error.h"
#include "pmd/verbs/port_list.h"
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

std::string refusal(const std::function<void()>& setup) {
  try {
    setup();
  } catch (const SetupError& error) {
    return error.what();
  }
  return {};
}

TEST_F(VerbsProvider, that_refuses_memory_is_quoted_with_the_remedy) {
  const auto allocate = [this] { device_->allocate_memory(4096); };
  stub_.refuse_memory(ENOMEM);
  EXPECT_NE(refusal(allocate).find("Raise the limit of locked memory"), std::string::npos)
      << refusal(allocate);
  stub_.refuse_memory(EPERM);
  EXPECT_NE(refusal(allocate).find("not permitted"), std::string::npos) << refusal(allocate);
  EXPECT_EQ(refusal(allocate).find("locked memory"), std::string::npos) << refusal(allocate);
  stub_.refuse_memory(EINVAL);
  EXPECT_NE(refusal(allocate).find("See the kernel log"), std::string::npos) << refusal(allocate);
  stub_.refuse_memory(0);
}

TEST_F(VerbsProvider, has_a_limit_of_a_region) {
  Provider small = kFullProvider;
  small.max_region_bytes = 1 << 20;
  device_.reset();
  stub_.select(small);
  device_ = verbs::open({.device = {}, .max_queue_pairs = 4});
  const std::string said = refusal([this] { device_->allocate_memory(2 << 20); });
  EXPECT_NE(said.find("its limit is 1 MiB"), std::string::npos) << said;
  EXPECT_EQ(refusal([this] { device_->allocate_memory(1 << 20); }), "");
  stub_.select(kFullProvider);
}

TEST_F(VerbsProvider, gets_no_window_outside_of_its_region) {
  const MemoryWindow window = device_->allocate_window();
  const MemoryRegion small = device_->allocate_memory(4096);
  const auto qp = connected();
  const auto bind = [&](std::byte* at, std::size_t bytes) {
    return qp->bind_window(window, {at, bytes}, small.lkey, kRemoteRead);
  };
  EXPECT_FALSE(bind(small.bytes.data() + 64, small.bytes.size()));
  EXPECT_FALSE(bind(small.bytes.data() - 64, 128));
  EXPECT_TRUE(bind(small.bytes.data(), small.bytes.size())) << "the window was not taken";
}

TEST_F(VerbsProvider, that_keeps_a_window_loses_it) {
  const MemoryWindow window = device_->allocate_window();
  auto qp = connected();
  ASSERT_TRUE(qp->bind_window(window, memory_.bytes.first(64), memory_.lkey, kRemoteRead));
  const std::uint32_t made = stub_.windows_made();
  stub_.keep_windows(true);
  qp.reset();
  const auto next = connected();
  EXPECT_EQ(stub_.windows_made(), made);
  EXPECT_FALSE(next->bind_window(window, memory_.bytes.first(64), memory_.lkey, kRemoteRead));
  stub_.keep_windows(false);
}

TEST_F(VerbsProvider, in_iwarp_mode_is_refused_with_the_name_of_the_setting) {
  device_.reset();
  stub_.set_iwarp(true);
  const std::string said = refusal([] { verbs::open({.device = "stub0"}); });
  EXPECT_NE(said.find("iWARP"), std::string::npos) << said;
  EXPECT_NE(said.find("enable_roce"), std::string::npos) << said;
  stub_.set_iwarp(false);
}

TEST_F(VerbsProvider, is_unknown_if_sysfs_is_hidden) {
  stub_.hide_sysfs(true);
  EXPECT_EQ(verbs::list_ports().at(0).provider, "unknown");
  stub_.hide_sysfs(false);
  EXPECT_EQ(verbs::list_ports().at(0).provider, "mlx5_core");
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

TEST_F(GidTable, has_link_local_addresses_of_each_vlan) {
  stub_.set_link_local({4, 9});
  for (const std::uint32_t zone : {9u, 4u, 0u}) {
    auto qp = device_->create_queue_pair(kLimits);
    RcAttributes attributes;
    attributes.local.bytes = {0xFE, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};
    attributes.local.zone = zone;
    attributes.remote = attributes.local;
    EXPECT_TRUE(qp->connect(attributes));
    while (qp->state() == QueuePair::State::Init) device_->poll({});
    EXPECT_EQ(qp->state(), QueuePair::State::ReadyToSend);
    EXPECT_EQ(stub_.address_vector().grh.sgid_index, zone == 9 ? 2u : 1u) << zone;
  }
  stub_.set_link_local({});
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
