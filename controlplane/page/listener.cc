// SPDX-License-Identifier: Apache-2.0
#include "controlplane/page/listener.h"

#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <memory>

namespace sluice::page {
namespace {

/// Connections that wait to be taken in: who finds no room among them tries again after a second.
constexpr int kBacklog = 1024;

[[noreturn]] void refuse(const std::string& address, const std::string& problem) {
  throw SetupError("Cannot serve the status page on " + address + " (" + problem +
                   "): set page.address to another address and port, or to \"\" for no page.");
}

std::string host_in(const std::string& address, std::size_t colon) {
  const std::string host = address.substr(0, colon);
  if (host == "localhost") return "127.0.0.1";
  return host.starts_with('[') ? host.substr(1, host.size() - 2) : host;
}

}  // namespace

FileDescriptor listen_on(const std::string& address) {
  const std::size_t colon = address.rfind(':');
  if (colon == std::string::npos) refuse(address, "it has no port");
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error =
      ::getaddrinfo(host_in(address, colon).c_str(), address.c_str() + colon + 1, &hints, &found);
  if (error != 0) refuse(address, ::gai_strerror(error));
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owned(found, ::freeaddrinfo);
  FileDescriptor socket(::socket(found->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  const int on = 1;
  if (!socket || ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
      ::bind(socket.get(), found->ai_addr, found->ai_addrlen) != 0 || ::listen(socket.get(), kBacklog) != 0)
    refuse(address, std::strerror(errno));
  return socket;
}

std::uint16_t port_of(const FileDescriptor& socket) {
  sockaddr_storage address{};
  socklen_t bytes = sizeof address;
  if (::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &bytes) != 0) return 0;
  return ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(address).sin6_port
                                             : reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

}  // namespace sluice::page
