// SPDX-License-Identifier: Apache-2.0
//
// Rules for a client of version 2: its calls, their chunks, and what is reduced.
#include "cli/conformance/judge.h"

namespace sluice::conformance {

std::span<const Rule> rules_of_version_2_calls() {
  return {};
}

}  // namespace sluice::conformance
