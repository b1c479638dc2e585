// SPDX-License-Identifier: Apache-2.0
//
// COMPOUNDs of NFS version 4. Captured ones from real Linux kernels are compared with the operations that
// Wireshark finds in them; handwritten ones cover operations that were not captured; others are malformed.
#include <gtest/gtest.h>

#include <cstdlib>
#include <random>

#include "dataplane/ulb/nfs4_grammar.h"
#include "tests/unit/ulb/compounds.h"

namespace sluice::ulb {
namespace {

using What = CompoundWalker::What;
using test::Bytes;
using test::Captured;
using test::Writer;

std::vector<Captured> captured() {
  const char* const fresh = std::getenv("SLUICE_FRESH_COMPOUNDS");  // tests/interop/gateway_test.py
  return test::captured(fresh != nullptr ? fresh : SLUICE_CAPTURED_COMPOUNDS);
}

std::vector<CompoundWalker::Operation> walk(CompoundWalker& walker) {
  std::vector<CompoundWalker::Operation> all;
  CompoundWalker::Operation operation;
  while (walker.next(operation)) all.push_back(operation);
  return all;
}

TEST(Nfs4Compound, what_kernels_sent_is_stepped_over_as_Wireshark_does) {
  const auto all = captured();
  ASSERT_GE(all.size(), 60u);
  for (const Captured& one : all) {
    CompoundWalker walker(one.message, one.what);
    std::vector<std::uint32_t> numbers;
    std::size_t end = 0;
    for (const auto& operation : walk(walker)) {
      numbers.push_back(operation.number);
      EXPECT_TRUE(end == 0 || operation.begin == end);
      end = operation.end;
    }
    EXPECT_TRUE(walker.complete());
    EXPECT_EQ(numbers, one.operations);
    EXPECT_EQ(end, one.message.size());
  }
}

TEST(Nfs4Compound, X_13_items_are_found_in_calls) {
  Writer call;
  call.call(5);
  call.w({22}).o(28);                             // PUTFH
  call.w({38}).stateid().d(4096).w({2}).o(1001);  // WRITE
  call.w({6, 5}).o(77).o(3).w({1, 2}).o(4);       // CREATE of a symbolic link
  call.w({6, 2}).o(3).w({0}).o(0);                // CREATE of a directory: no item
  call.w({9}).w({2, 0, 0});                       // GETATTR
  CompoundWalker walker(call.bytes(), What::Call);
  const auto operations = walk(walker);
  ASSERT_EQ(operations.size(), 5u);
  EXPECT_TRUE(walker.complete());
  EXPECT_EQ(walker.minor_version(), 2u);
  EXPECT_FALSE(operations[0].has_item);
  ASSERT_TRUE(operations[1].has_item);
  EXPECT_STREQ(operations[1].name, "write");
  EXPECT_EQ(operations[1].item_bytes, 1001u);
  EXPECT_EQ(operations[1].item_at, operations[1].begin + 4 + 16 + 8 + 4 + 4);
  EXPECT_EQ(operations[1].end, operations[1].item_at + 1004);
  ASSERT_TRUE(operations[2].has_item);
  EXPECT_EQ(operations[2].item_bytes, 77u);
  EXPECT_FALSE(operations[3].has_item);
}

TEST(Nfs4Compound, X_13_items_are_found_in_replies) {
  Writer reply;
  reply.reply(4);
  reply.w({22, 0});             // PUTFH
  reply.w({25, 0, 1}).o(8193);  // READ
  reply.w({27, 0}).o(300);      // READLINK
  reply.w({25, 5});             // READ that failed
  CompoundWalker walker(reply.bytes(), What::Reply);
  const auto operations = walk(walker);
  ASSERT_EQ(operations.size(), 4u);
  EXPECT_TRUE(walker.complete());
  EXPECT_EQ(operations[1].item_bytes, 8193u);
  EXPECT_EQ(operations[2].item_bytes, 300u);
  EXPECT_FALSE(operations[3].has_item);
  EXPECT_EQ(operations[3].status, 5u);
}

TEST(Nfs4Compound, operations_that_were_not_captured) {
  Writer call;
  call.call(7);
  call.w({12, 1, 0}).d(0).d(100).w({1, 7}).stateid().w({1}).d(9).o(16);  // LOCK by a new owner
  call.w({12, 1, 0}).d(0).d(100).w({0}).stateid().w({3});                // LOCK by a known owner
  // OPEN: EXCLUSIVE4_1, by a delegation.
  call.w({18, 0, 1, 0}).d(5).o(12).w({1, 3, 8, 9}).w({1, 2}).o(8).w({2}).stateid().o(6);
  call.w({60}).stateid().stateid().d(0).d(0).d(4096).w({1, 0, 2, 3}).o(3).o(5).w({1}).o(7);  // COPY from two
                                                                                             // places
  call.w({68}).stateid().d(0).w({65536});                                                    // READ_PLUS
  call.w({51, 0, 1, 1, 1}).d(0).d(0).stateid().o(12);  // LAYOUTRETURN of a file
  call.w({51, 0, 1, 1, 3});                            // LAYOUTRETURN of all
  CompoundWalker walker(call.bytes(), What::Call);
  EXPECT_EQ(walk(walker).size(), 7u);
  EXPECT_TRUE(walker.complete());

  Writer reply;
  reply.reply(5);
  reply.w({12, 10010}).d(0).d(1).w({2}).d(7).o(9);  // LOCK denied
  reply.w({26, 0, 1, 2}).w({1}).d(3).o(5).w({1, 0}).o(8).w({1}).d(4).o(6).w({0}).o(0).w({0, 1});  // READDIR,
                                                                                                  // two
                                                                                                  // entries
  // OPEN with a write delegation, limited by blocks.
  reply.w({18, 0})
      .stateid()
      .w({1})
      .d(1)
      .d(2)
      .w({4, 1, 0xF})
      .w({2})
      .stateid()
      .w({0, 2, 7, 8})
      .w({0, 0, 0})
      .o(4);
  reply.w({68, 0, 1, 2}).w({0}).d(0).o(100).w({1}).d(100).d(5000);  // READ_PLUS: data and a hole, neither
                                                                    // eligible
  reply.w({10044, 10044});
  CompoundWalker back(reply.bytes(), What::Reply);
  const auto operations = walk(back);
  EXPECT_EQ(operations.size(), 5u);
  EXPECT_TRUE(back.complete());
  for (const auto& operation : operations) EXPECT_FALSE(operation.has_item);
}

/// RFC 8276, section 8.4. Extended attributes are not eligible for direct placement.
TEST(Nfs4Compound, extended_attributes_are_stepped_over) {
  Writer call;
  call.call(5);
  call.w({72}).o(9);                          // GETXATTR
  call.w({73, 1}).o(9).o(40'000);             // SETXATTR
  call.w({74}).d(3).w({4096}).w({75}).o(11);  // LISTXATTRS, REMOVEXATTR
  call.w({38}).stateid().d(0).w({2}).o(77);   // WRITE
  CompoundWalker walker(call.bytes(), What::Call);
  const auto called = walk(walker);
  ASSERT_EQ(called.size(), 5u);
  EXPECT_TRUE(walker.complete());
  EXPECT_EQ(called[4].item_bytes, 77u);
  for (std::size_t i = 0; i < 4; ++i) EXPECT_FALSE(called[i].has_item);

  Writer reply;
  reply.reply(6);
  reply.w({72, 0}).o(40'000).w({73, 0, 1}).d(1).d(2);
  reply.w({74, 0}).d(5).w({2}).o(3).o(8).w({1}).w({75, 0, 1}).d(2).d(3);
  reply.w({25, 0, 1}).o(100).w({72, 10095});  // READ, and a GETXATTR that failed
  CompoundWalker back(reply.bytes(), What::Reply);
  const auto results = walk(back);
  ASSERT_EQ(results.size(), 6u);
  EXPECT_TRUE(back.complete());
  EXPECT_EQ(results[4].item_bytes, 100u);
  for (std::size_t i = 0; i < 4; ++i) EXPECT_FALSE(results[i].has_item);
}

/// RFC 9754, section 5: OPEN_DELEGATE_READ_ATTRS_DELEG and OPEN_DELEGATE_WRITE_ATTRS_DELEG.
TEST(Nfs4Compound, delegations_of_time_stamps_are_stepped_over) {
  const auto read = [](Writer& all) { all.w({4}).stateid().w({0}).w({0, 0, 3}).o(4); };
  const auto write = [](Writer& all) { all.w({5}).stateid().w({0, 1}).d(1 << 20).w({0, 0, 3}).o(4); };
  Writer reply;
  reply.reply(5);
  for (const bool writes : {false, true}) {
    reply.w({18, 0}).stateid().w({1}).d(1).d(2).w({4, 0});  // OPEN
    writes ? write(reply) : read(reply);
    reply.w({56, 0});  // WANT_DELEGATION
    writes ? write(reply) : read(reply);
  }
  reply.w({25, 0, 1}).o(100);
  CompoundWalker walker(reply.bytes(), What::Reply);
  EXPECT_EQ(walk(walker).size(), 5u);
  EXPECT_TRUE(walker.complete());

  Writer push;
  push.o(0).w({2, 0, 2});
  push.w({7}).o(28);
  read(push);
  push.w({7}).o(28);
  write(push);
  CompoundWalker callback(push.bytes(), What::CallbackCall);
  EXPECT_EQ(walk(callback).size(), 2u);
  EXPECT_TRUE(callback.complete());
}

TEST(Nfs4Compound, callbacks) {
  Writer call;
  call.o(0).w({1, 0x40000000, 2});
  call.w({11}).stateid().w({1, 0, 7, 0, 0});  // CB_SEQUENCE
  call.w({4}).stateid().w({0}).o(28);         // CB_RECALL
  CompoundWalker walker(call.bytes(), What::CallbackCall);
  const auto operations = walk(walker);
  ASSERT_EQ(operations.size(), 2u);
  EXPECT_STREQ(operations[1].name, "recall");
  EXPECT_TRUE(walker.complete());
  Writer reply;
  reply.reply(2).w({11, 0}).stateid().w({1, 0, 7, 7}).w({4, 0});
  CompoundWalker back(reply.bytes(), What::CallbackReply);
  EXPECT_EQ(walk(back).size(), 2u);
  EXPECT_TRUE(back.complete());
}

TEST(Nfs4Session, compounds_that_begin_with_SEQUENCE_have_one) {
  const auto sequence = [](Writer& call) { return call.w({53}).d(1).d(2).w({3, 0, 31, 0}); };
  const auto has_session = [](const Writer& call, std::uint32_t procedure = kNfs4Compound) {
    return nfs4_has_session(procedure, call.bytes());
  };
  Writer of_version_1, of_version_0, late, cut;
  sequence(of_version_1.call(2, 1)).w({24});
  sequence(of_version_0.call(2, 0)).w({24});
  sequence(late.call(2, 1).w({24}));
  EXPECT_TRUE(has_session(of_version_1));
  EXPECT_FALSE(has_session(of_version_1, 0));
  EXPECT_FALSE(has_session(of_version_0));
  EXPECT_FALSE(has_session(late));
  EXPECT_FALSE(has_session(cut.call(1, 1).w({53}).d(1)));
  EXPECT_FALSE(has_session(Writer().call(0, 1)));
}

TEST(Nfs4Session, what_kernels_sent_in_sessions_is_known_by_its_first_operation) {
  std::size_t with = 0, without = 0;
  for (const Captured& one : captured()) {
    if (one.what != What::Call || one.operations.empty()) continue;
    const bool expected = one.operations[0] == 53;
    EXPECT_EQ(nfs4_has_session(kNfs4Compound, one.message), expected);
    ++(expected ? with : without);
  }
  EXPECT_GT(with, 0u);
  EXPECT_GT(without, 0u);
}

TEST(Nfs4Session, a_connection_is_refused_by_SEQUENCE_alone) {
  const auto refuses = [](std::uint32_t status, std::uint32_t operation, std::uint32_t its_status) {
    return nfs4_refuses_connection(Writer().w({status}).o(4).w({1, operation, its_status}).bytes());
  };
  EXPECT_TRUE(refuses(10055, 53, 10055));
  EXPECT_FALSE(refuses(10055, 53, 10052));
  EXPECT_FALSE(refuses(10052, 53, 10055));
  EXPECT_FALSE(refuses(10055, 44, 10055));
  EXPECT_FALSE(nfs4_refuses_connection(Writer().w({10055}).o(0).w({0}).bytes()));
  EXPECT_FALSE(nfs4_refuses_connection({}));
}

TEST(Nfs4Compound, cut_anywhere_it_is_never_complete) {
  for (const Captured& one : captured()) {
    for (std::size_t bytes = 0; bytes < one.message.size(); ++bytes) {
      // A copy of exactly this size, so that the address sanitizer detects an over-read.
      const Bytes cut(one.message.begin(), one.message.begin() + static_cast<std::ptrdiff_t>(bytes));
      CompoundWalker walker(cut, one.what);
      walk(walker);
      EXPECT_FALSE(walker.complete()) << bytes;
    }
    Bytes longer = one.message;
    longer.resize(longer.size() + 4);
    CompoundWalker walker(longer, one.what);
    walk(walker);
    EXPECT_FALSE(walker.complete()) << "something is left over";
  }
}

TEST(Nfs4Compound, counts_and_choices_that_lie_end_the_walk) {
  for (const Bytes& message :
       {Writer().call(1000000).w({24}).bytes(),        // more operations than words
        Writer().call(1).w({9, 0x40000000}).bytes(),   // an endless bitmap
        Writer().call(1).w({22, 0xFFFFFFFF}).bytes(),  // a handle of 4 GiB
        Writer().call(1).w({76}).bytes(),              // no such operation
        Writer().call(1).w({2}).bytes(), Writer().call(1).w({0xFFFFFFFF}).bytes(),
        Writer().call(1).w({6, 6}).o(1).w({0}).o(0).w({1}).bytes(),                // trailing bytes
        Writer().call(1).w({12, 1, 0}).d(0).d(1).w({2}).stateid().w({1}).bytes(),  // unknown union arm
        Writer().call(2).w({24}).bytes()}) {
    CompoundWalker walker(message, What::Call);
    walk(walker);
    EXPECT_FALSE(walker.complete());
  }
  // A list whose entries all announce another entry.
  Writer reply;
  reply.reply(1).w({26, 0, 1, 2});
  for (int i = 0; i < 1000; ++i) reply.w({1}).d(1).o(0).w({0}).o(0);
  CompoundWalker walker(reply.bytes(), What::Reply);
  walk(walker);
  EXPECT_FALSE(walker.complete());
}

TEST(Nfs4Compound, noise_is_stepped_over_within_the_message) {
  std::mt19937 random(11);
  auto all = captured();
  for (int round = 0; round < 20000; ++round) {
    Captured& one = all[random() % all.size()];
    Bytes noisy = one.message;
    for (int i = 0; i < 3; ++i) noisy[random() % noisy.size()] = static_cast<std::byte>(random());
    CompoundWalker walker(noisy, one.what);
    for (const auto& operation : walk(walker)) {
      EXPECT_LE(operation.end, noisy.size());
      if (operation.has_item) {
        EXPECT_LE(operation.item_at + operation.item_bytes, operation.end);
      }
    }
  }
}

TEST(Nfs4Results, V1_118_V1_187_what_kernels_answered_is_within_the_estimate) {
  const auto all = captured();
  std::size_t pairs = 0;
  for (std::size_t i = 0; i + 1 < all.size(); ++i) {
    if (all[i].what != What::Call || all[i + 1].what != What::Reply) continue;
    if (all[i].operations != all[i + 1].operations) continue;
    const std::uint64_t most = max_nfs4_results(kNfs4Compound, all[i].message);
    EXPECT_GE(most, all[i + 1].message.size());
    // None of them requests access control lists, so the bound is a few kilobytes per operation, plus the
    // data that is read.
    std::uint64_t asked = 0;
    for (const std::uint32_t operation : all[i].operations)
      asked += operation == 25 || operation == 26 ? 1 << 20 : 0;
    EXPECT_LE(most, asked + 160'000 * all[i].operations.size()) << all[i].operations[0];
    ++pairs;
  }
  EXPECT_GE(pairs, 25u);
}

TEST(Nfs4Results, V1_118_what_the_arguments_ask_for_counts) {
  const auto most = [](std::uint32_t operations, const Bytes& body) {
    Bytes message = Writer().o(0).w({1, operations}).bytes();
    message.insert(message.end(), body.begin(), body.end());
    return max_nfs4_results(kNfs4Compound, message);
  };
  const auto read = [](std::uint32_t count) { return Writer().w({25, 1, 2, 3, 4}).d(0).w({count}).bytes(); };
  EXPECT_EQ(most(1, read(5000)) - most(1, read(1000)), 4000u);
  EXPECT_GE(most(1, read(1 << 20)), (1u << 20) + 28);
  EXPECT_LE(most(1, read(1 << 20)), (1u << 20) + 100);
  const auto read_dir = [](std::uint32_t count) {
    return Writer().w({26}).d(0).d(0).w({100, count, 0}).bytes();
  };
  EXPECT_EQ(most(1, read_dir(9000)) - most(1, read_dir(1000)), 8000u);
  // The access control list is attribute 12.
  const Bytes some = Writer().w({9, 2, 0x0010011a, 0x00b0a23a}).bytes();
  const Bytes with_list = Writer().w({9, 2, 0x0010111a, 0x00b0a23a}).bytes();
  EXPECT_EQ(most(1, with_list) - most(1, some), 64u << 10);
  // The largest extended attribute that Linux supports, and as many of their names as the call requests.
  EXPECT_GE(most(1, Writer().w({72}).o(5).bytes()), (64u << 10) + 24);
  EXPECT_LE(most(1, Writer().w({72}).o(5).bytes()), (64u << 10) + 100);
  const auto names = [](std::uint32_t count) { return Writer().w({74}).d(0).w({count}).bytes(); };
  EXPECT_EQ(most(1, names(70'000)) - most(1, names(1000)), 69'000u);
  EXPECT_GE(most(1, names(1000)), 1020u);
  EXPECT_LE(most(1, names(1000)), 1100u);
  // The bound of an unknown operation is one that hardly any reply exceeds; a missing operation adds nothing.
  EXPECT_GE(most(1, Writer().w({4711}).bytes()), 64u << 10);
  EXPECT_GE(most(1, Writer().w({25, 1}).bytes()), 64u << 10);
  EXPECT_EQ(max_nfs4_results(0, {}), 0u);
}

TEST(Nfs4Results, every_operation_has_a_bound) {
  for (const OperationGrammar& operation : kNfs4Operations)
    EXPECT_EQ(operation.name != nullptr, operation.results != nullptr);
}

TEST(Nfs4Grammar, X_13_only_what_RFC_8267_names_is_eligible) {
  std::vector<std::string> eligible;
  for (const OperationGrammar& operation : kNfs4Operations) {
    if (operation.name == nullptr) continue;
    if (std::string(operation.arguments).find('E') != std::string::npos)
      eligible.push_back(std::string(operation.name) + " call");
    if (std::string(operation.results).find('E') != std::string::npos)
      eligible.push_back(std::string(operation.name) + " reply");
  }
  EXPECT_EQ(eligible,
            (std::vector<std::string>{"create call", "read reply", "readlink reply", "write call"}));
  for (const OperationGrammar& operation : kNfs4Callbacks)
    if (operation.name != nullptr) {
      EXPECT_EQ((std::string(operation.arguments) + operation.results).find('E'), std::string::npos);
    }
}

}  // namespace
}  // namespace sluice::ulb
