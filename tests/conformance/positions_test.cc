// SPDX-License-Identifier: Apache-2.0
//
// Read chunks of a program whose eligible items are found from its arguments only, as in a COMPOUND (RFC
// 8267, section 6). Each chunk has to be at an item, or the call is refused before the service receives it.
#include <gtest/gtest.h>

#include "tests/conformance/raw_call.h"

namespace sluice::conformance {
namespace {

constexpr std::uint32_t kProgram = 0x200000A0;
constexpr std::uint32_t kPositionsXid = 0x77;

/// Two counted opaques with a word between them.
class TwoItems final : public service::Service {
 public:
  const service::Binding& binding() const noexcept override { return binding_; }
  service::Execution execute(service::Call& call) noexcept override {
    xdr::Reader args(call.arguments());
    const auto first = args.opaque(1 << 20);
    args.u32();
    const auto second = args.opaque(1 << 20);
    seen.emplace_back(Bytes(first.begin(), first.end()), Bytes(second.begin(), second.end()));
    call.complete(args.ok() ? rpc::AcceptStat::Success : rpc::AcceptStat::GarbageArgs);
    return service::Execution::Started;
  }
  std::vector<std::pair<Bytes, Bytes>> seen;

 private:
  static std::size_t items_of(std::uint32_t, std::span<const std::byte> arguments,
                              std::span<service::Item> items) noexcept {
    xdr::Reader args(arguments);
    for (std::size_t i = 0; i < 2; ++i) {
      const auto data = args.opaque(1 << 20);
      if (!args.ok()) return i;
      items[i].bytes = static_cast<std::uint32_t>(data.size());
      items[i].offset = arguments.size() - args.remaining() - xdr::padded(data.size());
      if (i == 0) args.u32();
    }
    return 2;
  }
  static constexpr service::ProcedureBinding kProcedures[] = {{2, 0}};
  service::Binding binding_{.program = kProgram,
                            .version = 1,
                            .procedures = kProcedures,
                            .argument_items = &items_of,
                            .checks_positions = true};
};

struct Positions : ::testing::Test {
  Positions() {
    lab.engine->add_service(service);
    memory = lab.peer->expose(4096, rdma::kRemoteRead);
    fill_pattern(memory.bytes, 3);
  }
  RawRead chunk(std::uint32_t position, std::uint32_t at, std::uint32_t bytes) const {
    return {position, part(memory.segment, at, bytes)};
  }
  void expect_served(const Bytes& message, const Bytes& first, const Bytes& second) {
    const Bytes answer = lab.call(message);
    EXPECT_EQ(word_at(answer, 3), 0u);
    EXPECT_EQ(accept_stat(answer), 0u);
    ASSERT_EQ(service.seen.size(), 1u);
    EXPECT_EQ(service.seen[0].first, first);
    EXPECT_EQ(service.seen[0].second, second);
    service.seen.clear();
  }
  void expect_refused(const Bytes& message) {
    const std::uint64_t before = lab.engine->counters().not_eligible;
    EXPECT_TRUE(is_err_chunk(lab.call(message), kPositionsXid));
    EXPECT_TRUE(service.seen.empty());
    EXPECT_EQ(lab.engine->counters().not_eligible, before + 1);
    EXPECT_TRUE(lab.alive());
  }
  Bytes held(std::uint32_t at, std::uint32_t bytes) const {
    return Bytes(memory.bytes.begin() + at, memory.bytes.begin() + at + bytes);
  }

  TwoItems service;
  ServerLab lab;
  Exposed memory;
};

Bytes call_with(const Bytes& arguments) {
  Bytes call = rpc_call(kPositionsXid, kProgram, 1, 0);
  append(call, arguments);
  return call;
}

TEST_F(Positions, V1_089_V1_198_chunks_stand_at_items) {
  const RawCall plain{.xid = kPositionsXid};
  expect_served(plain.with(call_with(words({4, 1, 9, 4, 2}))), words({1}), words({2}));
  const RawCall first{.xid = kPositionsXid, .reads = {chunk(44, 0, 61)}};
  expect_served(first.with(call_with(words({61, 9, 4, 2}))), held(0, 61), words({2}));
  const RawCall second{.xid = kPositionsXid, .reads = {chunk(56, 100, 64)}};
  expect_served(second.with(call_with(words({4, 1, 9, 64}))), words({1}), held(100, 64));
  const RawCall both{.xid = kPositionsXid, .reads = {chunk(44, 0, 62), chunk(44 + 64 + 8, 100, 33)}};
  expect_served(both.with(call_with(words({62, 9, 33}))), held(0, 62), held(100, 33));
}

TEST_F(Positions, V1_089_V1_198_chunks_elsewhere_are_refused) {
  // The position is inside an opaque, after a word that equals the chunk's length.
  const RawCall inside{.xid = kPositionsXid, .reads = {chunk(52, 0, 8)}};
  expect_refused(inside.with(call_with(words({20, 7, 8, 1, 1, 9, 4, 2}))));
  // The position is the word between the items, which also equals the chunk's length.
  const RawCall between{.xid = kPositionsXid, .reads = {chunk(52, 0, 8)}};
  expect_refused(between.with(call_with(words({4, 1, 8, 4, 2}))));
  // The position is after the last item.
  const RawCall behind{.xid = kPositionsXid, .reads = {chunk(60, 0, 4)}};
  expect_refused(behind.with(call_with(words({4, 1, 9, 4, 4}))));
  // One of two chunks has a wrong position.
  const RawCall one{.xid = kPositionsXid, .reads = {chunk(44, 0, 16), chunk(64, 100, 8)}};
  expect_refused(one.with(call_with(words({16, 8, 4, 2}))));
}

/// Builds an RPCSEC_GSS call with this kind of protection. The arguments are 64 bytes into the message.
Bytes gss_call(std::uint32_t protection, const Bytes& arguments) {
  Bytes call = words({kPositionsXid, 0, 2, kProgram, 1, 0, 6, 20, 1, 0, 5, protection, 0, 6, 4, 0});
  append(call, arguments);
  return call;
}

TEST_F(Positions, V1_176_protected_arguments_have_no_items) {
  const RawCall call{.xid = kPositionsXid, .reads = {chunk(68, 0, 16)}};
  const Bytes arguments = words({16, 9, 4, 2});
  expect_served(call.with(gss_call(1, arguments)), held(0, 16), words({2}));
  for (const std::uint32_t protection : {2u, 3u}) expect_refused(call.with(gss_call(protection, arguments)));
}

TEST_F(Positions, V1_113_a_long_call_without_other_chunks_is_served_protected_or_not) {
  for (const std::uint32_t protection : {1u, 2u, 3u}) {
    const Bytes rpc = gss_call(protection, words({4, 1, 9, 4, 2}));
    std::copy(rpc.begin(), rpc.end(), memory.bytes.begin());
    const RawCall call{
        .xid = kPositionsXid, .proc = 1, .reads = {chunk(0, 0, static_cast<std::uint32_t>(rpc.size()))}};
    expect_served(call.header(), words({1}), words({2}));
  }
  // The positions of a call in a position-zero chunk count from the beginning of the whole message.
  const Bytes rpc = call_with(words({16, 9, 4, 2}));
  std::copy(rpc.begin(), rpc.end(), memory.bytes.begin());
  const RawCall call{.xid = kPositionsXid,
                     .proc = 1,
                     .reads = {chunk(0, 0, static_cast<std::uint32_t>(rpc.size())), chunk(44, 1024, 16)}};
  expect_served(call.header(), held(1024, 16), words({2}));
  RawCall misplaced = call;
  misplaced.reads[1] = chunk(52, 1024, 4);
  std::copy_n(words({4}).begin(), 4, memory.bytes.begin() + 48);
  expect_refused(misplaced.header());
}

}  // namespace
}  // namespace sluice::conformance
