// SPDX-License-Identifier: Apache-2.0
//
// The path of the admin socket, which belongs to one server, and the access of processes to its methods.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>

#include "controlplane/admin/server.h"
#include "dataplane/base/setup_error.h"

namespace sluice {
namespace {

using admin::Access;

class AdminPath : public ::testing::Test {
 protected:
  AdminPath() { EXPECT_NE(::mkdtemp(folder_.data()), nullptr); }
  ~AdminPath() override { std::filesystem::remove_all(folder_); }

  std::unique_ptr<admin::Server> serve(const admin::Owner& owner = {}) {
    return std::make_unique<admin::Server>(registry_, path(), "", "", owner);
  }
  std::string refusal(const admin::Owner& owner = {}) {
    try {
      serve(owner);
    } catch (const SetupError& error) {
      return error.what();
    }
    return {};
  }
  std::string path() const { return folder_ + "/admin.sock"; }
  bool exists() const { return std::filesystem::exists(path()); }
  std::uint64_t inode() const {
    struct stat status {};
    return ::stat(path().c_str(), &status) == 0 ? status.st_ino : 0;
  }

  const admin::Registry registry_;
  std::string folder_ = "/tmp/sluice-admin-path-XXXXXX";
};

TEST_F(AdminPath, is_taken_when_the_server_is_shown_and_free_after_it) {
  const auto server = serve();
  EXPECT_FALSE(exists());
  server->show();
  EXPECT_TRUE(exists());
}

TEST_F(AdminPath, of_another_segments_control_plane_is_left_alone) {
  const auto first = serve({.segment = "one", .epoch = 7});
  first->show();
  const std::uint64_t before = inode();
  // Neither the first of its segment, nor the successor of a suspended one.
  for (const admin::Owner& other :
       {admin::Owner{"two", 1, 0}, admin::Owner{"two", 7, 0}, admin::Owner{"two", 2, 1},
        admin::Owner{"one", 8, 0}, admin::Owner{"one", 7, 0}, admin::Owner{"one", 9, 8}}) {
    const std::string said = refusal(other);
    EXPECT_NE(said.find("Another control plane serves the admin socket " + path()), std::string::npos)
        << said;
    EXPECT_NE(said.find("Stop it first"), std::string::npos) << said;
  }
  EXPECT_EQ(inode(), before);
}

TEST_F(AdminPath, passes_to_the_successor_of_one_that_is_stopped_which_then_leaves_it_alone) {
  auto stopped = serve({.segment = "one", .epoch = 7});
  stopped->show();
  const std::uint64_t before = inode();
  const auto successor = serve({.segment = "one", .epoch = 8, .predecessor = 7});
  EXPECT_EQ(inode(), before);  // the start may still be refused
  successor->show();
  const std::uint64_t after = inode();
  EXPECT_NE(after, before);
  stopped.reset();
  EXPECT_EQ(inode(), after);
}

TEST_F(AdminPath, a_server_that_was_never_shown_leaves_nothing_but_the_lock) {
  serve();
  const auto all = std::filesystem::directory_iterator(folder_);
  EXPECT_EQ(std::distance(begin(all), end(all)), 1);
}

TEST_F(AdminPath, what_a_killed_one_left_is_replaced) {
  const pid_t child = ::fork();
  if (child == 0) {
    const auto killed = serve({.segment = "other"});
    killed->show();
    const auto unused =
        serve({.segment = "other", .epoch = 2, .predecessor = 1});  // killed before it is shown
    ::_exit(0);
  }
  ::waitpid(child, nullptr, 0);
  EXPECT_TRUE(exists());
  const auto server = serve();
  server->show();
  EXPECT_TRUE(exists());
}

TEST_F(AdminPath, that_leads_to_something_else_is_refused_with_a_sentence) {
  std::filesystem::create_directory(path());
  EXPECT_NE(refusal().find("is not a socket. Remove it"), std::string::npos);
  EXPECT_TRUE(std::filesystem::is_directory(path()));
  std::filesystem::remove(path());
  std::filesystem::create_directory(path() + ".lock");
  EXPECT_NE(refusal().find("Cannot open " + path() + ".lock"), std::string::npos);
}

TEST(AdminAccess, credentials_decide_what_a_process_may_do) {
  const std::string path = "/tmp/sluice-admin-access-" + std::to_string(::getpid());
  const admin::Registry registry;
  // Groups that every Debian system has.
  admin::Server server(registry, path, "adm", "daemon");
  constexpr std::uint32_t kAdm = 4;
  constexpr std::uint32_t kDaemon = 1;
  constexpr std::uint32_t kStranger = 54321;
  EXPECT_EQ(server.access_of(0, {}), Access::Change);
  EXPECT_EQ(server.access_of(::geteuid(), {}), Access::Change);
  EXPECT_EQ(server.access_of(kStranger, {kAdm}), Access::Change);
  EXPECT_EQ(server.access_of(kStranger, {7, kDaemon}), Access::Read);
  EXPECT_EQ(server.access_of(kStranger, {0, 7}), Access::None);
  EXPECT_THROW(admin::Server(registry, path + "x", "no-such-group-here", ""), SetupError);
  ::unlink((path + ".lock").c_str());
}

}  // namespace
}  // namespace sluice
