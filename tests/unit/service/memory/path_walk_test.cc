// SPDX-License-Identifier: Apache-2.0
#include "dataplane/service/memory/path_walk.h"

#include "tests/unit/service/memory/nfs3_fixture.h"

namespace sluice::service::test {
namespace {

using memory::PathWalk;
using memory::Status;

class PathWalkTest : public Nfs3 {
 protected:
  Status walk(const std::string& path) {
    walk_.start(0, path);
    while (!walk_.slice()) continue;
    return walk_.status();
  }
  /// Returns whether the walk has ended in the directory with this handle.
  bool at(const Handle& handle) {
    const auto found = lab.service().file_system().handle_of(walk_.directory());
    return std::equal(found.begin(), found.end(), handle.begin(), handle.end());
  }
  Handle directory(const Handle& parent, const std::string& name) { return lab.mkdir(parent, name).handle; }

  PathWalk walk_{lab.service().file_system()};
};

TEST_F(PathWalkTest, it_ends_at_directories_only) {
  const Handle sub = directory(root, "sub");
  const Handle deep = directory(sub, "deep");
  lab.file(sub, "file");
  EXPECT_EQ(walk(""), Status::Ok);
  EXPECT_TRUE(at(root));
  EXPECT_EQ(walk("/sub"), Status::Ok);
  EXPECT_TRUE(at(sub));
  EXPECT_EQ(walk("/sub//deep/"), Status::Ok);
  EXPECT_TRUE(at(deep));
  EXPECT_EQ(walk("/sub/missing"), Status::NoEnt);
  EXPECT_EQ(walk("/sub/file"), Status::NotDir);
  EXPECT_EQ(walk("/sub/file/x"), Status::NotDir);
  EXPECT_EQ(walk("/sub/" + std::string(256, 'x')), Status::NameTooLong);
  EXPECT_EQ(walk(std::string(1025, '/')), Status::NameTooLong);
}

TEST_F(PathWalkTest, parents_never_leave_the_export) {
  const Handle sub = directory(root, "sub");
  directory(sub, "deep");
  EXPECT_EQ(walk("/sub/deep/.."), Status::Ok);
  EXPECT_TRUE(at(sub));
  EXPECT_EQ(walk("/sub/.."), Status::Ok);
  EXPECT_TRUE(at(root));
  EXPECT_EQ(walk("/sub/../.."), Status::NoEnt);
  EXPECT_EQ(walk("/../sub"), Status::NoEnt);
  EXPECT_EQ(walk("/missing/.."), Status::NoEnt);
}

TEST_F(PathWalkTest, a_directory_that_is_removed_between_two_slices_is_not_found) {
  directory(root, "sub");
  std::string path = "/sub";
  for (int i = 0; i < memory::kNamesPerSlice; ++i) path += "/.";
  walk_.start(0, path);
  EXPECT_FALSE(walk_.slice());
  ASSERT_TRUE(lab.rmdir(root, "sub").ok());
  lab.file(root, "other");
  EXPECT_TRUE(walk_.slice());
  EXPECT_EQ(walk_.status(), Status::NoEnt);
}

}  // namespace
}  // namespace sluice::service::test
