// SPDX-License-Identifier: Apache-2.0
//
// How RPC names a transport and an address on it (RFC 5665; RFC 8166, section 9; V1-179). Setup and
// administration.
#pragma once

#include <arpa/inet.h>

#include <string>

#include "pmd/rdma.h"

namespace sluice::rpcrdma {

inline bool is_mapped_ipv4(const rdma::PeerAddress& address) {
  return address.within(rdma::PeerAddress::from_ipv4(0, 0, 0, 0), 96);
}

/// "rdma" where addresses are IPv4, "rdma6" where they are IPv6.
inline const char* netid(const rdma::PeerAddress& address) {
  return is_mapped_ipv4(address) ? "rdma" : "rdma6";
}

inline std::string to_string(const rdma::PeerAddress& address) {
  char text[INET6_ADDRSTRLEN] = "";
  if (is_mapped_ipv4(address))
    ::inet_ntop(AF_INET, address.bytes.data() + 12, text, sizeof text);
  else
    ::inet_ntop(AF_INET6, address.bytes.data(), text, sizeof text);
  return text;
}

/// Host address, then the two bytes of the port in decimal: 192.0.2.1.78.81 is port 20049.
inline std::string universal_address(const rdma::PeerAddress& address, std::uint16_t port) {
  return to_string(address) + '.' + std::to_string(port >> 8) + '.' + std::to_string(port & 0xFF);
}

}  // namespace sluice::rpcrdma
