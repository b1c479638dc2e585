// SPDX-License-Identifier: Apache-2.0
//
// Version 2: which handles a reply may invalidate (D2-51).
#include <gtest/gtest.h>

#include <vector>

#include "tests/conformance/v2_lab.h"

namespace sluice::conformance::v2 {
namespace {

using rpcrdma::Segment;

/// A call that offers memory of every kind, each segment under a different handle.
struct OfferedCall {
  explicit OfferedCall(Server& lab) {
    const auto expose = [&](rdma::AccessFlags access) { return lab.peer->expose(64, access).segment; };
    for (int i = 0; i < 2; ++i) arguments.push_back(part(expose(rdma::kRemoteRead), 0, 32));
    for (int i = 0; i < 3; ++i) results.push_back(expose(rdma::kRemoteWrite));
    for (int i = 0; i < 2; ++i) reply.push_back(expose(rdma::kRemoteWrite));
  }
  Bytes call(std::uint32_t invalidate) const {
    const Header header{.xid = 5,
                        .invalidate = invalidate,
                        .reads = {{44, arguments[0]}, {44, arguments[1]}},
                        .writes = {{results[0]}, {results[1], results[2]}},
                        .reply = reply};
    return header.with(test_call(5, TestService::kSink, {64, 1}));
  }
  std::vector<Segment> segments() const {
    std::vector<Segment> all = arguments;
    all.insert(all.end(), results.begin(), results.end());
    all.insert(all.end(), reply.begin(), reply.end());
    return all;
  }
  std::vector<Segment> arguments;
  std::vector<Segment> results;
  std::vector<Segment> reply;
};

/// Returns the Send of the reply to a call that names a handle.
Op reply_to(Server& lab, const Bytes& call) {
  lab.log.clear();
  EXPECT_TRUE(!lab.answer(call).empty());
  const auto sends = lab.log.all(OpKind::PostSend);
  EXPECT_FALSE(sends.empty());
  return sends.empty() ? Op{} : sends.back();
}

TEST(V2Invalidation, V2_127_a_handle_of_any_of_its_chunks_may_be_named_by_a_call) {
  constexpr std::size_t kSegments = 7;
  for (std::size_t named = 0; named < kSegments; ++named) {
    Server lab;
    lab.hello();
    const OfferedCall offer(lab);
    ASSERT_EQ(offer.segments().size(), kSegments);
    const Segment segment = offer.segments()[named];
    const Op send = reply_to(lab, offer.call(handle(segment)));
    EXPECT_TRUE(send.with_invalidate) << named;
    EXPECT_EQ(send.rkey, segment.handle) << named;
    EXPECT_EQ(lab.counters().remote_invalidations, 1u);
    EXPECT_EQ(lab.counters().unmatched_invalidate, 0u);
  }
}

TEST(V2Invalidation, V2_127_the_only_segment_of_a_call_may_be_named_by_it) {
  for (const bool read : {true, false}) {
    Server lab;
    lab.hello();
    const auto memory = lab.peer->expose(64, rdma::kRemoteRead | rdma::kRemoteWrite);
    Header header{.xid = 5, .invalidate = handle(memory.segment)};
    if (read)
      header.reads = {{44, memory.segment}};
    else
      header.reply = {memory.segment};
    const Op send = reply_to(lab, header.with(read ? test_call(5, TestService::kSink, {64, 1})
                                                   : test_call(5, TestService::kNull)));
    EXPECT_TRUE(send.with_invalidate);
    EXPECT_EQ(send.rkey, memory.segment.handle);
  }
}

TEST(V2Invalidation, V2_128_a_handle_of_none_of_its_chunks_is_not_invalidated) {
  Server lab;
  lab.hello();
  const auto other = lab.peer->expose(64, rdma::kRemoteWrite);
  const Op send = reply_to(lab, OfferedCall(lab).call(handle(other.segment)));
  EXPECT_FALSE(send.with_invalidate);
  EXPECT_EQ(lab.counters().unmatched_invalidate, 1u);
  EXPECT_EQ(lab.counters().remote_invalidations, 0u);
}

TEST(V2Invalidation, V2_128_nor_is_that_of_a_call_without_chunks) {
  Server lab;
  lab.hello();
  const auto memory = lab.peer->expose(64, rdma::kRemoteWrite);
  const Header header{.xid = 5, .invalidate = handle(memory.segment)};
  const Op send = reply_to(lab, header.with(test_call(5, TestService::kNull)));
  EXPECT_FALSE(send.with_invalidate);
  EXPECT_EQ(lab.counters().unmatched_invalidate, 1u);
}

TEST(V2Invalidation, V2_127_a_device_that_cannot_invalidate_is_not_asked_to) {
  LabOptions options = Server::defaults();
  options.remote_invalidation = false;
  Server lab(options);
  lab.hello();
  const OfferedCall offer(lab);
  EXPECT_FALSE(reply_to(lab, offer.call(handle(offer.results[0]))).with_invalidate);
  EXPECT_EQ(lab.counters().unmatched_invalidate, 0u) << "it matched";
}

}  // namespace
}  // namespace sluice::conformance::v2
