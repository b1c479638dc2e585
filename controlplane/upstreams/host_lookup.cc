// SPDX-License-Identifier: Apache-2.0
#include "controlplane/upstreams/host_lookup.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <thread>
#include <utility>

#include "dataplane/tcp/sockets.h"

namespace sluice::upstreams {

struct HostLookup::Pending {
  LookupResult result;
  std::atomic<bool> done{false};  ///< then the result belongs to the owner
};

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

void HostLookup::begin(const LookUp& look_up, const std::string& host) {
  pending_ = std::make_shared<Pending>();
  try {
    std::thread([pending = pending_, look_up, host] {
      pending->result = look_up(host);
      pending->done.store(true, std::memory_order_release);
    }).detach();
  } catch (const std::system_error& error) {
    pending_->result.problem = std::string("no thread can be started: ") + error.what();
    pending_->done = true;
  }
}

std::optional<LookupResult> HostLookup::take() {
  if (pending_ == nullptr || !pending_->done.load(std::memory_order_acquire)) return std::nullopt;
  return std::move(std::exchange(pending_, nullptr)->result);
}

}  // namespace sluice::upstreams
