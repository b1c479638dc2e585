// SPDX-License-Identifier: Apache-2.0
//
// The MOUNT server with libtirpc as the client.
#include "controlplane/mount/mount_service.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <rpc/rpc.h>
#include <sys/socket.h>

#include <cstring>

#include "controlplane/events/journal.h"
#include "dataplane/base/file_descriptor.h"
#include "dataplane/tcp/sockets.h"
#include "mount3.h"
#include "tests/unit/link_of_own.h"

namespace sluice::mount {
namespace {

using namespace onc_rpc;

constexpr PeerAddress kFour = PeerAddress::from_ipv4(127, 0, 0, 1);
constexpr PeerAddress kSix{{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}};

template <typename T>
xdrproc_t proc_of(bool_t (*function)(XDR*, T*)) {
  return reinterpret_cast<xdrproc_t>(reinterpret_cast<void (*)()>(function));
}

/// One export for clients of this host, one for their privileged ports, and one for no client.
class TwoExports final : public Exports {
 public:
  void mount(const std::string& path, const Asker& asker, OnMount done) override {
    if (path == "/link" && asker.address.zone != 0 && asker.local == asker.address)
      done({MountStatus::Ok, std::vector(24, std::byte{0x42})});
    else if (path == "/export" && (asker.address == kFour || asker.address == kSix))
      done({MountStatus::Ok, std::vector(24, std::byte{0x42})});
    else if (path == "/privileged" && asker.privileged)
      done({MountStatus::Ok, std::vector(24, std::byte{0x42})});
    else
      done({path == "/secret" ? MountStatus::Acces : MountStatus::NoEnt, {}});
  }
  void list(const Asker&, OnList done) override {
    const std::vector<std::string> paths{"/export", "/secret"};
    done(&paths);
  }
};

class Mount : public testing::TestWithParam<std::tuple<bool, bool>> {};

TEST_P(Mount, V1_182_clients_get_handles_over_tcp_and_udp) {
  const auto [tcp, six] = GetParam();
  events::Journal journal([](const events::Event&) {});
  PollThread thread("mount");
  MountServer server(
      thread, 0, "", [](MountStatistics&) { return std::make_unique<TwoExports>(); }, journal);
  sockaddr_storage address;
  const socklen_t bytes = tcp::socket_address(six ? kSix : kFour, server.port(), address);
  const int socket = ::socket(six ? AF_INET6 : AF_INET, tcp ? SOCK_STREAM : SOCK_DGRAM, 0);
  netbuf to{sizeof address, bytes, &address};
  CLIENT* client =
      tcp ? clnt_vc_create(socket, &to, 100005, 3, 0, 0) : clnt_dg_create(socket, &to, 100005, 3, 0, 0);
  ASSERT_NE(client, nullptr);
  const timeval wait{10, 0};
  const auto none = reinterpret_cast<xdrproc_t>(reinterpret_cast<void (*)()>(&xdr_void));
  const auto mnt = [&](const char* path) {
    char* argument = const_cast<char*>(path);
    mnt_res result{};
    EXPECT_EQ(clnt_call(client, 1, proc_of(&xdr_mnt_dirpath), reinterpret_cast<char*>(&argument),
                        proc_of(&xdr_mnt_res), reinterpret_cast<char*>(&result), wait),
              RPC_SUCCESS);
    const unsigned status = result.status;
    if (status == 0) {
      EXPECT_EQ(result.mnt_res_u.ok.fhandle.mnt_fhandle3_len, 24u);
      EXPECT_EQ(result.mnt_res_u.ok.fhandle.mnt_fhandle3_val[0], 0x42);
      EXPECT_EQ(result.mnt_res_u.ok.auth_flavors.auth_flavors_val[0], AUTH_SYS);
    }
    clnt_freeres(client, proc_of(&xdr_mnt_res), reinterpret_cast<char*>(&result));
    return status;
  };
  EXPECT_EQ(mnt("/export"), 0u);
  EXPECT_EQ(mnt("/secret"), 13u);
  EXPECT_EQ(mnt("/nothing"), 2u);
  EXPECT_EQ(clnt_call(client, 0, none, nullptr, none, nullptr, wait), RPC_SUCCESS);
  EXPECT_EQ(clnt_call(client, 4, none, nullptr, none, nullptr, wait), RPC_SUCCESS);
  EXPECT_EQ(clnt_call(client, 9, none, nullptr, none, nullptr, wait), RPC_PROCUNAVAIL);
  mnt_mountlist mounts = nullptr;
  EXPECT_EQ(clnt_call(client, 2, none, nullptr, proc_of(&xdr_mnt_mountlist), reinterpret_cast<char*>(&mounts),
                      wait),
            RPC_SUCCESS);
  EXPECT_EQ(mounts, nullptr);
  mnt_exports list = nullptr;
  EXPECT_EQ(
      clnt_call(client, 5, none, nullptr, proc_of(&xdr_mnt_exports), reinterpret_cast<char*>(&list), wait),
      RPC_SUCCESS);
  ASSERT_NE(list, nullptr);
  EXPECT_STREQ(list->path, "/export");
  EXPECT_STREQ(list->next->path, "/secret");
  clnt_freeres(client, proc_of(&xdr_mnt_exports), reinterpret_cast<char*>(&list));
  clnt_destroy(client);
  ::close(socket);
}

TEST_P(Mount, calls_from_privileged_ports_are_told_from_others) {
  const auto [tcp, six] = GetParam();
  events::Journal journal([](const events::Event&) {});
  PollThread thread("mount");
  MountServer server(
      thread, 0, "", [](MountStatistics&) { return std::make_unique<TwoExports>(); }, journal);
  for (const bool privileged : {false, true}) {
    sockaddr_storage address;
    const socklen_t bytes = tcp::socket_address(six ? kSix : kFour, server.port(), address);
    const int socket = ::socket(six ? AF_INET6 : AF_INET, tcp ? SOCK_STREAM : SOCK_DGRAM, 0);
    if (privileged) {
      ASSERT_EQ(::bindresvport_sa(socket, nullptr), 0);
    }
    netbuf to{sizeof address, bytes, &address};
    CLIENT* client =
        tcp ? clnt_vc_create(socket, &to, 100005, 3, 0, 0) : clnt_dg_create(socket, &to, 100005, 3, 0, 0);
    ASSERT_NE(client, nullptr);
    char path[] = "/privileged";
    char* argument = path;
    mnt_res result{};
    const timeval wait{10, 0};
    EXPECT_EQ(clnt_call(client, 1, proc_of(&xdr_mnt_dirpath), reinterpret_cast<char*>(&argument),
                        proc_of(&xdr_mnt_res), reinterpret_cast<char*>(&result), wait),
              RPC_SUCCESS);
    EXPECT_EQ(result.status, privileged ? 0 : 2);
    clnt_freeres(client, proc_of(&xdr_mnt_res), reinterpret_cast<char*>(&result));
    clnt_destroy(client);
    ::close(socket);
  }
}

INSTANTIATE_TEST_SUITE_P(Transports, Mount, testing::Combine(testing::Bool(), testing::Bool()),
                         [](const auto& transport) {
                           return std::string(std::get<0>(transport.param) ? "tcp" : "udp") +
                                  (std::get<1>(transport.param) ? "6" : "4");
                         });

TEST(MountOnLink, a_client_with_a_link_local_address_is_known_by_its_zone_over_tcp_and_udp) {
  if (const std::string why = make_link_of_own(); !why.empty()) GTEST_SKIP() << why;
  events::Journal journal([](const events::Event&) {});
  PollThread thread("mount");
  MountServer server(
      thread, 0, "", [](MountStatistics&) { return std::make_unique<TwoExports>(); }, journal);
  const auto host = parse_address(kOnLinkOfOwn);
  ASSERT_TRUE(host);
  sockaddr_storage address;
  const socklen_t bytes = tcp::socket_address(*host, server.port(), address);
  for (const int kind : {SOCK_STREAM, SOCK_DGRAM}) {
    const FileDescriptor socket(::socket(AF_INET6, kind | SOCK_CLOEXEC, 0));
    netbuf to{sizeof address, bytes, &address};
    CLIENT* const client = kind == SOCK_STREAM ? clnt_vc_create(socket.get(), &to, 100005, 3, 0, 0)
                                               : clnt_dg_create(socket.get(), &to, 100005, 3, 0, 0);
    ASSERT_NE(client, nullptr);
    const timeval wait{10, 0};
    char path[] = "/link";
    char* argument = path;
    mnt_res result{};
    EXPECT_EQ(clnt_call(client, 1, proc_of(&xdr_mnt_dirpath), reinterpret_cast<char*>(&argument),
                        proc_of(&xdr_mnt_res), reinterpret_cast<char*>(&result), wait),
              RPC_SUCCESS);
    EXPECT_EQ(result.status, 0u) << (kind == SOCK_STREAM ? "TCP" : "UDP");
    clnt_freeres(client, proc_of(&xdr_mnt_res), reinterpret_cast<char*>(&result));
    clnt_destroy(client);
  }
}

/// A reply is sent from the destination address of its call, even if the host's routing table prefers another
/// one.
TEST(MountDatagrams, a_reply_leaves_from_where_the_call_went) {
  events::Journal journal([](const events::Event&) {});
  PollThread thread("mount");
  MountServer server(
      thread, 0, "", [](MountStatistics&) { return std::make_unique<TwoExports>(); }, journal);
  sockaddr_storage other;
  socklen_t bytes = tcp::socket_address(PeerAddress::from_ipv4(127, 0, 0, 9), server.port(), other);
  const int socket = ::socket(AF_INET, SOCK_DGRAM, 0);
  // A connected socket receives from this address only.
  ASSERT_EQ(::connect(socket, reinterpret_cast<sockaddr*>(&other), bytes), 0);
  const timeval patience{30, 0};
  ::setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  std::array<std::uint32_t, 10> call{htonl(1), 0, htonl(2), htonl(100005), htonl(3), 0, 0, 0, 0, 0};
  ASSERT_EQ(::send(socket, call.data(), sizeof call, 0), static_cast<ssize_t>(sizeof call));
  std::array<std::uint32_t, 6> reply{};
  EXPECT_EQ(::recv(socket, reply.data(), sizeof reply, 0), static_cast<ssize_t>(sizeof reply));
  EXPECT_EQ(reply, (std::array<std::uint32_t, 6>{htonl(1), htonl(1), 0, 0, 0, 0}));
  ::close(socket);
}

TEST(MountSockets, no_other_server_can_share_the_datagrams) {
  const Sockets ours(0, Sockets::Transports::TcpAndUdp, "MOUNT", "");
  const int other = ::socket(AF_INET, SOCK_DGRAM, 0);
  const int on = 1;
  ::setsockopt(other, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_storage address;
  const socklen_t bytes = tcp::socket_address(kFour, ours.port(), address);
  EXPECT_NE(::bind(other, reinterpret_cast<sockaddr*>(&address), bytes), 0);
  ::close(other);
}

TEST(MountSockets, a_port_that_is_taken_is_a_clear_sentence) {
  const Sockets first(0, Sockets::Transports::TcpAndUdp, "MOUNT", "");
  EXPECT_EQ(first.all().size(), 4u);
  try {
    const Sockets second(first.port(), Sockets::Transports::TcpAndUdp, "MOUNT", "Set another one.");
    FAIL();
  } catch (const SetupError& error) {
    EXPECT_EQ(std::string(error.what()), "Cannot serve MOUNT on port " + std::to_string(first.port()) +
                                             " (Address already in use). Set another one.");
  }
}

}  // namespace
}  // namespace sluice::mount
