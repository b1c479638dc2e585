// SPDX-License-Identifier: Apache-2.0
#include "controlplane/mount/upstream_mount.h"

#include <rpc/rpc.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <memory>

#include "dataplane/base/net_address.h"
#include "dataplane/tcp/sockets.h"
#include "mount3.h"

namespace sluice::mount {
namespace {

constexpr rpcprog_t kProgram = 100005;
constexpr rpcvers_t kVersion3 = 3;
constexpr rpcproc_t kMnt = 1;
constexpr rpcproc_t kExport = 5;
constexpr timeval kTimeout{5, 0};
constexpr unsigned kTimeoutMs = 5000;

template <typename T>
xdrproc_t proc_of(bool_t (*function)(XDR*, T*)) {
  return reinterpret_cast<xdrproc_t>(reinterpret_cast<void (*)()>(function));
}

struct Destroy {
  void operator()(CLIENT* client) const {
    if (client->cl_auth != nullptr) auth_destroy(client->cl_auth);
    clnt_destroy(client);
  }
};
using Client = std::unique_ptr<CLIENT, Destroy>;

/// At the port of the configuration, or where the upstream's rpcbind says.
Client connect(const segment::UpstreamConfig& upstream) {
  CLIENT* client = nullptr;
  if (upstream.mount_port == 0) {
    timeval timeout = kTimeout;
    client = clnt_create_timed(to_string(upstream.address).c_str(), kProgram, kVersion3,
                               is_mapped_ipv4(upstream.address) ? "tcp" : "tcp6", &timeout);
  } else {
    sockaddr_storage address{};
    const socklen_t bytes =
        tcp::socket_address(upstream.address, static_cast<std::uint16_t>(upstream.mount_port), address);
    const int socket = tcp::connecting_socket(address.ss_family, upstream.privileged_port != 0, kTimeoutMs);
    if (socket >= 0 && ::connect(socket, reinterpret_cast<const sockaddr*>(&address), bytes) == 0) {
      netbuf to{static_cast<unsigned>(sizeof address), static_cast<unsigned>(bytes), &address};
      client = clnt_vc_create(socket, &to, kProgram, kVersion3, 0, 0);
      int on = 1;
      if (client != nullptr) clnt_control(client, CLSET_FD_CLOSE, reinterpret_cast<char*>(&on));
    }
    if (client == nullptr && socket >= 0) ::close(socket);
  }
  if (client == nullptr) {
    spdlog::warn("MOUNT of upstream '{}' cannot be reached", upstream.name);
    return nullptr;
  }
  client->cl_auth = authunix_create_default();
  return Client(client);
}

template <typename Argument, typename Result>
bool call(const Client& client, rpcproc_t procedure, bool_t (*encode)(XDR*, Argument*), Argument* argument,
          bool_t (*decode)(XDR*, Result*), Result* result) {
  return client && clnt_call(client.get(), procedure, proc_of(encode), reinterpret_cast<char*>(argument),
                             proc_of(decode), reinterpret_cast<char*>(result), kTimeout) == RPC_SUCCESS;
}

MountAnswer ask(const segment::UpstreamConfig& upstream, const std::string& path) {
  const Client client = connect(upstream);
  char* name = const_cast<char*>(path.c_str());
  mnt_res result{};
  if (!call(client, kMnt, &xdr_mnt_dirpath, &name, &xdr_mnt_res, &result))
    return {.status = MountStatus::ServerFault, .handle = {}};
  MountAnswer answer{.status = static_cast<MountStatus>(result.status), .handle = {}};
  if (result.status == 0) {
    const auto& ok = result.mnt_res_u.ok;
    const auto* handle = reinterpret_cast<const std::byte*>(ok.fhandle.mnt_fhandle3_val);
    answer.handle.assign(handle, handle + ok.fhandle.mnt_fhandle3_len);
    answer.flavors.assign(ok.auth_flavors.auth_flavors_val,
                          ok.auth_flavors.auth_flavors_val + ok.auth_flavors.auth_flavors_len);
  }
  xdr_free(proc_of(&xdr_mnt_res), reinterpret_cast<char*>(&result));
  return answer;
}

bool_t nothing(XDR*, void*) {
  return TRUE;
}

std::vector<std::string> list_of(const segment::UpstreamConfig& upstream) {
  const Client client = connect(upstream);
  mnt_exports exports = nullptr;
  std::vector<std::string> paths;
  if (!call<void>(client, kExport, &nothing, nullptr, &xdr_mnt_exports, &exports)) return paths;
  for (mnt_exports node = exports; node != nullptr; node = node->next) paths.emplace_back(node->path);
  xdr_free(proc_of(&xdr_mnt_exports), reinterpret_cast<char*>(&exports));
  return paths;
}

class UpstreamExports final : public Exports {
 public:
  explicit UpstreamExports(const segment::UpstreamConfig& upstream) : upstream_(upstream) {}
  MountAnswer mount(const std::string& path, const PeerAddress&) override { return ask(upstream_, path); }
  std::vector<std::string> list() override { return list_of(upstream_); }

 private:
  const segment::UpstreamConfig upstream_;
};

}  // namespace

std::unique_ptr<Exports> exports_of(const segment::UpstreamConfig& upstream) {
  return std::make_unique<UpstreamExports>(upstream);
}

}  // namespace sluice::mount
