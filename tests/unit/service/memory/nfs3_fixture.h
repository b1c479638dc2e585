// SPDX-License-Identifier: Apache-2.0
//
// Shared by the tests of the procedures: an export with its root, and checks of weak cache consistency data.
#pragma once

#include "tests/unit/service/memory/nfs3_client.h"

namespace sluice::service::test {

/// Checks that both attributes are present, and that they are those before and after the change.
inline void expect_changed(const Wcc& wcc, const Attr& before) {
  ASSERT_TRUE(wcc.before && wcc.after);
  EXPECT_EQ(wcc.before->mtime, before.mtime);
  EXPECT_EQ(wcc.before->ctime, before.ctime);
  EXPECT_EQ(wcc.before->size, before.size);
  EXPECT_GT(wcc.after->ctime, before.ctime);
}
inline void expect_unchanged(const Wcc& wcc) {
  ASSERT_TRUE(wcc.before && wcc.after);
  EXPECT_EQ(wcc.before->ctime, wcc.after->ctime);
  EXPECT_EQ(wcc.before->mtime, wcc.after->mtime);
}

class Nfs3 : public testing::Test {
 protected:
  Attr attr(const Handle& object) {
    const Result result = lab.getattr(object);
    EXPECT_TRUE(result.ok());
    return result.attr.value_or(Attr{});
  }
  Lab lab;
  const Handle root = lab.root();
};

}  // namespace sluice::service::test
