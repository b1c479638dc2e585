// SPDX-License-Identifier: Apache-2.0
#include "cli/card_check/device_facts.h"

#include <arpa/inet.h>
#include <endian.h>
#include <link.h>
#include <net/if.h>

#include <cstdio>
#include <cstring>
#include <fstream>

#include "cli/card_check/sysfs.h"
#include "pmd/verbs/ports.h"

namespace sluice::card_check {
namespace {

Json classic_attributes(const ibv_device_attr& a) {
  return {{"fw_ver", a.fw_ver},
          {"node_guid", hexadecimal(be64toh(a.node_guid))},
          {"sys_image_guid", hexadecimal(be64toh(a.sys_image_guid))},
          {"max_mr_size", a.max_mr_size},
          {"page_size_cap", a.page_size_cap},
          {"vendor_id", a.vendor_id},
          {"vendor_part_id", a.vendor_part_id},
          {"hw_ver", a.hw_ver},
          {"max_qp", a.max_qp},
          {"max_qp_wr", a.max_qp_wr},
          {"device_cap_flags", a.device_cap_flags},
          {"max_sge", a.max_sge},
          {"max_sge_rd", a.max_sge_rd},
          {"max_cq", a.max_cq},
          {"max_cqe", a.max_cqe},
          {"max_mr", a.max_mr},
          {"max_pd", a.max_pd},
          {"max_qp_rd_atom", a.max_qp_rd_atom},
          {"max_res_rd_atom", a.max_res_rd_atom},
          {"max_qp_init_rd_atom", a.max_qp_init_rd_atom},
          {"atomic_cap", static_cast<int>(a.atomic_cap)},
          {"max_mw", a.max_mw},
          {"max_ah", a.max_ah},
          {"max_srq", a.max_srq},
          {"max_srq_wr", a.max_srq_wr},
          {"max_srq_sge", a.max_srq_sge},
          {"max_pkeys", a.max_pkeys},
          {"local_ca_ack_delay", a.local_ca_ack_delay},
          {"phys_port_cnt", a.phys_port_cnt}};
}

Json extended_attributes(const ibv_device_attr_ex& a) {
  return {{"comp_mask", a.comp_mask},
          {"odp_general_caps", a.odp_caps.general_caps},
          {"odp_rc_caps", a.odp_caps.per_transport_caps.rc_odp_caps},
          {"completion_timestamp_mask", a.completion_timestamp_mask},
          {"hca_core_clock", a.hca_core_clock},
          {"device_cap_flags_ex", a.device_cap_flags_ex},
          {"tso_max", a.tso_caps.max_tso},
          {"rss_supported_qpts", a.rss_caps.supported_qpts},
          {"max_wq_type_rq", a.max_wq_type_rq},
          {"packet_pacing_max", a.packet_pacing_caps.qp_rate_limit_max},
          {"raw_packet_caps", a.raw_packet_caps},
          {"tm_max_ops", a.tm_caps.max_ops},
          {"cq_moderation_max_count", a.cq_mod_caps.max_cq_count},
          {"cq_moderation_max_period", a.cq_mod_caps.max_cq_period},
          {"max_dm_size", a.max_dm_size},
          {"pci_atomic_fetch_add", a.pci_atomic_caps.fetch_add},
          {"xrc_odp_caps", a.xrc_odp_caps},
          {"phys_port_cnt_ex", a.phys_port_cnt_ex}};
}

const char* type_of(const ibv_gid_entry& entry) {
  switch (entry.gid_type) {
    case IBV_GID_TYPE_IB:
      return "InfiniBand";
    case IBV_GID_TYPE_ROCE_V1:
      return "RoCEv1";
    case IBV_GID_TYPE_ROCE_V2:
      return "RoCEv2";
    default:
      return "unknown";
  }
}

const char* kind_of(const PeerAddress& address) {
  if (is_mapped_ipv4(address)) return "IPv4";
  return is_link_local(address) ? "IPv6 link-local" : "IPv6";
}

/// Returns the VLAN of an interface, or null. /proc/net/vlan has a file for each VLAN interface.
Json vlan_of(const std::string& interface) {
  std::ifstream file("/proc/net/vlan/" + interface);
  for (std::string word; !interface.empty() && file >> word;)
    if (int number = 0; word == "VID:" && file >> number) return number;
  return nullptr;
}

/// Appends the build id of a loaded object in hexadecimal.
void find_build_id(const dl_phdr_info& object, std::string& found) {
  for (int i = 0; i < object.dlpi_phnum; ++i) {
    const ElfW(Phdr)& segment = object.dlpi_phdr[i];
    if (segment.p_type != PT_NOTE) continue;
    const auto* const notes = reinterpret_cast<const unsigned char*>(object.dlpi_addr + segment.p_vaddr);
    for (std::size_t at = 0; at + sizeof(ElfW(Nhdr)) <= segment.p_memsz;) {
      ElfW(Nhdr) note;
      std::memcpy(&note, notes + at, sizeof note);
      const std::size_t value = at + sizeof note + ((note.n_namesz + 3) & ~3u);
      if (value + note.n_descsz > segment.p_memsz) break;
      for (std::size_t k = 0; note.n_type == NT_GNU_BUILD_ID && k < note.n_descsz; ++k) {
        char digits[3];
        std::snprintf(digits, sizeof digits, "%02x", notes[value + k]);
        found += digits;
      }
      if (note.n_type == NT_GNU_BUILD_ID) return;
      at = value + ((note.n_descsz + 3) & ~3u);
    }
  }
}

/// Adds libibverbs and the libraries of providers, such as libmlx5-rdmav34.so, to the object at `data`.
int visit_object(dl_phdr_info* object, std::size_t, void* data) {
  auto& libraries = *static_cast<Json*>(data);
  const std::string_view path = object->dlpi_name;
  const std::string_view name = path.substr(path.rfind('/') + 1);
  if (name.find("-rdmav") == std::string_view::npos && !name.starts_with("libibverbs.so")) return 0;
  std::string build_id;
  find_build_id(*object, build_id);
  libraries[name] = known(build_id);
  return 0;
}

}  // namespace

std::string hexadecimal(std::uint64_t value) {
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(value));
  return text;
}

std::string interface_of(std::uint32_t index) {
  char name[IF_NAMESIZE];
  return index != 0 && ::if_indextoname(index, name) != nullptr ? name : std::string();
}

Json attribute_facts(ibv_context* context) {
  ibv_device_attr_ex attributes{};
  if (ibv_query_device_ex(context, nullptr, &attributes) != 0) return nullptr;
  Json facts = classic_attributes(attributes.orig_attr);
  facts.update(extended_attributes(attributes));
  return facts;
}

Json port_facts(const ibv_port_attr& port) {
  return {{"state", static_cast<int>(port.state)},
          {"active_mtu_bytes", rdma::verbs::bytes_of(port.active_mtu)},
          {"max_mtu_bytes", rdma::verbs::bytes_of(port.max_mtu)},
          {"active_width", port.active_width},
          {"active_speed", port.active_speed},
          {"link_layer", port.link_layer == IBV_LINK_LAYER_ETHERNET ? "Ethernet" : "not Ethernet"},
          {"max_msg_sz", port.max_msg_sz},
          {"gid_tbl_len", port.gid_tbl_len},
          {"port_cap_flags", port.port_cap_flags},
          {"port_cap_flags2", port.port_cap_flags2},
          {"phys_state", port.phys_state},
          {"flags", port.flags}};
}

Json gid_facts(std::span<const ibv_gid_entry> gids, std::uint8_t port) {
  Json facts = Json::array();
  for (const ibv_gid_entry& entry : gids) {
    if (entry.port_num != port) continue;
    const std::string interface = interface_of(entry.ndev_ifindex);
    const PeerAddress address = rdma::verbs::address_of(entry);
    char text[INET6_ADDRSTRLEN] = "";
    ::inet_ntop(AF_INET6, entry.gid.raw, text, sizeof text);
    facts.push_back({{"index", entry.gid_index},
                     {"type", type_of(entry)},
                     {"kind", kind_of(address)},
                     {"address", text},
                     {"interface", known(interface)},
                     {"vlan", vlan_of(interface)}});
  }
  return facts;
}

Json provider_facts(const ibv_device& device) {
  const rdma::verbs::Provider& provider = rdma::verbs::provider_of(device);
  Json libraries = Json::object();
  ::dl_iterate_phdr(&visit_object, &libraries);
  return {{"name", provider.name},
          {"deviation", provider.deviation},
          {"source", provider.source},
          {"extended_posting", provider.extended_posting},
          {"extended_polling", provider.extended_polling},
          {"sends_rkey", provider.sends_rkey},
          {"max_posted_reads", provider.max_posted_reads},
          {"in_software", provider.in_software},
          {"libraries", libraries}};
}

}  // namespace sluice::card_check
