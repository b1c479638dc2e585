// SPDX-License-Identifier: Apache-2.0
//
// Lists that sluicectl reads page by page. The test plays the control plane.
#include "cli/sluicectl/listing.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace sluice::ctl {
namespace {

/// Answers one request with each response, in order.
class ScriptedServer {
 public:
  explicit ScriptedServer(std::vector<Json> responses) : responses_(std::move(responses)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, path.c_str(), sizeof address.sun_path - 1);
    ::unlink(path.c_str());
    EXPECT_EQ(::bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    EXPECT_EQ(::listen(listener_, 4), 0);
    thread_ = std::thread([this] { serve(); });
  }
  ~ScriptedServer() {
    end();
    ::close(listener_);
    ::unlink(path.c_str());
  }
  ScriptedServer(const ScriptedServer&) = delete;
  ScriptedServer& operator=(const ScriptedServer&) = delete;

  /// Stops the server and returns the requests that it received.
  const std::vector<Json>& end() {
    ::shutdown(listener_, SHUT_RDWR);
    if (thread_.joinable()) thread_.join();
    return requests_;
  }

  const std::string path = "/tmp/sluice-listing-test-" + std::to_string(::getpid());

 private:
  void serve() {
    for (const Json& response : responses_) {
      const int fd = ::accept(listener_, nullptr, nullptr);
      if (fd < 0) return;
      std::string request(65536, 0);
      const ssize_t bytes = ::recv(fd, request.data(), request.size(), 0);
      request.resize(static_cast<std::size_t>(std::max<ssize_t>(bytes, 0)));
      requests_.push_back(Json::parse(request));
      const std::string line = response.dump() + '\n';
      ::send(fd, line.data(), line.size(), MSG_NOSIGNAL);
      ::close(fd);
    }
  }

  const std::vector<Json> responses_;
  std::vector<Json> requests_;
  const int listener_ = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  std::thread thread_;
};

Json page(const std::vector<int>& numbers, const Json& next) {
  Json rows = Json::array();
  for (const int number : numbers) rows.push_back({{"connection", number}});
  return {{"jsonrpc", "2.0"}, {"id", 1}, {"result", {{"connections", rows}, {"next", next}}}};
}

Json error(int code) {
  return {{"jsonrpc", "2.0"}, {"id", 1}, {"error", {{"code", code}, {"message", "It failed."}}}};
}

TEST(Listing, asks_for_page_after_page_until_the_last_one) {
  ScriptedServer server({page({1, 2}, 3u), page({}, 77u), page({80}, nullptr)});
  testing::internal::CaptureStdout();
  print_listing(Client(server.path), "connections", {{"peer", "192.0.2.1"}}, true);
  const Json printed = Json::parse(testing::internal::GetCapturedStdout());
  EXPECT_EQ(printed, Json::array({{{"connection", 1}}, {{"connection", 2}}, {{"connection", 80}}}));
  const std::vector<Json>& asked = server.end();
  ASSERT_EQ(asked.size(), 3u);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(asked[i]["method"], "connections_read");
    EXPECT_EQ(asked[i]["params"]["peer"], "192.0.2.1");
    EXPECT_EQ(asked[i]["params"]["from"], std::vector<int>({0, 3, 77})[i]);
  }
}

TEST(Listing, a_control_plane_without_pages_is_asked_for_the_whole_list) {
  const Json rows = Json::array({{{"connection", 5}}});
  ScriptedServer server({error(-32601), {{"jsonrpc", "2.0"}, {"id", 1}, {"result", rows}}});
  Json got;
  for_each_page(Client(server.path), "connections", {{"class", "few"}},
                [&](const Json& part) { return got = part, true; });
  EXPECT_EQ(got, rows);
  const std::vector<Json>& asked = server.end();
  ASSERT_EQ(asked.size(), 2u);
  EXPECT_EQ(asked[1]["method"], "connections");
  EXPECT_EQ(asked[1]["params"], (Json{{"class", "few"}})) << "it knows no position";
}

TEST(Listing, a_page_that_fails_ends_the_list_with_its_error) {
  ScriptedServer server({page({1}, 2u), error(-32000)});
  int pages = 0;
  EXPECT_THROW(for_each_page(Client(server.path), "connections", Json::object(),
                             [&](const Json&) { return ++pages > 0; }),
               MethodFailed);
  EXPECT_EQ(pages, 1);
}

TEST(Listing, no_page_is_asked_for_after_the_last_one_that_is_wanted) {
  ScriptedServer server({page({1}, 2u), page({2}, nullptr)});
  for_each_page(Client(server.path), "connections", Json::object(), [](const Json&) { return false; });
  EXPECT_EQ(server.end().size(), 1u);
}

}  // namespace
}  // namespace sluice::ctl
