// SPDX-License-Identifier: Apache-2.0
//
// The admin interface as data. The registration, the reference and the tests of each method use its
// declaration. Names are stable because clients depend on them. Any thread.
#pragma once

#include <string>
#include <vector>

#include "controlplane/admin/declaration.h"

namespace sluice::admin {

/// Methods that the reference lists under one title.
struct Chapter {
  std::string title;
  std::vector<Declaration> methods;
};

/// Returns all methods, in the order of the reference.
const std::vector<Chapter>& chapters();
/// Returns the declaration of the method `name`. Throws std::logic_error if there is none.
const Declaration& declared(const std::string& name);

Chapter declare_status();
Chapter declare_connections();
Chapter declare_calls();
Chapter declare_exports();
Chapter declare_reactors();
Chapter declare_gateways();
Chapter declare_configuration();
Chapter declare_captures();

}  // namespace sluice::admin
