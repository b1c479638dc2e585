// SPDX-License-Identifier: Apache-2.0
//
// Facts about the machine and the card, which are the header of a report. They are collected in a child
// process, because a provider may end the process that opens its device.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "controlplane/json/json.h"

namespace sluice::card_check {

/// Choice of the user.
struct Choice {
  std::string device;                  ///< empty: the first with a usable port
  std::uint32_t port = 0;              ///< zero: the first usable one
  std::optional<std::uint32_t> gid{};  ///< index in the GID table; no value: the first usable one
};

/// The port under test. Not a part of the report, because it has identities in plain text.
struct Selection {
  std::string problem;  ///< why no port can be tested, and the remedy; empty if one can
  std::string device;
  std::string folder;    ///< of the device in sysfs
  std::string provider;  ///< row in the table of providers (pmd/verbs/provider.h)
  std::uint8_t port = 1;
  std::uint32_t gid = 0;
  /// GIDs of both ends in mode two-gids: both of the other IP version, because a packet has one version, or
  /// two of the same version if the port has no other. No value if the port has one GID.
  std::optional<std::uint32_t> second_left{};
  std::optional<std::uint32_t> second_right{};
  std::vector<std::vector<std::string>> identities;  ///< text forms of each, for Masking
  Json facts;                                        ///< object of sections
};

/// Opens the device and collects the facts. Throws nothing that the provider does not throw.
Selection collect_facts(const Choice& choice);

/// Facts of the machine: kernel, distribution, packages, memory limits. Needs no device.
Json system_facts();
/// Facts from the folders of the device and of its PCI function in sysfs.
Json hardware_facts(const std::string& folder);
/// Facts from the port's network interface: PFC, default RoCE TOS.
Json fabric_facts(const std::string& device, std::uint8_t port, const std::string& interface);

// Form in which the child sends a selection to its parent.
Json to_json(const Selection& selection);
/// Throws JsonError.
Selection selection_of(const Json& message);

}  // namespace sluice::card_check
