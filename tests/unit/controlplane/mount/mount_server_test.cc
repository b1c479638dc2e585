// SPDX-License-Identifier: Apache-2.0
#include "controlplane/mount/mount_server.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <rpc/rpc.h>
#include <sys/socket.h>

#include "mount3.h"

namespace sluice::mount {
namespace {

template <typename T>
xdrproc_t proc_of(bool_t (*function)(XDR*, T*)) {
  return reinterpret_cast<xdrproc_t>(reinterpret_cast<void (*)()>(function));
}

/// One that the client may mount, and one that it may not.
class TwoExports final : public Exports {
 public:
  MountAnswer mount(const std::string& path, const PeerAddress& client) override {
    if (path == "/export" && client == PeerAddress::from_ipv4(127, 0, 0, 1))
      return {MountStatus::Ok, std::vector(24, std::byte{0x42})};
    return {path == "/secret" ? MountStatus::Acces : MountStatus::NoEnt, {}};
  }
  std::vector<std::string> list() override { return {"/export", "/secret"}; }
};

TEST(Mount, V1_182_clients_get_handles_over_tcp_and_udp) {
  MountServer server(0, false, std::make_unique<TwoExports>());
  for (const bool tcp : {true, false}) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(server.port());
    int socket = RPC_ANYSOCK;
    CLIENT* client = tcp ? clnttcp_create(&address, 100005, 3, &socket, 0, 0)
                         : clntudp_create(&address, 100005, 3, timeval{1, 0}, &socket);
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
    mnt_exports list = nullptr;
    EXPECT_EQ(
        clnt_call(client, 5, none, nullptr, proc_of(&xdr_mnt_exports), reinterpret_cast<char*>(&list), wait),
        RPC_SUCCESS);
    ASSERT_NE(list, nullptr);
    EXPECT_STREQ(list->path, "/export");
    EXPECT_STREQ(list->next->path, "/secret");
    clnt_freeres(client, proc_of(&xdr_mnt_exports), reinterpret_cast<char*>(&list));
    clnt_destroy(client);
  }
}

}  // namespace
}  // namespace sluice::mount
