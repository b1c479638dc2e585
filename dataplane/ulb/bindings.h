// SPDX-License-Identifier: Apache-2.0
//
// All upper-layer bindings there are. Any thread.
#pragma once

#include <span>
#include <string_view>

#include "dataplane/service/api/binding.h"

namespace sluice::ulb {

/// Of this version of this program; lives as long as the process. Null: it has none.
const service::Binding* find_binding(std::uint32_t program, std::uint32_t version) noexcept;
/// A copy of that, or, for a program without one, a binding without eligible items that ignores chunks.
service::Binding binding_or_plain(std::uint32_t program, std::uint32_t version) noexcept;

/// A program and version with a name of its own in configurations, such as "nfs3".
struct NamedProgram {
  std::string_view name;
  std::uint32_t program = 0;
  std::uint32_t version = 0;
};
std::span<const NamedProgram> named_programs() noexcept;

}  // namespace sluice::ulb
