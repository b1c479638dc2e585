// SPDX-License-Identifier: Apache-2.0
//
// The sections of each part, as this release has them. A release reads and writes the file of another one whose
// sections are the same; a counter more or less makes no other section. Setup.
#pragma once

#include <array>
#include <string>

#include "dataplane/segment/parts.h"

namespace sluice::segment {

const std::array<Section, kMaxSections>& sections_of(Part part) noexcept;

/// A sentence's part that names the first section that differs; empty: none does. Of sections that only `theirs` has
/// nothing is known and nothing used.
std::string difference(Part part, const std::array<Section, kMaxSections>& theirs, std::uint64_t file_bytes);

}  // namespace sluice::segment
