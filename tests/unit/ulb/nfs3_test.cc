// SPDX-License-Identifier: Apache-2.0
//
// The bindings of NFSv3 and its companions: eligible items and maximum sizes of results.
#include "tests/unit/service/memory/linux_session.h"
#include "tests/unit/service/memory/nfs3_client.h"

#include <algorithm>

namespace sluice::ulb {
namespace {

using service::test::encode;
using service::test::Handle;
using service::test::Lab;

TEST(UlbNfs3, V1_193_V1_195_the_four_eligible_items) {
  const service::Binding& binding = nfs3_binding();
  EXPECT_EQ(binding.program, 100003u);
  EXPECT_EQ(binding.version, 3u);
  for (std::uint32_t procedure = 0; procedure < 30; ++procedure) {
    const auto items = binding.procedure(procedure);
    EXPECT_EQ(items.eligible_arguments, procedure == 7 || procedure == 10 ? 1 : 0) << procedure;
    EXPECT_EQ(items.eligible_results, procedure == 5 || procedure == 6 ? 1 : 0) << procedure;
  }
}

TEST(UlbNfs3, V1_194_chunks_of_other_procedures_are_ignored) {
  EXPECT_EQ(nfs3_binding().unusable, service::UnusableChunks::Ignore);
  EXPECT_EQ(nfsacl3_binding().unusable, service::UnusableChunks::Ignore);
  EXPECT_EQ(mount3_binding().unusable, service::UnusableChunks::Ignore);
}

TEST(UlbNfs3, companions_have_no_eligible_items) {
  EXPECT_EQ(nfsacl3_binding().program, 100227u);
  EXPECT_EQ(mount3_binding().program, 100005u);
  for (std::uint32_t procedure = 0; procedure < 30; ++procedure)
    for (const service::Binding* binding : {&nfsacl3_binding(), &mount3_binding()}) {
      EXPECT_EQ(binding->procedure(procedure).eligible_arguments, 0);
      EXPECT_EQ(binding->procedure(procedure).eligible_results, 0);
    }
}

TEST(UlbNfs3, D2_47_what_must_not_be_executed_twice) {
  const std::vector<std::uint32_t> expected = {kNfs3SetAttr, kNfs3Create, kNfs3MkDir,
                                               kNfs3SymLink, kNfs3MkNod,  kNfs3Remove,
                                               kNfs3RmDir,   kNfs3Rename, kNfs3Link};
  std::vector<std::uint32_t> marked;
  for (std::uint32_t procedure = 0; procedure < 30; ++procedure)
    if (!nfs3_binding().procedure(procedure).idempotent) marked.push_back(procedure);
  EXPECT_EQ(marked, expected);
  // Their replies fit the smallest inline threshold with the smallest header, so no client without chunks is
  // refused.
  for (const std::uint32_t procedure : expected)
    EXPECT_LE(28 + 24 + nfs3_binding().max_results_bytes(procedure, {}), 1024u) << procedure;
}

TEST(UlbNfs3, V1_197_readdir_results_are_bounded_by_the_count_asked_for) {
  const auto arguments = encode([](auto& out) {
    out.opaque(Handle(20));
    out.u64(0);
    out.u64(0);
    out.u32(8192);
  });
  const std::uint64_t most = nfs3_binding().max_results_bytes(kNfs3ReadDir, arguments);
  EXPECT_GE(most, 8192u + 4);
  EXPECT_LE(most, 8192u + 256);
}

TEST(UlbNfs3, read_results_are_bounded_by_the_count_asked_for) {
  for (const std::uint32_t count : {0u, 1u, 4096u, 1u << 20, 0xffffffffu}) {
    const auto arguments = encode([&](auto& out) {
      out.opaque(Handle(32));
      out.u64(5);
      out.u32(count);
    });
    EXPECT_EQ(nfs3_binding().max_results_bytes(kNfs3Read, arguments), 4 + 88 + 12 + xdr::padded(count));
  }
}

TEST(UlbNfs3, short_arguments_are_never_read_over) {
  // AddressSanitizer detects reads beyond the span, because each span ends where its allocation does.
  const auto whole = encode([](auto& out) {
    out.opaque(Handle(64));
    for (int i = 0; i < 8; ++i) out.u32(0xffffffff);
  });
  for (const service::Binding* binding : {&nfs3_binding(), &nfsacl3_binding(), &mount3_binding()})
    for (std::uint32_t procedure = 0; procedure < 25; ++procedure)
      for (std::size_t bytes = 0; bytes <= whole.size(); ++bytes) {
        const auto exact = std::make_unique<std::byte[]>(bytes);
        std::copy_n(whole.begin(), bytes, exact.get());
        EXPECT_LE(binding->max_results_bytes(procedure, {exact.get(), bytes}), 0x100000000u + 1024);
      }
}

TEST(UlbNfs3, V1_187_no_recorded_result_of_a_linux_server_is_larger_than_its_bound) {
  int compared = 0;
  for (const service::test::RecordedCall& call : service::test::kLinuxSession) {
    service::test::Bytes arguments;
    for (const char* at = call.arguments; *at != 0; at += 2)
      arguments.push_back(static_cast<std::byte>(std::stoi(std::string(at, 2), nullptr, 16)));
    const service::Binding& binding = call.program == kNfsProgram ? nfs3_binding() : nfsacl3_binding();
    const std::uint64_t bytes = std::string_view(call.results).size() / 2;
    EXPECT_LE(bytes, binding.max_results_bytes(call.procedure, arguments)) << "procedure " << call.procedure;
    ++compared;
  }
  EXPECT_GT(compared, 40);
}

TEST(UlbNfs3, the_largest_results_of_the_memory_export_meet_their_bounds) {
  Lab lab;
  const Handle root = lab.root();
  const std::string path(1024, 'p');
  const Handle link = lab.symlink(root, "l", path).handle;
  const auto arguments = encode([&](auto& out) { out.opaque(link); });
  // Other servers have longer links than the memory export.
  constexpr std::uint64_t kLongest = 4096;
  EXPECT_EQ(lab.readlink(link).reply_bytes + kLongest - path.size(),
            nfs3_binding().max_results_bytes(kNfs3ReadLink, arguments));
  EXPECT_EQ(lab.getattr(root).reply_bytes, nfs3_binding().max_results_bytes(kNfs3GetAttr, {}));
  EXPECT_EQ(lab.fsstat(root).reply_bytes, nfs3_binding().max_results_bytes(kNfs3FsStat, {}));
  EXPECT_EQ(lab.fsinfo(root).reply_bytes, nfs3_binding().max_results_bytes(kNfs3FsInfo, {}));
  EXPECT_EQ(lab.pathconf(root).reply_bytes, nfs3_binding().max_results_bytes(kNfs3PathConf, {}));
  EXPECT_EQ(lab.access(root, 1).reply_bytes, nfs3_binding().max_results_bytes(kNfs3Access, {}));
  EXPECT_EQ(lab.setattr(root, {}).reply_bytes, nfs3_binding().max_results_bytes(kNfs3SetAttr, {}));
  const Handle f = lab.file(root, "f");
  EXPECT_EQ(lab.commit(f).reply_bytes, nfs3_binding().max_results_bytes(kNfs3Commit, {}));
  EXPECT_EQ(lab.write(f, 0, {}).reply_bytes, nfs3_binding().max_results_bytes(kNfs3Write, {}));
  EXPECT_EQ(lab.rename(root, "f", root, "g").reply_bytes, nfs3_binding().max_results_bytes(kNfs3Rename, {}));
  EXPECT_EQ(lab.link(f, root, "h").reply_bytes, nfs3_binding().max_results_bytes(kNfs3Link, {}));
  // Handles may have up to 64 bytes; this service's have 32.
  EXPECT_EQ(lab.lookup(root, "g").reply_bytes + 32, nfs3_binding().max_results_bytes(kNfs3Lookup, {}));
  EXPECT_EQ(lab.mkdir(root, "d").reply_bytes + 32, nfs3_binding().max_results_bytes(kNfs3MkDir, {}));
}

}  // namespace
}  // namespace sluice::ulb
