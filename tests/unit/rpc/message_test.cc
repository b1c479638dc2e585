// SPDX-License-Identifier: Apache-2.0
//
// XDR cursors and ONC RPC headers, compared with libtirpc.
#include <gtest/gtest.h>
#include <rpc/rpc.h>

#include <algorithm>
#include <vector>

#include "dataplane/rpc/message.h"

namespace sluice::rpc {
namespace {

using Bytes = std::vector<std::byte>;

TEST(XdrReader, V1_088_reads_what_is_there_and_fails_stickily) {
  Bytes bytes = {std::byte{0},   std::byte{0},    std::byte{0},    std::byte{5},
                 std::byte{'h'}, std::byte{'e'},  std::byte{'l'},  std::byte{'l'},
                 std::byte{'o'}, std::byte{0xEE}, std::byte{0xEE}, std::byte{0xEE}};
  xdr::Reader reader(bytes);
  EXPECT_EQ(reader.string(5), "hello");  // pad bytes are skipped whatever their value
  EXPECT_TRUE(reader.ok());
  EXPECT_EQ(reader.remaining(), 0u);
  EXPECT_EQ(reader.u32(), 0u);
  EXPECT_FALSE(reader.ok());
  EXPECT_TRUE(reader.rest().empty());
  xdr::Reader limited(bytes);
  limited.opaque(4);
  EXPECT_FALSE(limited.ok());
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    xdr::Reader cut{std::span(bytes).first(size)};
    cut.opaque(100);
    EXPECT_FALSE(cut.ok()) << size;
  }
}

TEST(XdrReader, V1_013_booleans_are_0_or_1_and_lengths_do_not_overflow) {
  Bytes bytes(8, std::byte{0xFF});
  xdr::Reader boolean(bytes);
  boolean.boolean();
  EXPECT_FALSE(boolean.ok());
  xdr::Reader huge(bytes);
  EXPECT_TRUE(huge.opaque(0xFFFFFFFF).empty());
  EXPECT_FALSE(huge.ok());
  xdr::Reader skip(bytes);
  skip.skip(~std::uint64_t{0});
  EXPECT_FALSE(skip.ok());
}

TEST(XdrWriter, pads_with_zeros_and_never_writes_past_its_room) {
  Bytes room(12, std::byte{0xEE});
  xdr::Writer writer{std::span(room).first(8)};
  writer.opaque(std::as_bytes(std::span("abc", 3)));
  EXPECT_EQ(room[7], std::byte{0});
  writer.u32(1);
  EXPECT_FALSE(writer.ok());
  EXPECT_EQ(room[8], std::byte{0xEE});
  writer.rewind(4);
  EXPECT_TRUE(writer.ok());
  writer.patch_u32(4, 1);
  EXPECT_FALSE(writer.ok());
}

/// Decodes `bytes` with libtirpc.
template <typename Message>
bool tirpc_decodes(Bytes& bytes, Message& message, bool_t (*function)(XDR*, Message*)) {
  XDR xdrs;
  xdrmem_create(&xdrs, reinterpret_cast<char*>(bytes.data()), static_cast<u_int>(bytes.size()), XDR_DECODE);
  return function(&xdrs, &message) != 0;
}

TEST(RpcCall, V1_175_round_trip_with_auth_sys_and_tirpc_agrees) {
  Bytes body(128);
  xdr::Writer credential(body);
  encode_auth_sys(credential,
                  {.stamp = 9, .machine_name = "client", .uid = 1, .gid = 2, .gid_count = 2, .gids = {3, 4}});
  Bytes out(1024);
  xdr::Writer writer(out);
  Bytes gss(400, std::byte{0x5A});
  encode_call(writer, {.xid = Xid{7},
                       .program = 100003,
                       .version = 3,
                       .procedure = 6,
                       .credential = {AuthFlavor::Sys, credential.written()},
                       .verifier = {AuthFlavor::RpcSecGss, gss}});
  ASSERT_TRUE(writer.ok());
  out.resize(writer.position());
  xdr::Reader reader(out);
  CallHeader decoded;
  ASSERT_EQ(decode_call(reader, decoded), CallDecode::Ok);
  EXPECT_EQ(reader.remaining(), 0u);
  EXPECT_EQ(decoded.verifier.body.size(), 400u);
  const auto sys = decode_auth_sys(decoded.credential.body);
  ASSERT_TRUE(sys.ok);
  EXPECT_EQ(sys.sys.machine_name, "client");
  EXPECT_EQ(sys.sys.gids[1], 4u);

  rpc_msg theirs{};
  char cred_area[MAX_AUTH_BYTES];
  char verf_area[MAX_AUTH_BYTES];
  theirs.rm_call.cb_cred.oa_base = cred_area;
  theirs.rm_call.cb_verf.oa_base = verf_area;
  ASSERT_TRUE(tirpc_decodes(out, theirs, xdr_callmsg));
  EXPECT_EQ(theirs.rm_xid, 7u);
  EXPECT_EQ(theirs.rm_call.cb_prog, 100003u);
  EXPECT_EQ(theirs.rm_call.cb_proc, 6u);
  EXPECT_EQ(theirs.rm_call.cb_cred.oa_length, credential.position());

  for (std::size_t size = 0; size < out.size(); ++size) {
    xdr::Reader cut{std::span(out).first(size)};
    EXPECT_EQ(decode_call(cut, decoded), CallDecode::Truncated) << size;
  }
}

TEST(RpcCall, oversized_credentials_and_foreign_versions_are_named) {
  Bytes out(64);
  xdr::Writer writer(out);
  encode_call(writer,
              {.xid = Xid{7}, .program = 1, .version = 1, .procedure = 0, .credential = {}, .verifier = {}});
  const auto with = [&](std::size_t word, std::uint32_t value) {
    Bytes changed = out;
    xdr::store_u32(changed.data() + word * 4, value);
    xdr::Reader reader(changed);
    CallHeader header;
    return decode_call(reader, header);
  };
  EXPECT_EQ(with(1, 1), CallDecode::NotACall);
  EXPECT_EQ(with(2, 3), CallDecode::RpcMismatch);
  EXPECT_EQ(with(7, 401), CallDecode::BadCred);
  EXPECT_EQ(with(9, 401), CallDecode::BadVerf);
}

/// AUTH_TLS requests TLS from the end of the transport (RFC 9289, section 4.1).
TEST(RpcCall, a_call_for_tls_has_a_bad_credential) {
  Bytes call(kMinCallBytes);
  xdr::Writer writer(call);
  encode_call(writer, {.xid = Xid{7},
                       .program = 100003,
                       .version = 4,
                       .procedure = 0,
                       .credential = {AuthFlavor{7}, {}},
                       .verifier = {}});
  for (const std::uint32_t procedure : {0u, 6u}) {
    xdr::store_u32(call.data() + 5 * xdr::kUnit, procedure);
    xdr::Reader reader(call);
    CallHeader header;
    EXPECT_EQ(decode_call(reader, header), CallDecode::BadCred);
  }
}

TEST(RpcCall, a_call_cut_anywhere_in_its_header_is_truncated) {
  const Bytes credential(8, std::byte{1});
  const Bytes verifier(5, std::byte{2});
  Bytes out(128);
  xdr::Writer writer(out);
  encode_call(writer, {.xid = Xid{7},
                       .program = 1,
                       .version = 2,
                       .procedure = 3,
                       .credential = {AuthFlavor::Sys, credential},
                       .verifier = {AuthFlavor::Short, verifier}});
  const std::size_t header_bytes = writer.position();
  writer.u32(99);
  for (std::size_t size = 0; size <= writer.position(); ++size) {
    const Bytes cut(out.begin(), out.begin() + static_cast<std::ptrdiff_t>(size));
    xdr::Reader reader(cut);
    CallHeader header;
    const CallDecode decoded = decode_call(reader, header);
    ASSERT_EQ(decoded, size < header_bytes ? CallDecode::Truncated : CallDecode::Ok) << size;
    ASSERT_EQ(reader.ok(), size >= header_bytes);
    if (size < header_bytes) continue;
    EXPECT_EQ(reader.position(), header_bytes);
    EXPECT_EQ(header.procedure, 3u);
    EXPECT_EQ(header.credential.flavor, AuthFlavor::Sys);
    EXPECT_TRUE(std::ranges::equal(header.credential.body, credential));
    EXPECT_EQ(header.verifier.flavor, AuthFlavor::Short);
    EXPECT_TRUE(std::ranges::equal(header.verifier.body, verifier));
  }
}

TEST(RpcReply, the_short_form_of_success_is_the_same) {
  Bytes expected(kMinReplyBytes);
  xdr::Writer writer(expected);
  encode_accepted(writer, Xid{0x01020304}, {}, AcceptStat::Success);
  Bytes out(kMinReplyBytes);
  encode_success(out.data(), Xid{0x01020304});
  EXPECT_EQ(out, expected);
}

TEST(RpcReply, begins_with_success_says_yes_to_what_encode_success_writes_and_to_nothing_else) {
  Bytes reply(kMinReplyBytes + 4);
  encode_success(reply.data(), Xid{0x01020304});
  EXPECT_TRUE(begins_with_success(reply));
  EXPECT_TRUE(begins_with_success(std::span(reply).first(kMinReplyBytes)));
  EXPECT_FALSE(begins_with_success(std::span(reply).first(kMinReplyBytes - 1)));
  for (std::size_t at = 0; at < reply.size(); ++at) {
    Bytes changed = reply;
    changed[at] ^= std::byte{1};
    const bool of_xid_or_results = at < xdr::kUnit || at >= kMinReplyBytes;
    EXPECT_EQ(begins_with_success(changed), of_xid_or_results) << at;
  }
}

TEST(RpcReply, every_arm_round_trips_and_tirpc_agrees) {
  const OpaqueAuth verifier{};
  const auto check = [](const auto& encode, const auto& judge_ours, const auto& judge_theirs) {
    Bytes out(64);
    xdr::Writer writer(out);
    encode(writer);
    ASSERT_TRUE(writer.ok());
    out.resize(writer.position());
    xdr::Reader reader(out);
    const auto ours = decode_reply(reader);
    ASSERT_TRUE(ours.ok);
    EXPECT_EQ(ours.header.xid, Xid{5});
    judge_ours(ours.header);
    rpc_msg theirs{};
    theirs.acpted_rply.ar_results.proc = reinterpret_cast<xdrproc_t>(reinterpret_cast<void (*)()>(&xdr_void));
    ASSERT_TRUE(tirpc_decodes(out, theirs, xdr_replymsg));
    judge_theirs(theirs);
    for (std::size_t size = 0; size < out.size(); ++size) {
      xdr::Reader cut{std::span(out).first(size)};
      EXPECT_FALSE(decode_reply(cut).ok);
    }
  };
  for (const AcceptStat stat : {AcceptStat::Success, AcceptStat::ProgUnavail, AcceptStat::ProcUnavail,
                                AcceptStat::GarbageArgs, AcceptStat::SystemErr})
    check([&](xdr::Writer& w) { encode_accepted(w, Xid{5}, verifier, stat); },
          [&](const ReplyHeader& h) { EXPECT_EQ(h.accept, stat); },
          [&](const rpc_msg& m) {
            EXPECT_EQ(static_cast<std::uint32_t>(m.acpted_rply.ar_stat), static_cast<std::uint32_t>(stat));
          });
  check(
      [&](xdr::Writer& w) {
        encode_prog_mismatch(w, Xid{5}, verifier, {2, 4});
      },
      [](const ReplyHeader& h) { EXPECT_EQ(h.supported.high, 4u); },
      [](const rpc_msg& m) { EXPECT_EQ(m.acpted_rply.ar_vers.low, 2u); });
  check([](xdr::Writer& w) { encode_rpc_mismatch(w, Xid{5}); },
        [](const ReplyHeader& h) { EXPECT_EQ(h.reject, RejectStat::RpcMismatch); },
        [](const rpc_msg& m) { EXPECT_EQ(m.rjcted_rply.rj_stat, RPC_MISMATCH); });
  for (const AuthStat stat : {AuthStat::BadCred, AuthStat::TooWeak, AuthStat::GssCtxProblem})
    check([&](xdr::Writer& w) { encode_auth_error(w, Xid{5}, stat); },
          [&](const ReplyHeader& h) { EXPECT_EQ(h.auth, stat); },
          [&](const rpc_msg& m) {
            EXPECT_EQ(static_cast<std::uint32_t>(m.rjcted_rply.rj_why), static_cast<std::uint32_t>(stat));
          });
}

}  // namespace
}  // namespace sluice::rpc
