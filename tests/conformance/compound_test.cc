// SPDX-License-Identifier: Apache-2.0
//
// NFSv4 COMPOUNDs at the responder (RFC 8267, section 6; RFC 7531): a WRITE in the middle, and several READs.
// The service of the test supports PUTFH, READ, WRITE and GETATTR, and a file handle whose READ fails.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "tests/conformance/raw_call.h"

namespace sluice::conformance {
namespace {

constexpr std::uint32_t kNfsProgram = 100003;
constexpr std::uint32_t kNfs4 = 4;
constexpr std::uint32_t kCompound = 1;
constexpr std::uint32_t kGetAttr = 9;
constexpr std::uint32_t kPutFh = 22;
constexpr std::uint32_t kRead = 25;
constexpr std::uint32_t kWrite = 38;
constexpr std::uint32_t kErrIo = 5;
constexpr std::size_t kFileBytes = 16384;
constexpr std::uint64_t kBadOffset = 1u << 30;  ///< a READ at this offset fails

class CompoundService final : public service::Service {
 public:
  explicit CompoundService(rdma::Device& device) : file_(device.allocate_memory(kFileBytes)) {
    fill_pattern(file_.bytes, 77);
  }
  const service::Binding& binding() const noexcept override { return binding_; }
  std::span<const std::byte> file() const { return file_.bytes; }
  Bytes written;
  bool saw_getattr = false;

  service::Execution execute(service::Call& call) noexcept override {
    xdr::Reader in(call.arguments());
    xdr::Writer& out = call.results();
    const auto tag = in.opaque(64);
    in.u32();  // minor version
    const std::uint32_t operations = in.u32();
    // Status and number of results precede the items but depend on all of them, so there are two passes.
    const std::uint32_t failing = first_failure(in, operations);
    const bool fails = failing < operations;
    out.u32(fails ? kErrIo : 0);
    out.opaque(tag);
    out.u32(fails ? failing + 1 : operations);
    for (std::uint32_t i = 0; i < operations && i <= failing && in.ok(); ++i) run(call, in, i == failing);
    call.complete(in.ok() ? rpc::AcceptStat::Success : rpc::AcceptStat::GarbageArgs);
    return service::Execution::Started;
  }

 private:
  /// Reads ahead in a copy of the cursor.
  static std::uint32_t first_failure(xdr::Reader in, std::uint32_t operations) {
    for (std::uint32_t i = 0; i < operations && in.ok(); ++i) {
      switch (in.u32()) {
        case kPutFh:
          in.opaque(128);
          break;
        case kRead:
          in.opaque_fixed(16);
          if (in.u64() == kBadOffset) return i;
          in.u32();
          break;
        case kWrite:
          in.opaque_fixed(16);
          in.u64();
          in.u32();
          in.opaque(1 << 20);
          break;
        case kGetAttr:
          for (std::uint32_t words = in.u32(); words > 0 && in.ok(); --words) in.u32();
          break;
        default:
          in.fail();
      }
    }
    return operations;
  }
  void run(service::Call& call, xdr::Reader& in, bool fail) {
    xdr::Writer& out = call.results();
    const std::uint32_t operation = in.u32();
    out.u32(operation);
    out.u32(fail ? kErrIo : 0);
    if (fail) return;
    switch (operation) {
      case kPutFh:
        in.opaque(128);
        return;
      case kRead: {
        in.opaque_fixed(16);
        const std::uint64_t offset = in.u64();
        const std::uint32_t count = in.u32();
        out.u32(0);  // not the end of the file
        out.u32(count);
        call.add_result_piece({file_.bytes.data() + offset, count, file_.lkey});
        call.add_result_item(count);
        return;
      }
      case kWrite: {
        in.opaque_fixed(16);
        in.u64();
        in.u32();
        const auto data = in.opaque(1 << 20);
        written.assign(data.begin(), data.end());
        out.u32(static_cast<std::uint32_t>(data.size()));
        out.u32(2);  // FILE_SYNC4
        out.u64(0);
        return;
      }
      case kGetAttr:
        in.u32();
        saw_getattr = in.u32() == 0x18 && in.remaining() == 0;
        out.u32(0);  // no attributes
        out.u32(0);
        return;
    }
  }

  static constexpr service::ProcedureBinding kProcedures[] = {
      {}, {.eligible_arguments = 4, .eligible_results = 4}};
  service::Binding binding_{.program = kNfsProgram, .version = kNfs4, .procedures = kProcedures};
  rdma::MemoryRegion file_;
};

struct CompoundLab {
  CompoundLab() : service(*lab.device) { lab.engine->add_service(service); }
  ServerLab lab;
  CompoundService service;
};

Bytes compound_start(std::uint32_t xid, std::uint32_t operations) {
  Bytes out = rpc_call(xid, kNfsProgram, kNfs4, kCompound);
  append(out, words({0, 0, operations}));  // tag, minor version
  append(out, words({kPutFh, 4, 0xFEEDBEEF}));
  return out;
}
Bytes read_operation(std::uint64_t offset, std::uint32_t count) {
  return words({kRead, 0, 0, 0, 0, static_cast<std::uint32_t>(offset >> 32),
                static_cast<std::uint32_t>(offset), count});
}

TEST(Compound, V1_198_a_write_in_the_middle_resumes_inline_behind_its_chunk) {
  for (const std::uint32_t bytes : {5001u, 5002u, 5003u, 5004u}) {
    CompoundLab c;
    RawCall call{.xid = 0x4000};
    Bytes payload = compound_start(call.xid, 3);
    append(payload, words({kWrite, 0, 0, 0, 0, 0, 100, 2, bytes}));
    const auto position = static_cast<std::uint32_t>(payload.size());
    append(payload, words({kGetAttr, 1, 0x18}));
    const auto memory = c.lab.peer->expose(bytes, rdma::kRemoteRead);
    fill_pattern(memory.bytes, bytes);
    call.reads = {{position, part(memory.segment, 0, 4096)},
                  {position, part(memory.segment, 4096, bytes - 4096)}};
    const Bytes reply = c.lab.call(call.with(payload));
    ASSERT_EQ(accept_stat(reply), 0u);
    EXPECT_TRUE(c.service.saw_getattr);
    ASSERT_EQ(c.service.written.size(), bytes);
    EXPECT_TRUE(has_pattern(c.service.written, bytes));
    // status, tag, three results: PUTFH; WRITE with its count; GETATTR
    EXPECT_EQ(word_at(reply, 13 + 2), 3u);
    EXPECT_EQ(word_at(reply, 13 + 5), kWrite);
    EXPECT_EQ(word_at(reply, 13 + 7), bytes);
    EXPECT_EQ(word_at(reply, 13 + 11), kGetAttr);
  }
}

TEST(Compound, V1_199_reads_use_the_write_chunks_in_the_order_of_the_operations) {
  CompoundLab c;
  const auto first = c.lab.peer->expose(1024, rdma::kRemoteWrite);
  const auto second = c.lab.peer->expose(4096, rdma::kRemoteWrite);
  RawCall call{.xid = 0x4001, .writes = {{first.segment}, {second.segment}}};
  Bytes payload = compound_start(call.xid, 3);
  append(payload, read_operation(0, 1001));
  append(payload, read_operation(8192, 3003));
  const Bytes reply = c.lab.call(call.with(payload));
  RawCall returned{.xid = call.xid, .credits = 64};
  returned.writes = {{part(first.segment, 0, 1001)}, {part(second.segment, 0, 3003)}};
  Bytes expected = returned.with(words({call.xid, 1, 0, 0, 0, 0,  // accepted
                                        0, 0, 3,                  // status, tag, results
                                        kPutFh, 0, kRead, 0, 0, 1001, kRead, 0, 0, 3003}));
  EXPECT_EQ(reply, expected);
  EXPECT_TRUE(std::equal(first.bytes.begin(), first.bytes.begin() + 1001, c.service.file().begin()));
  EXPECT_TRUE(std::equal(second.bytes.begin(), second.bytes.begin() + 3003, c.service.file().begin() + 8192));
}

TEST(Compound, V1_199_A_12_a_read_that_fails_ends_the_compound_and_returns_the_chunks_unused) {
  CompoundLab c;
  const auto first = c.lab.peer->expose(1024, rdma::kRemoteWrite);
  const auto second = c.lab.peer->expose(4096, rdma::kRemoteWrite);
  std::memset(second.bytes.data(), 0xA5, second.bytes.size());
  RawCall call{.xid = 0x4002, .writes = {{first.segment}, {second.segment}}};
  Bytes payload = compound_start(call.xid, 3);
  append(payload, read_operation(kBadOffset, 1001));
  append(payload, read_operation(8192, 3003));
  const Bytes reply = c.lab.call(call.with(payload));
  RawCall returned{.xid = call.xid, .credits = 64};
  returned.writes = {{part(first.segment, 0, 0)}, {part(second.segment, 0, 0)}};
  EXPECT_EQ(reply, returned.with(words({call.xid, 1, 0, 0, 0, 0, kErrIo, 0, 2, kPutFh, 0, kRead, kErrIo})));
  EXPECT_EQ(second.bytes[0], std::byte{0xA5});
}

TEST(Compound, V1_199_results_that_fit_nowhere_else_go_to_the_reply_chunk_together) {
  CompoundLab c;
  const auto first = c.lab.peer->expose(1024, rdma::kRemoteWrite);
  const auto reply_memory = c.lab.peer->expose(8192, rdma::kRemoteWrite);
  RawCall call{.xid = 0x4003, .writes = {{first.segment}}, .reply = std::vector{reply_memory.segment}};
  Bytes payload = compound_start(call.xid, 3);
  append(payload, read_operation(0, 1000));
  append(payload, read_operation(8192, 3003));
  ASSERT_FALSE(c.lab.call(call.with(payload)).empty());
  EXPECT_TRUE(std::equal(first.bytes.begin(), first.bytes.begin() + 1000, c.service.file().begin()));
  // accepted header, status, tag, count, PUTFH, READ with its count (data moved), READ with its count and
  // data
  EXPECT_EQ(word_at(reply_memory.bytes, 14), 1000u);
  EXPECT_EQ(word_at(reply_memory.bytes, 18), 3003u);
  EXPECT_TRUE(std::equal(reply_memory.bytes.begin() + 19 * 4, reply_memory.bytes.begin() + 19 * 4 + 3003,
                         c.service.file().begin() + 8192));
}

}  // namespace
}  // namespace sluice::conformance
