// SPDX-License-Identifier: Apache-2.0
//
// The admin interface as data: a declaration of each method, from which its registration, its reference and its tests are made.
// Names are stable: clients depend on them. Any thread.
#pragma once

#include <string>
#include <vector>

#include "controlplane/admin/declaration.h"

namespace sluice::admin {

/// The methods that belong together, and what they have in common.
struct Chapter {
  std::string title;
  std::vector<Declaration> methods;
};

/// Every method, in the order of the reference.
const std::vector<Chapter>& chapters();
/// Of the method `name`. Throws std::logic_error when none is declared.
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
