// SPDX-License-Identifier: Apache-2.0
#include "controlplane/config/describe.h"

#include "controlplane/config/exports.h"
#include "controlplane/config/host_authentication.h"
#include "controlplane/config/prefix.h"
#include "controlplane/config/reverse.h"
#include "controlplane/config/upstreams.h"
#include "dataplane/base/net_address.h"

namespace sluice::config {
namespace {

template <typename Prefixes>
Json to_json(const Prefixes& prefixes, std::size_t count) {
  Json list = Json::array();
  for (std::size_t i = 0; i < count; ++i) list.push_back(to_text(prefixes[i]));
  return list;
}

Json describe_class(const policy::ClientClass& entry) {
  return {{"weight", static_cast<std::uint64_t>(entry.credits.weight)},
          {"min_credits", entry.credits.min_credits},
          {"max_credits", entry.credits.max_credits},
          {"max_connections_per_client", entry.max_connections_per_client}};
}

const char* to_string(segment::Driver driver) {
  switch (driver) {
    case segment::Driver::Loopback:
      return "loopback";
    case segment::Driver::SoftRoce:
      return "softroce";
    case segment::Driver::Verbs:
      return "verbs";
  }
  return "?";
}

Json describe_device(const segment::ConfigBlock& block) {
  Json gateways = Json::array();
  for (std::uint32_t i = 0; i < block.gateway_count; ++i) gateways.push_back(to_string(block.gateways[i]));
  Json devices = Json::array();
  for (std::uint32_t i = 0; i < block.verbs_port_count; ++i)
    devices.push_back(block.verbs_ports[i].device + ('/' + std::to_string(block.verbs_ports[i].port)));
  Json device = {{"driver", to_string(block.driver)},
                 {"devices", devices},
                 {"shared_receives", block.shared_receives},
                 {"traffic_class", block.traffic_class},
                 {"cnp_traffic_class", block.cnp_traffic_class},
                 {"loopback_path", block.loopback_path},
                 {"loopback_links", block.loopback_links},
                 {"loopback_arena_mib", block.loopback_arena_bytes >> 20},
                 {"ethdev", block.ethdev},
                 {"addresses", to_json(block.addresses, block.address_count)},
                 {"gateways", gateways},
                 {"mtu", block.mtu},
                 {"hardware_queues", block.hardware_queues},
                 {"hugepages", block.hugepages != 0},
                 {"payload_in_place", block.payload_in_place != 0},
                 {"dpdk_memory_mib", block.dpdk_memory_mib}};
  if (block.vlan <= 4094) device["vlan"] = block.vlan;
  if (block.service_level <= segment::kMaxServiceLevel) device["service_level"] = block.service_level;
  return device;
}

}  // namespace

Json describe(const Config& config) {
  const segment::ConfigBlock& block = config.block;
  Json result = {
      {"segment", config.segment},
      {"log_level", config.log_level},
      {"saved_changes", config.saved_changes},
      {"reactor",
       {{"count", block.reactors}, {"idle", block.idle == segment::IdlePolicy::Spin ? "spin" : "backoff"}}},
      {"transport",
       {{"port", block.port},
        {"credits", block.credits},
        {"inline_bytes", block.inline_bytes},
        {"max_version", block.max_version},
        {"max_segments", block.max_segments},
        {"keep_alive_s", block.keep_alive_s},
        {"probe_after_s", block.probe_after_s},
        {"progress_timeout_s", block.progress_timeout_s},
        {"version_1_memory_s", block.version_1_memory_s},
        {"max_connections", block.max_connections},
        {"call_buffers", block.call_buffers},
        {"large_reply_buffers", block.large_reply_buffers},
        {"reply_chunks", block.reply_chunks_if_needed != 0 ? "if-needed" : "always"}}},
      {"host_authentication", describe_host_authentication(config)},
      {"device", describe_device(block)},
      {"memory", {{"size_mib", block.memory_bytes >> 20}, {"max_files", block.max_files}}},
      {"admin",
       {{"socket", config.admin_socket},
        {"change_group", config.admin_change_group},
        {"read_group", config.admin_read_group}}},
      {"metrics", {{"address", config.metrics_address}}},
      {"page",
       {{"address", config.page_address},
        {"allow_remote", config.page_allow_remote},
        {"name", config.page_name}}},
      {"events", {{"file", config.events_file}, {"journald", config.events_journald}}},
      {"observability", {{"slow_call_ms", block.slow_call_ms}}},
      {"mount",
       {{"enabled", config.mount_enabled}, {"port", config.mount_port}, {"rpcbind", config.mount_rpcbind}}},
      {"kerberos", {{"enabled", config.kerberos_enabled}, {"port", config.kerberos_port}}},
      {"locks",
       {{"enabled", config.locks_enabled},
        {"port", config.locks_port},
        {"rpcbind", config.locks_rpcbind},
        {"name", config.locks_name},
        {"state", config.locks_state}}},
      {"policy", describe_class(config.classes[0])},
      {"admission",
       {{"max_connections", config.max_connections},
        {"max_requests_per_second", config.max_requests_per_second},
        {"max_requests_per_second_per_client", config.max_requests_per_second_per_client}}},
      {"forward",
       {{"record_buffers", block.record_buffers},
        {"item_buffers", block.item_buffers},
        {"request_cache", block.request_cache},
        {"callback_clients", block.callback_clients},
        {"spare_upstreams", block.spare_upstreams}}},
      {"upstream", describe_upstreams(block)},
      {"reverse", describe_reverse(block)},
      {"client_class", Json::array()},
      {"export", Json::array()}};
  result["policy"]["slots"] = config.policy_slots;
  result["policy"]["idle_s"] = config.policy_idle_s;
  result["policy"]["interval_ms"] = config.policy_interval_ms;
  if (block.choose_cpus == 0)
    result["reactor"]["cpus"] =
        std::vector<std::uint32_t>(block.cpus.begin(), block.cpus.begin() + block.reactors);
  for (std::size_t i = 1; i < config.classes.size(); ++i) {
    if (config.classes[i].gone) continue;
    Json entry = describe_class(config.classes[i]);
    entry["name"] = config.classes[i].name;
    entry["clients"] = to_json(config.classes[i].clients, config.classes[i].clients.size());
    result["client_class"].push_back(entry);
  }
  for (const segment::ExportConfig& entry : block.exports)
    if (entry.in_use != 0) result["export"].push_back(describe_export(entry));
  return result;
}

}  // namespace sluice::config
