// SPDX-License-Identifier: Apache-2.0
//
// Local ports of connections to an upstream: kept from one connection to the next, and changed when this
// helps.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/unit/gateway/tcp_upstream/echoed_calls.h"
#include "tests/unit/gateway/tcp_upstream/void_port.h"

namespace sluice::tcp_upstream_test {
namespace {

using Counter = segment::UpstreamCounter;

TEST(Ports, a_connection_that_the_upstream_has_ended_is_made_again_from_the_same_port) {
  for (const bool privileged : {false, true}) {
    ForwardLab lab({.shared_connections = 1, .privileged_port = privileged});
    LabClient& client = lab.add_client();
    lab.upstream.answer = echo;
    for (std::size_t round = 0; round < 3; ++round) {
      ASSERT_EQ(lab.call(client, {.payload = plain(), .max_reply_bytes = 64}).status, CallStatus::Ok);
      ASSERT_EQ(lab.upstream.connections(), round + 1);
      EXPECT_EQ(lab.upstream.peer_port(round), lab.upstream.peer_port(0));
      lab.upstream.close(round);
      lab.turns(50);
    }
    EXPECT_EQ(lab.count(Counter::port_changes), 0u);
  }
}

/// Returns a socket of the test that is bound to the port of the upstream's first connection; negative if
/// that fails.
int bind_to_port_of(const ForwardLab& lab, bool shared) {
  sockaddr_in taken{};
  taken.sin_family = AF_INET;
  taken.sin_port = htons(lab.upstream.peer_port(0));
  const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
  const int on = 1;
  if (shared) ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (::bind(fd, reinterpret_cast<const sockaddr*>(&taken), sizeof taken) == 0) return fd;
  ::close(fd);
  return -1;
}

TEST(Ports, nobody_else_gets_the_port_while_there_is_no_connection) {
  ForwardLab lab({.shared_connections = 1});
  LabClient& client = lab.add_client();
  lab.upstream.answer = echo;
  ASSERT_EQ(lab.call(client, {.payload = plain(), .max_reply_bytes = 64}).status, CallStatus::Ok);
  lab.upstream.close(0);
  lab.turns(50);
  ASSERT_EQ(lab.count(Counter::disconnects), 1u);
  EXPECT_LT(bind_to_port_of(lab, false), 0);
}

TEST(Ports, a_port_that_somebody_else_has_connected_from_is_given_up) {
  ForwardLab lab({.shared_connections = 1});
  LabClient& client = lab.add_client();
  lab.upstream.answer = echo;
  ASSERT_EQ(lab.call(client, {.payload = plain(), .max_reply_bytes = 64}).status, CallStatus::Ok);
  lab.upstream.close(0);
  lab.turns(50);
  const int thief = bind_to_port_of(lab, true);
  ASSERT_GE(thief, 0);
  sockaddr_in server{};
  server.sin_family = AF_INET;
  server.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  server.sin_port = htons(lab.upstream.port());
  ASSERT_EQ(::connect(thief, reinterpret_cast<const sockaddr*>(&server), sizeof server), 0);
  EXPECT_EQ(lab.call(client, {.payload = plain(), .max_reply_bytes = 64}).status, CallStatus::Ok);
  EXPECT_EQ(lab.count(Counter::port_changes), 1u);
  ::close(thief);
}

/// A connection whose next attempts time out, like those from a port that a firewall blocks.
struct TimedOut : testing::Test {
  TimedOut() { lab.upstream.answer = echo; }
  /// Loses the connection while the upstream has executed this call and not answered it.
  void lose_with(const Bytes& call) {
    ASSERT_EQ(lab.call(client, {.payload = plain(), .max_reply_bytes = 64}).status, CallStatus::Ok);
    lab.upstream.answer = nullptr;
    pending = client.submit({.payload = call, .max_reply_bytes = 200});
    ASSERT_TRUE(lab.until([&] { return lab.upstream.calls.size() == 2; }));
    lead_to(kDropping);
    lab.upstream.close(lab.upstream.connections() - 1);
    lab.turns();
    lab.pass(tcp_upstream::kLastRetryNs);
    lab.turns();
  }
  void lead_to(const PeerAddress& address) {
    lab.set_addresses({{.address = address}});
    lab.pass(kSecond);
    lab.turns();
  }
  /// Lets the attempt in progress time out, and the next one begin.
  void attempt() {
    lab.pass(tcp_upstream::kAttemptNs);
    lab.turns();
    lab.pass(tcp_upstream::kLastRetryNs);
    lab.turns();
  }
  std::uint64_t changes() const { return lab.count(Counter::port_changes); }

  static constexpr PeerAddress kDropping = PeerAddress::from_ipv4(127, 0, 0, 2);
  ForwardLab lab{{.shared_connections = 1}};
  const Void nothing{"127.0.0.2", lab.upstream.port()};
  LabClient& client = lab.add_client();
  std::size_t pending = 0;
};

TEST_F(TimedOut, a_port_is_given_up_after_three_attempts) {
  lose_with(plain(5));
  for (std::uint32_t i = 1; i < tcp_upstream::kPortAttempts; ++i) {
    attempt();
    EXPECT_EQ(changes(), 0u) << "the upstream knows the call by it";
  }
  attempt();
  EXPECT_EQ(changes(), 1u);
  EXPECT_EQ(lab.count(Counter::connect_failures), tcp_upstream::kPortAttempts);
  lab.upstream.answer = echo;
  lead_to(PeerAddress::from_ipv4(127, 0, 0, 1));
  attempt();
  ASSERT_TRUE(lab.until([&] { return client.finished[pending].has_value(); }));
  EXPECT_NE(lab.upstream.peer_port(1), lab.upstream.peer_port(0));
  EXPECT_EQ(lab.upstream.calls[2].xid(), lab.upstream.calls[1].xid());
}

TEST_F(TimedOut, a_port_that_no_call_wants_is_given_up_at_once) {
  lose_with(nfs3(1, opaque(pattern(16, 1))));
  attempt();
  EXPECT_EQ(changes(), 1u) << "GETATTR may be executed again";
}

TEST_F(TimedOut, calls_that_were_never_sent_want_no_port) {
  lead_to(kDropping);
  client.submit({.payload = plain(5), .max_reply_bytes = 64});
  lab.turns();
  attempt();
  EXPECT_EQ(changes(), 1u);
}

TEST_F(TimedOut, a_refusal_shows_that_the_path_works) {
  lose_with(plain(5));
  for (std::uint32_t i = 2; i < tcp_upstream::kPortAttempts; ++i) attempt();
  lead_to(PeerAddress::from_ipv4(127, 0, 0, 3));
  attempt();
  ASSERT_EQ(changes(), 0u);
  lead_to(kDropping);
  for (std::uint32_t i = 1; i < tcp_upstream::kPortAttempts; ++i) attempt();
  EXPECT_EQ(changes(), 0u);
}

}  // namespace
}  // namespace sluice::tcp_upstream_test
