// SPDX-License-Identifier: Apache-2.0
#include "dataplane/ingress/listener.h"

#include <unistd.h>

#include <cstring>
#include <string>

#include "dataplane/base/setup_error.h"
#include "dataplane/tcp/sockets.h"

namespace sluice::ingress {

Listener::Listener(const sockaddr_storage& address, socklen_t address_bytes)
    : descriptor_(tcp::listening_socket(reinterpret_cast<const sockaddr*>(&address), address_bytes)) {
  if (descriptor_ < 0)
    throw SetupError(std::string("The reverse gateway cannot listen (") + std::strerror(-descriptor_) +
                     "): check listen_address and listen_port in [reverse]; ports below 1024 need "
                     "CAP_NET_BIND_SERVICE.");
}

Listener::~Listener() {
  ::close(descriptor_);
}

std::uint16_t Listener::port() const noexcept {
  return tcp::local_port(descriptor_);
}

}  // namespace sluice::ingress
