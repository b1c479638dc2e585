// SPDX-License-Identifier: Apache-2.0
#include "controlplane/properties/key_schedule.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "tests/unit/controlplane/properties/lab.h"

namespace sluice::properties {
namespace {

class KeyFile : public testing::Test {
 protected:
  ~KeyFile() override { ::unlink(path_.c_str()); }
  void write(const std::string& text, mode_t mode = 0600) {
    ::unlink(path_.c_str());
    std::ofstream(path_) << text;
    ::chmod(path_.c_str(), mode);
  }
  std::string problem() {
    try {
      read_key_file(path_);
      return "";
    } catch (const std::runtime_error& error) {
      return error.what();
    }
  }
  const std::string path_ = testing::TempDir() + "/sluice-key-" + std::to_string(::getpid());
};

TEST_F(KeyFile, its_line_end_is_no_part_of_the_key) {
  const KeyId id = key_of("sixteen bytes...").id;
  for (const char* text : {"sixteen bytes...", "sixteen bytes...\n", "sixteen bytes...\r\n"}) {
    write(text);
    EXPECT_EQ(read_key_file(path_).id, id);
  }
  write(" sixteen bytes...");
  EXPECT_NE(read_key_file(path_).id, id);
}

TEST_F(KeyFile, it_has_to_be_private_and_of_a_bounded_length) {
  write("sixteen bytes...\n", 0640);
  EXPECT_NE(problem().find("can be read by others"), std::string::npos);
  write("fifteen bytes..\n");
  EXPECT_NE(problem().find("between 16 and 1024 bytes"), std::string::npos);
  write(std::string(1024, 'k') + "\r\n");
  EXPECT_EQ(problem(), "");
  write(std::string(1025, 'k'));
  EXPECT_NE(problem().find("between 16 and 1024 bytes"), std::string::npos);
  write(std::string(100'000, 'k'));
  EXPECT_NE(problem().find("between 16 and 1024 bytes"), std::string::npos);
  ::unlink(path_.c_str());
  EXPECT_NE(problem().find("No such file"), std::string::npos);
}

}  // namespace
}  // namespace sluice::properties
