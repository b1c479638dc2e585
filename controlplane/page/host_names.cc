// SPDX-License-Identifier: Apache-2.0
#include "controlplane/page/host_names.h"

#include <arpa/inet.h>

#include <algorithm>
#include <string>

namespace sluice::page {
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

}  // namespace sluice::page
