// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/straight.h"

#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <stdexcept>
#include <vector>

#include "dataplane/tcp/sockets.h"

namespace sluice::bench {

int connect_to(std::uint16_t port) {
  const int socket = tcp::connecting_socket(AF_INET, false, 30'000);
  sockaddr_storage address;
  const socklen_t bytes = tcp::socket_address(PeerAddress::from_ipv4(127, 0, 0, 1), port, address);
  if (::connect(socket, reinterpret_cast<const sockaddr*>(&address), bytes) != 0)
    throw std::runtime_error("cannot connect");
  return socket;
}

Rate straight(std::uint16_t port, const ForwardedShape& shape, std::uint32_t depth, double seconds) {
  const int socket = connect_to(port);
  const auto message = call_message(shape);
  std::vector<std::byte> call(xdr::kUnit + message.size());
  store_mark(call.data(), message.size());
  std::memcpy(&call[xdr::kUnit], message.data(), message.size());

  Rate rate;
  rate.latency_ns.reserve(1u << 20);
  std::vector<std::byte> out;
  std::vector<std::byte> in(2u << 20);
  std::vector<std::uint64_t> begun(1u << 16);
  std::uint64_t submitted = 0;
  std::uint64_t now = now_ns();
  const std::uint64_t begin = now;
  const auto submit = [&] {
    begun[submitted++ % begun.size()] = now_ns();
    out.insert(out.end(), call.begin(), call.end());
  };
  for (std::uint32_t i = 0; i < depth; ++i) submit();
  std::size_t filled = 0;
  while (static_cast<double>(now - begin) < seconds * 1e9) {
    if (!out.empty()) {
      if (::send(socket, out.data(), out.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(out.size()))
        throw std::runtime_error("cannot send");
      out.clear();
    }
    const auto got = ::recv(socket, in.data() + filled, in.size() - filled, MSG_DONTWAIT);
    now = now_ns();
    if (got <= 0) continue;
    filled += static_cast<std::size_t>(got);
    std::size_t at = 0;
    while (filled - at >= xdr::kUnit) {
      const std::size_t bytes = load_mark(&in[at]);
      if (filled - at < xdr::kUnit + bytes) break;
      at += xdr::kUnit + bytes;
      rate.note(begun[rate.operations % begun.size()], now);
      submit();
    }
    std::memmove(in.data(), &in[at], filled - at);
    filled -= at;
  }
  rate.seconds = static_cast<double>(now - begin) / 1e9;
  ::close(socket);
  return rate;
}

}  // namespace sluice::bench
