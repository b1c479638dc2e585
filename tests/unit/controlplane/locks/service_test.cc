// SPDX-License-Identifier: Apache-2.0
//
// Access to the lock proxy's service: datagrams, IPv6, and registrations at rpcbind.
#include <poll.h>

#include <thread>

#include "tests/unit/controlplane/locks/lock_lab.h"
#include "tests/unit/link_of_own.h"

namespace sluice::locks {
namespace {

using namespace lab;

/// A socket of the test that sends to the service.
class Datagram {
 public:
  Datagram(const PeerAddress& from, const PeerAddress& to, std::uint16_t port)
      : fd_(::socket(is_mapped_ipv4(to) ? AF_INET : AF_INET6, SOCK_DGRAM | SOCK_NONBLOCK, 0)) {
    sockaddr_storage address;
    socklen_t bytes = tcp::socket_address(from, 0, address);
    EXPECT_EQ(::bind(fd_, reinterpret_cast<sockaddr*>(&address), bytes), 0);
    bytes = tcp::socket_address(to, port, address);
    EXPECT_EQ(::connect(fd_, reinterpret_cast<sockaddr*>(&address), bytes), 0);
  }
  ~Datagram() { ::close(fd_); }
  Datagram(const Datagram&) = delete;
  Datagram& operator=(const Datagram&) = delete;
  void send(const Bytes& message) const {
    EXPECT_EQ(::send(fd_, message.data(), message.size(), 0), static_cast<ssize_t>(message.size()));
  }
  std::optional<Bytes> next() const {
    Bytes room(2048);
    const ssize_t bytes = ::recv(fd_, room.data(), room.size(), 0);
    if (bytes < 0) return std::nullopt;
    room.resize(static_cast<std::size_t>(bytes));
    return room;
  }

 private:
  int fd_;
};

class LockServiceTest : public Locks {
 protected:
  void expect_reply(const Datagram& client, std::uint32_t xid) {
    std::optional<Bytes> message;
    until([&] { return (message = client.next()).has_value(); });
    ASSERT_TRUE(message);
    xdr::Reader reader(*message);
    const auto decoded = rpc::decode_reply(reader);
    EXPECT_EQ(static_cast<std::uint32_t>(decoded.header.xid), xid);
    const Bytes results(reader.rest().begin(), reader.rest().end());
    EXPECT_EQ(Decoded<lk_res>(&xdr_lk_res, results)->stat, LK_GRANTED);
  }
};

TEST_F(LockServiceTest, a_datagram_is_answered_once_however_often_it_comes) {
  start();
  const Datagram client(PeerAddress::from_ipv4(127, 0, 0, 2), PeerAddress::from_ipv4(127, 0, 0, 7),
                        service_->port());
  const Bytes call = onc_rpc::lab::call_message(42, nlm(2), lock_arguments({.block = true}));
  client.send(call);
  const Call lock = next_call(*upstream_);
  client.send(call);
  until([&] { return value(statistics_.repeated) == 1; });
  upstream_->server.answer(lock, result(LK_GRANTED));
  expect_reply(client, 42);
  turns();
  EXPECT_FALSE(client.next().has_value());
  EXPECT_TRUE(upstream_->server.calls.empty());
  // The client identifies the gateway by the address that it has called.
  send(*upstream_, kNotify, notice("nas", 9));
  const Call told = next_call(machine(2));
  EXPECT_STREQ(Decoded<lk_notify>(&xdr_lk_notify, told.arguments)->name, "127.0.0.7");
  EXPECT_EQ(machine(2).server.peer(), PeerAddress::from_ipv4(127, 0, 0, 7));
}

TEST_F(LockServiceTest, clients_may_come_by_ipv6) {
  const int six = ::socket(AF_INET6, SOCK_DGRAM, 0);
  sockaddr_storage address;
  const socklen_t bytes = tcp::socket_address(kSix, 0, address);
  const bool there = six >= 0 && ::bind(six, reinterpret_cast<sockaddr*>(&address), bytes) == 0;
  ::close(six);
  if (!there) GTEST_SKIP() << "no IPv6 here";
  start();
  const Datagram client(kSix, kSix, service_->port());
  client.send(onc_rpc::lab::call_message(42, nlm(2), lock_arguments({})));
  upstream_->server.answer(next_call(*upstream_), result(LK_GRANTED));
  expect_reply(client, 42);
}

/// Locks a file for a link-local client. The object is created in the test's network namespace, because its
/// constructor opens sockets.
class OnLink final : public LockServiceTest {
 public:
  void TestBody() override {
    const PeerAddress on_link = *parse_address(kOnLinkOfOwn);
    Machine host(on_link, upstream_->server.port());
    start();
    const Datagram client(on_link, on_link, service_->port());
    client.send(onc_rpc::lab::call_message(42, nlm(2), lock_arguments({.block = true})));
    const Call lock = next_call(*upstream_);
    upstream_->server.answer(lock, result(LK_BLOCKED));
    until([&] { return client.next().has_value(); });
    grant(lock);
    until([&] { return host.pump(), !host.server.calls.empty(); });
    ASSERT_FALSE(host.server.calls.empty());
    EXPECT_EQ(host.server.calls[0].procedure.procedure, 5u);
    EXPECT_EQ(host.server.peer(), on_link);
  }
};

TEST(LockServiceOnLink, a_client_that_waits_is_called_back_at_its_link_local_address) {
  std::string why;
  std::thread([&] {
    why = make_link_of_own();
    if (why.empty()) OnLink().TestBody();
  }).join();
  if (!why.empty()) GTEST_SKIP() << why;
}

TEST_F(LockServiceTest, lock_managers_that_are_registered_stay_and_the_log_says_what_is_missing) {
  CapturedLog log;
  settings_.rpcbind = testing::TempDir() + "sluice-locks-rpcbind-" + std::to_string(::getpid());
  FakeServer rpcbind(settings_.rpcbind);
  std::vector<onc_rpc::Registration> known{
      {.program = 100024, .version = 1, .netid = "udp", .address = "0.0.0.0.3.232", .owner = {}}};
  std::size_t dumps = 0;
  const auto serve = [&] {
    rpcbind.pump();
    for (const Call& call : std::exchange(rpcbind.calls, {})) {
      const bool dump = call.procedure.procedure == onc_rpc::kDumpAddresses.procedure;
      dumps += dump ? 1 : 0;
      if (!dump) {
        xdr::Reader reader(call.arguments);
        onc_rpc::Registration one;
        one.program = reader.u32();
        one.version = reader.u32();
        one.netid = reader.string(100);
        one.address = reader.string(100);
        known.push_back(one);
      }
      rpcbind.answer(call, encoded([&](xdr::Writer& writer) {
                       if (!dump) return writer.boolean(true);
                       for (const onc_rpc::Registration& one : known)
                         writer.boolean(true), encode(writer, one);
                       writer.boolean(false);
                     }));
    }
  };
  until([&] { return serve(), log.text().find("NSM server") != std::string::npos; });
  EXPECT_NE(log.text().find("NLM is registered with rpcbind"), std::string::npos) << log.text();
  EXPECT_NE(
      log.text().find(
          "Another NSM server (udp 0.0.0.0.3.232) is registered with rpcbind and stays registered. Restarts "
          "of clients and of the upstream are not detected"),
      std::string::npos)
      << log.text();
  EXPECT_EQ(known[0].address, "0.0.0.0.3.232");
  const auto registered = [&](std::uint32_t program, const std::string& netid) {
    return std::any_of(known.begin() + 1, known.end(), [&](const onc_rpc::Registration& one) {
      return one.program == program && one.netid == netid &&
             onc_rpc::port_of_universal(one.address) == service_->port();
    });
  };
  EXPECT_TRUE(registered(100021, "tcp") && registered(100021, "udp") && registered(100024, "tcp"));
  EXPECT_FALSE(registered(100024, "udp"));
}

}  // namespace
}  // namespace sluice::locks
