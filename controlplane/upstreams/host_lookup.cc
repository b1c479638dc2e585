// SPDX-License-Identifier: Apache-2.0
#include "controlplane/upstreams/host_lookup.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "dataplane/tcp/sockets.h"

namespace sluice::upstreams {

std::optional<PeerAddress> parse_address(const std::string& text) {
  std::array<std::uint8_t, 4> four{};
  if (::inet_pton(AF_INET, text.c_str(), four.data()) == 1)
    return PeerAddress::from_ipv4(four[0], four[1], four[2], four[3]);
  PeerAddress six;
  if (::inet_pton(AF_INET6, text.c_str(), six.bytes.data()) == 1) return six;
  return std::nullopt;
}

LookupResult look_up(const std::string& host) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_ADDRCONFIG;
  addrinfo* found = nullptr;
  const int error = ::getaddrinfo(host.c_str(), nullptr, &hints, &found);
  if (error != 0)
    return {.addresses = {}, .problem = error == EAI_SYSTEM ? std::strerror(errno) : ::gai_strerror(error)};
  LookupResult result;
  for (const addrinfo* entry = found; entry != nullptr; entry = entry->ai_next) {
    if (entry->ai_family != AF_INET && entry->ai_family != AF_INET6) continue;
    sockaddr_storage address{};
    std::memcpy(&address, entry->ai_addr, entry->ai_addrlen);
    result.addresses.push_back(tcp::peer_address(address));
  }
  ::freeaddrinfo(found);
  if (result.addresses.empty()) result.problem = "it has no IP address";
  return result;
}

bool HostLookup::begin(tasks::Arena& arena, const LookUp& look_up, const std::string& host) {
  auto pending = std::make_shared<Pending>();
  const bool begun = arena.start([wanted = std::weak_ptr(pending), look_up, host]() -> tasks::Arena::Done {
    if (wanted.expired()) return {};
    return [wanted, result = look_up(host)] {
      if (const auto waiting = wanted.lock()) *waiting = result;
    };
  });
  if (begun) pending_ = std::move(pending);
  return begun;
}

std::optional<LookupResult> HostLookup::take() {
  if (pending_ == nullptr || !pending_->has_value()) return std::nullopt;
  return std::move(*std::exchange(pending_, nullptr));
}

}  // namespace sluice::upstreams
