// SPDX-License-Identifier: Apache-2.0
//
// Readers for the individual parts of a parsed configuration, and the checker that collects its defects.
// This is the only header that includes the TOML library, for the sources of this folder. Used at setup and
// reload; single-threaded.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#define TOML_EXCEPTIONS 1
#include <toml++/toml.h>

#include "controlplane/config/addresses.h"
#include "controlplane/config/config.h"
#include "controlplane/config/keys.h"
#include "dataplane/segment/config_block.h"

namespace sluice::config {

/// Reads keys of tables and records every defect. finish() adds the keys that were never read, and throws.
class Checker {
 public:
  explicit Checker(std::string name) : name_(std::move(name)) {}

  /// Records a defect at a place in the file from which the node was parsed.
  void defect(const toml::source_region& where, const std::string& what);
  /// Returns the file of a node.
  const std::string& file_of(const toml::source_region& where) const {
    return where.path ? *where.path : name_;
  }

  const toml::node* take(const toml::table& table, const std::string& key);

  template <typename T>
  void integer(const toml::table& table, const std::string& key, T& value, std::uint64_t low,
               std::uint64_t high) {
    if (const auto given = integer_of(table, key, low, high)) value = static_cast<T>(*given);
  }

  template <typename T>
  void boolean(const toml::table& table, const std::string& key, T& value) {
    if (const auto given = boolean_of(table, key)) value = static_cast<T>(*given);
  }

  void text(const toml::table& table, const std::string& key, std::string& value, std::size_t max_bytes,
            const std::vector<std::string>& allowed = {});

  /// Reads a text that names a file: '.' and '..' between slashes are a defect.
  void path(const toml::table& table, const std::string& key, std::string& value, std::size_t max_bytes);

  const toml::table* table(const toml::table& parent, const std::string& key);

  void reject_unknown();

  void finish();

 private:
  std::optional<std::uint64_t> integer_of(const toml::table& table, const std::string& key, std::uint64_t low,
                                          std::uint64_t high);
  std::optional<bool> boolean_of(const toml::table& table, const std::string& key);

  std::string name_;
  std::string defects_;
  bool failed_ = false;
  std::set<const toml::table*> used_;
  std::map<const toml::table*, std::set<std::string>> known_;
};

/// Returns true if the path has a '.' or '..' component, or a control character.
bool has_odd_part(std::string_view path);
/// Returns true for a name of a class or an upstream: small letters, digits, '-' and '_'.
bool is_label(std::string_view name);
/// Parses TOML. Throws ConfigError.
toml::table parse_toml(const std::string& text, const std::string& name);
/// Reads a list of prefixes. Returns how many elements of `out` it has filled.
std::uint32_t read_prefixes(Checker& check, const toml::table& table, const std::string& key,
                            std::span<segment::AllowedPrefix> out);

/// Reads the keys of the table `name`, which is empty for the top level. Returns the table, or null if the
/// file does not have it.
const toml::table* read_section(Checker& check, const toml::table& root, std::string_view name,
                                Config& config);

// Functions that read the keys of an entry of a list.
void read_entry(Checker& check, const toml::table& table, segment::ExportConfig& entry);
void read_entry(Checker& check, const toml::table& table, HostEntry& entry);
void read_entry(Checker& check, const toml::table& table, policy::ClientClass& entry);
void read_entry(Checker& check, const toml::table& table, segment::UpstreamConfig& entry);

// Functions that read single keys, for rows of keys.cc and entry_keys.cc.
void read_cpus(Checker& check, const toml::table& table, const KeyRow& row, segment::ConfigBlock& block);
void read_devices(Checker& check, const toml::table& table, const KeyRow& row, segment::ConfigBlock& block);
void read_gateways(Checker& check, const toml::table& table, const KeyRow& row, segment::ConfigBlock& block);
void read_export_path(Checker& check, const toml::table& table, const KeyRow& row,
                      segment::ExportConfig& out);
void read_key_files(Checker& check, const toml::table& table, const KeyRow& row, HostEntry& host);
void read_class_name(Checker& check, const toml::table& table, const KeyRow& row, policy::ClientClass& out);
void read_upstream_name(Checker& check, const toml::table& table, const KeyRow& row,
                        segment::UpstreamConfig& out);
/// Reads one host or a list of hosts.
void read_addresses_of_upstream(Checker& check, const toml::table& table, const KeyRow& row,
                                segment::UpstreamConfig& out);
void read_routes(Checker& check, const toml::table& table, const KeyRow& row, segment::UpstreamConfig& out);
void read_paths(Checker& check, const toml::table& table, const KeyRow& row, segment::UpstreamConfig& out);
void read_prefix(Checker& check, const toml::table& table, const KeyRow& row, segment::UpstreamConfig& out);
/// Sets the defaults of an upstream with the transport that was read. RDMA upstreams have other defaults than
/// TCP upstreams: the port of RFC 8267, section 4.1, and 16 connections, because each client with calls needs
/// its own.
void set_defaults_of_transport(Checker& check, const toml::table& table, segment::UpstreamConfig& out);
/// Reads a host name, which goes over the wire and must have 1 to 64 printable characters without spaces.
void read_host_name(Checker& check, const toml::table& table, const KeyRow& row, std::string& name);
void read_address(Checker& check, const toml::table& table, const std::string& key, Zone zone,
                  PeerAddress& address);

/// Returns the names of all keys of `root`, for Config::named.
std::vector<std::string> named_keys(const toml::table& root);
/// Moves the exports of a file of exports_directory to `root`. Anything else in the file is a defect.
void add_exports(Checker& check, toml::table& root, const ExportFile& file);
/// Replaces the exports of `block` by the exports of `root`, if `root` has any. Returns their paths and
/// files.
std::vector<std::pair<std::string, std::string>> read_exports(Checker& check, const toml::table& root,
                                                              segment::ConfigBlock& block);
/// Reads [forward] and [[upstream]].
void read_upstreams(Checker& check, const toml::table& root, Config& config);
/// Reads [reverse]. Requires that device, exports and upstreams have been read.
void read_reverse(Checker& check, const toml::table& root, Config& config);
/// Reads [page]. An address that other hosts can reach is a defect unless it is allowed.
void read_page(Checker& check, const toml::table& root, Config& config);
/// Reads `hosts` of an [[export]]. Returns how many elements of `out` it has filled.
std::uint32_t read_export_hosts(Checker& check, const toml::table& table, std::span<HostName> out);
/// Checks that the hosts named by the exports of `block`, which were read from `root`, can authenticate
/// themselves with `known`.
void check_export_hosts(Checker& check, const toml::table& root, const segment::ConfigBlock& block,
                        const Config& known);
/// Reads [host_authentication]. Requires that the client classes and the exports have been read.
void read_host_authentication(Checker& check, const toml::table& root, Config& config);
/// Checks all addresses of a configuration that was read from `root`: kinds, duplicates, and unreachable
/// gateways.
void check_addresses(Checker& check, const toml::table& root, const Config& config);
/// Checks that no two listeners use one address and port.
void check_listeners(Checker& check, const toml::table& root, const Config& config);
/// Checks whether the upstream may have exports, and sets the tag of its file handles.
void check_own_exports(Checker& check, const toml::table& table, segment::UpstreamConfig& out);
/// Checks whether the upstream may have its own port.
void check_own_port(Checker& check, const toml::table& table, const segment::UpstreamConfig& entry);
/// Checks whether `entry` may serve a program that `other`, an earlier upstream, serves too.
void check_beside(Checker& check, const toml::source_region& where, const segment::UpstreamConfig& other,
                  const segment::UpstreamConfig& entry);

}  // namespace sluice::config
