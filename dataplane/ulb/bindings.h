// SPDX-License-Identifier: Apache-2.0
//
// Registry of the upper-layer bindings. Constants; any thread.
#pragma once

#include <span>
#include <string_view>

#include "dataplane/service/api/binding.h"

namespace sluice::ulb {

/// Returns the binding of a program and version, which is static, or null if there is none.
const service::Binding* find_binding(std::uint32_t program, std::uint32_t version) noexcept;
/// Returns a copy of the binding of a program and version. If there is none, returns a binding that has no
/// eligible items and ignores chunks.
service::Binding binding_or_plain(std::uint32_t program, std::uint32_t version) noexcept;

/// Program and version that the configuration can refer to by name, for example "nfs3".
struct NamedProgram {
  std::string_view name;
  std::uint32_t program = 0;
  std::uint32_t version = 0;
};
/// Returns all programs with such a name.
std::span<const NamedProgram> named_programs() noexcept;

}  // namespace sluice::ulb
