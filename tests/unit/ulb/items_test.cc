// SPDX-License-Identifier: Apache-2.0
//
// Eligible items in calls and replies of NFS versions 2 and 3 (RFC 1094, RFC 1813; RFC 8267, section 4).
#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <initializer_list>
#include <optional>
#include <vector>

#include "dataplane/ulb/bindings.h"
#include "dataplane/ulb/nfs2.h"
#include "dataplane/ulb/nfs3.h"
#include "dataplane/ulb/nfs4.h"
#include "dataplane/xdr/cursor.h"

namespace sluice::ulb {
namespace {

using Bytes = std::vector<std::byte>;

class Builder {
 public:
  Builder() { bytes_.reserve(4096); }
  Builder& words(std::initializer_list<std::uint32_t> list) {
    for (const std::uint32_t word : list) {
      bytes_.resize(bytes_.size() + 4);
      xdr::store_u32(bytes_.data() + bytes_.size() - 4, word);
    }
    return *this;
  }
  Builder& fixed(std::size_t count) { return bytes_.resize(bytes_.size() + count, std::byte{0xee}), *this; }
  Builder& opaque(std::size_t count) {
    words({static_cast<std::uint32_t>(count)});
    return bytes_.resize(bytes_.size() + xdr::padded(count), std::byte{0x55}), *this;
  }
  const Bytes& bytes() const { return bytes_; }

 private:
  Bytes bytes_;
};

using Find = std::function<std::size_t(std::uint32_t, const Bytes&, std::span<service::Item>)>;

/// Reports all items of the reply as placed by RDMA.
struct AllPlaced final : service::PlacedResults {
  bool placed(std::size_t, std::uint32_t) noexcept override { return true; }
  void unreadable() noexcept override { ADD_FAILURE(); }
};

/// Checks that the items are found at unchanged offsets, marked as placed, when their data is removed.
Find replies_of(const service::Binding& binding) {
  return [&binding](std::uint32_t procedure, const Bytes& encoded, std::span<service::Item> items) {
    const std::size_t count = binding.result_items(procedure, encoded, nullptr, items);
    if (count == 0) return count;
    Bytes reduced = encoded;
    const auto data = reduced.begin() + static_cast<std::ptrdiff_t>(items[0].offset);
    reduced.erase(data, data + static_cast<std::ptrdiff_t>(xdr::padded(items[0].bytes)));
    std::array<service::Item, 2> found;
    AllPlaced all;
    EXPECT_EQ(binding.result_items(procedure, reduced, &all, found), 1u);
    EXPECT_TRUE(found[0].placed);
    EXPECT_EQ(found[0].offset, items[0].offset);
    EXPECT_EQ(found[0].bytes, items[0].bytes);
    return count;
  };
}

/// Returns the item, or nothing. Checks that no truncated message has an item beyond its end.
std::optional<service::Item> item_of(const Find& find, std::uint32_t procedure, const Bytes& encoded) {
  std::array<service::Item, 2> items;
  for (std::size_t bytes = 0; bytes < encoded.size(); ++bytes) {
    const Bytes cut(encoded.begin(), encoded.begin() + static_cast<std::ptrdiff_t>(bytes));
    const std::size_t count = find(procedure, cut, items);
    EXPECT_TRUE(count == 0 || items[0].offset + items[0].bytes <= bytes);
  }
  if (find(procedure, encoded, items) == 0) return std::nullopt;
  return items[0];
}
void expect_item(const Find& find, std::uint32_t procedure, const Bytes& encoded, std::size_t offset,
                 std::uint32_t bytes) {
  const auto item = item_of(find, procedure, encoded);
  ASSERT_TRUE(item.has_value());
  EXPECT_EQ(item->offset, offset);
  EXPECT_EQ(item->bytes, bytes);
}

constexpr std::size_t kFattr3 = 84, kFattr2 = 68, kHandle2 = 32;

TEST(Items, V1_193_X_13_of_calls_of_version_3) {
  const Find find = nfs3_binding().argument_items;
  expect_item(find, kNfs3Write, Builder().opaque(33).words({0, 0, 5, 2}).opaque(5).bytes(), 40 + 16 + 4, 5);
  // Mode, no owner, group, size, time by the server, time by the client.
  expect_item(
      find, kNfs3SymLink,
      Builder().opaque(8).opaque(3).words({1, 0777, 0, 1, 9, 1, 0, 7, 1, 2, 11, 12}).opaque(21).bytes(),
      12 + 8 + 48 + 4, 21);
  expect_item(find, kNfs3SymLink, Builder().opaque(8).opaque(3).words({0, 0, 0, 0, 0, 0}).opaque(1).bytes(),
              12 + 8 + 24 + 4, 1);
  for (std::uint32_t procedure = 0; procedure < kNfs3Procedures + 2; ++procedure) {
    if (procedure == kNfs3Write || procedure == kNfs3SymLink) continue;
    EXPECT_FALSE(item_of(find, procedure, Builder().opaque(32).words({0, 0, 4, 2}).opaque(4).bytes()))
        << procedure;
  }
}

TEST(Items, V1_195_X_13_of_replies_of_version_3) {
  const auto find = replies_of(nfs3_binding());
  expect_item(find, kNfs3Read, Builder().words({0, 1}).fixed(kFattr3).words({7, 1}).opaque(7).bytes(),
              8 + kFattr3 + 8 + 4, 7);
  expect_item(find, kNfs3Read, Builder().words({0, 0, 0, 1}).opaque(0).bytes(), 20, 0);
  expect_item(find, kNfs3ReadLink, Builder().words({0, 1}).fixed(kFattr3).opaque(300).bytes(),
              8 + kFattr3 + 4, 300);
  EXPECT_FALSE(item_of(find, kNfs3Read, Builder().words({5, 0, 7, 1}).opaque(7).bytes()));  // NFS3ERR_IO
  EXPECT_FALSE(item_of(find, kNfs3ReadDir, Builder().words({0, 0, 7, 1}).opaque(7).bytes()));
}

TEST(Items, V1_193_X_13_of_version_2) {
  const Find calls = nfs2_binding().argument_items;
  expect_item(calls, kNfs2Write, Builder().fixed(kHandle2).words({0, 0, 0}).opaque(9).bytes(), kHandle2 + 16,
              9);
  expect_item(calls, kNfs2SymLink, Builder().fixed(kHandle2).opaque(5).opaque(17).fixed(32).bytes(),
              kHandle2 + 12 + 4, 17);
  EXPECT_FALSE(item_of(calls, kNfs2Create, Builder().fixed(kHandle2).opaque(5).fixed(32).bytes()));
  const auto replies = replies_of(nfs2_binding());
  expect_item(replies, kNfs2Read, Builder().words({0}).fixed(kFattr2).opaque(11).bytes(), 4 + kFattr2 + 4,
              11);
  expect_item(replies, kNfs2ReadLink, Builder().words({0}).opaque(11).bytes(), 8, 11);
  EXPECT_FALSE(item_of(replies, kNfs2Read, Builder().words({70}).bytes()));  // NFSERR_STALE
}

TEST(Items, D2_47_what_must_not_be_executed_twice_in_version_2) {
  for (std::uint32_t procedure = 0; procedure < 30; ++procedure) {
    const bool changes_names = procedure >= kNfs2Create && procedure <= kNfs2RmDir;
    EXPECT_EQ(nfs2_binding().procedure(procedure).idempotent, !changes_names) << procedure;
  }
  EXPECT_TRUE(nfs4_binding().procedure(1).idempotent);
}

TEST(Items, V1_118_largest_results_of_version_2) {
  const auto most = [](std::uint32_t procedure, const Bytes& arguments = {}) {
    return nfs2_binding().max_results_bytes(procedure, arguments);
  };
  EXPECT_EQ(most(kNfs2Null), 0u);
  EXPECT_EQ(most(kNfs2GetAttr), 4 + kFattr2);
  EXPECT_EQ(most(kNfs2Lookup), 4 + kHandle2 + kFattr2);
  EXPECT_EQ(most(kNfs2Read), 4 + kFattr2 + 4 + 8192);
  EXPECT_GE(most(kNfs2ReadDir, Builder().fixed(kHandle2).words({0, 4096}).bytes()), 4096u);
}

TEST(Items, V1_118_what_a_reply_may_have_is_what_its_call_asks_for) {
  std::array<std::uint32_t, 4> most{};
  const auto count = [&most](const service::Binding& binding, std::uint32_t procedure,
                             const Bytes& arguments) {
    return binding.expected_items(procedure, arguments, most);
  };
  ASSERT_EQ(count(nfs3_binding(), kNfs3Read, Builder().opaque(33).words({0, 0, 70'000}).bytes()), 1u);
  EXPECT_EQ(most[0], 70'000u);
  ASSERT_EQ(count(nfs3_binding(), kNfs3ReadLink, Builder().opaque(8).bytes()), 1u);
  EXPECT_EQ(most[0], 0u) << "short";
  EXPECT_EQ(count(nfs3_binding(), kNfs3Write, Builder().opaque(8).words({0, 0, 4, 2}).opaque(4).bytes()), 0u);
  ASSERT_EQ(count(nfs2_binding(), kNfs2Read, Builder().fixed(kHandle2).words({0, 512, 0}).bytes()), 1u);
  EXPECT_EQ(most[0], 8192u);
  // PUTFH, READ of 5000, READLINK, GETATTR, READ of 12.
  const Bytes compound = Builder()
                             .opaque(0)
                             .words({1, 5, 22})
                             .opaque(8)
                             .words({25, 1, 2, 3, 4, 0, 0, 5000, 27, 9, 1, 7, 25, 1, 2, 3, 4, 0, 0, 12})
                             .bytes();
  ASSERT_EQ(count(nfs4_binding(), kNfs4Compound, compound), 3u);
  EXPECT_EQ(most[0], 5000u);
  EXPECT_EQ(most[1], 0u);
  EXPECT_EQ(most[2], 12u);
}

TEST(Items, X_13_of_a_compounds_results_only_some_were_taken_out) {
  struct First final : service::PlacedResults {
    bool placed(std::size_t index, std::uint32_t bytes) noexcept override { return index == 0 && bytes == 5; }
    void unreadable() noexcept override { lost = true; }
    bool lost = false;
  };
  // A READ whose 5 bytes are placed by RDMA, a READLINK with its 3 bytes, a READ with none.
  const Bytes reply =
      Builder().words({0}).opaque(2).words({3, 25, 0, 1, 5, 27, 0}).opaque(3).words({25, 0, 1, 0}).bytes();
  std::array<service::Item, 4> items;
  First first;
  ASSERT_EQ(nfs4_binding().result_items(kNfs4Compound, reply, &first, items), 3u);
  EXPECT_TRUE(items[0].placed);
  EXPECT_EQ(items[0].offset, 32u);
  EXPECT_FALSE(items[1].placed);
  EXPECT_EQ(items[1].offset, 44u);
  EXPECT_EQ(items[1].bytes, 3u);
  EXPECT_EQ(items[2].offset, reply.size());
  EXPECT_FALSE(first.lost);
  // Further items may follow an unknown operation.
  const Bytes unknown = Builder().words({0}).opaque(2).words({2, 25, 0, 1, 5, 4711, 0}).bytes();
  EXPECT_EQ(nfs4_binding().result_items(kNfs4Compound, unknown, &first, items), 1u);
  EXPECT_TRUE(first.lost);
}

TEST(Items, every_program_with_a_name_has_its_binding) {
  for (const NamedProgram& named : named_programs()) {
    const service::Binding binding = binding_or_plain(named.program, named.version);
    EXPECT_EQ(binding.program, named.program) << named.name;
    EXPECT_EQ(binding.version, named.version) << named.name;
    EXPECT_EQ(binding.unusable, service::UnusableChunks::Ignore) << named.name;
  }
  EXPECT_EQ(binding_or_plain(4711, 3).argument_items, nullptr);
  EXPECT_TRUE(binding_or_plain(kNfsProgram, 4).checks_positions);
}

}  // namespace
}  // namespace sluice::ulb
