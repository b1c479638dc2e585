// SPDX-License-Identifier: Apache-2.0
//
// Setup errors, thrown before anything is served. The message path throws nothing.
#pragma once

#include <stdexcept>

namespace sluice {

/// Setup error. what() is a sentence with the action that the operator has to take.
class SetupError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace sluice
