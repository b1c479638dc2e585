// SPDX-License-Identifier: Apache-2.0
//
// COMPOUNDs with operations that the tables of NFS 4 do not contain. They end at OP_ILLEGAL, so that the
// server executes the operations before it and refuses the rest (RFC 8881, section 15.2.3).
#include <gtest/gtest.h>

#include <memory>
#include <random>

#include "tests/unit/ulb/compounds.h"

namespace sluice::ulb {
namespace {

using test::Bytes;
using test::Captured;
using test::prefix;
using test::Writer;

/// The arguments that are sent, which were changed in a buffer of exactly their size.
struct Sent {
  Bytes arguments;
  service::CallChanges changes;
};
Sent sent(const Bytes& call, std::uint32_t procedure = kNfs4Compound) {
  const auto exact = std::make_unique<std::byte[]>(call.size());
  std::copy(call.begin(), call.end(), exact.get());
  const std::span<std::byte> all{exact.get(), call.size()};
  const service::CallChanges changes = nfs4_binding().change(procedure, all, {});
  const auto part = all.first(changes.arguments_bytes.value_or(all.size()));
  return {{part.begin(), part.end()}, changes};
}

constexpr std::uint32_t kPutFh = 22, kGetFh = 10;

/// Returns a COMPOUND of `at` PUTFHs, an operation with this number, and a GETFH.
Bytes with_unknown(std::uint32_t number, std::uint32_t at, std::uint32_t operations) {
  Writer call;
  call.o(7).w({2, operations});
  for (std::uint32_t i = 0; i < at; ++i) call.w({kPutFh}).o(5 + i);
  return call.w({number, 1, 2, 3, kGetFh}).bytes();
}

TEST(UnknownOperations, a_compound_ends_at_the_first_one_at_every_place) {
  for (const std::uint32_t number : {0u, 1u, 2u, 76u, 77u, 4711u, 10'043u, 10'045u, ~0u})
    for (std::uint32_t at = 0; at < 4; ++at) {
      const Sent result = sent(with_unknown(number, at, at + 2));
      ASSERT_TRUE(result.changes.arguments_bytes) << number << ' ' << at;
      EXPECT_EQ(result.changes.unknown_operation, number);
      Writer expected;
      expected.o(7).w({2, at + 1});
      for (std::uint32_t i = 0; i < at; ++i) expected.w({kPutFh}).o(5 + i);
      EXPECT_EQ(result.arguments, expected.w({kNfs4Illegal}).bytes()) << number << ' ' << at;
    }
}

TEST(UnknownOperations, all_operations_of_the_published_xdr_are_known) {
  for (std::uint32_t number = 3; number <= 75; ++number) {
    const Bytes call = Writer().call(1).w({number}).bytes();
    EXPECT_FALSE(sent(call).changes.arguments_bytes) << number;
    EXPECT_FALSE(unknown_nfs4_operation_at(kNfs4Compound, call)) << number;
  }
}

TEST(UnknownOperations, a_change_that_is_made_again_changes_and_reports_nothing) {
  const Sent once = sent(with_unknown(4711, 2, 9));
  Bytes changed = with_unknown(4711, 2, 9);
  std::copy(once.arguments.begin(), once.arguments.end(), changed.begin());
  const Sent again = sent(changed);  // with the bytes behind OP_ILLEGAL
  EXPECT_EQ(again.arguments, once.arguments);
  EXPECT_FALSE(again.changes.unknown_operation);
  EXPECT_EQ(sent(once.arguments).arguments, once.arguments);
}

TEST(UnknownOperations, what_the_client_itself_sends_as_illegal_stays) {
  const Bytes last = Writer().call(2).w({kPutFh}).o(5).w({kNfs4Illegal}).bytes();
  EXPECT_EQ(sent(last).arguments, last);
  EXPECT_FALSE(sent(last).changes.unknown_operation);
  const Bytes first = Writer().call(2).w({kNfs4Illegal, kGetFh}).bytes();
  EXPECT_EQ(sent(first).arguments, first);
}

TEST(UnknownOperations, other_procedures_and_truncated_calls_stay) {
  const Bytes call = with_unknown(4711, 1, 3);
  EXPECT_EQ(sent(call, 0).arguments, call);
  const Bytes known = Writer().call(2).w({kPutFh}).o(5).w({kGetFh}).bytes();
  for (std::size_t bytes = 0; bytes < known.size(); ++bytes)
    EXPECT_EQ(sent(prefix(known, bytes)).arguments, prefix(known, bytes)) << bytes;
  const Bytes lies = Writer().call(0xffffffff).w({4711}).bytes();
  EXPECT_EQ(sent(lies).arguments, lies);
}

TEST(UnknownOperations, their_offset_is_that_of_their_number) {
  const Bytes call = with_unknown(4711, 2, 4);
  const auto at = unknown_nfs4_operation_at(kNfs4Compound, call);
  ASSERT_TRUE(at);
  EXPECT_EQ(xdr::load_u32(&call[*at]), 4711u);
  EXPECT_FALSE(unknown_nfs4_operation_at(0, call));
}

TEST(UnknownOperations, calls_of_kernels_have_none_and_noise_keeps_what_precedes_it) {
  std::mt19937 random(17);
  for (const Captured& one : test::captured(SLUICE_CAPTURED_COMPOUNDS)) {
    if (one.what != CompoundWalker::What::Call) continue;
    EXPECT_FALSE(sent(one.message).changes.arguments_bytes);
    for (int round = 0; round < 100; ++round) {
      Bytes noisy = one.message;
      for (int i = 0; i < 3; ++i) noisy[random() % noisy.size()] = static_cast<std::byte>(random());
      const auto at = unknown_nfs4_operation_at(kNfs4Compound, noisy);
      const Sent result = sent(noisy);
      EXPECT_EQ(at.has_value(), result.changes.unknown_operation.has_value());
      EXPECT_EQ(result.arguments.size(), at ? *at + 4 : noisy.size());
      CompoundWalker walker(result.arguments, CompoundWalker::What::Call);
      for (CompoundWalker::Operation operation; walker.next(operation);) {
      }
      EXPECT_FALSE(walker.at_unknown_operation());
      EXPECT_TRUE(walker.complete() || !at);
    }
  }
}

}  // namespace
}  // namespace sluice::ulb
