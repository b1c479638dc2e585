// SPDX-License-Identifier: Apache-2.0
//
// Tags of file handles are removed from calls and added to results, and nothing else changes.
#include "dataplane/ulb/tagged_handles.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>

#include "dataplane/service/api/binding.h"
#include "tests/unit/ulb/nfs3_messages.h"

namespace sluice::ulb {
namespace {

using namespace test3;

constexpr std::uint32_t kTag = 0xA1B2C3D4;
constexpr std::size_t kHeader = 40;

bool has_two(std::uint32_t procedure) {
  return procedure == kNfs3Rename || procedure == kNfs3Link;
}

/// A buffer of exactly this size, so that the address sanitizer detects accesses beyond it.
struct Exact {
  explicit Exact(const Bytes& from) : bytes(std::make_unique<std::byte[]>(from.size())), size(from.size()) {
    std::copy(from.begin(), from.end(), bytes.get());
  }
  std::span<std::byte> span() const { return {bytes.get(), size}; }
  std::unique_ptr<std::byte[]> bytes;
  std::size_t size;
};

CallHandles found(std::uint32_t procedure, const Bytes& arguments, std::uint32_t program = kNfsProgram) {
  return find_handles(program, procedure, Exact(arguments).span());
}

Bytes tagged(std::uint32_t procedure, const Bytes& results, std::size_t* too_long = nullptr) {
  const Exact exact(results);
  Bytes room(xdr::padded(results.size()) + growth_by_tags(procedure, exact.span()));
  xdr::Writer writer(room);
  const std::size_t kept = write_tagged(writer, procedure, exact.span(), kTag);
  EXPECT_TRUE(writer.ok()) << "of " << procedure << ": longer than it is said to be";
  if (too_long != nullptr) *too_long = kept;
  room.resize(writer.position());
  return room;
}

TEST(TaggedHandles, come_off_every_call_and_what_is_behind_them_stays_in_place) {
  for (const std::size_t bytes : {1u, 7u, 28u, 60u})
    for (std::uint32_t procedure = 1; procedure < kNfs3Procedures; ++procedure) {
      const Bytes sent = arguments(procedure, handle(bytes, 1, kTag), handle(bytes, 2, kTag));
      const CallHandles handles = found(procedure, sent);
      ASSERT_EQ(handles.state, CallHandles::State::Tagged) << procedure;
      ASSERT_EQ(handles.count, has_two(procedure) ? 2u : 1u) << procedure;
      for (std::size_t i = 0; i < handles.count; ++i) EXPECT_EQ(handles.tags[i], kTag);
      const Bytes header = handle(kHeader, 9);
      const Exact message(joined({header, sent}));
      const auto left = remove_tags(kNfsProgram, procedure, message.span(), sent.size(), handles);
      EXPECT_EQ(left.data() + left.size(), message.span().data() + message.size) << "its end has not moved";
      const std::uint32_t most = kReadDirPlusMost - kReadDirPlusMost / 12 - 1;
      const Bytes wanted = arguments(procedure, handle(bytes, 1), handle(bytes, 2), most);
      EXPECT_EQ(Bytes(left.begin(), left.end()), joined({header, wanted})) << procedure << ", " << bytes;
    }
}

TEST(TaggedHandles, are_on_every_result) {
  for (const std::size_t bytes : {1u, 7u, 28u, 60u})
    for (std::uint32_t procedure = 1; procedure < kNfs3Procedures; ++procedure) {
      EXPECT_EQ(tagged(procedure, results(procedure, handle(bytes, 3), 5)),
                results(procedure, handle(bytes, 3, kTag), 5))
          << procedure << ", " << bytes;
      EXPECT_EQ(tagged(procedure, failure(procedure, 13)), failure(procedure, 13)) << procedure;
    }
}

TEST(TaggedHandles, file_systems_of_different_servers_differ) {
  for (std::uint32_t procedure = 1; procedure < kNfs3Procedures; ++procedure) {
    const Exact exact(results(procedure, handle(28, 3), 5));
    tag_file_systems(kNfsProgram, procedure, exact.span(), kTag);
    EXPECT_EQ(Bytes(exact.span().begin(), exact.span().end()), results(procedure, handle(28, 3), 5 ^ kTag))
        << procedure;
  }
  const Bytes acl = joined({words({0}), some_attributes(5), words({1, 0, 0})});
  const Exact exact(acl);
  tag_file_systems(kNfsAclProgram, 1, exact.span(), kTag);
  EXPECT_EQ(Bytes(exact.span().begin(), exact.span().end()),
            joined({words({0}), some_attributes(5 ^ kTag), words({1, 0, 0})}));
}

TEST(TaggedHandles, calls_without_a_good_one_are_told_apart) {
  using State = CallHandles::State;
  for (std::uint32_t procedure = 1; procedure < kNfs3Procedures; ++procedure) {
    EXPECT_EQ(found(procedure, arguments(procedure, handle(0, 1), handle(8, 1, kTag))).state,
              State::Untagged);
    EXPECT_EQ(found(procedure, arguments(procedure, handle(4, 1), handle(8, 1, kTag))).state,
              State::Untagged);
    EXPECT_EQ(found(procedure, arguments(procedure, handle(65, 1), handle(8, 1, kTag))).state,
              State::Unreadable);
    EXPECT_EQ(found(procedure, {}).state, State::Unreadable);
    if (!has_two(procedure)) continue;
    EXPECT_EQ(found(procedure, arguments(procedure, handle(8, 1, kTag), handle(4, 1))).state,
              State::Untagged);
    EXPECT_EQ(found(procedure, arguments(procedure, handle(8, 1, kTag), handle(65, 1))).state,
              State::Unreadable);
    EXPECT_EQ(found(procedure, counted(handle(8, 1, kTag))).state, State::Unreadable);
  }
  EXPECT_EQ(found(kNfs3Null, counted(handle(8, 1, kTag))).state, State::NoProcedure);
  EXPECT_EQ(found(kNfs3Procedures, counted(handle(8, 1, kTag))).state, State::NoProcedure);
  for (const std::uint32_t procedure : {1u, 2u})
    EXPECT_EQ(found(procedure, counted(handle(8, 1, kTag)), kNfsAclProgram).state, State::Tagged);
  EXPECT_EQ(found(3, counted(handle(8, 1, kTag)), kNfsAclProgram).state, State::NoProcedure);
}

TEST(TaggedHandles, that_are_too_long_are_kept_back_and_what_was_done_is_said) {
  for (const std::size_t bytes : {61u, 64u})
    for (std::uint32_t procedure = 1; procedure < kNfs3Procedures; ++procedure) {
      std::size_t too_long = 0;
      const Bytes seen = tagged(procedure, results(procedure, handle(bytes, 3), 5), &too_long);
      if (procedure == kNfs3Lookup)
        EXPECT_EQ(seen, failure(procedure, 10006));
      else
        EXPECT_EQ(seen, results(procedure, {}, 5)) << procedure;
      const bool makes = procedure >= kNfs3Create && procedure <= kNfs3MkNod;
      EXPECT_EQ(too_long, procedure == kNfs3ReadDirPlus ? 2u : procedure == kNfs3Lookup || makes ? 1u : 0u);
    }
  std::size_t too_long = 0;
  EXPECT_EQ(tagged(kNfs3ReadDirPlus, directory({handle(28, 1), handle(64, 2), handle(60, 3)}, 5), &too_long),
            directory({handle(28, 1, kTag), {}, handle(60, 3, kTag)}, 5));
  EXPECT_EQ(too_long, 1u);
}

TEST(TaggedHandles, of_a_directory_with_the_shortest_entries_have_room_in_what_was_asked_for) {
  for (const std::uint32_t most : {44u, 1000u, 4096u, 65536u}) {
    const Bytes sent = arguments(kNfs3ReadDirPlus, handle(8, 1, kTag), {}, most);
    const Exact message(sent);
    const auto left = remove_tags(kNfsProgram, kNfs3ReadDirPlus, message.span(), sent.size(),
                                  found(kNfs3ReadDirPlus, sent));
    const std::uint32_t asked = xdr::load_u32(left.data() + left.size() - 4);
    Bytes entries =
        words({0, 0, 0, 6});  // as long as the server may make them, counted with the status as well
    while (entries.size() + 44 + 8 <= asked)
      append(entries, joined({words({1, 0, 1}), text("n"), words({0, 1, 0, 1}), counted(handle(1, 1))}));
    append(entries, words({0, 1}));
    EXPECT_LE(tagged(kNfs3ReadDirPlus, entries).size(), most) << most;
  }
}

TEST(TaggedHandles, messages_that_are_cut_short_are_passed_as_they_are_behind_the_cut) {
  for (std::uint32_t procedure = 1; procedure < kNfs3Procedures; ++procedure) {
    const Bytes whole = results(procedure, handle(28, 3), 5);
    for (std::size_t bytes = 0; bytes < whole.size(); bytes += 4) {
      const Bytes cut(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(bytes));
      Bytes seen = tagged(procedure, cut);
      EXPECT_GE(seen.size(), cut.size());
      EXPECT_TRUE(std::equal(cut.rbegin(), cut.rbegin() + std::min<std::ptrdiff_t>(4, bytes), seen.rbegin()));
      const Exact exact(cut);
      tag_file_systems(kNfsProgram, procedure, exact.span(), kTag);
    }
    const Bytes sent = arguments(procedure, handle(28, 1, kTag), handle(28, 2, kTag));
    for (std::size_t bytes = 0; bytes < sent.size(); bytes += 4) {
      const Bytes cut(sent.begin(), sent.begin() + static_cast<std::ptrdiff_t>(bytes));
      const CallHandles handles = found(procedure, cut);
      if (handles.state != CallHandles::State::Tagged) continue;
      const Exact message(joined({Bytes(kHeader), cut}));
      EXPECT_EQ(remove_tags(kNfsProgram, procedure, message.span(), cut.size(), handles).size(),
                message.size - 4 * handles.count);
    }
  }
}

TEST(TaggedHandles, of_words_at_random_do_no_harm) {
  std::mt19937 random(7);
  for (int i = 0; i < 5'000; ++i) {
    Bytes bytes;
    for (std::size_t words_left = random() % 60; words_left > 0; --words_left)
      append(bytes, words({static_cast<std::uint32_t>(random() % 4 == 0 ? random() : random() % 9)}));
    const auto procedure = static_cast<std::uint32_t>(random() % (kNfs3Procedures + 1));
    tagged(procedure, bytes);
    const Exact exact(bytes);
    tag_file_systems(kNfsProgram, procedure, exact.span(), kTag);
    const CallHandles handles = found(procedure, bytes);
    if (handles.state == CallHandles::State::Tagged)
      remove_tags(kNfsProgram, procedure, exact.span(), bytes.size(), handles);
  }
}

}  // namespace
}  // namespace sluice::ulb
