// SPDX-License-Identifier: Apache-2.0
//
// Text forms of addresses, and addresses that are well formed but cannot work: no host can have them, two
// keys claim them, or no route leads to them.
#include "controlplane/config/addresses.h"

#include <arpa/inet.h>

#include <array>
#include <charconv>
#include <cstddef>
#include <iterator>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "controlplane/config/readers.h"
#include "dataplane/base/net_address.h"
#include "dataplane/base/small_algorithms.h"
#include "dataplane/ulb/nfs3.h"

namespace sluice::config {
namespace {

constexpr std::uint32_t kIpv4Bits = 96;  ///< length in bits of the prefix of mapped IPv4 addresses
constexpr std::uint32_t kAddressBits = 128;

bool starts_with(const PeerAddress& address, std::uint8_t first, std::uint32_t bits) {
  if (is_mapped_ipv4(address))
    return address.within(PeerAddress::from_ipv4(first, 0, 0, 0), kIpv4Bits + bits);
  return false;
}

/// Returns whether all bits from `from` on are `ones`.
bool rest_is(const PeerAddress& address, std::uint32_t from, bool ones) {
  for (std::uint32_t bit = from; bit < kAddressBits; ++bit)
    if (((address.bytes[bit / 8] & (0x80 >> bit % 8)) != 0) != ones) return false;
  return true;
}

bool same_family(const PeerAddress& one, const PeerAddress& other) {
  return is_mapped_ipv4(one) == is_mapped_ipv4(other);
}

const toml::source_region& place_of(const toml::table& table, const char* key, std::size_t index) {
  const toml::node* const node = table.get(key);
  const toml::array* const list = node->as_array();
  return list != nullptr && index < list->size() ? list->get(index)->source() : node->source();
}

/// Returns the first `count` prefixes of a list.
template <typename List>
auto first(const List& list, std::uint32_t count) {
  return std::span(list).first(std::min<std::size_t>(count, list.size()));
}

/// Checks a list of clients for addresses that no client can have, and for duplicate entries.
void check_clients(Checker& check, const toml::table& table, const char* key,
                   std::span<const segment::AllowedPrefix> prefixes) {
  for (std::size_t i = 0; i < prefixes.size(); ++i) {
    const segment::AllowedPrefix& entry = prefixes[i];
    const std::string what = key + std::string(" has ") + to_text(entry);
    const bool single = entry.prefix_bits == kAddressBits;
    if (is_multicast(entry.address))
      check.defect(place_of(table, key, i),
                   what + ", which are multicast groups. No client has such an address, so remove it.");
    else if (single && is_unspecified(entry.address))
      check.defect(place_of(table, key, i),
                   what + ", which no client has. Write \"0.0.0.0/0\" and \"::/0\" to admit everybody.");
    else if (single && is_broadcast(entry.address))
      check.defect(place_of(table, key, i),
                   what + ", the broadcast address, which no client has. Remove it.");
    for (std::size_t before = 0; before < i; ++before)
      if (prefixes[before].address == entry.address && prefixes[before].prefix_bits == entry.prefix_bits)
        check.defect(place_of(table, key, i), what + " twice. Remove one.");
  }
}

/// Checks the own addresses of softroce.
void check_own(Checker& check, const toml::table& device, const segment::ConfigBlock& block) {
  const auto addresses = first(block.addresses, block.address_count);
  for (std::size_t i = 0; i < addresses.size(); ++i) {
    const PeerAddress& own = addresses[i].address;
    const std::uint32_t bits = addresses[i].prefix_bits;
    const std::string what = "addresses has " + to_text(addresses[i]);
    const std::string kind = unusable_as_host(own);
    if (!kind.empty() || is_loopback(own))
      check.defect(place_of(device, "addresses", i), what + ", which is " +
                                                         (kind.empty() ? "a loopback address" : kind) +
                                                         ". Name the address of a host.");
    else if (bits + 1 < kAddressBits && rest_is(own, bits, false))
      check.defect(place_of(device, "addresses", i),
                   what + ", which is the address of the network itself. Name the address of a host in it.");
    else if (bits + 1 < kAddressBits && is_mapped_ipv4(own) && rest_is(own, bits, true))
      check.defect(
          place_of(device, "addresses", i),
          what + ", which is the broadcast address of its network. Name the address of a host in it.");
    for (std::size_t before = 0; before < i; ++before)
      if (addresses[before].address == own)
        check.defect(place_of(device, "addresses", i), what + " twice. Remove one.");
  }
}

std::string unusable(const std::string& what, const std::string& kind, const char* instead) {
  return what + ", which is " + kind + ". Name " + instead + ".";
}

void check_gateways(Checker& check, const toml::table& device, const segment::ConfigBlock& block) {
  const auto addresses = first(block.addresses, block.address_count);
  const auto gateways = first(block.gateways, block.gateway_count);
  for (std::size_t i = 0; i < gateways.size(); ++i) {
    const PeerAddress& gateway = gateways[i];
    const toml::source_region& where = place_of(device, "gateways", i);
    const std::string what = "gateways has " + to_string(gateway);
    const bool reached = has_match(addresses, [&](const auto& own) {
      return same_family(own.address, gateway) && gateway.within(own.address, own.prefix_bits);
    });
    if (const std::string kind = unusable_as_host(gateway); !kind.empty())
      check.defect(where, unusable(what, kind, "the address of a router"));
    else if (has_match(addresses, [&](const auto& own) { return own.address == gateway; }))
      check.defect(where, what + ", which is among addresses too. Name the address of a router.");
    else if (!reached && !is_link_local(gateway))
      check.defect(where,
                   what + ", which is in none of the networks of addresses. Name a router in one of them.");
    for (std::size_t before = 0; before < i; ++before)
      if (same_family(gateways[before], gateway))
        check.defect(where, what + ", but another gateway has the same address family. Remove one.");
  }
}

bool has_nfs3(const segment::UpstreamConfig& upstream) {
  return has_match(first(upstream.routes, upstream.route_count), [](const segment::RouteConfig& route) {
    return route.program == ulb::kNfsProgram && route.version == ulb::kNfs3Version;
  });
}

void check_upstreams(Checker& check, const toml::table& root, const Config& config) {
  const segment::ConfigBlock& block = config.block;
  const toml::array* const list = root["upstream"].as_array();
  if (list == nullptr) return;
  for (std::size_t i = 0; i < std::min<std::size_t>(list->size(), block.upstream_count); ++i) {
    const segment::UpstreamConfig& upstream = block.upstreams[i];
    const toml::table& table = *list->get(i)->as_table();
    const auto hosts = first(upstream.hosts, upstream.host_count);
    for (std::size_t h = 0; h < hosts.size(); ++h) {
      const std::string host = hosts[h].data();
      const std::optional<PeerAddress> parsed = parse_address(host);
      const std::string kind = parsed ? unusable_as_host(*parsed) : "";
      if (!kind.empty())
        check.defect(place_of(table, "address", h),
                     unusable("address has " + host, kind, "the address of a host"));
      const bool over_device =
          upstream.transport == segment::Transport::Rdma && block.driver != segment::Driver::Verbs;
      if (const std::string zone = zone_defect(host, over_device ? Zone::OfDevice : Zone::OfKernel);
          !zone.empty())
        check.defect(place_of(table, "address", h), "address has " + zone);
      if (over_device && config.mount_enabled && parsed && is_link_local(*parsed) && has_nfs3(upstream))
        check.defect(place_of(table, "address", h),
                     "address has " + host +
                         ", at which MOUNT cannot be asked, because it is over TCP and the address has no "
                         "interface: name another address, or set mount.enabled = false.");
      for (std::size_t before = 0; before < h; ++before)
        if (host == hosts[before].data())
          check.defect(place_of(table, "address", h), "address has " + host + " twice. Remove one.");
    }
    check_clients(check, table, "clients", first(upstream.allowed, upstream.allowed_count));
  }
}

void check_reverse(Checker& check, const toml::table& table, const segment::ConfigBlock& block,
                   bool mount_enabled) {
  const segment::ReverseConfig& reverse = block.reverse;
  const auto check_name = [&](const char* key, const PeerAddress& address, bool all_of_host) {
    if (!table.contains(key) || (all_of_host && is_unspecified(address))) return;
    if (const std::string kind = unusable_as_host(address); !kind.empty() && address != PeerAddress{})
      check.defect(table.get(key)->source(), key + std::string(" is ") + to_string(address) + ", which is " +
                                                 kind + ". Name the address of a host.");
  };
  check_name("listen_address", reverse.listen_address, true);
  check_name("server", reverse.server, false);
  check_name("mount_address", reverse.mount_address, false);
  if (const PeerAddress& asked = reverse.mount_address;
      mount_enabled && reverse.in_use != 0 && is_link_local(asked) && asked.zone == 0)
    check.defect(table.source(),
                 "mount_address is needed, because MOUNT is called over TCP and cannot be called at " +
                     zone_defect(to_string(asked), Zone::OfKernel));
  check_clients(check, table, "allowed", first(reverse.allowed, reverse.allowed_count));
  for (const auto& own : first(block.addresses, block.address_count))
    if (reverse.in_use != 0 && block.driver == segment::Driver::SoftRoce && own.address == reverse.server)
      check.defect(table.source(),
                   "server is " + to_string(own.address) +
                       ", which is among addresses in [device]. Name the address of another host.");
}

}  // namespace

bool parse_prefix(const std::string& text, segment::AllowedPrefix& prefix) {
  const auto slash = text.find('/');
  const std::string address = text.substr(0, slash);
  const std::optional<PeerAddress> parsed = parse_address(address);
  if (!parsed || parsed->zone != 0) return false;
  prefix.address = *parsed;
  const bool v4 = address.find(':') == std::string::npos;
  unsigned bits = v4 ? 32 : 128;
  const unsigned offset = v4 ? 96 : 0;
  if (slash != std::string::npos) {
    const std::string length = text.substr(slash + 1);
    if (length.empty() || length.size() > 3 || length.find_first_not_of("0123456789") != std::string::npos)
      return false;
    if (std::stoul(length) > bits) return false;
    bits = static_cast<unsigned>(std::stoul(length));
  }
  prefix.prefix_bits = bits + offset;
  return true;
}

bool is_host_and_port(const std::string& address) {
  const std::size_t colon = address.rfind(':');
  if (colon == std::string::npos || colon == 0 || address.size() - colon > sizeof "65535") return false;
  const std::string port = address.substr(colon + 1);
  const bool digits = !port.empty() && port.find_first_not_of("0123456789") == std::string::npos;
  const bool bare = address.find(':') == colon || (address.front() == '[' && address[colon - 1] == ']');
  return digits && bare && std::stoul(port) <= 65535;
}

std::string host_of(const std::string& address) {
  const std::string host = address.substr(0, address.rfind(':'));
  return host.starts_with('[') ? host.substr(1, host.size() - 2) : host;
}

std::string to_text(const segment::AllowedPrefix& prefix) {
  if (is_mapped_ipv4(prefix.address) && prefix.prefix_bits >= 96)
    return to_string(prefix.address) + '/' + std::to_string(prefix.prefix_bits - 96);
  char text[INET6_ADDRSTRLEN] = "";
  ::inet_ntop(AF_INET6, prefix.address.bytes.data(), text, sizeof text);
  return std::string(text) + '/' + std::to_string(prefix.prefix_bits);
}

bool is_unspecified(const PeerAddress& address) {
  return address == PeerAddress{} || address == PeerAddress::from_ipv4(0, 0, 0, 0);
}

bool is_loopback(const PeerAddress& address) {
  constexpr PeerAddress kLoopback6{{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}};
  return address == kLoopback6 || starts_with(address, 127, 8);
}

bool is_multicast(const PeerAddress& address) {
  return address.bytes[0] == 0xFF || starts_with(address, 224, 4);
}

bool is_broadcast(const PeerAddress& address) {
  return address == PeerAddress::from_ipv4(255, 255, 255, 255);
}

std::string zone_defect(const std::string& text, Zone zone) {
  const std::size_t percent = text.find('%');
  const std::optional<PeerAddress> bare = parse_address(text.substr(0, percent));
  if (!bare) return {};
  const bool has_zone = percent != std::string::npos;
  const std::string interface = has_zone ? text.substr(percent + 1) : "";
  const std::string without = ". Write " + text.substr(0, percent) + '.';
  if (has_zone && !is_link_local(*bare))
    return text + ", whose zone is of no use because only addresses in fe80::/10 have one" + without;
  if (has_zone && zone == Zone::OfDevice)
    return text + ", whose zone is of no use because the device has one link" + without;
  if (has_zone && ::if_nametoindex(interface.c_str()) == 0)
    return text + ", and this machine has no interface '" + interface + "'. 'ip link' lists its interfaces.";
  if (!has_zone && is_link_local(*bare) && zone == Zone::OfKernel)
    return text + ", which is on every link. Name the interface, as in \"" + text + "%eth0\".";
  return {};
}

std::string unusable_as_host(const PeerAddress& address) {
  if (is_unspecified(address)) return "the unspecified address";
  if (is_multicast(address)) return "a multicast group";
  if (is_broadcast(address)) return "the broadcast address";
  if (starts_with(address, 0, 8) || starts_with(address, 240, 4)) return "a reserved address";
  return {};
}

void check_addresses(Checker& check, const toml::table& root, const Config& config) {
  const segment::ConfigBlock& block = config.block;
  if (const toml::table* const device = root["device"].as_table()) {
    check_own(check, *device, block);
    check_gateways(check, *device, block);
  }
  check_upstreams(check, root, config);
  if (const toml::table* const reverse = root["reverse"].as_table())
    check_reverse(check, *reverse, block, config.mount_enabled);
  if (const toml::array* const exports = root["export"].as_array())
    for (std::size_t i = 0; i < smaller_of(exports->size(), block.exports.size()); ++i)
      if (block.exports[i].in_use != 0)
        check_clients(check, *exports->get(i)->as_table(), "clients",
                      first(block.exports[i].allowed, block.exports[i].allowed_count));
  if (const toml::array* const classes = root["client_class"].as_array())
    for (std::size_t i = 0; i < classes->size() && i + 1 < config.classes.size(); ++i)
      check_clients(check, *classes->get(i)->as_table(), "clients", config.classes[i + 1].clients);
}

namespace {

/// A TCP port on which one of the planes listens. Two listeners with one address and port cannot both start.
struct Listener {
  std::string key;
  std::uint16_t port = 0;
  std::string host{};  ///< host as the key has it; empty if the key's reader has checked it
  /// Empty for a host name, which may resolve to any address.
  std::optional<PeerAddress> address{};
};

constexpr PeerAddress kEvery{};

/// Returns the listener of `address`, which is a valid HOST:PORT.
Listener at(const std::string& key, const std::string& address) {
  const std::size_t colon = address.rfind(':');
  Listener listener{.key = key, .host = host_of(address)};
  std::from_chars(address.data() + colon + 1, address.data() + address.size(), listener.port);
  listener.address =
      listener.host == "localhost" ? PeerAddress::from_ipv4(127, 0, 0, 1) : parse_address(listener.host);
  return listener;
}

std::vector<Listener> listeners(const Config& config) {
  std::vector<Listener> all;
  for (const auto& [key, address] : {std::pair("metrics.address", &config.metrics_address),
                                     std::pair("page.address", &config.page_address)})
    if (!address->empty() && is_host_and_port(*address)) all.push_back(at(key, *address));
  if (config.mount_enabled)
    all.push_back({.key = "mount.port", .port = config.mount_port, .address = kEvery});
  if (config.kerberos_enabled)
    all.push_back({.key = "kerberos.port", .port = config.kerberos_port, .address = kEvery});
  if (config.locks_enabled)
    all.push_back({.key = "locks.port", .port = config.locks_port, .address = kEvery});
  const segment::ReverseConfig& reverse = config.block.reverse;
  if (reverse.in_use != 0)
    all.push_back({.key = "reverse.listen_port",
                   .port = static_cast<std::uint16_t>(reverse.listen_port),
                   .address = reverse.listen_address});
  return all;
}

bool takes_all(const PeerAddress& address, const PeerAddress& of) {
  if (address == kEvery) return true;
  return is_unspecified(address) && is_mapped_ipv4(of);
}

bool collide(const Listener& one, const Listener& other) {
  if (one.port == 0 || one.port != other.port || !one.address || !other.address) return false;
  return *one.address == *other.address || takes_all(*one.address, *other.address) ||
         takes_all(*other.address, *one.address);
}

const toml::source_region& place_of_key(const toml::table& root, const std::string& key) {
  const std::size_t dot = key.find('.');
  const toml::table* const table = root[key.substr(0, dot)].as_table();
  if (table == nullptr) return root.source();
  const toml::node* const node = table->get(key.substr(dot + 1));
  return node != nullptr ? node->source() : table->source();
}

}  // namespace

void check_listeners(Checker& check, const toml::table& root, const Config& config) {
  const std::vector<Listener> all = listeners(config);
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (const std::string kind = all[i].address ? unusable_as_host(*all[i].address) : "";
        !kind.empty() && !is_unspecified(*all[i].address))
      check.defect(place_of_key(root, all[i].key),
                   all[i].key + " names " + kind + ". Name an address of this host.");
    if (const std::string zone = zone_defect(all[i].host, Zone::OfKernel); !zone.empty())
      check.defect(place_of_key(root, all[i].key), all[i].key + " names " + zone);
    for (std::size_t before = 0; before < i; ++before)
      if (collide(all[before], all[i]))
        check.defect(place_of_key(root, all[i].key),
                     all[i].key + " and " + all[before].key + " are both at TCP port " +
                         std::to_string(all[i].port) + ". Give one of them another port.");
  }
}

}  // namespace sluice::config
