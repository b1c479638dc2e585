// SPDX-License-Identifier: Apache-2.0
#include "telemetry/http/listener.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>

#include "telemetry/http/host_names.h"

namespace sluice::http {
namespace {

/// Connections that wait to be taken in: who finds no room among them tries again after a second.
constexpr int kBacklog = 1024;

[[noreturn]] void refuse(const std::string& address, const std::string& problem) {
  throw std::runtime_error(address + " (" + problem + ")");
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

namespace {

bool is_address(int family, std::string_view text) {
  in6_addr address;
  return ::inet_pton(family, std::string(text).c_str(), &address) == 1;
}

bool is_port(std::string_view text) {
  return !text.empty() && text.size() <= 5 && text.find_first_not_of("0123456789") == std::string_view::npos;
}

bool same_name(std::string_view one, std::string_view other) {
  const auto small = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; };
  return std::equal(one.begin(), one.end(), other.begin(), other.end(),
                    [&](char a, char b) { return small(a) == small(b); });
}

}  // namespace

bool is_ours(std::string_view host, std::string_view name) {
  if (host.find('\0') != std::string_view::npos) return false;
  const bool bracket = host.starts_with('[');
  const std::size_t end = bracket ? host.find(']') : std::min(host.find(':'), host.size());
  if (end == std::string_view::npos) return false;
  const std::string_view behind = host.substr(bracket ? end + 1 : end);
  if (!behind.empty() && (behind.front() != ':' || !is_port(behind.substr(1)))) return false;
  if (bracket) return is_address(AF_INET6, host.substr(1, end - 1));
  host = host.substr(0, end);
  return is_address(AF_INET, host) || same_name(host, "localhost") ||
         (!name.empty() && same_name(host, name));
}

}  // namespace sluice::http
