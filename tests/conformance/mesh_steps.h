// SPDX-License-Identifier: Apache-2.0
//
// Runs a Mesh by the bytes of a fuzzer or of a random generator. Each step is a byte that selects the action,
// one that selects the place, and two bytes for a size.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "tests/conformance/mesh.h"

namespace sluice::conformance {

inline constexpr std::size_t kStepBytes = 4;

/// Returns Mesh::finish().
std::string run_steps(Mesh& mesh, std::span<const std::uint8_t> bytes);

}  // namespace sluice::conformance
