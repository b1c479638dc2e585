// SPDX-License-Identifier: Apache-2.0
//
// Sizes that servers announce are lowered to the limits of a gateway, and nothing else changes.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <string_view>

#include "dataplane/ulb/nfs3.h"
#include "tests/unit/service/memory/linux_session.h"
#include "tests/unit/ulb/compounds.h"

namespace sluice::ulb {
namespace {

using test::Bytes;
using test::Captured;
using test::FirstPlaced;
using test::prefix;
using test::Writer;

constexpr service::CarriedSizes kMiB{.data_bytes = 1 << 20, .message_bytes = (1 << 20) + (64 << 10)};
constexpr std::uint64_t kLarge = 4 << 20;

/// Lowers sizes in a buffer of exactly this size, so that the address sanitizer detects accesses beyond it.
Bytes capped(const service::Binding& binding, const Bytes& results, const service::CarriedSizes& most = kMiB,
             service::PlacedResults* placed = nullptr) {
  const auto exact = std::make_unique<std::byte[]>(results.size());
  std::copy(results.begin(), results.end(), exact.get());
  binding.cap_sizes({exact.get(), results.size()}, most, placed);
  return {exact.get(), exact.get() + results.size()};
}

Bytes capped4(const Writer& results) {
  return capped(nfs4_binding(), results.bytes());
}

bool announces4(const Bytes& arguments) {
  return nfs4_binding().announces(kNfs4Compound, arguments);
}

// --- NFS version 4

/// Returns values of every attribute up to MAXNAME.
Writer attributes_below_sizes() {
  Writer all;
  all.w({3, 0xffffffff, 0x00b0a23a, 7});       // supported_attrs
  all.w({2, 0}).d(~0ull).d(4096);              // type, fh_expire_type, change, size
  all.w({1, 1, 0}).d(7).d(8);                  // link_support to fsid
  all.w({1, 90, 0});                           // unique_handles, lease_time, rdattr_error
  all.w({2, 0, 1, 2}).o(5).w({1, 0, 3}).o(9);  // acl
  all.w({3, 1, 1, 0, 1, 1});                   // aclsupport to chown_restricted
  all.o(28).d(5).d(6).d(7).d(8);               // filehandle to files_total
  all.w({1}).o(3);                             // fs_locations: root
  all.w({2}).w({2}).o(4).o(11).w({0});         // one location with two servers
  all.w({0}).w({2}).o(1).o(2);                 // and one without servers
  all.w({0, 1}).d(~0ull >> 1).w({255, 255});   // hidden to maxname
  return all;
}

Writer get_attr_reply(const Writer& attributes, std::uint32_t bitmap) {
  Writer reply;
  reply.reply(3).w({22, 0, 9, 0, 3, bitmap, 0x18, 1}).o(attributes).w({4, 0}).stateid();
  return reply;
}

TEST(Nfs4Sizes, kernels_ask_for_them_when_they_mount) {
  std::vector<std::vector<std::uint32_t>> asking;
  for (const Captured& one : test::captured(SLUICE_CAPTURED_COMPOUNDS))
    if (one.what == CompoundWalker::What::Call && announces4(one.message)) asking.push_back(one.operations);
  EXPECT_EQ(asking, (std::vector<std::vector<std::uint32_t>>{{43}, {53, 22, 9}}));
}

TEST(Nfs4Sizes, what_kernels_announce_stays_where_it_can_be_carried) {
  for (const Captured& one : test::captured(SLUICE_CAPTURED_COMPOUNDS))
    if (one.what == CompoundWalker::What::Reply) {
      EXPECT_EQ(capped(nfs4_binding(), one.message), one.message);
    }
}

TEST(Nfs4Sizes, what_kernels_announce_is_lowered_and_nothing_else_changes) {
  std::size_t lowered = 0;
  for (const Captured& one : test::captured(SLUICE_CAPTURED_COMPOUNDS)) {
    if (one.what != CompoundWalker::What::Reply) continue;
    Bytes expected = one.message;
    const auto set = [&](std::size_t word, std::uint32_t value) {
      xdr::store_u32(&expected[4 * word], value);
    };
    if (one.operations == std::vector<std::uint32_t>{43}) {
      constexpr std::size_t kForeSizes = 12, kBackSizes = 19;
      EXPECT_EQ(xdr::load_u32(&one.message[4 * kForeSizes]), 0x41000u);
      EXPECT_EQ(xdr::load_u32(&one.message[4 * kBackSizes]), 4068u);
      for (const std::size_t word : {kForeSizes, kForeSizes + 1, kForeSizes + 2, kBackSizes, kBackSizes + 1})
        set(word, 0x800);
      ++lowered;
    } else if (const std::size_t words = one.message.size() / 4;
               words > 8 && xdr::load_u32(&one.message[4 * (words - 6)]) == 1 << 20) {
      set(words - 8, 1000);
      set(words - 6, 1000);
      ++lowered;
    }
    EXPECT_EQ(capped(nfs4_binding(), one.message, {.data_bytes = 1000, .message_bytes = 0x800}), expected);
  }
  EXPECT_EQ(lowered, 2u);
}

TEST(Nfs4Sizes, all_attributes_that_stand_ahead_are_stepped_over) {
  const Writer ahead = attributes_below_sizes();
  const auto reply = [&](std::uint64_t size) {
    return get_attr_reply(Writer(ahead).d(size).d(size).w({0x1a4, 1}), 0xffffffff);
  };
  EXPECT_EQ(capped4(reply(kLarge)), reply(1 << 20).bytes());
  EXPECT_EQ(capped4(reply(~0ull)), reply(1 << 20).bytes());
  EXPECT_EQ(capped4(reply(1 << 20)), reply(1 << 20).bytes());
  EXPECT_EQ(capped4(reply(65536)), reply(65536).bytes());
}

TEST(Nfs4Sizes, only_attributes_that_are_there_are_stepped_over) {
  const auto reply = [](std::uint64_t read, std::uint64_t write) {
    return get_attr_reply(Writer().w({90, 2}).o(3).w({0}).o(4).d(9).d(read).d(write), 0xc8001400);
  };
  // The access control list is invalid: it announces two entries, and has too few words.
  EXPECT_EQ(capped4(reply(kLarge, kLarge)), reply(kLarge, kLarge).bytes());
  const auto good = [](std::uint64_t read, std::uint64_t write) {
    return get_attr_reply(Writer().w({90, 1, 0, 0, 0}).o(4).d(9).d(read).d(write), 0xc8001400);
  };
  EXPECT_EQ(capped4(good(kLarge, kLarge)), good(1 << 20, 1 << 20).bytes());
  const auto only = [](std::uint32_t bit, std::uint64_t size) {
    return get_attr_reply(Writer().d(size).w({0x1a4, 1}), 1u << bit);
  };
  EXPECT_EQ(capped4(only(30, kLarge)), only(30, 1 << 20).bytes());
  EXPECT_EQ(capped4(only(31, kLarge)), only(31, 1 << 20).bytes());
  EXPECT_EQ(capped4(only(27, kLarge)), only(27, kLarge).bytes());  // MAXFILESIZE
}

TEST(Nfs4Sizes, entries_of_directories_have_them_too) {
  const auto reply = [](std::uint64_t size) {
    Writer entries;
    entries.reply(1).w({26, 0, 1, 2});
    for (const std::size_t name : {1, 6})
      entries.w({1}).d(3).o(name).w({2, 0xc0000010, 2}).o(Writer().d(kLarge).d(size).d(size).w({5}));
    return entries.w({0, 1});
  };
  EXPECT_EQ(capped4(reply(kLarge)), reply(1 << 20).bytes());
}

TEST(Nfs4Sizes, both_channels_of_a_session_are_lowered) {
  const auto reply = [](std::uint32_t size, std::uint32_t cached) {
    Writer session;
    session.reply(1).w({43, 0}).stateid().w({1, 3});
    session.w({0xffffffff, size, size, cached, 0xffffffff, 0xffffffff, 1, 0xffffffff});
    return session.w({0xfffffffe, size, size, cached, 0xfffffffe, 0xfffffffe, 0});
  };
  EXPECT_EQ(capped4(reply(8 << 20, 4096)), reply(kMiB.message_bytes, 4096).bytes());
  EXPECT_EQ(capped4(reply(8 << 20, 8 << 20)), reply(kMiB.message_bytes, kMiB.message_bytes).bytes());
  EXPECT_EQ(capped4(reply(kMiB.message_bytes, 0)), reply(kMiB.message_bytes, 0).bytes());
}

TEST(Nfs4Sizes, operations_that_failed_have_none) {
  Writer reply;
  reply.reply(2).w({22, 0, 9, 10008});
  EXPECT_EQ(capped4(reply), reply.bytes());
  Writer session;
  session.reply(1).w({43, 10022});
  EXPECT_EQ(capped4(session), session.bytes());
}

TEST(Nfs4Sizes, results_cut_anywhere_stay_as_they_are) {
  const auto attributes = get_attr_reply(Writer(attributes_below_sizes()).d(kLarge).d(kLarge), 0xffffffff);
  constexpr std::size_t kBehind = 24;  // the operation after GETATTR
  Writer session;
  session.reply(1).w({43, 0}).stateid().w({1, 3, 0, ~0u, ~0u, ~0u, 8, 8, 0, 0, ~0u, ~0u, ~0u, 8, 8, 0});
  for (const Bytes& whole :
       {prefix(attributes.bytes(), attributes.bytes().size() - kBehind), session.bytes()})
    for (std::size_t bytes = 0; bytes < whole.size(); ++bytes) {
      const Bytes cut = prefix(whole, bytes);
      EXPECT_EQ(capped(nfs4_binding(), cut), cut) << bytes;
    }
}

TEST(Nfs4Sizes, attributes_that_lie_about_their_length_stay_as_they_are) {
  for (const Writer& values : {Writer().w({~0u}).d(kLarge).d(kLarge), Writer().w({0x40000000}).d(kLarge),
                               Writer().w({1, 2, 3, 4, 0x7fffffff}).d(kLarge).d(kLarge), Writer().w({1})}) {
    const Writer list = get_attr_reply(values, 0xc0001000);  // acl, MAXREAD, MAXWRITE
    EXPECT_EQ(capped4(list), list.bytes());
    const Writer places = get_attr_reply(values, 0xc1000000);  // fs_locations
    EXPECT_EQ(capped4(places), places.bytes());
  }
}

TEST(Nfs4Sizes, data_that_was_placed_is_stepped_over) {
  const auto reply = [](std::uint64_t size) {
    Writer all;
    return all.reply(2).w({25, 0, 1, 70'000}).w({9, 0, 1, 0x40000000}).o(Writer().d(size));
  };
  FirstPlaced placed;
  EXPECT_EQ(capped(nfs4_binding(), reply(kLarge).bytes(), kMiB, &placed), reply(1 << 20).bytes());
  EXPECT_EQ(capped4(reply(kLarge)), reply(kLarge).bytes());  // not placed, and not present
}

TEST(Nfs4Sizes, calls_that_ask_for_none_cost_no_look_at_their_replies) {
  EXPECT_FALSE(announces4(Writer().call(1).w({9, 0}).bytes()));
  EXPECT_FALSE(announces4(Writer().call(1).w({9, 1, 0x3fffffff}).bytes()));
  EXPECT_FALSE(announces4(Writer().call(1).w({9, 2, 0x3fffffff, 0xffffffff}).bytes()));
  EXPECT_TRUE(announces4(Writer().call(1).w({9, 1, 0x40000000}).bytes()));
  EXPECT_TRUE(announces4(Writer().call(1).w({9, 2, 0x80000000, 0}).bytes()));
  const auto read_dir = [](std::uint32_t bitmap) {
    return Writer().call(1).w({26}).d(0).d(0).w({~0u, ~0u, 1, bitmap}).bytes();
  };
  EXPECT_FALSE(announces4(read_dir(0x18)));
  EXPECT_TRUE(announces4(read_dir(0x40000000)));
  const Bytes behind = Writer().call(2).w({38}).stateid().d(0).w({2}).o(1001).w({9, 1, 0x40000000}).bytes();
  EXPECT_TRUE(announces4(behind));
  EXPECT_FALSE(announces4(prefix(behind, behind.size() - 4)));
  EXPECT_FALSE(nfs4_binding().announces(0, behind));
}

TEST(Nfs4Sizes, calls_cut_anywhere_are_never_read_over) {
  for (const Captured& one : test::captured(SLUICE_CAPTURED_COMPOUNDS))
    for (std::size_t bytes = 0; bytes < one.message.size(); ++bytes) {
      const auto exact = std::make_unique<std::byte[]>(bytes);
      std::copy_n(one.message.begin(), bytes, exact.get());
      EXPECT_FALSE(nfs4_binding().announces(kNfs4Compound, {exact.get(), bytes}) && bytes < 20);
    }
}

TEST(Nfs4Sizes, noise_is_lowered_within_its_bounds) {
  std::mt19937 random(12);
  const Bytes whole =
      get_attr_reply(Writer(attributes_below_sizes()).d(kLarge).d(kLarge), 0xffffffff).bytes();
  for (int round = 0; round < 20000; ++round) {
    Bytes noisy = whole;
    for (int i = 0; i < 3; ++i) noisy[random() % noisy.size()] = static_cast<std::byte>(random());
    const Bytes once = capped(nfs4_binding(), noisy);
    EXPECT_EQ(capped(nfs4_binding(), once), once);
  }
}

// --- NFS version 3

struct FsInfo {
  std::uint32_t rtmax = kLarge, rtpref = kLarge, rtmult = 4096;
  std::uint32_t wtmax = kLarge, wtpref = kLarge, wtmult = 4096;
  std::uint32_t dtpref = kLarge;
  bool attributes = true;
  Writer results() const {
    Writer all;
    all.w({0, attributes ? 1u : 0u});
    for (int word = 0; attributes && word < 21; ++word) all.w({0xffffffff});
    return all.w({rtmax, rtpref, rtmult, wtmax, wtpref, wtmult, dtpref}).d(~0ull).d(~0ull).w({0xffffffff});
  }
};

Bytes capped3(const FsInfo& info, const service::CarriedSizes& most = kMiB) {
  return capped(nfs3_binding(), info.results().bytes(), most);
}

TEST(Nfs3Sizes, fsinfo_is_the_call_that_asks_for_them) {
  for (std::uint32_t procedure = 0; procedure < 25; ++procedure)
    EXPECT_EQ(nfs3_binding().announces(procedure, {}), procedure == kNfs3FsInfo) << procedure;
  EXPECT_FALSE(nfsacl3_binding().announces(kNfs3FsInfo, {}));
  EXPECT_FALSE(mount3_binding().announces(kNfs3FsInfo, {}));
}

TEST(Nfs3Sizes, all_five_are_lowered_and_nothing_else_changes) {
  constexpr std::uint32_t kMost = 1 << 20;
  for (const bool attributes : {true, false}) {
    const FsInfo lowered{kMost, kMost, 4096, kMost, kMost, 4096, kMost, attributes};
    EXPECT_EQ(capped3({.attributes = attributes}), lowered.results().bytes());
    EXPECT_EQ(capped3(lowered), lowered.results().bytes());
    const FsInfo small{65536, 32768, 512, 16384, 8192, 512, 4096, attributes};
    EXPECT_EQ(capped3(small), small.results().bytes());
    FsInfo one{65536, 32768, 512, 16384, 8192, 512, kLarge, attributes};
    const Bytes seen = capped3(one);
    one.dtpref = kMost;
    EXPECT_EQ(seen, one.results().bytes());
  }
}

TEST(Nfs3Sizes, what_is_lowered_stays_a_multiple) {
  const FsInfo odd{.rtmult = 3000, .wtmult = 7 << 18};
  const FsInfo expected{1'047'000, 1'047'000, 3000, 1 << 20, 1 << 20, 7 << 18, 1 << 20};
  EXPECT_EQ(capped3(odd), expected.results().bytes());
  const FsInfo none{.rtmult = 0, .wtmult = 1 << 20};
  const FsInfo as_it_is{1 << 20, 1 << 20, 0, 1 << 20, 1 << 20, 1 << 20, 1 << 20};
  EXPECT_EQ(capped3(none), as_it_is.results().bytes());
  // Values that need not be lowered are passed on unchanged.
  const FsInfo fits{1 << 20, 1 << 20, 3000, 1'000'001, 1'000'001, 3000, 1 << 20};
  EXPECT_EQ(capped3(fits), fits.results().bytes());
}

TEST(Nfs3Sizes, what_a_kernel_answered_is_lowered) {
  std::size_t seen = 0;
  for (const service::test::RecordedCall& call : service::test::kLinuxSession) {
    if (call.program != kNfsProgram || call.procedure != kNfs3FsInfo) continue;
    Bytes results;
    for (std::string_view hex = call.results; !hex.empty(); hex.remove_prefix(2))
      results.push_back(static_cast<std::byte>(std::stoi(std::string(hex.substr(0, 2)), nullptr, 16)));
    EXPECT_EQ(capped(nfs3_binding(), results), results);
    Bytes lowered = results;
    for (const std::size_t word : {2, 3, 5, 6, 8}) {
      EXPECT_EQ(xdr::load_u32(&lowered[4 * word]), 1u << 20);
      xdr::store_u32(&lowered[4 * word], 64 << 10);
    }
    EXPECT_EQ(capped(nfs3_binding(), results, {.data_bytes = 64 << 10, .message_bytes = 128 << 10}), lowered);
    ++seen;
  }
  EXPECT_GT(seen, 0u);
}

TEST(Nfs3Sizes, results_that_are_not_those_of_fsinfo_stay_as_they_are) {
  const Bytes whole = FsInfo{}.results().bytes();
  for (std::size_t bytes = 0; bytes < whole.size(); ++bytes)
    EXPECT_EQ(capped(nfs3_binding(), prefix(whole, bytes)), prefix(whole, bytes)) << bytes;
  for (const std::uint32_t word : {0u, 1u}) {
    Bytes bad = whole;
    xdr::store_u32(&bad[4 * std::size_t{word}], 2);  // an error; an invalid boolean
    EXPECT_EQ(capped(nfs3_binding(), bad), bad);
  }
}

}  // namespace
}  // namespace sluice::ulb
