// SPDX-License-Identifier: Apache-2.0
//
// The message path allocates no memory. This program replaces the allocation functions to count calls.
#include "tests/unit/base/allocation_counter.h"
#include "tests/unit/service/memory/nfs3_client.h"

namespace sluice::service::test {
namespace {

TEST(Allocations, the_counter_counts) {
  const std::uint64_t before = allocations();
  const auto something = std::make_unique<Bytes>(100);
  EXPECT_GE(allocations() - before, 2u);
}

TEST(Allocations, no_call_allocates) {
  Lab lab({.arena_bytes = 16 << 20});
  const Handle root = lab.root();
  const Handle f = lab.file(root, "f");
  const Handle l = lab.symlink(root, "l", "target").handle;
  ASSERT_TRUE(lab.write(f, 0, pattern(3 << 18, 1)).ok());
  for (unsigned i = 0; i < 300; ++i) lab.file(root, numbered("x", i));
  const auto sattr = [](auto& out) {
    for (int i = 0; i < 6; ++i) out.u32(0);
  };
  const auto named = [&](std::string_view name) {
    return encode([&](auto& out) {
      out.opaque(root);
      out.string(name);
    });
  };
  const auto with = [&](Bytes head, auto put) {
    const Bytes tail = encode(put);
    head.insert(head.end(), tail.begin(), tail.end());
    return head;
  };
  const Bytes data = pattern(1 << 20, 2);
  const std::vector<std::pair<std::uint32_t, Bytes>> calls = {
      {0, {}},
      {1, encode([&](auto& o) { o.opaque(f); })},
      {2, encode([&](auto& o) {
         o.opaque(f);
         sattr(o);
         o.u32(0);
       })},
      {3, named("f")},
      {4, encode([&](auto& o) {
         o.opaque(f);
         o.u32(63);
       })},
      {5, encode([&](auto& o) { o.opaque(l); })},
      {6, encode([&](auto& o) {
         o.opaque(f);
         o.u64(1);
         o.u32(1 << 20);
       })},
      {7, with(write_head(f, 77, 1 << 20), [&](auto& o) { o.opaque_fixed(data); })},
      {8, with(named("g"),
               [&](auto& o) {
                 o.u32(1);
                 sattr(o);
               })},
      {9, with(named("d"), sattr)},
      {10, with(named("m"),
                [&](auto& o) {
                  sattr(o);
                  o.string("path");
                })},
      {11, with(named("n"),
                [&](auto& o) {
                  o.u32(7);
                  sattr(o);
                })},
      {14, with(named("n"),
                [&](auto& o) {
                  o.opaque(root);
                  o.string("o");
                })},
      {15, encode([&](auto& o) {
         o.opaque(f);
         o.opaque(root);
         o.string("p");
       })},
      {16, encode([&](auto& o) {
         o.opaque(root);
         o.u64(0);
         o.u64(0);
         o.u32(65536);
       })},
      {17, encode([&](auto& o) {
         o.opaque(root);
         o.u64(0);
         o.u64(0);
         o.u32(65536);
         o.u32(65536);
       })},
      {18, encode([&](auto& o) { o.opaque(root); })},
      {19, encode([&](auto& o) { o.opaque(root); })},
      {20, encode([&](auto& o) { o.opaque(root); })},
      {21, encode([&](auto& o) {
         o.opaque(f);
         o.u64(0);
         o.u32(0);
       })},
      {13, named("d")},
      {12, named("f")},
      {12, named("p")},
      {12, named("no such file")},
      {1, encode([&](auto& o) { o.opaque(f); })},
  };
  TestCall call;
  call.allocate_large_room();
  for (const auto& [procedure, arguments] : calls) {
    lab.prepare(call, procedure, kRoot);
    call.start(arguments);
    const std::uint64_t before = allocations();
    const Execution started = call.execute(lab.front());
    call.release(lab.front());
    const std::uint64_t after = allocations();
    EXPECT_EQ(started, Execution::Started);
    EXPECT_EQ(call.accepted(), rpc::AcceptStat::Success) << procedure;
    EXPECT_EQ(after - before, 0u) << "procedure " << procedure;
  }
  const std::uint64_t before = allocations();
  while (lab.service().background(0)) {
  }
  EXPECT_EQ(allocations() - before, 0u) << "background work";

  const Handle w = lab.file(root, "w");
  const Bytes head = write_head(w, 3, 1 << 20);
  lab.prepare(call, ulb::kNfs3Write, kRoot);
  call.start(head, 1 << 20);
  const std::uint64_t placed = allocations();
  const Placement placement = call.place(lab.front());
  call.pull(data);
  call.execute(lab.front());
  call.release(lab.front());
  EXPECT_EQ(allocations() - placed, 0u) << "a placed WRITE";
  EXPECT_EQ(placement, Placement::Sink);

  memory::FileReader reader(lab.service(), lab.service(),
                            {.data = lab.arena_lkey(), .zeros = rdma::Lkey{12}});
  const Bytes of_file = encode([&](auto& o) {
    o.opaque(w);
    o.u64(0);
    o.u32(1000);
  });
  for (const std::uint32_t procedure :
       {ulb::kNfs3GetAttr, ulb::kNfs3Read, ulb::kNfs3Read, ulb::kNfs3Commit}) {
    lab.prepare(call, procedure, kRoot);
    call.start(of_file);
    const std::uint64_t before_read = allocations();
    call.execute(reader);
    call.release(reader);
    reader.background(0);
    lab.service().background(0);
    EXPECT_EQ(allocations() - before_read, 0u) << "procedure " << procedure << " at a reader";
    EXPECT_EQ(call.accepted(), rpc::AcceptStat::Success) << procedure;
  }
  EXPECT_EQ(reader.given_to_owner(), 1u) << "the first READ sets the access time";

  const Bytes acl = encode([&](auto& o) {
    o.opaque(w);
    o.u32(15);
  });
  lab.prepare(call, 1, kRoot);
  call.header().program = ulb::kNfsAclProgram;
  call.start(acl);
  const std::uint64_t acl_before = allocations();
  call.execute(lab.service().acl_service());
  EXPECT_EQ(allocations() - acl_before, 0u) << "GETACL";
  call.release(lab.service().acl_service());
}

}  // namespace
}  // namespace sluice::service::test
