// SPDX-License-Identifier: Apache-2.0
//
// The server of the status page over real sockets of this host, with clients that misbehave.
#include "controlplane/page/status.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "controlplane/onc_rpc/poll_thread.h"
#include "dataplane/base/file_descriptor.h"

namespace sluice::page {
namespace {

using http::Limits;
using onc_rpc::PollThread;

constexpr std::uint64_t kForEver = ~std::uint64_t{0};
constexpr const char* kHost = "Host: localhost\r\n";

class PageServerTest : public ::testing::Test {
 protected:
  PageServerTest() { serve({.deadline_ns = kForEver, .look_ns = kForEver}); }

  void serve(const Limits& limits, std::size_t bytes = 0) {
    end();
    server = std::make_unique<PageServer>(
        "127.0.0.1:0", "sluice.example",
        [this, bytes] {
          ++looks;
          if (fails) throw std::runtime_error("no look");
          return bytes == 0 ? std::string("{\"look\":") + std::to_string(looks) + "}"
                            : std::string(bytes, 'x');
        },
        limits);
    polled.emplace(thread, *server);
  }
  void end() {
    polled.reset();
    server.reset();
  }
  FileDescriptor connect(in_addr_t source = INADDR_LOOPBACK) const {
    return connect_to(server->port(), source);
  }
  static FileDescriptor connect_to(std::uint16_t port, in_addr_t source = INADDR_LOOPBACK) {
    FileDescriptor fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in from{};
    from.sin_family = AF_INET;
    from.sin_addr.s_addr = htonl(source);
    EXPECT_EQ(::bind(fd.get(), reinterpret_cast<sockaddr*>(&from), sizeof from), 0);
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    to.sin_port = htons(port);
    EXPECT_EQ(::connect(fd.get(), reinterpret_cast<sockaddr*>(&to), sizeof to), 0);
    return fd;
  }
  static void send(const FileDescriptor& fd, const std::string& text) {
    static_cast<void>(::send(fd.get(), text.data(), text.size(), MSG_NOSIGNAL));
  }
  /// Receives until the server closes the connection.
  static std::string rest(const FileDescriptor& fd) {
    std::string all;
    char buffer[4096];
    for (ssize_t got; (got = ::recv(fd.get(), buffer, sizeof buffer, 0)) > 0;)
      all.append(buffer, static_cast<std::size_t>(got));
    return all;
  }
  std::string ask(const std::string& request) const {
    const FileDescriptor fd = connect();
    send(fd, request);
    return rest(fd);
  }
  std::string get(const std::string& path) const {
    return ask("GET " + path + " HTTP/1.1\r\n" + kHost + "\r\n");
  }
  static std::string status_of(const std::string& answer) { return answer.substr(0, answer.find("\r\n")); }
  static std::string body_of(const std::string& answer) { return answer.substr(answer.find("\r\n\r\n") + 4); }
  static bool has(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
  }

  std::atomic<int> looks{0};
  std::atomic<bool> fails{false};
  PollThread thread{"page"};
  std::unique_ptr<PageServer> server;
  std::optional<PollThread::Attachment> polled;
};

TEST_F(PageServerTest, the_page_and_what_it_shows_are_served) {
  const std::string page = get("/");
  EXPECT_EQ(status_of(page), "HTTP/1.1 200 OK");
  EXPECT_TRUE(has(page, "Content-Type: text/html; charset=utf-8\r\n"));
  EXPECT_TRUE(has(body_of(page), "<!DOCTYPE html>") && has(body_of(page), "</html>"));
  const std::string status = get("/status.json");
  EXPECT_EQ(status_of(status), "HTTP/1.1 200 OK");
  EXPECT_TRUE(has(status, "Content-Type: application/json\r\n"));
  EXPECT_EQ(body_of(status), "{\"look\":1}");
}

TEST_F(PageServerTest, a_browser_is_told_to_run_nothing_but_the_page) {
  for (const char* path : {"/", "/status.json", "/nothing"}) {
    const std::string answer = get(path);
    EXPECT_TRUE(
        has(answer, "Content-Security-Policy: default-src 'none'; connect-src 'self'; style-src 'sha256-"))
        << answer;
    EXPECT_TRUE(has(answer, "frame-ancestors 'none'")) << answer;
    EXPECT_TRUE(has(answer, "X-Content-Type-Options: nosniff\r\n")) << answer;
    EXPECT_TRUE(has(answer, "Cache-Control: no-store\r\n")) << answer;
    EXPECT_TRUE(has(answer, "Connection: close\r\n")) << answer;
    EXPECT_FALSE(has(answer, "Access-Control")) << answer;
  }
}

TEST_F(PageServerTest, the_page_names_no_other_host) {
  const std::string page = body_of(get("/"));
  for (const char* outside : {"http:", "https:", "src=", "href=", "@import", "url(", "innerHTML", "eval("})
    EXPECT_FALSE(has(page, outside)) << outside;
}

TEST_F(PageServerTest, only_reading_of_what_there_is_is_allowed) {
  EXPECT_EQ(body_of(ask(std::string("HEAD / HTTP/1.1\r\n") + kHost + "\r\n")), "");
  for (const char* method : {"POST", "PUT", "DELETE", "OPTIONS", "TRACE", "CONNECT", "PATCH", "NONSENSE"}) {
    const std::string answer =
        ask(std::string(method) + " /status.json HTTP/1.1\r\n" + kHost + "Content-Length: 0\r\n\r\n");
    EXPECT_TRUE(has(status_of(answer), " 405 ")) << method << answer;
    EXPECT_TRUE(has(answer, "Allow: GET, HEAD\r\n")) << method;
  }
  for (const char* path :
       {"/x", "/../etc/passwd", "/%2e%2e/etc/passwd", "//", "/status.json/", "http://evil.example/"})
    EXPECT_TRUE(has(status_of(get(path)), " 404 ")) << path;
  EXPECT_EQ(looks, 0);
}

TEST_F(PageServerTest, who_comes_by_another_sites_name_sees_nothing) {
  for (const char* host : {"Host: evil.example\r\n", "Host: evil.example:80\r\n", ""}) {
    const std::string answer = ask(std::string("GET /status.json HTTP/1.0\r\n") + host + "\r\n");
    EXPECT_TRUE(has(status_of(answer), " 421 ")) << host << answer;
    EXPECT_TRUE(has(answer, "set `name` in [page]"));
  }
  EXPECT_EQ(looks, 0);
  EXPECT_TRUE(has(ask("GET /status.json HTTP/1.1\r\nHost: sluice.example\r\n\r\n"), "{\"look\":1}"));
}

TEST_F(PageServerTest, another_user_of_the_http_server_has_its_own_advice_for_other_names) {
  http::Server other(
      {.address = "127.0.0.1:0", .what = "a page", .advice = "", .pages = {}, .name = "a.example"});
  const PollThread::Attachment other_polled(thread, other);
  const FileDescriptor fd = connect_to(other.port());
  send(fd, "GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n");
  const std::string answer = rest(fd);
  EXPECT_TRUE(has(status_of(answer), " 421 ")) << answer;
  EXPECT_FALSE(has(answer, "[page]")) << answer;
}

TEST_F(PageServerTest, requests_have_a_size) {
  const std::string long_path = get("/" + std::string(100'000, 'x'));
  EXPECT_FALSE(has(long_path, " 200 ")) << status_of(long_path);
  std::string headers = "GET / HTTP/1.1\r\n";
  for (int i = 0; i < 1000; ++i) headers += "X-" + std::to_string(i) + ": " + std::string(90, 'x') + "\r\n";
  EXPECT_FALSE(has(ask(headers + kHost + "\r\n"), " 200 "));
  EXPECT_FALSE(has(ask(std::string(1 << 20, '\n')), " 200 "));
  EXPECT_EQ(status_of(get("/")), "HTTP/1.1 200 OK");
}

TEST_F(PageServerTest, what_is_no_request_is_not_answered_as_one) {
  serve({.deadline_ns = 200'000'000});
  for (const std::string& text :
       {std::string("\x16\x03\x01\x02\x00\x01\x00\x01\xfc", 9), std::string("SSH-2.0-x\r\n\r\n"),
        std::string("GET\r\n\r\n"), std::string("\0\0\0\0\r\n\r\n", 8), std::string("GET / HTTP/9.9\r\n\r\n"),
        std::string("GET / HTTP/1.1\r\nHost\r\n\r\n")}) {
    const FileDescriptor fd = connect();
    send(fd, text);
    ::shutdown(fd.get(), SHUT_WR);
    EXPECT_FALSE(has(rest(fd), " 200 ")) << text;
  }
  EXPECT_EQ(status_of(get("/")), "HTTP/1.1 200 OK");
}

TEST_F(PageServerTest, many_readers_cost_one_look) {
  std::vector<std::thread> readers;
  std::atomic<int> same{0};
  for (int i = 0; i < 8; ++i)
    readers.emplace_back([&] {
      for (int k = 0; k < 25; ++k) same += body_of(get("/status.json")) == "{\"look\":1}" ? 1 : 0;
    });
  for (std::thread& reader : readers) reader.join();
  EXPECT_EQ(same, 200);
  EXPECT_EQ(looks, 1);
}

TEST_F(PageServerTest, a_look_that_is_old_is_made_anew) {
  serve({.look_ns = 0});
  EXPECT_EQ(body_of(get("/status.json")), "{\"look\":1}");
  EXPECT_EQ(body_of(get("/status.json")), "{\"look\":2}");
}

TEST_F(PageServerTest, a_look_that_fails_is_said_to_and_the_next_one_may_not) {
  fails = true;
  EXPECT_TRUE(has(status_of(get("/status.json")), " 503 "));
  fails = false;
  EXPECT_TRUE(has(status_of(get("/status.json")), " 200 "));
}

/// There is no deadline, so silent connections must be closed to make room.
TEST_F(PageServerTest, a_thousand_that_say_nothing_keep_nobody_off_the_page) {
  rlimit files{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &files), 0);
  files.rlim_cur = files.rlim_max;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &files), 0);
  std::vector<FileDescriptor> silent;
  FileDescriptor reader;
  for (int i = 0; i < 1000; ++i) {
    silent.push_back(connect());
    if (i == 0) reader = connect(INADDR_LOOPBACK + 1);
    if (i % 100 != 99) continue;
    EXPECT_EQ(status_of(get("/status.json")), "HTTP/1.1 200 OK") << i;
  }
  // A client of another host is not evicted either.
  send(reader, std::string("GET /status.json HTTP/1.1\r\n") + kHost + "\r\n");
  EXPECT_EQ(status_of(rest(reader)), "HTTP/1.1 200 OK");
  // The server has closed all but a few of them.
  char byte;
  for (int i = 0; i < 870; ++i) EXPECT_EQ(::recv(silent[i].get(), &byte, 1, 0), 0) << i;
}

TEST_F(PageServerTest, who_sends_or_reads_slowly_keeps_nobody_waiting) {
  constexpr std::size_t kLarge = 32u << 20;  // more than the sockets between client and server hold
  serve({.deadline_ns = kForEver, .look_ns = kForEver}, kLarge);
  std::vector<FileDescriptor> slow;
  for (int i = 0; i < 20; ++i) {
    slow.push_back(connect());
    send(slow.back(),
         i % 2 == 0 ? "GET / HT" : std::string("GET /status.json HTTP/1.1\r\n") + kHost + "\r\n");
  }
  EXPECT_EQ(status_of(get("/")), "HTTP/1.1 200 OK");
  // A client that has begun to read continues, and receives everything.
  send(slow[0], std::string("TP/1.1\r\n") + kHost + "\r\n");
  EXPECT_EQ(status_of(rest(slow[0])), "HTTP/1.1 200 OK");
  EXPECT_EQ(body_of(rest(slow[1])).size(), kLarge);
}

TEST_F(PageServerTest, each_connection_ends_at_its_deadline_whatever_it_does) {
  constexpr std::size_t kLarge = 32u << 20;
  serve({.deadline_ns = 300'000'000, .look_ns = kForEver}, kLarge);
  const FileDescriptor silent = connect();
  const FileDescriptor reader = connect();
  send(reader, std::string("GET /status.json HTTP/1.1\r\n") + kHost + "\r\n");
  // Sends a header until the server closes the connection.
  const FileDescriptor sender = connect();
  std::string request = "GET / HTTP/1.1\r\nX: ";
  while (::send(sender.get(), request.data(), request.size(), MSG_NOSIGNAL) > 0) {
    request = "x";
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  EXPECT_EQ(rest(silent), "");
  EXPECT_LT(rest(reader).size(), kLarge);
}

TEST_F(PageServerTest, it_ends_while_others_read_and_its_port_is_free_again) {
  const std::uint16_t port = server->port();
  const FileDescriptor open = connect();
  send(open, "GET / ");
  end();
  EXPECT_EQ(rest(open), "");
  EXPECT_EQ(PageServer("127.0.0.1:" + std::to_string(port), "", [] { return ""; }).port(), port);
}

TEST_F(PageServerTest, an_address_that_cannot_be_had_is_refused_by_a_sentence) {
  const std::string taken = "127.0.0.1:" + std::to_string(server->port());
  for (const std::string& address :
       {taken, std::string("192.0.2.1:0"), std::string("name.example:1"), std::string("x")}) {
    try {
      PageServer(address, "", [] { return ""; });
      ADD_FAILURE() << address;
    } catch (const SetupError& error) {
      EXPECT_TRUE(has(error.what(), "Cannot serve the status page on " + address + " (")) << error.what();
      EXPECT_TRUE(has(error.what(), "Set page.address")) << error.what();
    }
  }
  EXPECT_NE(PageServer("localhost:0", "", [] { return ""; }).port(), 0);
}

}  // namespace
}  // namespace sluice::page
