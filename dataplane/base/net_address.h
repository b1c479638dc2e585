// SPDX-License-Identifier: Apache-2.0
//
// IP addresses of peers, and RPC network identifiers and universal addresses (RFC 5665; RFC 8166, section 9;
// V1-179). Plain values, any thread. The text functions allocate and make system calls, so they are for setup
// and administration only.
#pragma once

#include <arpa/inet.h>
#include <net/if.h>

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace sluice {

/// IPv6 address in network byte order; IPv4 is mapped, ::ffff:a.b.c.d (RFC 4291, section 2.5.5.2).
struct PeerAddress {
  std::array<std::uint8_t, 16> bytes{};
  /// Index of the interface whose link a link-local address is on, as in sin6_scope_id. Zero for other
  /// addresses and for devices that have only one link.
  std::uint32_t zone = 0;

  static constexpr PeerAddress from_ipv4(std::uint8_t a, std::uint8_t b, std::uint8_t c,
                                         std::uint8_t d) noexcept {
    return {{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d}};
  }
  // NOLINTNEXTLINE(modernize-use-nullptr): a defaulted comparison has no pointer (clang-tidy 14)
  auto operator<=>(const PeerAddress&) const = default;

  /// Returns whether the first `bits` bits equal those of `prefix`. The zone is ignored.
  constexpr bool within(const PeerAddress& prefix, std::uint32_t bits) const noexcept {
    for (std::uint32_t bit = 0; bit < bits && bit < 128; ++bit)
      if ((bytes[bit / 8] ^ prefix.bytes[bit / 8]) & (0x80 >> bit % 8)) return false;
    return true;
  }
};

/// Ethernet address of the next hop to a peer.
using LinkAddress = std::array<std::uint8_t, 6>;

/// Returns the EUI-64 of a link address, from which RoCE drivers derive the GUID of a port (RFC 4291,
/// appendix A).
constexpr std::uint64_t eui64_of(const LinkAddress& address) noexcept {
  constexpr std::uint8_t kUniversal = 2;
  const std::uint8_t bytes[] = {static_cast<std::uint8_t>(address[0] ^ kUniversal),
                                address[1],
                                address[2],
                                0xFF,
                                0xFE,
                                address[3],
                                address[4],
                                address[5]};
  std::uint64_t eui = 0;
  for (const std::uint8_t byte : bytes) eui = eui << 8 | byte;
  return eui;
}

inline bool is_mapped_ipv4(const PeerAddress& address) {
  return address.within(PeerAddress::from_ipv4(0, 0, 0, 0), 96);
}

/// Returns whether an address is in fe80::/10 (RFC 4291, section 2.5.6). Such an address is valid on one link
/// only, which its zone identifies.
constexpr bool is_link_local(const PeerAddress& address) noexcept {
  return address.bytes[0] == 0xFE && (address.bytes[1] & 0xC0) == 0x80;
}

/// Returns the address in `own` (a device's addresses) to connect to `remote` from: the first of the same
/// family and scope (RFC 6724, section 5, rule 2), else the first of the same family. All zero if there is
/// none.
inline PeerAddress local_for(std::span<const PeerAddress> own, const PeerAddress& remote) noexcept {
  PeerAddress found;
  for (const PeerAddress& address : own) {
    if (is_mapped_ipv4(address) != is_mapped_ipv4(remote)) continue;
    if (is_link_local(address) == is_link_local(remote)) return address;
    if (found == PeerAddress{}) found = address;
  }
  return found;
}

/// Returns the network identifier: "rdma" for IPv4, "rdma6" for IPv6.
inline const char* netid(const PeerAddress& address) {
  return is_mapped_ipv4(address) ? "rdma" : "rdma6";
}

/// Returns the address without its zone, which is meaningless to another host.
inline std::string text_without_zone(const PeerAddress& address) {
  char text[INET6_ADDRSTRLEN] = "";
  if (is_mapped_ipv4(address))
    ::inet_ntop(AF_INET, address.bytes.data() + 12, text, sizeof text);
  else
    ::inet_ntop(AF_INET6, address.bytes.data(), text, sizeof text);
  return text;
}

/// Returns the address with the name of its zone's interface, or with the index if no such interface exists.
inline std::string to_string(const PeerAddress& address) {
  if (address.zone == 0) return text_without_zone(address);
  char name[IF_NAMESIZE];
  const bool known = ::if_indextoname(address.zone, name) != nullptr;
  return text_without_zone(address) + '%' + (known ? std::string(name) : std::to_string(address.zone));
}

/// Parses an address whose zone, if any, is the name of an interface. Returns nullopt for other text, for an
/// interface that does not exist, and for the zone of an address that is not link-local.
inline std::optional<PeerAddress> parse_address(const std::string& text) {
  PeerAddress address = PeerAddress::from_ipv4(0, 0, 0, 0);
  if (::inet_pton(AF_INET, text.c_str(), address.bytes.data() + 12) == 1) return address;
  const std::size_t percent = text.find('%');
  if (::inet_pton(AF_INET6, text.substr(0, percent).c_str(), address.bytes.data()) != 1) return std::nullopt;
  if (percent == std::string::npos) return address;
  address.zone = ::if_nametoindex(text.c_str() + percent + 1);
  if (address.zone == 0 || !is_link_local(address)) return std::nullopt;
  return address;
}

/// Returns the universal address: the host, then the two bytes of the port in decimal. 192.0.2.1.78.81 is
/// port 20049.
inline std::string universal_address(const PeerAddress& address, std::uint16_t port) {
  return text_without_zone(address) + '.' + std::to_string(port >> 8) + '.' + std::to_string(port & 0xFF);
}

/// Returns an IPv4 address unchanged, and the first 64 bits of an IPv6 address, because a host can choose the
/// remaining bits freely.
inline PeerAddress network_of(PeerAddress address) {
  if (is_mapped_ipv4(address)) return address;
  for (std::size_t i = 8; i < address.bytes.size(); ++i) address.bytes[i] = 0;
  return address;
}

}  // namespace sluice
