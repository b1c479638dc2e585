// SPDX-License-Identifier: Apache-2.0
//
// Version 2 at the responder: which error answers which faulty header.
#include <gtest/gtest.h>

#include "tests/conformance/v2_lab.h"

namespace sluice::conformance::v2 {
namespace {

TEST(V2Errors, V2_110_headers_that_cannot_be_parsed) {
  Server lab;
  lab.hello();
  std::uint32_t errors = 0;
  const auto memory = lab.peer->expose(4096, rdma::kRemoteRead);
  const Header call{.xid = 40,
                    .invalidate = 1,
                    .reads = {{0, memory.segment}},
                    .writes = {{memory.segment}},
                    .reply = {{memory.segment}}};
  const Bytes header = call.bytes();
  for (std::size_t bytes = 20; bytes <= header.size(); bytes += 4) {
    const Bytes answer = lab.answer(std::span(header).first(bytes));
    EXPECT_TRUE(is_error(answer, 40, 2)) << bytes;
    EXPECT_EQ(answer.size(), 24u);
    ++errors;
  }
  for (const Bytes& bad :
       {Header{.xid = 40}.then({0, 2, 0, 0, 1}), Header{.xid = 40}.then({0, 0xffffffff, 0, 0, 1}),
        Header{.xid = 40}.then({0, 0, 1, 0x10000000, 1, 1, 1, 1, 0, 0}),
        Header{.xid = 40}.then({0, 0, 0, 3, 1, 1, 1, 1})})
    EXPECT_TRUE(is_error(lab.answer(bad), 40, 2));
  EXPECT_TRUE(lab.service->executed.empty());
  EXPECT_TRUE(lab.alive2());
}

TEST(V2Errors, V2_113_more_read_chunks_than_are_taken) {
  for (const std::uint32_t limit : {0u, 1u}) {
    LabOptions options = Server::defaults();
    options.connection.version2.max_read_chunks = limit;
    Server lab(options);
    lab.hello();
    const auto memory = lab.peer->expose(64, rdma::kRemoteRead);
    const Bytes answer = lab.answer(
        Header{.xid = 1, .reads = {{44, part(memory.segment, 0, 8)}, {60, part(memory.segment, 8, 8)}}}.with(
            test_call(1, TestService::kTwoSinks, {8, 7, 8})));
    EXPECT_TRUE(is_error(answer, 1, 5));
    EXPECT_EQ(answer.size(), 28u);
    EXPECT_EQ(word_at(answer, 6), limit);
    EXPECT_TRUE(lab.service->executed.empty());
  }
}

TEST(V2Errors, V2_115_more_write_chunks_than_are_filled) {
  for (const std::uint32_t limit : {0u, 1u}) {
    LabOptions options = Server::defaults();
    options.connection.version2.max_write_chunks = limit;
    Server lab(options);
    lab.hello();
    const auto memory = lab.peer->expose(64, rdma::kRemoteWrite);
    const Bytes answer = lab.answer(Header{.xid = 1, .writes = {{memory.segment}, {memory.segment}}}.with(
        test_call(1, TestService::kPair, {8, 8})));
    EXPECT_TRUE(is_error(answer, 1, limit == 0 ? 9 : 6));
    EXPECT_EQ(word_at(answer, 6), limit);
    EXPECT_TRUE(lab.service->executed.empty());
  }
}

TEST(V2Errors, V2_115_more_write_chunks_than_a_header_is_read_for) {
  Server lab;
  lab.hello();
  const auto memory = lab.peer->expose(64, rdma::kRemoteWrite);
  for (const std::size_t chunks : {17u, 40u}) {
    const Header call{.xid = 1, .writes = {chunks, {memory.segment}}};
    const Bytes answer = lab.answer(call.with(test_call(1, TestService::kPair, {8, 8})));
    EXPECT_TRUE(is_error(answer, 1, 6));
    EXPECT_EQ(word_at(answer, 6), 16u);
  }
  EXPECT_TRUE(lab.service->executed.empty());
}

TEST(V2Errors, V2_117_more_segments_than_were_announced) {
  LabOptions options = Server::defaults();
  options.connection.version2.parameters.max_segments = 16;
  Server lab(options);
  lab.hello();
  const auto memory = lab.peer->expose(64, rdma::kRemoteRead);
  Header one_list{.xid = 1};
  for (std::uint32_t i = 0; i < 17; ++i) one_list.reads.push_back({44, part(memory.segment, i, 1)});
  const Bytes first = lab.answer(one_list.with(test_call(1, TestService::kSink, {17})));
  EXPECT_TRUE(is_error(first, 1, 7));
  EXPECT_EQ(word_at(first, 6), 16u);
  Header two_lists{.xid = 2, .writes = {{}}};
  for (std::uint32_t i = 0; i < 9; ++i) two_lists.reads.push_back({44, part(memory.segment, i, 1)});
  for (std::uint32_t i = 0; i < 8; ++i) two_lists.writes[0].push_back(part(memory.segment, i, 1));
  EXPECT_TRUE(is_error(lab.answer(two_lists.with(test_call(2, TestService::kSink, {9}))), 2, 7));
  // The error also answers values far beyond all limits.
  Header many{.xid = 3};
  for (std::uint32_t i = 0; i < 165; ++i) many.reads.push_back({44, part(memory.segment, 0, 1)});
  const Bytes third = lab.answer(many.with(test_call(3, TestService::kSink, {165})));
  EXPECT_TRUE(is_error(third, 3, 7));
  EXPECT_EQ(word_at(third, 6), 16u);
  EXPECT_TRUE(lab.alive2());
}

TEST(V2Errors, V2_123_bad_arguments_are_the_matter_of_rpc) {
  Server lab;
  lab.hello();
  EXPECT_EQ(accept_stat(lab.answer(Header{.xid = 1}.with(test_call(1, TestService::kSource)))), 4u);
}

}  // namespace
}  // namespace sluice::conformance::v2
