// SPDX-License-Identifier: Apache-2.0
//
// Attributes and values that would lead clients of version 4 past a gateway are removed from calls and
// results, and nothing else changes.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>

#include "tests/unit/ulb/compounds.h"

namespace sluice::ulb {
namespace {

using service::Withheld;
using test::Bytes;
using test::Captured;
using test::FirstPlaced;
using test::prefix;
using test::Writer;

constexpr Withheld kAll{}, kPnfs{.referrals = false}, kReferrals{.pnfs = false};
constexpr Withheld kNothing{.pnfs = false, .referrals = false};

/// The call that is passed on, in a buffer of exactly its size, and whether its results may contain withheld
/// values.
struct Passed {
  Bytes call;
  bool results_tell;
  bool operator==(const Passed&) const = default;
};
Passed passed(const Bytes& call, const Withheld& withheld = kAll, std::uint32_t procedure = kNfs4Compound) {
  const auto exact = std::make_unique<std::byte[]>(call.size());
  std::copy(call.begin(), call.end(), exact.get());
  const bool tell = nfs4_binding().change(procedure, {exact.get(), call.size()}, withheld).results_tell;
  return {{exact.get(), exact.get() + call.size()}, tell};
}
Bytes told(const Bytes& results, const Withheld& withheld = kAll, service::PlacedResults* placed = nullptr) {
  const auto exact = std::make_unique<std::byte[]>(results.size());
  std::copy(results.begin(), results.end(), exact.get());
  nfs4_binding().withhold_in_results({exact.get(), results.size()}, withheld, placed);
  return {exact.get(), exact.get() + results.size()};
}

/// The first three words of bitmaps of all attributes but the withheld ones.
struct Words {
  std::uint32_t first = ~0u, second = ~0u, third = ~0u;
};
constexpr Words kWithoutPnfs{.second = 0x3fffffff, .third = 0xfffffff8};
constexpr Words kWithoutReferrals{.first = 0xfeffffff, .third = 0xfffffff7};
constexpr Words kWithoutBoth{0xfeffffff, 0x3fffffff, 0xfffffff0};
constexpr struct {
  Withheld withheld;
  Words left;
} kChoices[] = {{kNothing, {}}, {kPnfs, kWithoutPnfs}, {kReferrals, kWithoutReferrals}, {kAll, kWithoutBoth}};

Bytes get_attr_call(const Words& words) {
  return Writer().call(2).w({22}).o(5).w({9, 4, words.first, words.second, words.third, ~0u}).bytes();
}
Bytes read_dir_call(const Words& words) {
  Writer call;
  call.call(1).w({26}).d(~0ull).d(~0ull).w({~0u, ~0u, 3, words.first, words.second, words.third});
  return call.bytes();
}

TEST(Nfs4Withheld, attributes_are_not_asked_for) {
  for (const auto& [withheld, left] : kChoices) {
    EXPECT_EQ(passed(get_attr_call({}), withheld).call, get_attr_call(left));
    EXPECT_EQ(passed(read_dir_call({}), withheld).call, read_dir_call(left));
  }
  const Bytes call = get_attr_call({});
  EXPECT_EQ(passed(call, kAll, 0), (Passed{call, false}));
}

TEST(Nfs4Withheld, short_bitmaps_end_where_they_end) {
  // An operation that follows the bitmap looks like a part of it.
  const auto call = [](std::initializer_list<std::uint32_t> bitmap) {
    return Writer().call(2).w({9}).w(bitmap).w({22, 0}).bytes();
  };
  EXPECT_EQ(passed(call({0})), (Passed{call({0}), false}));
  EXPECT_EQ(passed(call({1, ~0u})), (Passed{call({1, 0xfeffffff}), true}));
  EXPECT_EQ(passed(call({2, ~1u, ~0u})), (Passed{call({2, 0xfefffffe, 0x3fffffff}), false}));
}

TEST(Nfs4Withheld, comparisons_and_what_is_set_stay) {
  Writer call;
  call.call(3).w({37, 3, ~0u, ~0u, ~0u}).o(40).w({17, 1, 1u << 24}).o(8);  // VERIFY, NVERIFY
  call.w({34}).stateid().w({3, 0, 0x80000000, 0}).o(20);                   // SETATTR
  EXPECT_EQ(passed(call.bytes()), (Passed{call.bytes(), false}));
}

TEST(Nfs4Withheld, results_that_may_tell_are_known_by_their_call) {
  const auto tells = [](const Writer& call, const Withheld& withheld) {
    return passed(call.bytes(), withheld).results_tell;
  };
  const Writer types = Writer().call(1).w({9, 2, ~1u, ~0u});
  const Writer supported = Writer().call(1).w({9, 1, 1});
  const Writer both = Writer().call(2).w({9, 1, 1, 9, 1, 2});
  const Writer entries = Writer().call(1).w({26}).d(0).d(0).w({1, 1, 1, 1});
  const Writer exchange = Writer().call(1).w({42}).d(1).o(9).w({0x10000, 0, 0});
  for (const Withheld& withheld : {kAll, kPnfs, kReferrals}) {
    EXPECT_FALSE(tells(types, withheld));
    EXPECT_TRUE(tells(supported, withheld));
    EXPECT_TRUE(tells(entries, withheld));
    EXPECT_EQ(tells(exchange, withheld), withheld.pnfs);
    EXPECT_TRUE(tells(both, withheld));
  }
  for (const Writer& call : {types, supported, entries, exchange}) EXPECT_FALSE(tells(call, kNothing));
}

Bytes get_attr_reply(const Words& words) {
  Writer values;
  values.w({4, words.first, words.second, words.third, ~0u}).w({2}).d(~0ull);
  return Writer()
      .reply(3)
      .w({22, 0, 9, 0, 2, 0xb, ~0u})
      .o(values)
      .w({9, 0, 1, 2})
      .o(Writer().w({~0u}))
      .bytes();
}
Bytes read_dir_reply(const Words& words) {
  Writer reply;
  reply.reply(1).w({26, 0, ~0u, ~0u});
  for (const std::size_t name : {3, 8}) {
    reply.w({1}).d(~0ull).o(name).w({1, 3});
    reply.o(Writer().w({3, words.first, words.second, words.third, 2}));
  }
  return reply.w({0, 1}).bytes();
}

TEST(Nfs4Withheld, attributes_are_not_supported) {
  for (const auto& [withheld, left] : kChoices) {
    EXPECT_EQ(told(get_attr_reply({}), withheld), get_attr_reply(left));
    EXPECT_EQ(told(read_dir_reply({}), withheld), read_dir_reply(left));
  }
}

TEST(Nfs4Withheld, a_server_is_told_to_be_without_pnfs) {
  const auto reply = [](std::uint32_t flags) {
    Writer all;
    all.reply(2).w({53, 0}).stateid().w({~0u, ~0u, ~0u, ~0u, ~0u}).w({42, 0}).d(~0ull).w({~0u, flags, 0});
    return all.d(~0ull).o(11).o(5).w({0}).bytes();
  };
  EXPECT_EQ(told(reply(0xfffeffff)), reply(0xfff9ffff));
  EXPECT_EQ(told(reply(0x00020003)), reply(0x00010003));
  EXPECT_EQ(told(reply(0x00040000)), reply(0x00010000));
  EXPECT_EQ(told(reply(0x80010103)), reply(0x80010103));
  EXPECT_EQ(told(reply(0x80000000)), reply(0x80000000));
  EXPECT_EQ(told(reply(0x00060000), kReferrals), reply(0x00060000));
  const Bytes failed = Writer().reply(2).w({42, 10017, 22, ~0u}).bytes();
  EXPECT_EQ(told(failed), failed);
}

TEST(Nfs4Withheld, lists_of_attributes_that_lie_stay_as_they_are) {
  for (const Writer& values : {Writer(), Writer().w({3, ~0u, ~0u}), Writer().w({~0u, ~0u, ~0u, ~0u})}) {
    const Bytes reply = Writer().reply(1).w({9, 0, 1, 1}).o(values).w({~0u, ~0u, ~0u}).bytes();
    EXPECT_EQ(told(reply), reply);
  }
  const Bytes none = Writer().reply(1).w({9, 0, 0}).o(Writer().w({1, ~0u})).bytes();
  EXPECT_EQ(told(none), none);
}

TEST(Nfs4Withheld, messages_cut_anywhere_stay_as_they_are) {
  const Bytes supported = get_attr_reply({});
  constexpr std::size_t kBehind = 24;  // the operation after the first GETATTR
  for (std::size_t bytes = 0; bytes < supported.size() - kBehind; ++bytes)
    EXPECT_EQ(told(prefix(supported, bytes)), prefix(supported, bytes)) << bytes;
  for (const Bytes& whole : {get_attr_call({}), read_dir_call({})})
    for (std::size_t bytes = 0; bytes < whole.size(); ++bytes)
      EXPECT_EQ(passed(prefix(whole, bytes)), (Passed{prefix(whole, bytes), false})) << bytes;
}

TEST(Nfs4Withheld, data_that_was_placed_is_stepped_over) {
  const auto reply = [](std::uint32_t word) {
    return Writer().reply(2).w({25, 0, 1, 70'000, 9, 0, 1, 1}).o(Writer().w({1, word})).bytes();
  };
  FirstPlaced placed;
  EXPECT_EQ(told(reply(~0u), kAll, &placed), reply(0xfeffffff));
  EXPECT_EQ(told(reply(~0u)), reply(~0u));  // not placed, and not present
}

TEST(Nfs4Withheld, what_kernels_say_keeps_its_shape) {
  std::mt19937 random(13);
  for (const Captured& one : test::captured(SLUICE_CAPTURED_COMPOUNDS)) {
    const bool call = one.what == CompoundWalker::What::Call;
    if (!call && one.what != CompoundWalker::What::Reply) continue;
    const auto changed = [&](const Bytes& message) { return call ? passed(message).call : told(message); };
    const auto operations = [&](const Bytes& message) {
      CompoundWalker walker(message, one.what);
      std::vector<std::uint32_t> numbers;
      for (CompoundWalker::Operation operation; walker.next(operation);) numbers.push_back(operation.number);
      return numbers;
    };
    EXPECT_EQ(operations(changed(one.message)), one.operations);
    for (int round = 0; round < 200; ++round) {
      Bytes noisy = one.message;
      for (int i = 0; i < 3; ++i) noisy[random() % noisy.size()] = static_cast<std::byte>(random());
      const Bytes once = changed(noisy);
      std::vector<std::uint32_t> expected = operations(noisy);
      if (call && unknown_nfs4_operation_at(kNfs4Compound, noisy)) expected.push_back(kNfs4Illegal);
      EXPECT_EQ(operations(once), expected);
      EXPECT_EQ(changed(once), once);
    }
  }
}

}  // namespace
}  // namespace sluice::ulb
