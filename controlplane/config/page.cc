// SPDX-License-Identifier: Apache-2.0
#include "controlplane/config/page.h"

#include <algorithm>
#include <cctype>
#include <optional>

namespace sluice::config {
namespace {

/// Names are not looked up: what one leads to may change between the check and the start.
std::optional<PeerAddress> address_in(const std::string& host_and_port) {
  if (!is_host_and_port(host_and_port)) return std::nullopt;
  std::string host = host_and_port.substr(0, host_and_port.rfind(':'));
  if (host == "localhost") return PeerAddress::from_ipv4(127, 0, 0, 1);
  if (host.starts_with('[')) host = host.substr(1, host.size() - 2);
  segment::AllowedPrefix prefix;
  if (host.find('/') != std::string::npos || !parse_prefix(host, prefix)) return std::nullopt;
  return prefix.address;
}

bool is_loopback(const PeerAddress& address) {
  constexpr PeerAddress kLoopback6{{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}};
  return address == kLoopback6 || address.within(PeerAddress::from_ipv4(127, 0, 0, 0), 96 + 8);
}

bool is_host_name(const std::string& name) {
  return std::all_of(name.begin(), name.end(),
                     [](unsigned char c) { return std::isalnum(c) != 0 || c == '-' || c == '.'; });
}

}  // namespace

void read_page(Checker& check, const toml::table& root, Config& config) {
  const toml::table* table = check.table(root, "page");
  if (table == nullptr) return;
  check.text(*table, "address", config.page_address, 100);
  check.boolean(*table, "allow_remote", config.page_allow_remote);
  check.text(*table, "name", config.page_name, 253);
  if (!is_host_name(config.page_name))
    check.defect((*table)["name"].node()->source(),
                 "name has to be a host name without a port, as in \"sluice.example\", or \"\".");
  if (config.page_address.empty()) return;
  const toml::source_region& where = (*table)["address"].node()->source();
  const std::optional<PeerAddress> address = address_in(config.page_address);
  if (!address)
    check.defect(where,
                 "address has to be an address and a port, as in \"127.0.0.1:9465\" or \"[::1]:9465\", or "
                 "\"\" for no page.");
  else if (!is_loopback(*address) && !config.page_allow_remote)
    check.defect(
        where,
        "other hosts can reach this address, and the page asks nobody who they are: set allow_remote "
        "= true if all of them may read it, or take 127.0.0.1.");
}

}  // namespace sluice::config
