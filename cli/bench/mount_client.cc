// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/mount_client.h"

#include <rpc/rpc.h>
#include <sys/socket.h>

#include <cstring>
#include <optional>

#include "cli/bench/client_error.h"
#include "dataplane/base/file_descriptor.h"
#include "dataplane/base/net_address.h"
#include "dataplane/base/sockets.h"
#include "mount3.h"

namespace sluice::bench {
namespace {

template <typename T>
xdrproc_t proc_of(bool_t (*function)(XDR*, T*)) {
  return reinterpret_cast<xdrproc_t>(reinterpret_cast<void (*)()>(function));
}

}  // namespace

std::vector<std::byte> mount_root(const std::string& host, std::uint16_t port, const std::string& path) {
  const std::optional<PeerAddress> server = parse_address(host);
  if (!server)
    throw ClientError("The MOUNT host has to be an IP address, such as 127.0.0.1, ::1 or fe80::1%eth0.");
  sockaddr_storage address;
  const socklen_t address_bytes = socket_address(*server, port, address);
  const FileDescriptor socket(::socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_storage own{};
  own.ss_family = address.ss_family;
  ::bindresvport_sa(socket.get(),
                    reinterpret_cast<sockaddr*>(&own));  // some servers require a privileged port
  netbuf to{sizeof address, address_bytes, &address};
  CLIENT* client = socket ? clnt_vc_create(socket.get(), &to, 100005, 3, 0, 0) : nullptr;
  if (client == nullptr)
    throw ClientError("There is no MOUNT server at " + host + " port " + std::to_string(port) +
                      ". Check whether sluice-controlplane runs with mount.enabled, or use --mount-port.");
  char* argument = const_cast<char*>(path.c_str());
  mnt_res result{};
  const timeval kTimeout{10, 0};
  const clnt_stat status = clnt_call(client, 1, proc_of(&xdr_mnt_dirpath), reinterpret_cast<char*>(&argument),
                                     proc_of(&xdr_mnt_res), reinterpret_cast<char*>(&result), kTimeout);
  std::vector<std::byte> handle;
  if (status == RPC_SUCCESS && result.status == 0) {
    const auto* bytes = reinterpret_cast<const std::byte*>(result.mnt_res_u.ok.fhandle.mnt_fhandle3_val);
    handle.assign(bytes, bytes + result.mnt_res_u.ok.fhandle.mnt_fhandle3_len);
  }
  clnt_freeres(client, proc_of(&xdr_mnt_res), reinterpret_cast<char*>(&result));
  clnt_destroy(client);
  if (handle.empty())
    throw ClientError("MOUNT of " + path + " was refused (status " + std::to_string(result.status) +
                      "). 'sluicectl exports' lists the exports.");
  return handle;
}

}  // namespace sluice::bench
