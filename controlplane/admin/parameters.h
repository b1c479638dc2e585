// SPDX-License-Identifier: Apache-2.0
//
// Parameters that several methods share.
#pragma once

#include <cstdint>

#include "controlplane/admin/registry.h"
#include "controlplane/json/json.h"

namespace sluice::admin {

/// Returns the number `name` of `parameters`. Its declaration limits it to 32 bits.
std::uint32_t number_of(const Json& parameters, const char* name);
/// Returns the error for parameters that name a connection that does not exist.
MethodError no_such_connection(std::uint32_t reactor, std::uint32_t connection);

}  // namespace sluice::admin
