// SPDX-License-Identifier: Apache-2.0
//
// The verbs driver on a machine without an RDMA device, and the parts of the driver that need none.
#include <gtest/gtest.h>

#include "dataplane/base/setup_error.h"
#include "pmd/verbs/completion_queue.h"
#include "pmd/verbs/memory.h"
#include "pmd/verbs/port_list.h"
#include "pmd/verbs/queue_pair.h"
#include "pmd/verbs/verbs.h"

namespace sluice::rdma::verbs {
namespace {

TEST(VerbsSetup, a_machine_without_rdma_is_told_of_softroce) {
  if (!list_ports().empty()) GTEST_SKIP() << "this machine has RDMA devices";
  try {
    open({.device = {}});
    FAIL();
  } catch (const SetupError& error) {
    const std::string said = error.what();
    EXPECT_NE(said.find("no RDMA device"), std::string::npos) << said;
    EXPECT_NE(said.find("driver = \"softroce\""), std::string::npos) << said;
    EXPECT_EQ(said.find('\n'), std::string::npos);
  }
}

TEST(VerbsSetup, a_cookie_brings_back_what_it_was_made_of) {
  for (const Cookie cookie :
       {Cookie{0, 0, false, 0}, Cookie{65535, Cookie::kGenerations - 1, true, 0xFFFFFFFF},
        Cookie{7, 3, false, 0x80000000}, Cookie{256, 16384, true, 1}}) {
    const Cookie back = Cookie::unpacked(cookie.packed());
    EXPECT_EQ(back.slot, cookie.slot);
    EXPECT_EQ(back.generation, cookie.generation);
    EXPECT_EQ(back.receive, cookie.receive);
    EXPECT_EQ(back.index, cookie.index);
  }
}

TEST(VerbsSetup, a_ring_of_what_was_posted_keeps_its_order_when_its_indices_wrap) {
  PostedRing<std::uint64_t> ring(5);
  std::uint64_t pushed = 0;
  std::uint64_t popped = 0;
  for (int round = 0; round < 1000; ++round) {
    while (ring.room() > 0) ring.push(pushed++);
    EXPECT_EQ(pushed - popped, 5u);
    EXPECT_TRUE(ring.holds(ring.tail()));
    EXPECT_FALSE(ring.holds(ring.head()));
    for (int i = 0; i <= round % 5; ++i) ASSERT_EQ(ring.pop(), popped++);
  }
}

TEST(VerbsSetup, memory_is_held_to_its_regions) {
  MemoryTable memory;
  const MemoryRegion region = memory.allocate(10000);
  EXPECT_TRUE(memory.covers({region.bytes.data(), 10000, region.lkey}));
  EXPECT_TRUE(memory.covers({region.bytes.data() + 9999, 1, region.lkey}));
  EXPECT_FALSE(memory.covers({region.bytes.data() + 9999, 2, region.lkey}));
  EXPECT_FALSE(memory.covers({region.bytes.data() - 1, 2, region.lkey}));
  EXPECT_FALSE(memory.covers({region.bytes.data(), 0xFFFFFFFF, region.lkey}));
  EXPECT_FALSE(memory.covers({region.bytes.data(), 1, static_cast<Lkey>(0xDEAD0001)}));
  std::byte other[16];
  EXPECT_FALSE(memory.covers({other, 16, region.lkey}));
}

}  // namespace
}  // namespace sluice::rdma::verbs
