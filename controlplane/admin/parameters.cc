// SPDX-License-Identifier: Apache-2.0
#include "controlplane/admin/parameters.h"

#include <string>

namespace sluice::admin {

std::uint32_t number_of(const Json& parameters, const char* name) {
  return parameters.at(name).get<std::uint32_t>();
}

MethodError no_such_connection(std::uint32_t reactor, std::uint32_t connection) {
  return MethodError("There is no connection " + std::to_string(connection) + " on reactor " +
                     std::to_string(reactor) + ": 'sluicectl connections' lists those there are.");
}

}  // namespace sluice::admin
