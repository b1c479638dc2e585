// SPDX-License-Identifier: Apache-2.0
//
// Declaration of a method of the admin interface for its clients: name, required access, parameters, result
// and errors. Value types; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "controlplane/admin/schema.h"

namespace sluice::admin {

/// Access level of a client. Each level includes the previous one.
enum class Access : std::uint8_t { None, Read, Change };

struct Declaration {
  std::string name{};
  Access needed = Access::Change;
  std::string summary{};  ///< one sentence
  Fields parameters{};    ///< all parameters; requests with others are refused
  Field result{};
  std::vector<std::string> errors{};  ///< conditions of kMethodFailed, a sentence each
};

}  // namespace sluice::admin
