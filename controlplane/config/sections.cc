// SPDX-License-Identifier: Apache-2.0
#include "controlplane/config/upstreams.h"

#include <cctype>
#include <cstring>
#include <optional>

#include "controlplane/config/addresses.h"
#include "controlplane/config/readers.h"
#include "dataplane/base/net_address.h"
#include "dataplane/base/small_algorithms.h"

namespace sluice::config {

void read_address(Checker& check, const toml::table& table, const std::string& key, Zone zone,
                  PeerAddress& address) {
  std::string text;
  check.text(table, key, text, 64);
  if (text.empty()) return;
  if (const std::string defect = zone_defect(text, zone); !defect.empty())
    return check.defect(table.get(key)->source(), key + " is " + defect);
  const std::optional<PeerAddress> parsed = parse_address(text);
  if (!parsed)
    return check.defect(table.source(), key + " has to be an IPv4 or IPv6 address such as \"192.0.2.10\".");
  address = *parsed;
}

void read_reverse(Checker& check, const toml::table& root, Config& config) {
  const toml::table* table = read_section(check, root, "reverse", config);
  segment::ConfigBlock& block = config.block;
  const segment::ReverseConfig& reverse = block.reverse;
  if (table == nullptr || reverse.in_use == 0) return;
  if (reverse.server == PeerAddress{} && block.driver != segment::Driver::Loopback)
    check.defect(table->source(), "server is needed. Write the address of the RPC-over-RDMA server.");
  if (block.calls_to_servers() > kMaxCallsToServers)
    check.defect(table->source(),
                 "connections times calls exceed " + std::to_string(kMaxCallsToServers) +
                     ", the limit that the memory windows of a device set. Lower one of them.");
  if (block.all_connections() > segment::kMaxConnections)
    check.defect(table->source(), "connections and transport.max_connections exceed " +
                                      std::to_string(segment::kMaxConnections) +
                                      " together. Lower one of them.");
  if (!serves_exports_beside_upstreams(block))
    check.defect(
        table->source(),
        "An upstream has nfs3, and MOUNT serves either that or the server of [reverse]. Remove one of them.");
  if (root.contains("export"))
    check.defect(table->source(),
                 "MOUNT answers for the server of [reverse], not for [[export]]. Remove one of them.");
  block.exports = {};
}

segment::UpstreamConfig mount_of_server(const segment::ReverseConfig& reverse) {
  segment::UpstreamConfig server;
  std::strcpy(server.name, "reverse");
  server.mount_port = reverse.mount_port;
  server.allowed_count = reverse.allowed_count;
  server.allowed = reverse.allowed;
  return server;
}

namespace {

constexpr std::size_t kMaxHosts = 1024;
constexpr std::size_t kMaxKeyFiles = 4;
constexpr std::size_t kMaxKeyPath = 255;

void read_host(Checker& check, const toml::table& table, const Config& config, HostEntry& host) {
  read_entry(check, table, host);
  const bool known =
      has_match(config.classes, [&](const policy::ClientClass& of) { return of.name == host.client_class; });
  if (!host.client_class.empty() && !known)
    check.defect(table.source(),
                 "class names '" + host.client_class +
                     "', and there is no such [[client_class]]. Add it, or name another one.");
}

void read_hosts(Checker& check, const toml::table& parent, Config& config) {
  const toml::node* node = check.take(parent, "host");
  if (node == nullptr) return;
  const toml::array* list = node->as_array();
  if (list == nullptr || !(list->empty() || list->is_array_of_tables()) || list->size() > kMaxHosts)
    return check.defect(node->source(), "host has to be a list of at most " + std::to_string(kMaxHosts) +
                                            " tables: [[host_authentication.host]].");
  for (const toml::node& item : *list) {
    HostEntry host;
    read_host(check, *item.as_table(), config, host);
    if (find_host(config, host.name) != nullptr)
      check.defect(item.source(), "There is a host '" + host.name + "' already. Choose another name.");
    if (host.name == config.authentication_name)
      check.defect(item.source(), "The host '" + host.name +
                                      "' has the name of this gateway. Give one of them another name.");
    config.authentication_hosts.push_back(std::move(host));
  }
}

/// Checks that each class has clients, selected by addresses or by host names.
void check_classes(Checker& check, const toml::table& root, const Config& config) {
  for (std::size_t i = 1; i < config.classes.size(); ++i) {
    const policy::ClientClass& of = config.classes[i];
    const bool named = has_match(config.authentication_hosts,
                                 [&](const HostEntry& host) { return host.client_class == of.name; });
    if (of.clients.empty() && !named)
      check.defect(root["client_class"][i - 1].node()->source(),
                   "clients is needed. List the addresses of this class. Only a class that a "
                   "[[host_authentication.host]] names needs none.");
  }
}

}  // namespace

void read_key_files(Checker& check, const toml::table& table, const KeyRow& row, HostEntry& host) {
  const toml::node* node = check.take(table, row.name);
  if (node == nullptr)
    return check.defect(table.source(), "key_files is needed. List the files with the keys of this host.");
  const toml::array* list = node->as_array();
  if (list == nullptr || list->empty() || list->size() > kMaxKeyFiles)
    return check.defect(node->source(),
                        "key_files has to be a list of 1 to " + std::to_string(kMaxKeyFiles) + " files.");
  for (const toml::node& item : *list) {
    const auto path = item.value_exact<std::string>();
    if (path && path->size() <= kMaxKeyPath && path->rfind('/', 0) == 0 && !has_odd_part(*path))
      host.key_files.push_back(*path);
    else
      check.defect(item.source(),
                   "key_files takes paths that start with '/', without '.' and '..' and control characters.");
  }
}

void read_host_name(Checker& check, const toml::table& table, const KeyRow& row, std::string& name) {
  check.text(table, row.name, name, row.limits.most);
  if (name.empty() || has_match(name, [](char c) { return c <= ' ' || c > '~'; }))
    check.defect(table.source(), std::string(row.name) +
                                     " is needed. It consists of printable ASCII characters without spaces.");
}

std::uint32_t read_export_hosts(Checker& check, const toml::table& table, std::span<HostName> out) {
  const toml::node* node = check.take(table, "hosts");
  if (node == nullptr) return 0;
  const toml::array* list = node->as_array();
  if (list == nullptr || list->size() > out.size()) {
    check.defect(node->source(), "hosts has to be a list of at most " + std::to_string(out.size()) +
                                     " names, each of a [[host_authentication.host]].");
    return 0;
  }
  std::uint32_t count = 0;
  for (const toml::node& item : *list) {
    const HostName name(item.value_exact<std::string>().value_or(""));
    if (name.empty())
      check.defect(item.source(), "hosts takes the name of a [[host_authentication.host]].");
    else
      out[count++] = name;
  }
  return count;
}

void check_export_hosts(Checker& check, const toml::table& root, const segment::ConfigBlock& block,
                        const Config& known) {
  for (std::size_t i = 0; i < block.exports.size(); ++i)
    for (std::uint32_t h = 0; h < block.exports[i].host_count; ++h) {
      const std::string name(block.exports[i].hosts[h].view());
      const toml::source_region& where = root["export"][i]["hosts"].node()->source();
      if (find_host(known, name) == nullptr)
        check.defect(
            where, "hosts names '" + name +
                       "', and there is no such [[host_authentication.host]]. Add it, or name another one.");
      else if (known.authentication_method == "none")
        check.defect(where, "hosts needs a host_authentication.method other than \"none\".");
    }
}

void read_host_authentication(Checker& check, const toml::table& root, Config& config) {
  if (const toml::table* table = read_section(check, root, "host_authentication", config)) {
    read_hosts(check, *table, config);
    if (config.authentication_method == "psk" && config.authentication_hosts.empty())
      check.defect(table->source(), "method \"psk\" needs hosts. Add a [[host_authentication.host]].");
    if (config.authentication_method == "none" && config.authentication_required)
      check.defect(table->source(), "required needs a method other than \"none\".");
    config.block.hold_calls = config.authentication_required ? 1 : 0;
  }
  check_classes(check, root, config);
  check_export_hosts(check, root, config.block, config);
}

std::optional<std::uint32_t> class_of_host(const Config& config, const HostEntry& host) {
  for (std::uint32_t i = 0; i < config.classes.size(); ++i)
    if (!config.classes[i].gone && config.classes[i].name == host.client_class) return i;
  return std::nullopt;
}

const HostEntry* find_host(const Config& config, std::string_view name) {
  for (const HostEntry& host : config.authentication_hosts)
    if (host.name == name) return &host;
  return nullptr;
}

namespace {

/// Returns the address in HOST:PORT. Names are not resolved, because the result may change between the check
/// and the start.
std::optional<PeerAddress> address_in(const std::string& host_and_port) {
  if (!is_host_and_port(host_and_port)) return std::nullopt;
  const std::string host = host_of(host_and_port);
  if (host == "localhost") return PeerAddress::from_ipv4(127, 0, 0, 1);
  return parse_address(host.substr(0, host.find('%')));  // check_listeners() checks the zone
}

bool is_host_name(const std::string& name) {
  return !has_match(name, [](unsigned char c) { return std::isalnum(c) == 0 && c != '-' && c != '.'; });
}

}  // namespace

void read_page(Checker& check, const toml::table& root, Config& config) {
  const toml::table* table = read_section(check, root, "page", config);
  if (table == nullptr) return;
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
    check.defect(where,
                 "Other hosts can reach this address, and the page does not authenticate them. Set "
                 "allow_remote = true if all of them may read it, or write 127.0.0.1.");
}

}  // namespace sluice::config
