// SPDX-License-Identifier: Apache-2.0
//
// A run over a Mesh from bytes, of a fuzzer or of a random generator: each step is a byte that says what to
// do, one that says where, and two for a size.
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
