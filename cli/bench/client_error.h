// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdexcept>

namespace sluice::bench {

/// Error: the server cannot be reached, or its reply is wrong. what() is a sentence with the remedy.
class ClientError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace sluice::bench
