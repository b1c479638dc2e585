// SPDX-License-Identifier: Apache-2.0
#include "dataplane/base/host_name.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <type_traits>

namespace sluice {
namespace {

static_assert(std::is_trivially_copyable_v<HostName> && sizeof(HostName) == kMaxHostNameBytes);

TEST(HostName, one_of_the_greatest_length_is_whole_and_a_longer_one_is_nobodys) {
  const std::string longest(kMaxHostNameBytes, 'n');
  EXPECT_EQ(HostName(longest).view(), longest);
  EXPECT_TRUE(HostName(longest + 'n').empty());
  EXPECT_FALSE(HostName(longest + 'n') == HostName(longest));
  EXPECT_TRUE(HostName().empty());
}

TEST(HostName, what_stands_behind_its_end_is_not_compared) {
  HostName name("a");
  char bytes[sizeof name] = {'a', '\0', 'b'};
  std::memcpy(static_cast<void*>(&name), bytes, sizeof name);
  EXPECT_EQ(name.view(), "a");
  EXPECT_TRUE(name == HostName("a"));
  EXPECT_FALSE(name == HostName("ab"));
}

}  // namespace
}  // namespace sluice
