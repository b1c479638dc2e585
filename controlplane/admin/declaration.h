// SPDX-License-Identifier: Apache-2.0
//
// What a method of the admin interface is, for clients: name, who may call it, parameters, result, errors. Values; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "controlplane/admin/schema.h"

namespace sluice::admin {

/// Each includes the one before it.
enum class Access : std::uint8_t { None, Read, Change };

struct Declaration {
  std::string name{};
  Access needed = Access::Change;
  std::string summary{};  ///< a sentence
  Fields parameters{};    ///< others are refused
  Field result{};
  std::vector<std::string> errors{};  ///< sentences: when it fails with kMethodFailed
};

}  // namespace sluice::admin
