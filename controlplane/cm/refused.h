// SPDX-License-Identifier: Apache-2.0
//
// A refused connection request, with the reason of its reject on the wire. Value types; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "controlplane/cm/mad.h"
#include "controlplane/policy/admission.h"

namespace sluice::cm {

using policy::Refusal;

constexpr RejectReason reject_reason(Refusal refusal) noexcept {
  constexpr RejectReason kReasons[] = {
#define SLUICE_REFUSAL(enumerator, name, reason, text) RejectReason::reason,
      SLUICE_REFUSALS(SLUICE_REFUSAL)
#undef SLUICE_REFUSAL
  };
  return kReasons[static_cast<std::size_t>(refusal)];
}

struct Refused {
  Refusal why{};
  std::uint16_t path_mtu = 0;           ///< requested path MTU for InvalidPathMtu; zero for an invalid code
  std::uint16_t accepted_path_mtu = 0;  ///< largest accepted path MTU for InvalidPathMtu; zero if unknown
};

/// Returns a sentence for an event with the requested and accepted values. Empty for reasons without values.
std::string detail_of(const Refused& refused);

}  // namespace sluice::cm
