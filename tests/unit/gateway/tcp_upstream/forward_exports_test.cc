// SPDX-License-Identifier: Apache-2.0
//
// Two upstreams for NFS version 3, each with its own exports. Calls are sent to the upstream that issued
// their file handles.
#include <algorithm>

#include "tests/conformance/raw_call.h"
#include "tests/unit/gateway/tcp_upstream/forward_lab.h"
#include "tests/unit/ulb/nfs3_messages.h"

namespace sluice::tcp_upstream_test {
namespace {

using Counter = segment::UpstreamCounter;
using test3::handle;

constexpr std::uint32_t kOneTag = 0x11112222, kOtherTag = 0xEEEEDDDD;
constexpr std::uint32_t kCrossDevice = 18, kStale = 70, kBadHandle = 10001;
constexpr std::uint32_t kGetAcl = 1, kSetAcl = 2;
constexpr std::size_t kBehindXid = 4;

ForwardOptions two_upstreams(bool one_host = false) {
  const std::vector<tcp_upstream::Route> routes = {{ulb::kNfsProgram, 3}, {ulb::kNfsAclProgram, 3}};
  return {
      .one_host = one_host, .hung_routes = routes, .tag = kOneTag, .hung_tag = kOtherTag, .routes = routes};
}

Bytes results_of(const Outcome& outcome) {
  return outcome.message.size() < kResultsAt
             ? Bytes{}
             : Bytes(outcome.message.begin() + kResultsAt, outcome.message.end());
}

struct ForwardExports : testing::Test {
  explicit ForwardExports(const ForwardOptions& options = two_upstreams()) : lab(options) {}

  FakeUpstream& upstream_of(std::uint32_t tag) { return tag == kOneTag ? lab.upstream : *lab.hung; }
  FakeUpstream& other_than(std::uint32_t tag) { return tag == kOneTag ? *lab.hung : lab.upstream; }
  Outcome call(const Bytes& message, std::uint32_t max_reply_bytes = 20'000) {
    return lab.call(client, {.payload = message, .max_reply_bytes = max_reply_bytes});
  }
  /// Returns the results that a client receives when the upstream with this tag answers a call for one of its
  /// handles with `results`.
  Bytes seen(std::uint32_t tag, std::uint32_t procedure, const Bytes& results) {
    upstream_of(tag).answer = [results](const auto& asked) { return success(asked.xid(), results); };
    return results_of(
        call(nfs3(procedure, test3::arguments(procedure, handle(28, 1, tag), handle(28, 2, tag)))));
  }

  ForwardLab lab;
  LabClient& client = lab.add_client();
};

TEST_F(ForwardExports, each_procedure_reaches_the_upstream_of_its_handle_as_if_there_were_no_tags) {
  for (const std::uint32_t tag : {kOneTag, kOtherTag})
    for (std::uint32_t procedure = 1; procedure < ulb::kNfs3Procedures; ++procedure) {
      FakeUpstream& its = upstream_of(tag);
      its.calls.clear();
      other_than(tag).calls.clear();
      EXPECT_EQ(seen(tag, procedure, test3::failure(procedure, 13)), test3::failure(procedure, 13))
          << procedure;
      ASSERT_EQ(its.calls.size(), 1u) << procedure;
      EXPECT_TRUE(other_than(tag).calls.empty()) << procedure;
      const Bytes& message = its.calls[0].message;
      const std::uint32_t most = test3::kReadDirPlusMost * 11 / 12;
      const Bytes wanted = nfs3(procedure, test3::arguments(procedure, handle(28, 1), handle(28, 2), most));
      EXPECT_EQ(Bytes(message.begin() + kBehindXid, message.end()),
                Bytes(wanted.begin() + kBehindXid, wanted.end()))
          << procedure;
    }
}

TEST_F(ForwardExports, results_have_handles_and_file_systems_of_their_upstream) {
  for (const std::uint32_t tag : {kOneTag, kOtherTag})
    for (std::uint32_t procedure = 1; procedure < ulb::kNfs3Procedures; ++procedure)
      EXPECT_EQ(seen(tag, procedure, test3::results(procedure, handle(60, 3), 5)),
                test3::results(procedure, handle(60, 3, tag), 5 ^ tag))
          << procedure;
}

TEST_F(ForwardExports, a_handle_leads_back_to_where_it_came_from) {
  for (const std::uint32_t tag : {kOneTag, kOtherTag}) {
    const Bytes found = seen(tag, ulb::kNfs3Lookup, test3::results(ulb::kNfs3Lookup, handle(33, 4), 5));
    const Bytes got(found.begin() + 8, found.begin() + 8 + 37);
    upstream_of(tag).calls.clear();
    call(nfs3(ulb::kNfs3GetAttr, opaque(got)));
    ASSERT_EQ(upstream_of(tag).calls.size(), 1u);
    const Bytes& message = upstream_of(tag).calls[0].message;
    EXPECT_EQ(Bytes(message.begin() + kArgumentsAt, message.end()), opaque(handle(33, 4)));
  }
}

TEST_F(ForwardExports, access_control_lists_follow_their_handle) {
  for (const std::uint32_t tag : {kOneTag, kOtherTag})
    for (const std::uint32_t procedure : {kGetAcl, kSetAcl}) {
      upstream_of(tag).calls.clear();
      other_than(tag).calls.clear();
      upstream_of(tag).answer = [&](const auto& asked) {
        return success(asked.xid(), test3::joined({words({0}), test3::some_attributes(5)}));
      };
      const Bytes rest = words({15, 0, 0, 0, 0});
      const Outcome outcome = call(call_of(ulb::kNfsAclProgram, 3, procedure,
                                           test3::joined({test3::counted(handle(28, 1, tag)), rest})));
      EXPECT_EQ(results_of(outcome), test3::joined({words({0}), test3::some_attributes(5 ^ tag)}));
      EXPECT_TRUE(other_than(tag).calls.empty());
      ASSERT_EQ(upstream_of(tag).calls.size(), 1u);
      const Bytes& message = upstream_of(tag).calls[0].message;
      EXPECT_EQ(Bytes(message.begin() + kArgumentsAt, message.end()),
                test3::joined({test3::counted(handle(28, 1)), rest}));
    }
}

TEST_F(ForwardExports, data_goes_to_and_comes_from_the_upstream_of_the_handle) {
  constexpr std::uint32_t kBytes = 1u << 20;
  const auto memory = client.memory(kBytes);
  conformance::fill_pattern(memory, 8);
  const rdma::Sge piece = client.piece(memory);
  const Bytes write =
      nfs3(ulb::kNfs3Write,
           test3::joined({test3::counted(handle(28, 1, kOtherTag)), words({0, 0, kBytes, 2, kBytes})}));
  const rpcrdma::ReadItem item{.position = rpcrdma::Position{static_cast<std::uint32_t>(write.size())},
                               .pieces = {&piece, 1}};
  lab.hung->answer = [&](const auto& asked) {
    return success(asked.xid(), test3::results(ulb::kNfs3Write, {}, 5));
  };
  EXPECT_EQ(lab.call(client, {.payload = write, .reads = {&item, 1}, .max_reply_bytes = 400}).status,
            CallStatus::Ok);
  ASSERT_EQ(lab.hung->calls.size(), 1u);
  const Bytes& message = lab.hung->calls[0].message;
  EXPECT_EQ(message.size(), write.size() - 4 + kBytes);
  EXPECT_TRUE(conformance::has_pattern(std::span(message).last(kBytes), 8));

  const auto into = client.memory(kBytes);
  const rdma::Sge target = client.piece(into);
  const rpcrdma::WriteItem result{.pieces = {&target, 1}};
  lab.hung->answer = [&](const auto& asked) {
    return success(asked.xid(), test3::joined({words({0}), test3::some_attributes(5), words({kBytes, 1}),
                                               opaque(pattern(kBytes, 9))}));
  };
  const Bytes read =
      nfs3(ulb::kNfs3Read, test3::joined({test3::counted(handle(28, 1, kOtherTag)), words({0, 0, kBytes})}));
  const Outcome outcome =
      lab.call(client, {.payload = read, .writes = {&result, 1}, .max_reply_bytes = 400}, {kBytes});
  EXPECT_EQ(outcome.items.at(0).where, rpcrdma::ItemResult::Where::Placed);
  EXPECT_TRUE(conformance::has_pattern(into, 9));
  EXPECT_EQ(results_of(outcome),
            test3::joined({words({0}), test3::some_attributes(5 ^ kOtherTag), words({kBytes, 1, kBytes})}));
  EXPECT_TRUE(lab.upstream.calls.empty());
}

TEST_F(ForwardExports, nothing_is_moved_or_linked_from_one_upstream_to_the_other) {
  for (const std::uint32_t procedure : {ulb::kNfs3Rename, ulb::kNfs3Link})
    EXPECT_EQ(results_of(call(nfs3(
                  procedure, test3::arguments(procedure, handle(28, 1, kOtherTag), handle(28, 2, kOneTag))))),
              test3::failure(procedure, kCrossDevice));
  EXPECT_EQ(lab.hung_count(Counter::across_upstreams), 2u);
  EXPECT_TRUE(lab.upstream.calls.empty());
  EXPECT_TRUE(lab.hung->calls.empty());
}

TEST_F(ForwardExports, handles_that_nobody_has_given_out_reach_no_upstream) {
  std::uint32_t refused = 0;
  for (std::uint32_t procedure = 1; procedure < ulb::kNfs3Procedures; ++procedure) {
    const auto answer = [&](const Bytes& first, const Bytes& second) {
      return call(nfs3(procedure, test3::arguments(procedure, first, second)));
    };
    const Bytes good = handle(28, 2, kOneTag);
    for (const Bytes& bad : {handle(28, 1), handle(64, 1), handle(28, 1, kOneTag + 1), handle(1, 1, ~0u)}) {
      EXPECT_EQ(results_of(answer(bad, good)), test3::failure(procedure, kStale)) << procedure;
      ++refused;
    }
    for (const Bytes& bad : {handle(0, 1), handle(3, 1), handle(0, 1, kOneTag)}) {
      EXPECT_EQ(results_of(answer(bad, good)), test3::failure(procedure, kBadHandle)) << procedure;
      ++refused;
    }
    EXPECT_EQ(answer(handle(65, 1), good).message.at(kResultsAt - 1), std::byte{4}) << "GARBAGE_ARGS";
    if (procedure != ulb::kNfs3Rename && procedure != ulb::kNfs3Link) continue;
    EXPECT_EQ(results_of(answer(good, handle(28, 1))), test3::failure(procedure, kStale));
    EXPECT_EQ(results_of(answer(good, handle(2, 1))), test3::failure(procedure, kBadHandle));
    refused += 2;
  }
  const Outcome acl = call(
      call_of(ulb::kNfsAclProgram, 3, kGetAcl, test3::joined({test3::counted(handle(28, 1)), words({1})})));
  EXPECT_EQ(results_of(acl), words({kStale, 0}));
  EXPECT_EQ(lab.count(Counter::unknown_handles), refused + 1);
  EXPECT_TRUE(lab.upstream.calls.empty());
  EXPECT_TRUE(lab.hung->calls.empty());
}

TEST_F(ForwardExports, what_needs_no_upstream_is_answered_here) {
  for (const std::uint32_t program : {ulb::kNfsProgram, ulb::kNfsAclProgram}) {
    EXPECT_EQ(call(call_of(program, 3, 0)).message.size(), kResultsAt);
    EXPECT_EQ(call(call_of(program, 3, 99)).message.at(kResultsAt - 1), std::byte{3}) << "PROC_UNAVAIL";
  }
  EXPECT_TRUE(lab.upstream.calls.empty());
  EXPECT_TRUE(lab.hung->calls.empty());
}

TEST_F(ForwardExports, signed_calls_are_refused) {
  Bytes signed_call = words({0, 0, 2, ulb::kNfsProgram, 3, ulb::kNfs3GetAttr, 6});
  append(signed_call,
         opaque(words({1, 0, 1, 1, 4, 0})));  // version 1, DATA, sequence 1, service none, a handle
  append(signed_call, words({0, 0}));
  append(signed_call, opaque(handle(28, 1, kOneTag)));
  const Outcome outcome = call(signed_call);
  EXPECT_EQ(Bytes(outcome.message.begin() + kBehindXid, outcome.message.end()), words({1, 1, 1, 2}))
      << "MSG_DENIED, AUTH_ERROR, AUTH_REJECTEDCRED";
  EXPECT_EQ(lab.count(Counter::signed_calls_refused), 1u);
  EXPECT_TRUE(lab.upstream.calls.empty());
}

TEST_F(ForwardExports, handles_that_leave_no_room_for_a_tag_are_kept_back) {
  for (const std::uint32_t procedure : {ulb::kNfs3Lookup, ulb::kNfs3Create, ulb::kNfs3ReadDirPlus}) {
    const Bytes wanted = procedure == ulb::kNfs3Lookup ? test3::failure(procedure, 10006)
                                                       : test3::results(procedure, {}, 5 ^ kOtherTag);
    EXPECT_EQ(seen(kOtherTag, procedure, test3::results(procedure, handle(61, 3), 5)), wanted);
  }
  EXPECT_EQ(lab.hung_count(Counter::long_handles), 4u);
  EXPECT_EQ(lab.count(Counter::long_handles), 0u);
}

TEST_F(ForwardExports, an_upstream_that_answers_nothing_stops_the_other_one_in_nothing) {
  LabClient& stuck = lab.add_client();  // exceeds its limit at that upstream; `client` has a few calls there
  for (LabClient* const each : {&stuck, &client})  // a first reply grants their credits
    lab.call(*each, {.payload = nfs3(ulb::kNfs3Null), .max_reply_bytes = 400});
  const Bytes silent = nfs3(ulb::kNfs3GetAttr, opaque(handle(28, 1, kOtherTag)));
  for (int i = 0; i < 14; ++i) stuck.submit({.payload = silent, .max_reply_bytes = 400});
  for (int i = 0; i < 3; ++i) client.submit({.payload = silent, .max_reply_bytes = 400});
  ASSERT_TRUE(lab.until([&] { return lab.hung->calls.size() >= 6; }));
  for (int i = 0; i < 20; ++i)
    EXPECT_EQ(seen(kOneTag, ulb::kNfs3GetAttr, test3::results(ulb::kNfs3GetAttr, {}, 5)),
              test3::results(ulb::kNfs3GetAttr, {}, 5 ^ kOneTag));
  EXPECT_EQ(
      std::count_if(client.finished.begin(), client.finished.end(), [](const auto& each) { return !each; }),
      3);
}

TEST_F(ForwardExports, a_client_that_leaves_takes_its_calls_along) {
  LabClient& leaves = lab.add_client();
  lab.call(leaves, {.payload = nfs3(ulb::kNfs3Null), .max_reply_bytes = 400});
  for (int i = 0; i < 3; ++i)
    leaves.submit(
        {.payload = nfs3(ulb::kNfs3GetAttr, opaque(handle(28, 1, kOtherTag))), .max_reply_bytes = 400});
  ASSERT_TRUE(lab.until([&] { return lab.hung->calls.size() == 3; }));
  lab.disconnect(leaves);
  EXPECT_TRUE(lab.until([&] { return lab.hung_count(Counter::abandoned) == 3; }));
  EXPECT_EQ(lab.count(Counter::abandoned), 0u);
}

/// Covers each size of the transport's memory into which the results fit only without their tags.
TEST_F(ForwardExports, directories_of_every_length_arrive_with_their_tags) {
  std::vector<Bytes> plain, tagged;
  for (std::uint32_t i = 1; i <= 90; ++i) {
    plain.push_back(handle(28, i));
    tagged.push_back(handle(28, i, kOneTag));
    EXPECT_EQ(seen(kOneTag, ulb::kNfs3ReadDirPlus, test3::directory(plain, 5)),
              test3::directory(tagged, 5 ^ kOneTag))
        << i;
  }
}

/// Replies wait until the transport has memory. Tags must be added only once.
TEST_F(ForwardExports, long_directories_that_wait_for_memory_have_their_tags_once) {
  constexpr std::uint32_t kMost = 200'000;
  std::vector<Bytes> plain, tagged;
  for (std::uint32_t i = 1; i <= 400; ++i) {
    plain.push_back(handle(32, i));
    tagged.push_back(handle(32, i, kOneTag));
  }
  lab.upstream.answer = [&](const auto& asked) { return success(asked.xid(), test3::directory(plain, 5)); };
  std::vector<std::size_t> submitted;
  for (int i = 0; i < 12; ++i)
    submitted.push_back(client.submit(
        {.payload = nfs3(ulb::kNfs3ReadDirPlus,
                         test3::arguments(ulb::kNfs3ReadDirPlus, handle(28, 1, kOneTag), {}, kMost)),
         .max_reply_bytes = kMost}));
  ASSERT_TRUE(lab.until([&] {
    return std::all_of(submitted.begin(), submitted.end(),
                       [&](std::size_t index) { return client.finished[index].has_value(); });
  }));
  for (const std::size_t index : submitted)
    EXPECT_EQ(results_of(*client.finished[index]), test3::directory(tagged, 5 ^ kOneTag));
}

struct ForwardExportsRepeat : ForwardExports {
  ForwardExportsRepeat() : ForwardExports(two_upstreams(true)) {}
};

TEST_F(ForwardExportsRepeat, a_call_that_comes_again_gets_the_same_handle_and_is_executed_once) {
  lab.hung->answer = [&](const auto& asked) {
    return success(asked.xid(), test3::results(ulb::kNfs3MkDir, handle(28, 3), 5));
  };
  Bytes mkdir = nfs3(ulb::kNfs3MkDir, test3::arguments(ulb::kNfs3MkDir, handle(28, 1, kOtherTag), {}));
  xdr::store_u32(mkdir.data(), 7);
  for (int i = 0; i < 2; ++i) {
    const auto peer = lab.add_raw_peer();
    peer->send(conformance::RawCall{.xid = 7}.with(mkdir));
    ASSERT_TRUE(lab.until([&] { return peer->inbox.size() == 1; }));
    const auto& reply = peer->inbox[0].bytes;
    EXPECT_EQ(Bytes(reply.begin() + 28 + kResultsAt, reply.end()),
              test3::results(ulb::kNfs3MkDir, handle(28, 3, kOtherTag), 5 ^ kOtherTag));
    const std::size_t before = lab.ends.size();
    peer->owned_qp->to_error();
    ASSERT_TRUE(lab.until([&] { return lab.ends.size() == before + 1; }));
    std::erase(lab.raw_peers, peer.get());
    peer->owned_qp.reset();
  }
  EXPECT_EQ(lab.hung->calls.size(), 1u);
  EXPECT_EQ(lab.hung_count(Counter::replayed), 1u);
}

struct ExportsWithASpare : ForwardExports {
  static ForwardOptions options() {
    ForwardOptions options = two_upstreams();
    options.hung_tag = 0;
    options.hung_is_spare = true;
    return options;
  }
  ExportsWithASpare() : ForwardExports(options()) {
    lab.hung->answer = [](const auto& asked) {
      return success(asked.xid(), test3::results(ulb::kNfs3GetAttr, handle(28, 1), 5));
    };
  }
  std::uint32_t status(std::uint32_t tag) {
    Bytes its = handle(28, 1, kOtherTag);
    xdr::store_u32(its.data(), tag);
    return word_at(results_of(call(nfs3(ulb::kNfs3GetAttr, opaque(its)))), 0);
  }
};

TEST_F(ExportsWithASpare, a_spare_upstream_has_no_handles_until_it_becomes_one) {
  EXPECT_EQ(status(kOtherTag), kStale);
  EXPECT_EQ(status(0), kStale) << "which would be its tag";
  lab.bring(kOtherTag);
  EXPECT_EQ(status(kOtherTag), 0u);
  EXPECT_EQ(status(0), kStale);
  EXPECT_EQ(lab.hung->calls.size(), 1u);
  EXPECT_EQ(seen(kOtherTag, ulb::kNfs3Lookup, test3::results(ulb::kNfs3Lookup, handle(60, 3), 5)),
            test3::results(ulb::kNfs3Lookup, handle(60, 3, kOtherTag), 5 ^ kOtherTag));
  EXPECT_EQ(seen(kOneTag, ulb::kNfs3Lookup, test3::results(ulb::kNfs3Lookup, handle(60, 3), 5)),
            test3::results(ulb::kNfs3Lookup, handle(60, 3, kOneTag), 5 ^ kOneTag))
      << "the other has what it had";
}

}  // namespace
}  // namespace sluice::tcp_upstream_test
