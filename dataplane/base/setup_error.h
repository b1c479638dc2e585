// SPDX-License-Identifier: Apache-2.0
//
// Errors of setup; the message path has none. Thrown before anything is served.
#pragma once

#include <stdexcept>

namespace sluice {

/// Setup failed; what() is a sentence for the operator that says what to do.
class SetupError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace sluice
