// SPDX-License-Identifier: Apache-2.0
#include "controlplane/config/host_authentication.h"

#include <algorithm>

namespace sluice::config {
namespace {

constexpr std::size_t kMaxHosts = 1024;
constexpr std::size_t kMaxKeyFiles = 4;
constexpr std::size_t kMaxKeyPath = 255;

/// As it goes over the wire, where 1 to 64 printable characters without spaces are allowed.
void read_name(Checker& check, const toml::table& table, const std::string& key, std::string& name) {
  check.text(table, key, name, kMaxHostNameBytes);
  if (name.empty() || std::any_of(name.begin(), name.end(), [](char c) { return c <= ' ' || c > '~'; }))
    check.defect(table.source(), key + " is needed, of printable ASCII characters without spaces.");
}

void read_key_files(Checker& check, const toml::table& table, HostEntry& host) {
  const toml::node* node = check.take(table, "key_files");
  if (node == nullptr) return check.defect(table.source(), "key_files is needed: the keys of this host.");
  const toml::array* list = node->as_array();
  if (list == nullptr || list->empty() || list->size() > kMaxKeyFiles)
    return check.defect(node->source(),
                        "key_files has to be a list of 1 to " + std::to_string(kMaxKeyFiles) + " files.");
  for (const toml::node& item : *list) {
    const auto path = item.value_exact<std::string>();
    if (path && path->size() <= kMaxKeyPath && path->rfind('/', 0) == 0)
      host.key_files.push_back(*path);
    else
      check.defect(item.source(), "key_files takes paths that start with '/'.");
  }
}

void read_host(Checker& check, const toml::table& table, const Config& config, HostEntry& host) {
  read_name(check, table, "name", host.name);
  read_key_files(check, table, host);
  check.text(table, "class", host.client_class, segment::kMaxNameBytes - 1);
  const bool known = std::any_of(config.classes.begin(), config.classes.end(),
                                 [&](const policy::ClientClass& of) { return of.name == host.client_class; });
  if (!host.client_class.empty() && !known)
    check.defect(table.source(),
                 "class names '" + host.client_class + "': there is no such [[client_class]].");
}

void read_hosts(Checker& check, const toml::table& parent, Config& config) {
  const toml::node* node = check.take(parent, "host");
  if (node == nullptr) return;
  const toml::array* list = node->as_array();
  if (list == nullptr || !list->is_array_of_tables() || list->size() > kMaxHosts)
    return check.defect(node->source(), "host has to be a list of at most " + std::to_string(kMaxHosts) +
                                            " tables: [[host_authentication.host]].");
  for (const toml::node& item : *list) {
    HostEntry host;
    read_host(check, *item.as_table(), config, host);
    if (find_host(config, host.name) != nullptr)
      check.defect(item.source(), "there is a host '" + host.name + "' already.");
    if (host.name == config.authentication_name)
      check.defect(item.source(), "the host '" + host.name + "' has our own name: give it or us another.");
    config.authentication_hosts.push_back(std::move(host));
  }
}

/// A class has clients by their addresses or by their names.
void check_classes(Checker& check, const toml::table& root, const Config& config) {
  for (std::size_t i = 1; i < config.classes.size(); ++i) {
    const policy::ClientClass& of = config.classes[i];
    const bool named = std::any_of(config.authentication_hosts.begin(), config.authentication_hosts.end(),
                                   [&](const HostEntry& host) { return host.client_class == of.name; });
    if (of.clients.empty() && !named)
      check.defect(root["client_class"][i - 1].node()->source(),
                   "clients is needed: the addresses that are in this class. Only a class that a "
                   "[[host_authentication.host]] names can do without.");
  }
}

}  // namespace

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
        check.defect(where, "hosts names '" + name + "': there is no such [[host_authentication.host]].");
      else if (known.authentication_method == "none")
        check.defect(where, "hosts needs a host_authentication.method other than \"none\".");
    }
}

void read_host_authentication(Checker& check, const toml::table& root, Config& config) {
  if (const toml::table* table = check.table(root, "host_authentication")) {
    check.text(*table, "method", config.authentication_method, 16, {"none", "psk"});
    check.boolean(*table, "required", config.authentication_required);
    read_name(check, *table, "name", config.authentication_name);
    check.integer(*table, "timeout_s", config.authentication_timeout_s, 1, 600);
    read_hosts(check, *table, config);
    if (config.authentication_method == "psk" && config.authentication_hosts.empty())
      check.defect(table->source(), "method \"psk\" needs hosts: [[host_authentication.host]].");
    if (config.authentication_method == "none" && config.authentication_required)
      check.defect(table->source(), "required needs a method other than \"none\".");
    config.block.hold_calls = config.authentication_required ? 1 : 0;
  }
  check_classes(check, root, config);
  check_export_hosts(check, root, config.block, config);
}

Json describe_host_authentication(const Config& config) {
  Json hosts = Json::array();
  for (const HostEntry& host : config.authentication_hosts)
    hosts.push_back({{"name", host.name}, {"key_files", host.key_files}, {"class", host.client_class}});
  return {{"method", config.authentication_method},
          {"required", config.authentication_required},
          {"name", config.authentication_name},
          {"timeout_s", config.authentication_timeout_s},
          {"host", hosts}};
}

std::optional<std::uint32_t> class_of_host(const Config& config, const HostEntry& host) {
  for (std::uint32_t i = 0; i < config.classes.size(); ++i)
    if (!config.classes[i].gone && config.classes[i].name == host.client_class) return i;
  return std::nullopt;
}

const HostEntry* find_host(const Config& config, std::string_view name) {
  const auto at = std::find_if(config.authentication_hosts.begin(), config.authentication_hosts.end(),
                               [&](const HostEntry& host) { return host.name == name; });
  return at == config.authentication_hosts.end() ? nullptr : &*at;
}

}  // namespace sluice::config
