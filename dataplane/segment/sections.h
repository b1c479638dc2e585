// SPDX-License-Identifier: Apache-2.0
//
// Sections of each part, as defined by this release. A release reads and writes the file of another release
// if the sections are equal; an additional or missing counter does not change a section. Used at setup.
#pragma once

#include <array>
#include <string>

#include "dataplane/segment/parts.h"

namespace sluice::segment {

const std::array<Section, kMaxSections>& sections_of(Part part) noexcept;

/// Returns a clause that names the first section that differs; empty if none does. Sections that only
/// `theirs` has are unknown and not used.
std::string difference(Part part, const std::array<Section, kMaxSections>& theirs, std::uint64_t file_bytes);

}  // namespace sluice::segment
