// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdexcept>

namespace sluice::bench {

/// The server cannot be reached, or its answer is wrong. what() is a sentence that says what to do.
class ClientError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace sluice::bench
