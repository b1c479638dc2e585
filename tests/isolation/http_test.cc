// SPDX-License-Identifier: Apache-2.0
//
// Isolation of the HTTP server of metrics, probes and the status page, over real sockets of this host. Probes
// are answered beside connections that never end: there is no deadline, so that a probe that waits for one of
// them waits for ever, and a probe whose connection is closed for others' sake has no answer.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <atomic>
#include <ostream>
#include <string>
#include <vector>

#include "controlplane/onc_rpc/poll_thread.h"
#include "dataplane/base/file_descriptor.h"
#include "telemetry/http/server.h"

namespace sluice::http {
namespace {

constexpr int kProbes = 100;
constexpr std::uint64_t kForEver = ~std::uint64_t{0};
constexpr std::size_t kLarge = 16u << 20;  ///< more than the sockets between client and server hold
constexpr const char* kProbe = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n";

class HttpSite {
 public:
  FileDescriptor connect(in_addr_t source) const {
    FileDescriptor fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const int room = 1;  // the kernel applies its minimum, so an unread response stays in the server
    ::setsockopt(fd.get(), SOL_SOCKET, SO_RCVBUF, &room, sizeof room);
    sockaddr_in from{};
    from.sin_family = AF_INET;
    from.sin_addr.s_addr = htonl(source);
    EXPECT_EQ(::bind(fd.get(), reinterpret_cast<sockaddr*>(&from), sizeof from), 0);
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    to.sin_port = htons(server_.port());
    EXPECT_EQ(::connect(fd.get(), reinterpret_cast<sockaddr*>(&to), sizeof to), 0);
    return fd;
  }
  static void send(const FileDescriptor& fd, const std::string& text) {
    static_cast<void>(::send(fd.get(), text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT));
  }
  /// Receives until the server closes the connection.
  static std::string rest(const FileDescriptor& fd) {
    std::string all;
    char buffer[4096];
    for (ssize_t got; (got = ::recv(fd.get(), buffer, sizeof buffer, 0)) > 0;)
      all.append(buffer, static_cast<std::size_t>(got));
    return all;
  }
  std::uint32_t probes() const { return probes_; }

 private:
  std::atomic<std::uint32_t> probes_{0};  ///< that the server has answered
  const std::string large_ = std::string(kLarge, 'x');
  Server server_{{.address = "127.0.0.1:0",
                  .what = "the pages",
                  .advice = "",
                  .pages = {{.path = "/healthz",
                             .type = "text/plain",
                             .make =
                                 [this] {
                                   ++probes_;
                                   return Content{200, "healthy\n"};
                                 },
                             .keep_ns = 0},
                            {.path = "/metrics",
                             .type = "text/plain",
                             .make =
                                 [this] {
                                   return Content{200, large_};
                                 }}}},
                 {.deadline_ns = kForEver, .look_ns = kForEver}};
  onc_rpc::PollThread thread_{"services"};
  const onc_rpc::PollThread::Attachment polled_{thread_, server_};
};

struct Attack {
  const char* name;
  const char* first;             ///< sent once
  const char* again = "";        ///< sent on every connection before each probe
  bool from_many_hosts = false;  ///< each connection is another host's
  int per_probe = 4;             ///< connections that are opened before each probe
};

void PrintTo(const Attack& attack, std::ostream* to) {
  *to << attack.name;
}

constexpr Attack kAttacks[] = {
    {"silent_connections", ""},
    {"silent_connections_of_many_hosts", "", "", true},
    {"half_a_request", "GET /metrics HT"},
    {"half_a_request_of_many_hosts", "GET /metrics HT", "", true},
    {"headers_byte_by_byte", "GET /metrics HTTP/1.1\r\nX: ", "x"},
    {"responses_that_are_not_read", "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n", "", false, 1},
    {"bodies_without_end", "POST /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n",
     "x"},
};

class IsolationOfHttp : public testing::TestWithParam<Attack> {};

TEST_P(IsolationOfHttp, probes_are_answered_beside_connections_that_are_held) {
  const Attack& attack = GetParam();
  HttpSite site;
  const FileDescriptor early = site.connect(INADDR_LOOPBACK);
  std::vector<FileDescriptor> held;
  for (std::uint32_t probe = 1; probe <= kProbes; ++probe) {
    for (int i = 0; i < attack.per_probe; ++i) {
      const auto host = static_cast<in_addr_t>(attack.from_many_hosts ? 2 + held.size() : 1);
      held.push_back(site.connect(INADDR_LOOPBACK + host));
      HttpSite::send(held.back(), attack.first);
    }
    for (const FileDescriptor& each : held) HttpSite::send(each, attack.again);
    const FileDescriptor fd = site.connect(INADDR_LOOPBACK);
    HttpSite::send(fd, kProbe);
    const std::string answer = HttpSite::rest(fd);
    ASSERT_TRUE(answer.starts_with("HTTP/1.1 200 OK\r\n")) << "probe " << probe << ": " << answer;
    ASSERT_EQ(site.probes(), probe);
  }
  if (attack.from_many_hosts) return;
  // A connection of another host that has sent nothing yet was not closed for one of the hostile host.
  HttpSite::send(early, kProbe);
  EXPECT_TRUE(HttpSite::rest(early).starts_with("HTTP/1.1 200 OK\r\n"));
}

INSTANTIATE_TEST_SUITE_P(, IsolationOfHttp, testing::ValuesIn(kAttacks),
                         [](const auto& parameter) { return std::string(parameter.param.name); });

}  // namespace
}  // namespace sluice::http
