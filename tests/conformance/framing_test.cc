// SPDX-License-Identifier: Apache-2.0
//
// Requirement rows 2.1, 2.2 and 2.8 as a peer sees them: framing, versions, transport errors, obsolete
// elements.
#include <gtest/gtest.h>

#include "tests/conformance/raw_call.h"
#include "tests/golden/v1_vectors.h"

namespace sluice::conformance {
namespace {

TEST(Framing, V1_001_V1_003_V1_006_V1_010_V1_065_null_call_is_two_sends_and_nothing_else) {
  ServerLab lab;
  const RawCall call{.xid = 0x1A2B3C4D};
  lab.log.clear();
  const Bytes reply = lab.call(call.with(test_call(call.xid, 0)));
  EXPECT_EQ(reply, ClientLab::success(0x1A2B3C4D, 64));
  EXPECT_EQ(lab.log.count(OpKind::PostSend), 1u);
  EXPECT_EQ(lab.log.count(OpKind::PostRead), 0u);
  EXPECT_EQ(lab.log.count(OpKind::PostWrite), 0u);
}

TEST(Framing, V1_020_fragments_are_dropped_and_cost_nothing) {
  ServerLab lab;
  for (int i = 0; i < 200; ++i) {
    EXPECT_TRUE(lab.exchange(bytes_of(golden::kN1)).empty());
    EXPECT_TRUE(lab.exchange(words({1, 1, 1000, 0, 0, 0})).empty());  // 24 bytes of an RDMA_MSG
  }
  EXPECT_EQ(lab.engine->counters().bad_fragment, 400u);
  EXPECT_TRUE(lab.alive());
}

TEST(Framing, V1_022_V1_024_F_01_foreign_versions_get_ERR_VERS) {
  ServerLab lab;
  for (const std::uint32_t version : {0u, 2u, 3u, 0xFFFFFFFFu}) {
    Bytes message = bytes_of(golden::kN2);
    xdr::store_u32(message.data() + 4, version);
    const Bytes answer = lab.call(message);
    ASSERT_EQ(answer.size(), 28u);
    EXPECT_EQ(word_at(answer, 0), 0x1A2B3C52u);
    EXPECT_EQ(word_at(answer, 1), version);
    EXPECT_EQ(word_at(answer, 3), 4u);
    EXPECT_EQ(word_at(answer, 4), 1u);
    EXPECT_EQ(word_at(answer, 5), 1u);
    EXPECT_EQ(word_at(answer, 6), 1u);
    EXPECT_TRUE(lab.alive());
  }
}

TEST(Framing,
     V1_026_V1_031_V1_032_V1_033_V1_034_V1_078_V1_089_V1_117_F_02_F_10_negative_vectors_get_ERR_CHUNK) {
  ServerLab lab;
  const std::pair<const char*, std::span<const std::uint32_t>> vectors[] = {
      {"N3", golden::kN3},   {"N4", golden::kN4},   {"N5", golden::kN5},   {"N6", golden::kN6},
      {"N7", golden::kN7},   {"N8", golden::kN8},   {"N9", golden::kN9},   {"N10", golden::kN10},
      {"N11", golden::kN11}, {"N12", golden::kN12}, {"N13", golden::kN13}, {"N14", golden::kN14}};
  for (const auto& [name, vector] : vectors) {
    lab.log.clear();
    EXPECT_TRUE(is_err_chunk(lab.call(bytes_of(vector)), 0x1A2B3C53)) << name;
    EXPECT_EQ(lab.log.count(OpKind::PostRead), 0u) << name;
  }
  EXPECT_TRUE(lab.service->executed.empty());
  EXPECT_EQ(lab.engine->counters().err_chunk_sent, 12u);
  EXPECT_TRUE(lab.alive());
}

TEST(Framing, V1_031_any_undefined_procedure_is_refused) {
  ServerLab lab;
  for (const std::uint32_t proc : {5u, 9u, 0xFFFFFFFFu}) {
    const RawCall call{.proc = proc};
    EXPECT_TRUE(is_err_chunk(lab.call(call.with(test_call(call.xid, 0))), call.xid));
  }
  EXPECT_TRUE(lab.service->executed.empty());
}

TEST(Framing, V1_032_long_call_with_a_chunk_at_another_position_only_is_refused) {
  ServerLab lab;
  const auto memory = lab.peer->expose(64, rdma::kRemoteRead);
  const RawCall call{.proc = 1, .reads = {{8, memory.segment}}};
  EXPECT_TRUE(is_err_chunk(lab.call(call.header()), call.xid));
}

TEST(Framing, V1_028_V1_174_errors_are_never_answered) {
  ServerLab lab;
  for (const auto vector :
       {std::span<const std::uint32_t>(golden::kN15), {golden::kN16}, {golden::kN17}, {golden::kE7}}) {
    EXPECT_TRUE(lab.exchange(bytes_of(vector)).empty());
  }
  Bytes other_version = bytes_of(golden::kE7);
  xdr::store_u32(other_version.data() + 4, 7);
  EXPECT_TRUE(lab.exchange(other_version).empty());
  EXPECT_TRUE(lab.alive());
}

TEST(Framing, V1_030_V1_042_errors_carry_the_grant_and_return_the_credit) {
  LabOptions options;
  options.connection.credit_grant = 1;
  ServerLab lab(options);
  const Bytes answer = lab.call(bytes_of(golden::kN3));
  EXPECT_EQ(word_at(answer, 2), 1u);
  EXPECT_TRUE(lab.alive());
}

TEST(Framing, V1_060_a_thousand_malformed_calls_with_one_credit_are_all_answered) {
  LabOptions options;
  options.connection.credit_grant = 1;
  ServerLab lab(options);
  for (int i = 0; i < 1000; ++i)
    ASSERT_EQ(lab.exchange(i % 2 ? bytes_of(golden::kN8) : bytes_of(golden::kN6)).size(), 1u);
  EXPECT_TRUE(lab.alive());
}

TEST(Framing, V1_132_F_21_RDMA_MSGP_is_refused) {
  ServerLab lab;
  EXPECT_TRUE(is_err_chunk(lab.call(bytes_of(golden::kE9)), 0x1A2B3C54));
  EXPECT_EQ(lab.engine->counters().msgp_refused, 1u);
  EXPECT_TRUE(lab.service->executed.empty());
}

TEST(Framing, V1_135_RDMA_DONE_is_dropped_and_counted) {
  ServerLab lab;
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(lab.exchange(bytes_of(golden::kE8)).empty());
  EXPECT_EQ(lab.engine->counters().done_dropped, 100u);
  EXPECT_TRUE(lab.alive());
}

TEST(Framing, V1_035_arguments_that_do_not_parse_get_GARBAGE_ARGS_in_an_RDMA_MSG) {
  ServerLab lab;
  const RawCall call;
  const Bytes reply =
      lab.call(call.with(test_call(call.xid, TestService::kSource)));  // its argument is missing
  ASSERT_EQ(reply.size(), 52u);
  EXPECT_EQ(word_at(reply, 3), 0u);
  EXPECT_EQ(accept_stat(reply), 4u);
}

TEST(Framing, V1_035_chunk_in_the_middle_of_a_fixed_argument_gets_an_error) {
  ServerLab lab;
  const auto memory = lab.peer->expose(8, rdma::kRemoteRead);
  // The chunk claims to begin at 40, where SINK's count word would be.
  const RawCall call{.reads = {{40, memory.segment}}};
  const Bytes reply = lab.call(call.with(test_call(call.xid, TestService::kSink, {8, 0})));
  EXPECT_EQ(accept_stat(reply), 4u);
}

TEST(Ports, a_program_at_another_port_is_another_service) {
  constexpr std::uint16_t kOtherPort = 20050;
  LabOptions options;
  options.connection.services_at = kOtherPort;
  ServerLab lab(options);
  TestService there(*lab.device);
  const RawCall call;
  EXPECT_EQ(accept_stat(lab.call(call.with(test_call(call.xid, TestService::kNull)))), 1u) << "PROG_UNAVAIL";
  lab.engine->add_service(there, kOtherPort);
  EXPECT_EQ(accept_stat(lab.call(call.with(test_call(call.xid, TestService::kNull)))), 0u);
  EXPECT_EQ(there.executed.size(), 1u);
  EXPECT_TRUE(lab.service->executed.empty());
  TestService newer(*lab.device, kTestProgram + 2);
  lab.engine->add_service(newer);
  const Bytes elsewhere = lab.call(call.with(rpc_call(call.xid, kTestProgram + 2, 9, 0)));
  EXPECT_EQ(accept_stat(elsewhere), 1u) << "its versions are not told there";
}

TEST(Framing, rpc_level_refusals_are_those_of_RFC_5531) {
  ServerLab lab;
  const RawCall call;
  EXPECT_EQ(accept_stat(lab.call(call.with(rpc_call(call.xid, 77, 1, 0)))), 1u);  // PROG_UNAVAIL
  const Bytes mismatch = lab.call(call.with(rpc_call(call.xid, kTestProgram, 9, 0)));
  EXPECT_EQ(accept_stat(mismatch), 2u);  // PROG_MISMATCH, 1 to 1
  EXPECT_EQ(word_at(mismatch, 13), 1u);
  EXPECT_EQ(word_at(mismatch, 14), 1u);
  EXPECT_EQ(accept_stat(lab.call(call.with(test_call(call.xid, 99)))), 3u);  // PROC_UNAVAIL
  Bytes rpc3 = test_call(call.xid, 0);
  xdr::store_u32(rpc3.data() + 8, 3);
  const Bytes denied = lab.call(call.with(rpc3));
  EXPECT_EQ(word_at(denied, 9), 1u);   // MSG_DENIED
  EXPECT_EQ(word_at(denied, 10), 0u);  // RPC_MISMATCH, 2 to 2
  EXPECT_EQ(word_at(denied, 11), 2u);
  Bytes long_cred = rpc_call(call.xid, kTestProgram, 1, 0);
  xdr::store_u32(long_cred.data() + 28, 401);
  const Bytes bad_cred = lab.call(call.with(long_cred));
  EXPECT_EQ(word_at(bad_cred, 9), 1u);
  EXPECT_EQ(word_at(bad_cred, 10), 1u);  // AUTH_ERROR
}

TEST(Framing, V1_137_F_22_an_unknown_program_at_connect_time_changes_nothing) {
  ServerLab lab;
  const RawCall call{.xid = 5};
  EXPECT_EQ(accept_stat(lab.call(call.with(rpc_call(call.xid, 100417, 1, 0)))), 1u);
  EXPECT_TRUE(lab.alive());
}

TEST(Framing, V1_146_random_messages_neither_stop_nor_confuse_the_server) {
  ServerLab lab;
  RandomNumbers random;
  for (int i = 0; i < 5000; ++i) {
    Bytes message = random.message(0);
    if (message.size() >= 16 && i % 2 == 0) {
      xdr::store_u32(message.data() + 4, 1);
      xdr::store_u32(message.data() + 12, static_cast<std::uint32_t>(random.next() % 5));
      for (std::size_t at = 16; at + 4 <= message.size() && i % 4 == 0; at += 4)
        xdr::store_u32(message.data() + at, static_cast<std::uint32_t>(random.next() % 3));
    }
    lab.exchange(message);
    if (lab.connection->state() != rpcrdma::Connection::State::Open || lab.peer->failed) lab.reconnect();
  }
  EXPECT_TRUE(lab.alive());
}

}  // namespace
}  // namespace sluice::conformance
