// SPDX-License-Identifier: Apache-2.0
//
// Parameters that several methods have.
#pragma once

#include <cstdint>

#include "controlplane/admin/registry.h"
#include "controlplane/json/json.h"

namespace sluice::admin {

/// The number `name` of `parameters`, which fits in 32 bits as it is declared.
std::uint32_t number_of(const Json& parameters, const char* name);
/// What to throw when the parameters name a connection that does not exist.
MethodError no_such_connection(std::uint32_t reactor, std::uint32_t connection);

}  // namespace sluice::admin
