// SPDX-License-Identifier: Apache-2.0
#include "controlplane/events/sinks.h"

#include <gtest/gtest.h>

#include "controlplane/events/journal.h"
#include "controlplane/mount/mount_service.h"
#include "tests/unit/controlplane/mount/mount_lab.h"

namespace sluice::mount {
namespace {

using namespace lab;
using namespace onc_rpc;

class SomeExports final : public Exports {
 public:
  void mount(const std::string& path, const Asker&, OnMount done) override {
    done({path == "/none" ? MountStatus::NoEnt : MountStatus::Acces, {}});
  }
  void list(const Asker&, OnList done) override { done(paths ? &*paths : nullptr); }
  std::optional<std::vector<std::string>> paths;
};

class MountProcedures : public testing::Test {
 protected:
  /// Returns the header of the reply; nothing if there is none.
  std::optional<rpc::ReplyHeader> answer(const Bytes& call, std::size_t max_reply_bytes = kMaxReplyBytes) {
    std::optional<rpc::ReplyHeader> header;
    reply_.clear();
    const Asker asker{PeerAddress::from_ipv4(192, 0, 2, 7), now_ns_, true};
    const bool called =
        procedures_.answer(call, asker, max_reply_bytes, [&](std::span<const std::byte> reply) {
          EXPECT_FALSE(header);
          reply_.assign(reply.begin(), reply.end());
          xdr::Reader reader(reply_);
          const auto decoded = rpc::decode_reply(reader);
          EXPECT_TRUE(decoded.ok);
          header = decoded.header;
        });
    EXPECT_EQ(called, header.has_value());
    return header;
  }

  MountStatistics statistics_;
  SomeExports exports_;
  events::Journal journal_{[](const events::Event&) {}};
  Procedures procedures_{exports_, statistics_, journal_};
  Bytes reply_;
  std::uint64_t now_ns_ = kStartNs;
};

TEST_F(MountProcedures, calls_that_cannot_be_executed_are_told_why) {
  const auto mismatch = answer(call_message(1, {kMountProgram, 4, kNull}));
  EXPECT_EQ(mismatch->accept, rpc::AcceptStat::ProgMismatch);
  EXPECT_EQ(mismatch->supported.low, 1u);
  EXPECT_EQ(mismatch->supported.high, 3u);
  EXPECT_EQ(answer(call_message(1, {100003, 3, 0}))->accept, rpc::AcceptStat::ProgUnavail);
  EXPECT_EQ(answer(call_message(1, {kMountProgram, 3, 6}))->accept, rpc::AcceptStat::ProcUnavail);
  EXPECT_EQ(answer(call_message(1, kMntCall))->accept, rpc::AcceptStat::GarbageArgs);
  EXPECT_EQ(answer(call_message(1, kMntCall, path_argument(std::string(kMaxPath + 1, 'x'))))->accept,
            rpc::AcceptStat::GarbageArgs);
  Bytes version = call_message(1, kNullCall);
  version[11] = std::byte{3};
  EXPECT_EQ(answer(version)->reject, rpc::RejectStat::RpcMismatch);
  Bytes gss = call_message(1, kNullCall);
  gss[27] = std::byte{6};
  EXPECT_EQ(answer(gss)->auth, rpc::AuthStat::RejectedCred);
  Bytes long_credential = call_message(1, kNullCall);
  xdr::store_u32(long_credential.data() + 28, rpc::kMaxAuthBytes + 1);
  EXPECT_EQ(answer(long_credential)->auth, rpc::AuthStat::BadCred);
  EXPECT_EQ(statistics_.malformed.load(), 2u) << "the two whose arguments have a defect";
}

TEST_F(MountProcedures, older_versions_are_served_except_for_mnt) {
  exports_.paths = std::vector<std::string>{"/a"};
  for (const std::uint32_t version : {1u, 2u}) {
    for (const std::uint32_t procedure : {kNull, kDump, kUmntAll, kExport})
      EXPECT_EQ(answer(call_message(1, {kMountProgram, version, procedure}))->accept,
                rpc::AcceptStat::Success)
          << "version " << version << ", procedure " << procedure;
    EXPECT_EQ(answer(call_message(1, {kMountProgram, version, kUmnt}, path_argument("/a")))->accept,
              rpc::AcceptStat::Success);
    const auto mount = answer(call_message(1, {kMountProgram, version, kMnt}, path_argument("/a")));
    EXPECT_EQ(mount->accept, rpc::AcceptStat::ProgMismatch);
    EXPECT_EQ(mount->supported.low, 3u);
    EXPECT_EQ(mount->supported.high, 3u);
  }
}

TEST_F(MountProcedures, what_is_no_call_has_no_reply) {
  const Bytes call = call_message(1, kNullCall);
  for (std::size_t bytes = 0; bytes < call.size(); ++bytes)
    EXPECT_FALSE(answer(Bytes(call.begin(), call.begin() + static_cast<std::ptrdiff_t>(bytes)))) << bytes;
  Bytes reply = call;
  reply[7] = std::byte{1};
  EXPECT_FALSE(answer(reply));
  EXPECT_EQ(statistics_.malformed.load(), call.size() + 1);
  EXPECT_EQ(statistics_.calls.load(), 0u);
}

TEST_F(MountProcedures, refused_mounts_are_counted_and_in_the_journal_with_their_client) {
  const std::string path = "/a\nb\xff" + std::string(events::kMaxTextBytes, 'x');
  answer(call_message(1, kMntCall, path_argument(path)));
  answer(call_message(1, kMntCall, path_argument("/none")));
  EXPECT_EQ(statistics_.denied.load(), 1u);
  const auto part = journal_.read(1, 16);
  ASSERT_EQ(part.events.size(), 1u);
  const std::string line = events::to_log_line(part.events[0]);
  EXPECT_EQ(
      line.find("A MOUNT request was denied: event=mount_denied peer=192.0.2.7 path=\"/a\\nb\\ufffdxxx"), 0u)
      << line;
}

TEST_F(MountProcedures, a_list_that_cannot_be_had_or_does_not_fit_is_an_error_and_not_empty) {
  EXPECT_EQ(answer(call_message(1, kExportCall))->accept, rpc::AcceptStat::SystemErr);
  exports_.paths = std::vector<std::string>{"/a", "/bcdef"};
  EXPECT_EQ(answer(call_message(1, kExportCall))->accept, rpc::AcceptStat::Success);
  const std::size_t bytes = reply_.size();
  EXPECT_EQ(answer(call_message(1, kExportCall), bytes)->accept, rpc::AcceptStat::Success);
  EXPECT_EQ(answer(call_message(1, kExportCall), bytes - 1)->accept, rpc::AcceptStat::SystemErr);
}

}  // namespace
}  // namespace sluice::mount
