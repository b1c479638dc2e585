// SPDX-License-Identifier: Apache-2.0
#include "controlplane/config/config.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <cstring>
#include <set>

#include "controlplane/config/machine.h"
#include "controlplane/config/readers.h"
#include "controlplane/config/upstreams.h"
#include "dataplane/base/text_file.h"
#include "dataplane/log/log.h"
#include "dataplane/ulb/nfs3.h"

namespace sluice::config {
namespace {

void read_transport(Checker& check, const toml::table& root, Config& config) {
  if (read_section(check, root, "transport", config) == nullptr) return;
  // The header of a reply can be as long as a Send, and the results are placed after it.
  config.block.reply_buffer_bytes = 2 * config.block.inline_bytes;
}

void read_device(Checker& check, const toml::table& root, Config& config) {
  const toml::table* table = read_section(check, root, "device", config);
  const segment::ConfigBlock& block = config.block;
  if (table == nullptr || block.driver != segment::Driver::SoftRoce) return;
  if (block.ethdev[0] == '\0')
    check.defect(table->source(),
                 "driver \"softroce\" needs ethdev, such as "
                 "\"net_af_packet0,iface=eth1,framesz=8192,blocksz=65536,framecnt=512\".");
  if (block.address_count == 0)
    check.defect(table->source(),
                 "driver \"softroce\" needs addresses of its own, such as [\"192.0.2.1/24\"].");
}

void read_locks(Checker& check, const toml::table& root, Config& config) {
  const toml::table* table = read_section(check, root, "locks", config);
  if (table != nullptr && !config.locks_state.empty() && config.locks_state[0] != '/')
    check.defect(table->source(), "state has to be the path of a file, from '/', or empty.");
}

bool names_a_segment(const std::string& name) {
  const bool is_path = name.starts_with('/');
  if (!is_path && name.find('/') != std::string::npos) return false;
  for (std::size_t at = is_path ? 1 : 0;;) {
    if (at >= name.size() || name[at] == '/' || name[at] == '.') return false;
    const std::size_t next = name.find('/', at);
    if (next == std::string::npos) return true;
    at = next + 1;
  }
}

void read_top(Checker& check, const toml::table& root, Config& config) {
  read_section(check, root, "", config);
  if (!names_a_segment(config.segment))
    check.defect(
        root["segment"].node()->source(),
        "segment has to be a name of files in /dev/shm, without '/', or a path that begins with '/'; no "
        "part of it may be empty or begin with '.'.");
  if (!config.exports_directory.empty() && config.exports_directory.front() != '/')
    check.defect(root["exports_directory"].node()->source(),
                 "exports_directory has to be the path of a directory, from '/', or \"\" for none.");
  if (root.contains("saved_changes"))
    check.defect(check.take(root, "saved_changes")->source(),
                 "The file of saved_changes" + std::string(kFormerChanges) + "this key.");
}

/// Reads the tables of which only the control plane uses all or most keys.
void read_control(Checker& check, const toml::table& root, Config& config) {
  const toml::table* const admin = read_section(check, root, "admin", config);
  if (config.admin_socket.empty() || config.admin_socket.front() != '/')
    check.defect((*admin)["socket"].node()->source(), "socket has to be an absolute path.");
  const toml::table* const metrics = read_section(check, root, "metrics", config);
  if (!config.metrics_address.empty() && !is_host_and_port(config.metrics_address))
    check.defect((*metrics)["address"].node()->source(),
                 "address has to be HOST:PORT, as in \"127.0.0.1:9464\", or \"\" for no metrics.");
  read_page(check, root, config);
  const toml::table* const events = read_section(check, root, "events", config);
  if (!config.events_file.empty() && (config.events_file.front() != '/' || config.events_file.back() == '/'))
    check.defect((*events)["file"].node()->source(),
                 "file has to be the path of a file, from '/', or \"\" for none.");
  for (const char* const table : {"observability", "mount", "kerberos"})
    read_section(check, root, table, config);
  read_locks(check, root, config);
}

void check_credits(Checker& check, const toml::table& table, const policy::ClientClass& of) {
  if (of.credits.min_credits > of.credits.max_credits)
    check.defect(table.source(), "min_credits is above max_credits. Lower it.");
}

/// Reads the policy tables. Requires that read_transport() was called, because the transport's credits limit
/// the credits of each class.
void read_policy(Checker& check, const toml::table& root, Config& config) {
  config.classes[0].credits.max_credits = config.block.credits;
  if (const toml::table* table = read_section(check, root, "policy", config))
    check_credits(check, *table, config.classes[0]);
  read_section(check, root, "admission", config);
  const toml::node* node = check.take(root, "client_class");
  if (node == nullptr) return;
  const toml::array* list = node->as_array();
  if (list == nullptr || !(list->empty() || list->is_array_of_tables()) ||
      list->size() >= segment::kMaxClasses)
    return check.defect(node->source(), "client_class has to be a list of at most " +
                                            std::to_string(segment::kMaxClasses - 1) +
                                            " tables: [[client_class]].");
  std::set<std::string> names = {config.classes[0].name};
  for (const toml::node& item : *list) {
    const toml::table& table = *item.as_table();
    policy::ClientClass out;
    out.name.clear();
    out.credits.max_credits = config.block.credits;
    read_entry(check, table, out);
    if (is_label(out.name) && !names.insert(out.name).second)
      check.defect(table.source(), "There is a class '" + out.name + "' already. Choose another name.");
    check_credits(check, table, out);
    config.classes.push_back(std::move(out));
  }
}

}  // namespace

void read_class_name(Checker& check, const toml::table& table, const KeyRow& row, policy::ClientClass& out) {
  check.text(table, row.name, out.name, segment::kMaxNameBytes - 1);
  if (!is_label(out.name))
    check.defect(table.source(), "name is needed. It consists of small letters, digits, '-' and '_'.");
}

void read_cpus(Checker& check, const toml::table& table, const KeyRow& row, segment::ConfigBlock& block) {
  const toml::node* cpus = check.take(table, row.name);
  if (cpus == nullptr) return;
  const toml::array* list = cpus->as_array();
  if (list == nullptr || list->size() != block.reactors)
    return check.defect(cpus->source(), "cpus has to be a list of as many processors as reactor.count says.");
  block.choose_cpus = 0;
  for (std::size_t i = 0; i < list->size(); ++i) {
    const auto cpu = (*list)[i].value_exact<std::int64_t>();
    if (!cpu || *cpu < 0 || *cpu > 4095)
      check.defect(cpus->source(), "cpus takes processor numbers from 0 to 4095.");
    else
      block.cpus[i] = static_cast<std::uint32_t>(*cpu);
  }
}

void read_gateways(Checker& check, const toml::table& table, const KeyRow& row, segment::ConfigBlock& block) {
  std::array<segment::AllowedPrefix, 2> gateways;
  block.gateway_count = read_prefixes(check, table, row.name, gateways);
  for (std::uint32_t i = 0; i < block.gateway_count; ++i) block.gateways[i] = gateways[i].address;
}

/// Reads the ports of RDMA devices: "mlx5_0", or "mlx5_0/2" for the second port.
void read_devices(Checker& check, const toml::table& table, const KeyRow& row, segment::ConfigBlock& block) {
  const toml::node* node = check.take(table, row.name);
  if (node == nullptr) return;
  const toml::array* list = node->as_array();
  if (list == nullptr || list->size() > block.verbs_ports.size())
    return check.defect(node->source(), "devices has to be a list of at most " +
                                            std::to_string(block.verbs_ports.size()) +
                                            " RDMA devices, such as [\"mlx5_0\", \"mlx5_1/2\"].");
  for (const toml::node& item : *list) {
    const std::string text = item.value_exact<std::string>().value_or("");
    const std::size_t slash = text.find('/');
    const std::string name = text.substr(0, slash);
    const std::string port = slash == std::string::npos ? "1" : text.substr(slash + 1);
    const bool odd = std::any_of(name.begin(), name.end(), [](unsigned char c) {
      return std::isalnum(c) == 0 && c != '_' && c != '-' && c != '.';
    });
    if (name.empty() || odd || name.size() >= segment::kMaxDeviceName || port.size() != 1 || port[0] < '1' ||
        port[0] > '9') {
      check.defect(item.source(),
                   "devices takes names of RDMA devices, with a port from 1 to 9 behind a slash where it is "
                   "not the first, as in \"mlx5_0\" or \"mlx5_0/2\".");
      continue;
    }
    segment::VerbsPort& to = block.verbs_ports[block.verbs_port_count++];
    std::memcpy(to.device, name.c_str(), name.size() + 1);
    to.port = static_cast<std::uint32_t>(port[0] - '0');
  }
  if (block.verbs_port_count > block.reactors)
    check.defect(node->source(), "Each of devices needs a reactor that polls it. Raise reactor.count.");
}

void fill_derived(Config& config) {
  config.block.class_count = static_cast<std::uint32_t>(config.classes.size());
  config.block.class_names = {};
  for (std::size_t i = 0; i < config.classes.size(); ++i)
    std::copy_n(config.classes[i].name.begin(),
                std::min<std::size_t>(config.classes[i].name.size(), segment::kMaxNameBytes - 1),
                config.block.class_names[i].begin());
  config.block.log_level = static_cast<std::uint32_t>(log::level_named(config.log_level));
}

bool Config::has_key(const std::string& name) const {
  return std::binary_search(named.begin(), named.end(), name);
}

std::string Config::file_of_export(const std::string& path) const {
  for (const auto& [exported, defined_in] : export_files)
    if (exported == path) return defined_in;
  return {};
}

policy::CreditSettings Config::credit_settings() const {
  policy::CreditLimits limits;
  limits.slots = policy_slots != 0 ? policy_slots : std::uint64_t{block.max_connections} * block.credits;
  limits.idle_ns = std::uint64_t{policy_idle_s} * 1'000'000'000;
  for (const policy::ClientClass& client_class : classes) limits.classes.push_back(client_class.credits);
  policy::CreditSettings settings{.reactors = block.reactors,
                                  .connections = block.all_connections(),
                                  .interval_ms = policy_interval_ms,
                                  .limits = std::move(limits),
                                  .classes = classes,
                                  .host_classes = {}};
  for (const HostEntry& host : authentication_hosts)
    if (const auto number = class_of_host(*this, host)) settings.host_classes.push_back({host.name, *number});
  std::sort(settings.host_classes.begin(), settings.host_classes.end(),
            [](const auto& one, const auto& other) { return one.host < other.host; });
  return settings;
}

policy::AdmissionLimits Config::admission_limits() const {
  const std::uint32_t room = block.max_connections * block.reactors;
  return {.max_connections = max_connections != 0 ? std::min(max_connections, room) : room,
          .max_requests_per_second = max_requests_per_second,
          .max_requests_per_second_per_client = max_requests_per_second_per_client};
}

Config defaults() {
  Config config;
  config.classes[0].credits.max_credits = config.block.credits;
  fill_derived(config);
  return config;
}

Config parse(const std::string& text, const std::string& name, std::span<const ExportFile> files) {
  Config config = defaults();
  toml::table root = parse_toml(text, name);
  Checker check(name);
  for (const ExportFile& file : files) add_exports(check, root, file);
  config.named = named_keys(root);
  read_top(check, root, config);
  read_control(check, root, config);
  read_section(check, root, "reactor", config);
  read_transport(check, root, config);
  read_device(check, root, config);
  read_section(check, root, "memory", config);
  config.export_files = read_exports(check, root, config.block);
  read_policy(check, root, config);
  read_host_authentication(check, root, config);
  read_upstreams(check, root, config);
  read_reverse(check, root, config);
  if (config.locks_enabled && serves_exports_beside_upstreams(config.block))
    check.defect(
        root["locks"].node()->source(),
        "locks.enabled requires an upstream whose programs include \"nfs3\". Add one, or set it to false.");
  const auto* nfs3 = upstream_of(config.block, {ulb::kNfsProgram, ulb::kNfs3Version});
  if (config.locks_enabled && nfs3 != nullptr && nfs3->handle_tag != 0)
    check.defect(root["locks"].node()->source(),
                 "locks.enabled supports one upstream, without exports and prefix. Set it to false, and let "
                 "clients mount with nolock.");
  check_addresses(check, root, config);
  check_listeners(check, root, config);
  check.finish();
  fill_derived(config);
  config.block.started_slots = config.block.slots();
  return config;
}

void check_for_start(Config& config) {
  check_clients_of_exports(config);
  check_machine(config);
}

namespace {

std::string absolute(const std::string& path) {
  if (path.starts_with('/')) return path;
  char* const folder = ::getcwd(nullptr, 0);
  std::string whole = folder == nullptr ? path : std::string(folder) + '/' + path;
  std::free(folder);
  return whole;
}

}  // namespace

Config load_file(const std::string& path) {
  try {
    const std::string text = read_text_file(path);
    Config config = parse(text, path);
    config = parse(text, path, read_export_files(config.exports_directory));
    check_for_start(config);
    config.file = absolute(path);
    return config;
  } catch (const ConfigError&) {
    throw;
  } catch (const std::runtime_error& error) {
    throw ConfigError("The configuration cannot be read: " + std::string(error.what()) + '\n');
  }
}

}  // namespace sluice::config
