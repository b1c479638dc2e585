// SPDX-License-Identifier: Apache-2.0
#include "controlplane/mount/mount_server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <rpc/pmap_clnt.h>
#include <rpc/rpc.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <deque>
#include <thread>

#include "dataplane/base/setup_error.h"
#include "mount3.h"

namespace sluice::mount {
namespace {

constexpr std::uint32_t kProgram = 100005;
constexpr std::uint32_t kVersion3 = 3;
enum Procedure : std::uint32_t { kNull = 0, kMnt = 1, kDump = 2, kUmnt = 3, kUmntAll = 4, kExport = 5 };

/// Of the one server: libtirpc's dispatch function has no context argument.
Exports* current_exports = nullptr;

PeerAddress address_of(SVCXPRT* transport) {
  const netbuf* caller = svc_getrpccaller(transport);
  PeerAddress address;
  const auto* any = static_cast<const sockaddr*>(caller->buf);
  if (any != nullptr && any->sa_family == AF_INET) {
    const auto* bytes =
        reinterpret_cast<const std::uint8_t*>(&static_cast<const sockaddr_in*>(caller->buf)->sin_addr);
    address = PeerAddress::from_ipv4(bytes[0], bytes[1], bytes[2], bytes[3]);
  } else if (any != nullptr && any->sa_family == AF_INET6) {
    std::memcpy(address.bytes.data(), &static_cast<const sockaddr_in6*>(caller->buf)->sin6_addr, 16);
  }
  return address;
}

template <typename T>
xdrproc_t proc_of(bool_t (*function)(XDR*, T*)) {
  return reinterpret_cast<xdrproc_t>(reinterpret_cast<void (*)()>(function));
}

void answer_mnt(SVCXPRT* transport) {
  char* path = nullptr;
  if (!svc_getargs(transport, proc_of(&xdr_mnt_dirpath), reinterpret_cast<char*>(&path))) {
    svcerr_decode(transport);
    return;
  }
  MountAnswer answer = current_exports->mount(path, address_of(transport));
  mnt_res result{};
  result.status = static_cast<unsigned>(answer.status);
  if (answer.status == MountStatus::Ok) {
    result.mnt_res_u.ok.fhandle.mnt_fhandle3_len = static_cast<unsigned>(answer.handle.size());
    result.mnt_res_u.ok.fhandle.mnt_fhandle3_val = reinterpret_cast<char*>(answer.handle.data());
    result.mnt_res_u.ok.auth_flavors.auth_flavors_len = static_cast<unsigned>(answer.flavors.size());
    result.mnt_res_u.ok.auth_flavors.auth_flavors_val = answer.flavors.data();
  }
  svc_sendreply(transport, proc_of(&xdr_mnt_res), reinterpret_cast<char*>(&result));
  svc_freeargs(transport, proc_of(&xdr_mnt_dirpath), reinterpret_cast<char*>(&path));
}

void answer_export(SVCXPRT* transport) {
  const std::vector<std::string> paths = current_exports->list();
  std::deque<mnt_export_node> nodes;
  mnt_exports head = nullptr;
  for (auto path = paths.rbegin(); path != paths.rend(); ++path) {
    nodes.push_back({const_cast<char*>(path->c_str()), nullptr, head});
    head = &nodes.back();
  }
  svc_sendreply(transport, proc_of(&xdr_mnt_exports), reinterpret_cast<char*>(&head));
}

void dispatch(svc_req* request, SVCXPRT* transport) {
  const auto none = reinterpret_cast<xdrproc_t>(reinterpret_cast<void (*)()>(&xdr_void));
  switch (request->rq_proc) {
    case kNull:
    case kUmnt:
    case kUmntAll:  // mounts are not recorded
      svc_sendreply(transport, none, nullptr);
      break;
    case kMnt:
      answer_mnt(transport);
      break;
    case kDump: {
      mnt_mountlist empty = nullptr;
      svc_sendreply(transport, proc_of(&xdr_mnt_mountlist), reinterpret_cast<char*>(&empty));
      break;
    }
    case kExport:
      answer_export(transport);
      break;
    default:
      svcerr_noproc(transport);
  }
}

int bound_socket(int type, std::uint16_t port) {
  const int fd = ::socket(AF_INET, type | SOCK_CLOEXEC, 0);
  const int on = 1;
  ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  if (fd < 0 || ::bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 ||
      (type == SOCK_STREAM && ::listen(fd, 16) != 0)) {
    const int reason = errno;
    if (fd >= 0) ::close(fd);
    throw SetupError("Cannot serve MOUNT on port " + std::to_string(port) + " (" + std::strerror(reason) +
                     "): set mount.port to another one, or mount.enabled = false.");
  }
  return fd;
}

std::uint16_t port_of(int fd) {
  sockaddr_in address{};
  socklen_t bytes = sizeof address;
  ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &bytes);
  return ntohs(address.sin_port);
}

}  // namespace

struct MountServer::State {
  std::unique_ptr<Exports> exports;
  std::uint16_t port = 0;
  bool registered = false;
  SVCXPRT* tcp = nullptr;
  SVCXPRT* udp = nullptr;
  std::atomic<bool> stop{false};
  std::thread thread;

  void run() {
    constexpr int kStopCheckMs = 100;
    while (!stop) {
      std::vector<pollfd> fds(svc_pollfd, svc_pollfd + svc_max_pollfd);
      const int ready = ::poll(fds.data(), fds.size(), kStopCheckMs);
      if (ready > 0) svc_getreq_poll(fds.data(), ready);
    }
  }
};

MountServer::MountServer(std::uint16_t port, bool use_rpcbind, std::unique_ptr<Exports> exports)
    : state_(std::make_unique<State>()) {
  state_->exports = std::move(exports);
  current_exports = state_->exports.get();
  const int tcp = bound_socket(SOCK_STREAM, port);
  state_->port = port_of(tcp);
  const int udp = bound_socket(SOCK_DGRAM, state_->port);
  state_->tcp = svc_vc_create(tcp, 0, 0);
  state_->udp = svc_dg_create(udp, 0, 0);
  if (state_->tcp == nullptr || state_->udp == nullptr ||
      !svc_reg(state_->tcp, kProgram, kVersion3, dispatch, nullptr) ||
      !svc_reg(state_->udp, kProgram, kVersion3, dispatch, nullptr))
    throw SetupError("libtirpc cannot serve MOUNT on port " + std::to_string(state_->port) + ".");
  if (use_rpcbind) {
    pmap_unset(kProgram, kVersion3);
    state_->registered = pmap_set(kProgram, kVersion3, IPPROTO_TCP, state_->port) &&
                         pmap_set(kProgram, kVersion3, IPPROTO_UDP, state_->port);
  }
  state_->thread = std::thread([state = state_.get()] { state->run(); });
}

MountServer::~MountServer() {
  state_->stop = true;
  state_->thread.join();
  if (state_->registered) pmap_unset(kProgram, kVersion3);
  svc_unreg(kProgram, kVersion3);
  svc_destroy(state_->tcp);
  svc_destroy(state_->udp);
  current_exports = nullptr;
}

std::uint16_t MountServer::port() const {
  return state_->port;
}
bool MountServer::registered() const {
  return state_->registered;
}

}  // namespace sluice::mount
