// SPDX-License-Identifier: Apache-2.0
//
// Sizes that an upstream announces are lowered to the limits of the gateway.
#include "tests/unit/gateway/tcp_upstream/forward_lab.h"

namespace sluice::tcp_upstream_test {
namespace {

constexpr std::uint32_t kMiB = 1u << 20;
constexpr std::uint32_t kPutFhOperation = 22, kGetAttrOperation = 9, kCreateSession = 43, kPathConf = 20;

/// Returns FSINFO results without attributes.
Bytes fsinfo_results(std::uint32_t size) {
  return words({0, 0, size, size, 4096, size, size, 4096, size, 0x7fffffff, ~0u, 0, 1, 0x1b});
}
Bytes fsinfo_call(std::uint32_t procedure = ulb::kNfs3FsInfo) {
  return nfs3(procedure, opaque(pattern(32, 5)));
}

Bytes sizes_compound(std::uint32_t operations, const Bytes& body) {
  return call_of(ulb::kNfsProgram, 4, ulb::kNfs4Compound, joined({words({0, 1, operations}), body}));
}
/// Access control list, locations of the file system, MAXREAD and MAXWRITE.
constexpr std::uint32_t kAttributes = 1u << 12 | 1u << 24 | 1u << 30 | 1u << 31;
Bytes sizes_call(std::uint32_t bitmap = kAttributes) {
  return sizes_compound(
      2, joined({words({kPutFhOperation}), opaque(pattern(28, 1)), words({kGetAttrOperation, 1, bitmap})}));
}
Bytes sizes_results(std::uint32_t size) {
  const Bytes list =
      joined({words({2, 0, 0, 7}), opaque(pattern(6, 1)), words({1, 0, 7}), opaque(pattern(9, 2))});
  const Bytes path = joined({words({2}), opaque(pattern(3, 1)), opaque(pattern(8, 2))});
  const Bytes places = joined({path, words({1, 1}), opaque(pattern(13, 3)), path});
  const Bytes values = joined({list, places, words({0, size, 0, size})});
  return joined({words({0, 0, 2, kPutFhOperation, 0, kGetAttrOperation, 0, 1, kAttributes}), opaque(values)});
}
Bytes create_session_results(std::uint32_t size) {
  return words({0, 0,    1,    kCreateSession, 0, 1,  2, 3, 4,    1,    0,  // session, sequence, flags
                0, size, size, 4096,           8, 64, 0, 0, size, size, 0, 2, 16, 0});  // and two channels
}
Bytes create_session_call() {
  return sizes_compound(1, words({kCreateSession, 7,    8, 1, 0,  0, ~0u,        ~0u, 4096, 8, 64, 0, 0,
                                  4096,           4096, 0, 2, 16, 0, 0x40000000, 1,   0}));
}

/// Returns what a client receives when the upstream answers with `results`.
Bytes seen(ForwardLab& lab, LabClient& client, const Bytes& call, const Bytes& results) {
  lab.upstream.answer = [&](const auto& forwarded) { return success(forwarded.xid(), results); };
  const Outcome outcome = lab.call(client, {.payload = call, .max_reply_bytes = 2000});
  EXPECT_EQ(outcome.status, CallStatus::Ok);
  return {outcome.message.begin() + kResultsAt, outcome.message.end()};
}

TEST(ForwardSizes, fsinfo_announces_what_can_be_carried) {
  ForwardLab lab;
  LabClient& client = lab.add_client();
  EXPECT_EQ(seen(lab, client, fsinfo_call(), fsinfo_results(4 * kMiB)), fsinfo_results(kMiB));
  EXPECT_EQ(seen(lab, client, fsinfo_call(), fsinfo_results(65536)), fsinfo_results(65536));
  // Results of another procedure with the same words have another meaning.
  EXPECT_EQ(seen(lab, client, fsinfo_call(kPathConf), fsinfo_results(4 * kMiB)), fsinfo_results(4 * kMiB));
}

TEST(ForwardSizes, attributes_announce_what_can_be_carried) {
  ForwardLab lab({.withheld = {.pnfs = false, .referrals = false}});
  LabClient& client = lab.add_client();
  EXPECT_EQ(seen(lab, client, sizes_call(), sizes_results(4 * kMiB)), sizes_results(kMiB));
  EXPECT_EQ(seen(lab, client, sizes_call(), sizes_results(65536)), sizes_results(65536));
}

TEST(ForwardSizes, sessions_announce_what_can_be_carried) {
  ForwardLab lab;
  LabClient& client = lab.add_client();
  EXPECT_EQ(seen(lab, client, create_session_call(), create_session_results(8 * kMiB)),
            create_session_results(tcp::kMaxRecordBytes));
  EXPECT_EQ(seen(lab, client, create_session_call(), create_session_results(65536)),
            create_session_results(65536));
}

TEST(ForwardSizes, what_is_configured_is_announced_at_most) {
  ForwardLab lab({.max_io_bytes = 4 * kMiB, .withheld = {.pnfs = false, .referrals = false}});
  LabClient& client = lab.add_client();
  for (const std::uint32_t size : {kMiB, 4 * kMiB, 8 * kMiB}) {
    const std::uint32_t shown = std::min(size, 4 * kMiB);
    EXPECT_EQ(seen(lab, client, fsinfo_call(), fsinfo_results(size)), fsinfo_results(shown));
    EXPECT_EQ(seen(lab, client, sizes_call(), sizes_results(size)), sizes_results(shown));
  }
  EXPECT_EQ(seen(lab, client, create_session_call(), create_session_results(8 * kMiB)),
            create_session_results(tcp::record_bytes(4 * kMiB)));
}

TEST(ForwardSizes, a_client_compares_what_it_was_shown) {
  constexpr std::uint32_t kVerify = 37, kBothSizes = 3u << 30;
  const auto verify = [](std::uint32_t size) {
    return sizes_compound(2, joined({words({kPutFhOperation}), opaque(pattern(28, 1)),
                                     words({kVerify, 1, kBothSizes}), opaque(words({0, size, 0, size}))}));
  };
  ForwardLab lab;
  LabClient& client = lab.add_client();
  const auto asked = [&](const Bytes& call) {
    Bytes message;
    lab.upstream.answer = [&](const auto& forwarded) {
      message = {forwarded.message.begin() + 4, forwarded.message.end()};
      return success(forwarded.xid(), words({0, 0, 0}));
    };
    EXPECT_EQ(lab.call(client, {.payload = call, .max_reply_bytes = 64}).status, CallStatus::Ok);
    return message;
  };
  const auto behind_xid = [](const Bytes& call) { return Bytes(call.begin() + 4, call.end()); };
  EXPECT_EQ(asked(verify(kMiB)), behind_xid(verify(kMiB)));
  seen(lab, client, sizes_call(), sizes_results(4 * kMiB));
  EXPECT_EQ(asked(verify(kMiB)), behind_xid(verify(4 * kMiB)));
}

TEST(ForwardSizes, replies_to_calls_that_ask_for_no_sizes_are_not_looked_at) {
  ForwardLab lab;
  LabClient& client = lab.add_client();
  const Bytes results = sizes_results(4 * kMiB);
  EXPECT_EQ(seen(lab, client, sizes_call(0x18), results), results);
}

TEST(ForwardSizes, results_cut_anywhere_come_as_they_are) {
  ForwardLab lab;
  LabClient& client = lab.add_client();
  const auto expect_unchanged = [&](const Bytes& call, const Bytes& whole) {
    for (std::size_t bytes = 0; bytes < whole.size(); bytes += 4) {
      const Bytes cut(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(bytes));
      EXPECT_EQ(seen(lab, client, call, cut), cut) << bytes;
    }
  };
  expect_unchanged(fsinfo_call(), fsinfo_results(4 * kMiB));
  expect_unchanged(sizes_call(), sizes_results(4 * kMiB));
  expect_unchanged(create_session_call(), create_session_results(4 * kMiB));
}

TEST(ForwardSizes, errors_come_as_they_are) {
  ForwardLab lab;
  LabClient& client = lab.add_client();
  // No data that follows an error is results, even if it looks like them.
  const Bytes looks_like_results = fsinfo_results(4 * kMiB);
  for (const Bytes& stat : {words({1, 1, 1, 13}), words({1, 0, 0, 0, 2, 2, 4}), words({1, 0, 0, 0, 5})}) {
    const Bytes error = joined({stat, looks_like_results});
    lab.upstream.answer = [&](const auto& call) { return joined({words({call.xid()}), error}); };
    const Outcome outcome = lab.call(client, {.payload = fsinfo_call(), .max_reply_bytes = 200});
    ASSERT_EQ(outcome.status, CallStatus::Ok);
    EXPECT_EQ(Bytes(outcome.message.begin() + 4, outcome.message.end()), error);
  }
}

/// RPCSEC_GSS without protection of its results, with integrity and with privacy (RFC 2203).
TEST(ForwardSizes, V1_176_results_with_a_checksum_are_not_changed) {
  ForwardLab lab;
  LabClient& client = lab.add_client();
  enum : std::uint32_t { kNone = 1, kIntegrity = 2, kPrivacy = 3 };
  for (const std::uint32_t service : {kNone, kIntegrity, kPrivacy}) {
    Bytes call = words({0, 0, 2, ulb::kNfsProgram, 3, ulb::kNfs3FsInfo, 6});
    append(call, opaque(joined({words({1, 0, 77, service}), opaque(pattern(8, 1))})));
    append(call, joined({words({6}), opaque(pattern(28, 2)), opaque(pattern(32, 5))}));
    EXPECT_EQ(seen(lab, client, call, fsinfo_results(4 * kMiB)),
              fsinfo_results(service == kNone ? kMiB : 4 * kMiB))
        << service;
  }
}

}  // namespace
}  // namespace sluice::tcp_upstream_test
