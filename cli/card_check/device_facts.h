// SPDX-License-Identifier: Apache-2.0
//
// Facts that libibverbs reports about an open device.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <span>
#include <string>

#include "controlplane/json/json.h"

namespace sluice::card_check {

/// Returns every attribute of ibv_query_device_ex() as its number, except the GUIDs, which are hexadecimal.
Json attribute_facts(ibv_context* context);
Json port_facts(const ibv_port_attr& port);
/// Returns the entries of the port.
Json gid_facts(std::span<const ibv_gid_entry> gids, std::uint8_t port);
/// Returns the interfaces that the driver of Sluice uses with the provider, and its deviations.
Json provider_facts(const ibv_device& device);
/// Returns the name of a network interface, or an empty text.
std::string interface_of(std::uint32_t index);
std::string hexadecimal(std::uint64_t value);

}  // namespace sluice::card_check
