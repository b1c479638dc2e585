// SPDX-License-Identifier: Apache-2.0
#include "controlplane/config/reverse.h"

#include <bit>
#include <cstring>

#include "controlplane/config/upstreams.h"
#include "controlplane/config/withheld.h"
#include "dataplane/base/net_address.h"

namespace sluice::config {
namespace {

void read_address(Checker& check, const toml::table& table, const std::string& key, PeerAddress& address) {
  std::string text;
  check.text(table, key, text, 64);
  if (text.empty()) return;
  segment::AllowedPrefix parsed;
  if (text.find('/') != std::string::npos || !parse_prefix(text, parsed))
    return check.defect(table.source(), key + " has to be an IPv4 or IPv6 address such as \"192.0.2.10\".");
  address = parsed.address;
}

}  // namespace

void read_reverse(Checker& check, const toml::table& root, segment::ConfigBlock& block) {
  const toml::table* table = check.table(root, "reverse");
  if (table == nullptr) return;
  segment::ReverseConfig& reverse = block.reverse;
  std::string ingress = "none";
  check.text(*table, "ingress", ingress, 16, {"none", "tcp"});
  reverse.in_use = ingress == "tcp" ? 1 : 0;
  read_address(check, *table, "listen_address", reverse.listen_address);
  check.integer(*table, "listen_port", reverse.listen_port, 1, 65535);
  read_address(check, *table, "server", reverse.server);
  check.integer(*table, "server_port", reverse.server_port, 1, 65535);
  check.integer(*table, "clients", reverse.clients, 1, 16384);
  check.integer(*table, "connections", reverse.connections, 1, 512);
  check.integer(*table, "calls", reverse.calls, 4, 1024);
  reverse.calls = std::bit_ceil(reverse.calls);
  check.integer(*table, "record_buffers", reverse.record_buffers, 2, 4096);
  check.integer(*table, "item_buffers", reverse.item_buffers, 1, 65536);
  check.integer(*table, "call_timeout_s", reverse.call_timeout_s, 0, 3600);
  read_withheld(check, *table, reverse.withheld);
  reverse.mount_address = reverse.server;
  read_address(check, *table, "mount_address", reverse.mount_address);
  check.integer(*table, "mount_port", reverse.mount_port, 0, 65535);
  reverse.allowed_count = read_prefixes(check, *table, "allowed", reverse.allowed);
  if (reverse.in_use == 0) return;
  if (reverse.server == PeerAddress{} && block.driver != segment::Driver::Loopback)
    check.defect(table->source(), "server is needed: the address of the RPC-over-RDMA server.");
  if (block.calls_to_servers() > kMaxCallsToServers)
    check.defect(table->source(), "connections times calls is above " + std::to_string(kMaxCallsToServers) +
                                      ": a device has no more memory windows.");
  if (block.all_connections() > segment::kMaxConnections)
    check.defect(table->source(), "connections and transport.max_connections are above " +
                                      std::to_string(segment::kMaxConnections) + " together.");
  if (!serves_exports_beside_upstreams(block))
    check.defect(table->source(),
                 "an upstream has nfs3: MOUNT can ask that or the server of [reverse], not both.");
  if (root.contains("export"))
    check.defect(table->source(),
                 "MOUNT answers for the server of [reverse], not for [[export]]: remove one of them.");
  block.exports = {};
}

Json describe_reverse(const segment::ConfigBlock& block) {
  const segment::ReverseConfig& reverse = block.reverse;
  const auto text = [](const PeerAddress& address) {
    return address == PeerAddress{} ? std::string() : to_string(address);
  };
  Json allowed = Json::array();
  for (std::uint32_t i = 0; i < reverse.allowed_count; ++i) allowed.push_back(to_text(reverse.allowed[i]));
  const Json shown = {{"ingress", reverse.in_use != 0 ? "tcp" : "none"},
                      {"listen_address", text(reverse.listen_address)},
                      {"listen_port", reverse.listen_port},
                      {"server", text(reverse.server)},
                      {"server_port", reverse.server_port},
                      {"clients", reverse.clients},
                      {"connections", reverse.connections},
                      {"calls", reverse.calls},
                      {"record_buffers", reverse.record_buffers},
                      {"item_buffers", reverse.item_buffers},
                      {"call_timeout_s", reverse.call_timeout_s},
                      {"mount_address", text(reverse.mount_address)},
                      {"mount_port", reverse.mount_port},
                      {"allowed", allowed}};
  return with_withheld(shown, reverse.withheld);
}

segment::UpstreamConfig mount_of_server(const segment::ReverseConfig& reverse) {
  segment::UpstreamConfig server;
  std::strcpy(server.name, "reverse");
  server.mount_port = reverse.mount_port;
  server.allowed_count = reverse.allowed_count;
  server.allowed = reverse.allowed;
  return server;
}

}  // namespace sluice::config
