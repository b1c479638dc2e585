// SPDX-License-Identifier: Apache-2.0
//
// File handles: invalid ones are answered with BADHANDLE, and handles of removed files with STALE.
#include <random>

#include "tests/unit/service/memory/nfs3_client.h"

namespace sluice::service::test {
namespace {

TEST(SipHash, reference_vectors) {
  // Vectors of the SipHash-2-4 paper, Appendix A, and of the authors' table: key 00 01 .. 0f, message 00 01
  // .. (n-1).
  HashKey key;
  for (std::size_t i = 0; i < key.size(); ++i) key[i] = static_cast<std::byte>(i);
  Bytes message;
  for (std::uint32_t i = 0; i < 15; ++i) message.push_back(static_cast<std::byte>(i));
  EXPECT_EQ(siphash(key, message), 0xa129ca6149be45e5u);
  EXPECT_EQ(siphash(key, {}), 0x726fdb47dd0e0e31u);
  EXPECT_EQ(siphash(key, std::span(message).first(8)), 0x93f5f5799a932462u);
}

TEST(FileHandles, mutations_are_never_accepted) {
  Lab lab;
  const Handle f = lab.file(lab.root(), "f");
  std::mt19937 random(1);
  for (int i = 0; i < 100000; ++i) {
    Handle bad = f;
    const auto flips = 1 + random() % 8;
    for (unsigned k = 0; k < flips; ++k)
      bad[random() % bad.size()] ^= static_cast<std::byte>(1u << random() % 8);
    if (bad == f) continue;
    ASSERT_EQ(lab.service().file_system().find(bad).status, Status::BadHandle);
  }
  for (std::size_t bytes = 0; bytes <= 64; ++bytes) {
    Handle bad = f;
    bad.resize(bytes);
    if (bytes == f.size()) continue;
    EXPECT_EQ(lab.getattr(bad).status, Status::BadHandle) << bytes;
  }
  EXPECT_EQ(lab.getattr(Handle(65)).accepted, rpc::AcceptStat::GarbageArgs) << "over NFS3_FHSIZE";
}

TEST(FileHandles, random_bytes_are_no_arguments) {
  Lab lab;
  lab.file(lab.root(), "f");
  const Handle root = lab.root();
  std::mt19937 random(2);
  int answered = 0;
  for (int i = 0; i < 100000; ++i) {
    // Half of the arguments begin with a valid handle, so that the remainder is decoded.
    Bytes arguments = random() % 2 == 0 ? encode([&](auto& out) { out.opaque(root); }) : Bytes{};
    const std::size_t more = random() % 30 * 4;
    for (std::size_t k = 0; k < more; ++k) {
      // The words are mostly small, like lengths and discriminators.
      const bool low = k % 4 == 3;
      arguments.push_back(static_cast<std::byte>(low                  ? random() % 8
                                                 : random() % 16 == 0 ? random() % 256
                                                                      : 0));
    }
    TestCall call;
    lab.prepare(call, static_cast<std::uint32_t>(random() % 24), kAlice);
    call.start(arguments);
    call.execute(lab.front());
    ASSERT_EQ(call.completions(), 1);
    answered += call.accepted() == rpc::AcceptStat::Success ? 1 : 0;
    call.release(lab.front());
  }
  EXPECT_GT(answered, 1000) << "too few arguments decoded for a useful test";
}

TEST(FileHandles, what_is_gone_is_stale) {
  Lab lab;
  const Handle root = lab.root();
  for (int i = 0; i < 100; ++i) {
    const Handle old = lab.file(root, "f");
    ASSERT_TRUE(lab.remove(root, "f").ok());
    const Handle fresh = lab.file(root, "f");
    EXPECT_EQ(lab.getattr(old).status, Status::Stale) << "although the inode is in use again";
    EXPECT_TRUE(lab.getattr(fresh).ok());
    ASSERT_TRUE(lab.remove(root, "f").ok());
  }
}

TEST(FileHandles, a_restart_keeps_roots_and_nothing_else) {
  Handle root;
  Handle f;
  {
    Lab before;
    root = before.root();
    f = before.file(root, "f");
  }
  Lab after;
  after.file(after.root(), "f");  // the same inode and generation as before
  EXPECT_EQ(after.root(), root);
  EXPECT_TRUE(after.getattr(root).ok());
  EXPECT_EQ(after.getattr(f).status, Status::Stale);
}

TEST(FileHandles, a_root_belongs_to_its_path_and_a_handle_to_its_key) {
  Lab a({.exports = {{.path = "/a"}}});
  Lab b({.exports = {{.path = "/b"}}});
  Lab other_key({.exports = {{.path = "/a"}}, .key = {std::byte{8}}});
  EXPECT_EQ(b.getattr(a.root()).status, Status::Stale) << "another export in the place of the old one";
  EXPECT_EQ(other_key.getattr(a.root()).status, Status::BadHandle);
}

}  // namespace
}  // namespace sluice::service::test
