// SPDX-License-Identifier: Apache-2.0
//
// Unpredictable values from the kernel, for setup. Any thread.
#pragma once

#include <sys/random.h>

#include <type_traits>

#include "dataplane/base/setup_error.h"

namespace sluice {

/// Returns a random value. Throws SetupError.
template <typename T>
T random_value() {
  static_assert(std::has_unique_object_representations_v<T> && sizeof(T) <= 256);  // more may be truncated
  T value;
  if (::getrandom(&value, sizeof value, 0) != static_cast<ssize_t>(sizeof value))
    throw SetupError("Cannot get random numbers from the kernel.");
  return value;
}

}  // namespace sluice
