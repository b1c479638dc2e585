// SPDX-License-Identifier: Apache-2.0
#include "controlplane/admin/declarations/declarations.h"

#include <stdexcept>

namespace sluice::admin {

const std::vector<Chapter>& chapters() {
  static const std::vector<Chapter> all = {declare_status(),        declare_connections(), declare_calls(),
                                           declare_exports(),       declare_reactors(),    declare_gateways(),
                                           declare_configuration(), declare_captures()};
  return all;
}

const Declaration& declared(const std::string& name) {
  for (const Chapter& chapter : chapters())
    for (const Declaration& method : chapter.methods)
      if (method.name == name) return method;
  throw std::logic_error("The method " + name + " is not declared.");
}

}  // namespace sluice::admin
