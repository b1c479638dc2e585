// SPDX-License-Identifier: Apache-2.0
//
// Setup errors, thrown before anything is served. The message path throws nothing.
#pragma once

#include <stdexcept>

namespace sluice {

/// what() is a sentence that tells the operator what to do.
class SetupError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace sluice
