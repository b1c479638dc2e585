// SPDX-License-Identifier: Apache-2.0
#include "cli/conformance/upstream.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "cli/conformance/link.h"

namespace sluice::conformance {
namespace {

constexpr std::uint32_t kLastFragment = 1u << 31;
constexpr std::size_t kChunkBytes = 65536;
constexpr std::uint32_t kProcedureUnavailable = 3;

sockaddr_in parsed(const std::string& text) {
  const auto colon = text.rfind(':');
  sockaddr_in address{};
  address.sin_family = AF_INET;
  if (colon == std::string::npos ||
      ::inet_pton(AF_INET, text.substr(0, colon).c_str(), &address.sin_addr) != 1)
    throw LinkError("--upstream has to be an IPv4 address and a port, such as 127.0.0.1:2049.");
  address.sin_port = htons(static_cast<std::uint16_t>(std::atoi(text.c_str() + colon + 1)));
  return address;
}

}  // namespace

void NullUpstream::send(std::span<const std::byte> message) {
  if (word_at(message, 1) != 0) return;
  replies_.push_back(
      words({word_at(message, 0), 1, 0, 0, 0, word_at(message, 5) == 0 ? 0 : kProcedureUnavailable}));
}

std::optional<Bytes> NullUpstream::receive() {
  if (replies_.empty()) return std::nullopt;
  Bytes reply = std::move(replies_.front());
  replies_.pop_front();
  return reply;
}

TcpUpstream::TcpUpstream(const std::string& address)
    : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  const sockaddr_in to = parsed(address);
  // Servers trust ports below 1024 alone, unless they are told otherwise; without the right to one, any will do.
  sockaddr_in own{};
  own.sin_family = AF_INET;
  ::bindresvport(socket_, &own);
  if (::connect(socket_, reinterpret_cast<const sockaddr*>(&to), sizeof to) != 0) {
    const int error = errno;
    ::close(socket_);
    throw LinkError("No server answers at " + address + " (" + std::strerror(error) + "): check --upstream.");
  }
  const int on = 1;
  ::setsockopt(socket_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

TcpUpstream::~TcpUpstream() {
  ::close(socket_);
}

void TcpUpstream::send(std::span<const std::byte> message) {
  Bytes record = words({kLastFragment | static_cast<std::uint32_t>(message.size())});
  append(record, message);
  for (std::span<const std::byte> left = record; !left.empty();) {
    const ssize_t sent = ::send(socket_, left.data(), left.size(), MSG_NOSIGNAL);
    gone_ |= sent <= 0;
    if (gone_) return;
    left = left.subspan(static_cast<std::size_t>(sent));
  }
}

std::optional<Bytes> TcpUpstream::receive() {
  std::array<std::byte, kChunkBytes> chunk;
  while (!gone_) {
    const ssize_t got = ::recv(socket_, chunk.data(), chunk.size(), MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) break;
    gone_ |= got <= 0;
    if (gone_) break;
    append(incoming_, std::span(chunk).first(static_cast<std::size_t>(got)));
  }
  while (incoming_.size() >= 4) {
    const std::uint32_t mark = word_at(incoming_, 0);
    const std::size_t bytes = mark & ~kLastFragment;
    if (incoming_.size() < 4 + bytes) break;
    append(record_, std::span(incoming_).subspan(4, bytes));
    incoming_.erase(incoming_.begin(), incoming_.begin() + static_cast<std::ptrdiff_t>(4 + bytes));
    if ((mark & kLastFragment) != 0) return std::exchange(record_, {});
  }
  return std::nullopt;
}

}  // namespace sluice::conformance
