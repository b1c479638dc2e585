// SPDX-License-Identifier: Apache-2.0
//
// A refused connection request: why, with the reason that its reject has on the wire. Values; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "controlplane/cm/mad.h"
#include "controlplane/policy/refusal.h"

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
  std::uint16_t path_mtu = 0;           ///< InvalidPathMtu: requested; 0: a code that is none
  std::uint16_t accepted_path_mtu = 0;  ///< InvalidPathMtu: the largest that is accepted; 0: unknown
};

/// Sentence for an event that names what was requested and what is accepted. Empty for reasons without values.
std::string detail_of(const Refused& refused);

}  // namespace sluice::cm
