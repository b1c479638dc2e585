// SPDX-License-Identifier: Apache-2.0
//
// Choice of the device, the port and the GIDs under test, and the reason if there is none.
#include <endian.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "cli/card_check/device_facts.h"
#include "cli/card_check/facts.h"
#include "cli/card_check/handles.h"
#include "cli/card_check/masking.h"
#include "cli/card_check/sysfs.h"
#include "pmd/verbs/ports.h"

namespace sluice::card_check {
namespace {

namespace fs = std::filesystem;
namespace verbs = rdma::verbs;

constexpr const char* kClass = "/sys/class/infiniband";
constexpr const char* kFiles = "/dev/infiniband";

bool has_entries(const char* folder) {
  std::error_code failed;
  return fs::directory_iterator(folder, failed) != fs::directory_iterator();
}

/// Returns why libibverbs has no device, and the remedy.
std::string no_device() {
  const bool in_sysfs = has_entries(kClass);
  const bool has_files = has_entries(kFiles);
  if (has_files && !in_sysfs)
    return "This process has files in /dev/infiniband, but /sys/class/infiniband is hidden, as in a "
           "container. "
           "Run sluice-card-check on the host, or mount /sys into the container.";
  if (in_sysfs && !has_files)
    return "The kernel has an RDMA device, but /dev/infiniband has no file for it. Load the module "
           "ib_uverbs, "
           "and in a container pass /dev/infiniband.";
  if (in_sysfs)
    return "The kernel has an RDMA device, but libibverbs does not. Install the package ibverbs-providers "
           "(or "
           "libibverbs) with the library of its provider.";
  return "This machine has no RDMA device. Load the driver of the card (check `rdma link`), or run "
         "sluice-card-check on a machine that has a RoCE card.";
}

std::string cannot_open(const std::string& device, int error) {
  const std::string what = "The RDMA device " + device + " cannot be opened (" + std::strerror(error) + "). ";
  if (error == EACCES || error == EPERM)
    return what +
           "Run sluice-card-check as root, or as a user who may read and write /dev/infiniband/uverbs*.";
  return what + "See the kernel log.";
}

struct Candidate {
  Context context;
  std::uint8_t port = 1;
  ibv_port_attr attributes{};
  std::vector<ibv_gid_entry> gids;
};

/// Returns why a port cannot be tested, and queries it.
std::string problem_of(Candidate& candidate, std::uint8_t port) {
  ibv_context* const context = candidate.context.get();
  const std::string name = ibv_get_device_name(context->device);
  candidate.port = port;
  if (ibv_query_port(context, port, &candidate.attributes) != 0)
    return "The RDMA device " + name + " has no port " + std::to_string(port) + ".";
  candidate.gids = verbs::gids_of(context);
  const std::string problem = verbs::problem_of(*context->device, candidate.attributes,
                                                !verbs::addresses_of(candidate.gids, port).empty());
  return problem.empty() ? problem
                         : "The RDMA device " + name + " port " + std::to_string(port) +
                               " cannot be used: " + problem + ".";
}

/// Opens the wanted device, or the first one with a usable port. Returns the reason if there is none.
std::string choose(const Choice& choice, Candidate& chosen) {
  int count = 0;
  const DeviceList list(ibv_get_device_list(&count));
  if (list == nullptr || count == 0) return no_device();
  std::string problems;
  std::string names;
  for (int i = 0; i < count; ++i) {
    ibv_device* const device = list.get()[i];
    const std::string name = ibv_get_device_name(device);
    names += (names.empty() ? "" : ", ") + name;
    if (!choice.device.empty() && choice.device != name) continue;
    chosen.context.reset(ibv_open_device(device));
    if (chosen.context == nullptr) {
      problems += (problems.empty() ? "" : " ") + cannot_open(name, errno);
      continue;
    }
    ibv_device_attr attributes{};
    ibv_query_device(chosen.context.get(), &attributes);
    const std::uint32_t first = choice.port != 0 ? choice.port : 1;
    const std::uint32_t last =
        choice.port != 0 ? choice.port : std::max<std::uint32_t>(attributes.phys_port_cnt, 1);
    for (std::uint32_t port = first; port <= last; ++port) {
      const std::string problem = problem_of(chosen, static_cast<std::uint8_t>(port));
      if (problem.empty()) return {};
      problems += (problems.empty() ? "" : " ") + problem;
    }
    chosen.context.reset();
  }
  if (!problems.empty()) return problems;
  return "There is no RDMA device '" + choice.device + "'. This machine has " + names + ".";
}

/// Chooses the GID under test: the wanted one, or the first usable one that is routable.
std::string choose_gids(const Choice& choice, const Candidate& candidate, Selection& selection) {
  const auto usable = [&](const ibv_gid_entry& entry) { return verbs::is_usable_gid(entry, candidate.port); };
  const ibv_gid_entry* first = nullptr;
  for (const ibv_gid_entry& entry : candidate.gids) {
    if (!usable(entry) || (choice.gid && entry.gid_index != *choice.gid)) continue;
    const bool routable = !is_link_local(verbs::address_of(entry));
    if (first == nullptr || (routable && is_link_local(verbs::address_of(*first)))) first = &entry;
  }
  if (first == nullptr)
    return "The port has no RoCEv2 GID with index " + std::to_string(choice.gid.value_or(0)) +
           ". Choose another --gid; `rdma link` and show_gids list them.";
  selection.gid = first->gid_index;
  const PeerAddress address = verbs::address_of(*first);
  const ibv_gid_entry* other = nullptr;
  for (const ibv_gid_entry& entry : candidate.gids) {
    const PeerAddress one = verbs::address_of(entry);
    if (!usable(entry) || one == address || is_link_local(one) != is_link_local(address)) continue;
    const bool other_version = is_mapped_ipv4(one) != is_mapped_ipv4(address);
    if (other == nullptr ||
        (other_version && is_mapped_ipv4(verbs::address_of(*other)) == is_mapped_ipv4(address)))
      other = &entry;
  }
  if (other == nullptr) return {};
  const bool same_version = is_mapped_ipv4(verbs::address_of(*other)) == is_mapped_ipv4(address);
  selection.second_left = same_version ? first->gid_index : other->gid_index;
  selection.second_right = other->gid_index;
  return {};
}

void add_mac(const std::string& interface, Selection& selection) {
  const std::string text = first_line("/sys/class/net/" + interface + "/address");
  std::array<std::uint8_t, 6> mac{};
  unsigned part[6] = {};
  if (std::sscanf(text.c_str(), "%2x:%2x:%2x:%2x:%2x:%2x", &part[0], &part[1], &part[2], &part[3], &part[4],
                  &part[5]) != 6)
    return;
  std::copy(std::begin(part), std::end(part), mac.begin());
  if (mac != std::array<std::uint8_t, 6>{}) selection.identities.push_back(forms_of_mac(mac));
}

void add_identities(const Candidate& candidate, Selection& selection) {
  ibv_device_attr attributes{};
  if (ibv_query_device(candidate.context.get(), &attributes) == 0)
    for (const std::uint64_t guid : {be64toh(attributes.node_guid), be64toh(attributes.sys_image_guid)})
      if (guid != 0) selection.identities.push_back(forms_of_guid(guid));
  for (const ibv_gid_entry& entry : candidate.gids) {
    Gid gid;
    std::copy(std::begin(entry.gid.raw), std::end(entry.gid.raw), gid.begin());
    selection.identities.push_back(forms_of_gid(gid));
    if (const std::string interface = interface_of(entry.ndev_ifindex); !interface.empty())
      add_mac(interface, selection);
  }
}

Json optional(const std::optional<std::uint32_t>& number) {
  return number ? Json(*number) : Json(nullptr);
}
std::optional<std::uint32_t> optional(const Json& value) {
  return value.is_null() ? std::nullopt : std::optional(value.get<std::uint32_t>());
}

}  // namespace

Selection collect_facts(const Choice& choice) {
  Selection selection;
  Candidate chosen;
  selection.problem = choose(choice, chosen);
  if (selection.problem.empty()) selection.problem = choose_gids(choice, chosen, selection);
  if (!selection.problem.empty()) return selection;
  const ibv_device& device = *chosen.context->device;
  selection.device = device.name;
  selection.folder = device.ibdev_path;
  selection.port = chosen.port;
  selection.provider = verbs::provider_of(device).name;
  add_identities(chosen, selection);
  std::string interface;
  for (const ibv_gid_entry& entry : chosen.gids)
    if (entry.port_num == chosen.port && entry.gid_index == selection.gid)
      interface = interface_of(entry.ndev_ifindex);
  selection.facts = {{"system", system_facts()},
                     {"device",
                      {{"name", selection.device},
                       {"port", selection.port},
                       {"gid", selection.gid},
                       {"interface", known(interface)}}},
                     {"hardware", hardware_facts(selection.folder)},
                     {"provider", provider_facts(device)},
                     {"attributes", attribute_facts(chosen.context.get())},
                     {"port", port_facts(chosen.attributes)},
                     {"gids", gid_facts(chosen.gids, chosen.port)},
                     {"fabric", fabric_facts(selection.device, selection.port, interface)}};
  return selection;
}

Json to_json(const Selection& selection) {
  Json identities = Json::array();
  for (const auto& forms : selection.identities) identities.push_back(Json(forms));
  return {{"problem", selection.problem},
          {"device", selection.device},
          {"folder", selection.folder},
          {"provider", selection.provider},
          {"port", selection.port},
          {"gid", selection.gid},
          {"second_left", optional(selection.second_left)},
          {"second_right", optional(selection.second_right)},
          {"identities", identities},
          {"facts", selection.facts}};
}

Selection selection_of(const Json& message) {
  Selection selection;
  selection.problem = message.at("problem").get<std::string>();
  selection.device = message.at("device").get<std::string>();
  selection.folder = message.at("folder").get<std::string>();
  selection.provider = message.at("provider").get<std::string>();
  selection.port = message.at("port").get<std::uint8_t>();
  selection.gid = message.at("gid").get<std::uint32_t>();
  selection.second_left = optional(message.at("second_left"));
  selection.second_right = optional(message.at("second_right"));
  for (const Json& forms : message.at("identities"))
    selection.identities.push_back(forms.get<std::vector<std::string>>());
  selection.facts = message.at("facts");
  return selection;
}

}  // namespace sluice::card_check
