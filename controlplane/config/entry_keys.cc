// SPDX-License-Identifier: Apache-2.0
//
// The part of the table of keys for the lists of tables, such as [[export]]. Each entry of a list has these
// keys. Entries that a reload adds, removes or changes are compared as a whole, except for upstreams.
#include "controlplane/config/key.h"
#include "controlplane/config/readers.h"
#include "controlplane/config/upstreams.h"

namespace sluice::config {
namespace {

using policy::ClassLimits;
using policy::ClientClass;
using segment::ExportConfig;
using segment::kMaxPort;
using segment::UpstreamConfig;
using segment::WithheldConfig;
using enum Scope;

/// Describes the default of a key whose member's default value does not.
template <typename Owner>
constexpr Key<Owner> preset(Key<Owner> key, const char* text) {
  key.row.preset = text;
  return key;
}

/// Returns the first `count` elements of a list of texts.
template <typename List>
Json texts(const List& list, std::uint32_t count) {
  Json shown = Json::array();
  for (std::uint32_t i = 0; i < count; ++i) shown.push_back(list[i].data());
  return shown;
}

constexpr std::uint64_t kMaxId = 0xffffffff;
constexpr Key<ExportConfig> kExportKeys[] = {
    {{.name = "path",
      .kind = Kind::Text,
      .limits = {1, segment::kMaxPathBytes - 1},
      .preset = "needed",
      .scope = Live,
      .sentence = "exported path"},
     read_export_path,
     [](const KeyRow&, const ExportConfig& entry) { return Json(entry.path); },
     nullptr},
    flag<&ExportConfig::read_only>("read_only", Live, "no writes"),
    flag<&ExportConfig::root_squash>("root_squash", Live, "root becomes `anonuid`"),
    flag<&ExportConfig::all_squash>("all_squash", Live, "all users become `anonuid`"),
    integer<&ExportConfig::anonuid>("anonuid", {0, kMaxId}, Live, "the anonymous user"),
    integer<&ExportConfig::anongid>("anongid", {0, kMaxId}, Live, "the anonymous group"),
    mebibytes<&ExportConfig::quota_bytes>("quota_mib", {0, kMaxQuotaMib}, Live,
                                          "limit of the export; 0: only that of `[memory] size_mib`"),
    preset(prefixes<At<&ExportConfig::allowed>, At<&ExportConfig::allowed_count>, ExportConfig>(
               "clients", Live, "permitted addresses; empty: everybody"),
           "needed"),
    {{.name = "hosts",
      .kind = Kind::List,
      .limits = {0, segment::kMaxExportHosts},
      .range = "16 names",
      .scope = Live,
      .sentence = "only these authenticated hosts; empty: every host"},
     [](Checker& check, const toml::table& table, const KeyRow&, ExportConfig& entry) {
       entry.host_count = read_export_hosts(check, table, entry.hosts);
     },
     [](const KeyRow&, const ExportConfig& entry) {
       Json hosts = Json::array();
       for (std::uint32_t i = 0; i < entry.host_count; ++i) hosts.push_back(entry.hosts[i].view());
       return hosts;
     },
     nullptr},
};

constexpr Key<HostEntry> kHostKeys[] = {
    {{.name = "name",
      .kind = Kind::Text,
      .limits = {1, kMaxHostNameBytes},
      .preset = "needed",
      .scope = Live,
      .sentence = "a client; at most 1024 hosts"},
     [](Checker& check, const toml::table& table, const KeyRow& row, HostEntry& host) {
       read_host_name(check, table, row, host.name);
     },
     [](const KeyRow&, const HostEntry& host) { return Json(host.name); },
     nullptr},
    {{.name = "key_files",
      .kind = Kind::List,
      .range = "1 to 4 absolute paths",
      .preset = "needed",
      .scope = Live,
      .sentence = "keys of 16 to 1024 random bytes, readable by the owner only, one host each"},
     read_key_files,
     [](const KeyRow&, const HostEntry& host) { return Json(host.key_files); },
     nullptr},
    text<&HostEntry::client_class>("class", segment::kMaxNameBytes - 1, Live,
                                   "class of its connections; empty: by address"),
};

constexpr Key<ClientClass> kClassKeys[] = {
    {{.name = "name",
      .kind = Kind::Text,
      .range = "a-z, 0-9, - and _; at most 31 characters",
      .preset = "needed",
      .scope = Live,
      .sentence = "label; at most 7 classes"},
     read_class_name,
     [](const KeyRow&, const ClientClass& of) { return Json(of.name); },
     nullptr},
    {{.name = "clients",
      .kind = Kind::List,
      .limits = {0, segment::kMaxAllowed},
      .preset = "needed",
      .scope = Live,
      .sentence = "addresses, longest prefix first. A class for host names needs no addresses"},
     [](Checker& check, const toml::table& table, const KeyRow& row, ClientClass& of) {
       std::array<segment::AllowedPrefix, segment::kMaxAllowed> clients;
       const std::uint32_t count = read_prefixes(check, table, row.name, clients);
       of.clients.assign(clients.begin(), clients.begin() + count);
     },
     [](const KeyRow&, const ClientClass& of) {
       Json clients = Json::array();
       for (const segment::AllowedPrefix& prefix : of.clients) clients.push_back(to_text(prefix));
       return clients;
     },
     nullptr},
};

/// Makes a row for a number of credits. The maximum is the transport's number, which `max_credits` holds
/// until it is read.
template <auto Member>
constexpr Key<ClientClass> credits(const char* name, const char* preset, const char* sentence) {
  auto key = integer<&ClientClass::credits, Member>(name, {}, Live, sentence);
  key.row.range = "1 to `credits`";
  key.row.preset = preset;
  key.read = [](Checker& check, const toml::table& table, const KeyRow& row, ClientClass& owner) {
    check.integer(table, row.name, owner.credits.*Member, 1, owner.credits.max_credits);
  };
  return key;
}

constexpr Key<ClientClass> kClassLimits[] = {
    integer<&ClientClass::credits, &ClassLimits::weight>(
        "weight", {1, 1000}, Live,
        "share of call slots. In `[policy]`, this and the next three keys are for clients without a class"),
    credits<&ClassLimits::min_credits>("min_credits", "", "always granted"),
    credits<&ClassLimits::max_credits>("max_credits", "`credits`", "upper bound"),
    integer<&ClientClass::max_connections_per_client>(
        "max_connections_per_client", {1, segment::kMaxConnections}, Live, "connections of an address"),
};

constexpr Word kTransports[] = {{"tcp", static_cast<std::uint32_t>(segment::Transport::Tcp)},
                                {"rdma", static_cast<std::uint32_t>(segment::Transport::Rdma)}};

/// Makes the row of the transport, which other keys have defaults of.
constexpr Key<UpstreamConfig> transport() {
  auto key = choice<&UpstreamConfig::transport>("transport", kTransports, Live,
                                                "\"rdma\": the server speaks RPC-over-RDMA");
  key.read = [](Checker& check, const toml::table& table, const KeyRow& row, UpstreamConfig& entry) {
    read_choice<At<&UpstreamConfig::transport>>(check, table, row, entry);
    set_defaults_of_transport(check, table, entry);
  };
  return key;
}

constexpr Key<UpstreamConfig> kUpstreamKeys[] = {
    {{.name = "name",
      .kind = Kind::Text,
      .range = "a-z, 0-9, - and _; at most 31 characters",
      .preset = "needed",
      .scope = Live,
      .sentence = "metrics label; with `exports` or `prefix` part of file handles: after a change clients "
                  "mount again"},
     read_upstream_name,
     [](const KeyRow&, const UpstreamConfig& entry) { return Json(entry.name); },
     nullptr},
    {{.name = "address",
      .kind = Kind::TextOrList,
      .range = "1 to 8 addresses and host names",
      .preset = "needed",
      .scope = Live,
      .sentence = "addresses of the server, the preferred one first"},
     read_addresses_of_upstream,
     [](const KeyRow&, const UpstreamConfig& entry) { return texts(entry.hosts, entry.host_count); },
     [](UpstreamConfig& to, const UpstreamConfig& from) {
       to.host_count = from.host_count;
       to.hosts = from.hosts;
     }},
    transport(),
    preset(integer<&UpstreamConfig::port>("port", Live, "the server's port"), "2049; rdma: 20049"),
    preset(integer<&UpstreamConfig::listen_port>("listen_port", {1, kMaxPort}, Live,
                                                 "port for clients, where several upstreams serve NFS 4"),
           "`[transport] port`"),
    preset(integer<&UpstreamConfig::connections>(
               "connections", Live,
               "per reactor. TCP: shared, besides one per client of NFS 4 or Kerberos. RDMA: one per client "
               "with calls; times `credits` at most 2048; more than at start: both planes"),
           "4; rdma: 16"),
    integer<&UpstreamConfig::call_timeout_s>("call_timeout_s", Live,
                                             "disconnects a client whose call has no reply; 0: never"),
    flag<&UpstreamConfig::privileged_port>("privileged_port", Live,
                                           "new connections are made from a port below 1024 (TCP); for locks "
                                           "and Kerberos when the control plane "
                                           "starts"),
    choice<&UpstreamConfig::withheld, &WithheldConfig::pnfs>(
        "pnfs", kWithheld, Live, "\"pass\" shows NFS 4 clients data servers, which they use directly"),
    choice<&UpstreamConfig::withheld, &WithheldConfig::referrals>(
        "referrals", kWithheld, Live, "\"pass\" shows NFS 4 clients other locations of a file system"),
    integer<&UpstreamConfig::mount_port>("mount_port", Live, "port of its MOUNT; 0: its rpcbind is queried"),
    prefixes<At<&UpstreamConfig::allowed>, At<&UpstreamConfig::allowed_count>, UpstreamConfig>(
        "clients", Live, "clients that MOUNT serves; empty: all. Handles work for every admitted client"),
    {{.name = "programs",
      .kind = Kind::List,
      .range = "1 to 16 programs",
      .preset = "needed",
      .scope = Live,
      .sentence = "\"nfs2\", \"nfsacl2\", \"nfs3\", \"nfsacl3\", \"nfs4\", \"mount3\", \"nlm4\", or numbers "
                  "(\"100003.3\"). \"nfs3\" excludes `[[export]]`"},
     read_routes,
     [](const KeyRow&, const UpstreamConfig& entry) {
       Json programs = Json::array();
       for (std::uint32_t r = 0; r < entry.route_count; ++r) programs.push_back(to_text(entry.routes[r]));
       return programs;
     },
     nullptr},
    {{.name = "exports",
      .kind = Kind::List,
      .limits = {0, segment::kMaxUpstreamExports},
      .range = "16 paths",
      .scope = Live,
      .sentence = "this upstream's part, with all below, where several upstreams serve NFS 3"},
     read_paths,
     [](const KeyRow&, const UpstreamConfig& entry) { return texts(entry.exports, entry.export_count); },
     [](UpstreamConfig& to, const UpstreamConfig& from) {
       to.export_count = from.export_count;
       to.exports = from.exports;
     }},
    {{.name = "prefix",
      .kind = Kind::Text,
      .range = "a path",
      .scope = Live,
      .sentence = "in front of its paths on the clients' side; alone: all its exports"},
     read_prefix,
     [](const KeyRow&, const UpstreamConfig& entry) { return Json(entry.prefix); },
     copy_member<At<&UpstreamConfig::prefix>, UpstreamConfig>},
};

constexpr ListTable kLists[] = {
    {"export", Keys<ExportConfig>(kExportKeys)},
    {"client_class", Keys<ClientClass>(kClassKeys)},
    {"host_authentication.host", Keys<HostEntry>(kHostKeys)},
    {"upstream", Keys<UpstreamConfig>(kUpstreamKeys)},
};

}  // namespace

std::span<const ListTable> list_tables() {
  return kLists;
}

Keys<ClientClass> class_limits() {
  return kClassLimits;
}

void read_entry(Checker& check, const toml::table& table, ExportConfig& entry) {
  read_keys<ExportConfig>(check, table, kExportKeys, entry);
}

void read_entry(Checker& check, const toml::table& table, HostEntry& entry) {
  read_keys<HostEntry>(check, table, kHostKeys, entry);
}

void read_entry(Checker& check, const toml::table& table, ClientClass& entry) {
  read_keys<ClientClass>(check, table, kClassKeys, entry);
  read_keys<ClientClass>(check, table, kClassLimits, entry);
}

void read_entry(Checker& check, const toml::table& table, UpstreamConfig& entry) {
  read_keys<UpstreamConfig>(check, table, kUpstreamKeys, entry);
}

Json describe_entry(const ExportConfig& entry) {
  return describe_keys<ExportConfig>(kExportKeys, entry);
}

Json describe_entry(const HostEntry& entry) {
  return describe_keys<HostEntry>(kHostKeys, entry);
}

Json describe_entry(const ClientClass& entry) {
  Json table = describe_keys<ClientClass>(kClassKeys, entry);
  table.update(describe_keys<ClientClass>(kClassLimits, entry));
  return table;
}

Json describe_entry(const UpstreamConfig& entry) {
  return describe_keys<UpstreamConfig>(kUpstreamKeys, entry);
}

}  // namespace sluice::config
