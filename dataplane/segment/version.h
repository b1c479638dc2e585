// SPDX-License-Identifier: Apache-2.0
//
// Version of all programs. A constant; any thread.
#pragma once

namespace sluice {

/// The project version in meson.build.
inline constexpr const char* kVersion = SLUICE_VERSION;

}  // namespace sluice
