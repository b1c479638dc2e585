// SPDX-License-Identifier: Apache-2.0
#include "controlplane/config/checker.h"

#include <arpa/inet.h>

#include <algorithm>
#include <cstring>

#include "dataplane/base/net_address.h"

namespace sluice::config {

toml::table parse_toml(const std::string& text, const std::string& name) {
  try {
    return toml::parse(text, name);
  } catch (const toml::parse_error& error) {
    throw ConfigError(name + ':' + std::to_string(error.source().begin.line) + ": " +
                      std::string(error.description()) + '\n');
  }
}

bool parse_prefix(const std::string& text, segment::AllowedPrefix& prefix) {
  const auto slash = text.find('/');
  const std::string address = text.substr(0, slash);
  in_addr v4{};
  in6_addr v6{};
  unsigned bits;
  unsigned offset = 0;
  if (::inet_pton(AF_INET, address.c_str(), &v4) == 1) {
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(&v4);
    prefix.address = PeerAddress::from_ipv4(bytes[0], bytes[1], bytes[2], bytes[3]);
    bits = 32;
    offset = 96;
  } else if (::inet_pton(AF_INET6, address.c_str(), &v6) == 1) {
    std::memcpy(prefix.address.bytes.data(), &v6, sizeof v6);
    bits = 128;
  } else {
    return false;
  }
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

std::uint32_t read_prefixes(Checker& check, const toml::table& table, const std::string& key,
                            std::span<segment::AllowedPrefix> out) {
  const toml::node* node = check.take(table, key);
  if (node == nullptr) return 0;
  const toml::array* list = node->as_array();
  if (list == nullptr || list->size() > out.size())
    return check.defect(node->source(),
                        key + " has to be a list of at most " + std::to_string(out.size()) + " addresses."),
           0;
  std::uint32_t count = 0;
  for (const toml::node& item : *list) {
    const auto text = item.value_exact<std::string>();
    if (!text || !parse_prefix(*text, out[count]))
      check.defect(item.source(),
                   key + " takes addresses and prefixes such as \"192.0.2.0/24\" or \"2001:db8::1\".");
    else
      ++count;
  }
  return count;
}

std::string to_text(const segment::AllowedPrefix& prefix) {
  if (is_mapped_ipv4(prefix.address) && prefix.prefix_bits >= 96)
    return to_string(prefix.address) + '/' + std::to_string(prefix.prefix_bits - 96);
  char text[INET6_ADDRSTRLEN] = "";
  ::inet_ntop(AF_INET6, prefix.address.bytes.data(), text, sizeof text);
  return std::string(text) + '/' + std::to_string(prefix.prefix_bits);
}

}  // namespace sluice::config
