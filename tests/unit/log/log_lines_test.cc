// SPDX-License-Identifier: Apache-2.0
//
// Each call of the log writes one line, for all characters that its values may contain.
#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "dataplane/log/log.h"
#include "tests/unit/log/captured_log.h"

namespace sluice {
namespace {

using std::string_view_literals::operator""sv;

TEST(Log, a_value_adds_no_line_and_no_control_character) {
  CapturedLog captured;
  log::info("A server is \"{}\".", std::string("a\n[error] The export is gone\r\x1b[2J\0\x7f"sv));
  EXPECT_EQ(captured.take(), "A server is \"a\\x0a[error] The export is gone\\x0d\\x1b[2J\\x00\\x7f\".\n");
}

TEST(Log, other_text_is_written_as_it_is) {
  CapturedLog captured;
  log::warn("\\ é {}", "%n {}");
  EXPECT_EQ(captured.take(), "\\ é %n {}\n");
}

}  // namespace
}  // namespace sluice
