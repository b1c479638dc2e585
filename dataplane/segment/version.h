// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace sluice {

/// As meson.build says it.
inline constexpr const char* kVersion = SLUICE_VERSION;

}  // namespace sluice
