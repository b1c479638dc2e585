// SPDX-License-Identifier: Apache-2.0
//
// Verdicts of admission control, and its limits. Constants and value types; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>

namespace sluice::policy {

// X(name, text). Texts are for people.
#define SLUICE_VERDICTS(X)                                          \
  X(Admit, "admitted")                                              \
  X(TooManyConnections, "too many connections")                     \
  X(TooManyOfClient, "too many connections of this client")         \
  X(TooFast, "too many connection requests")                        \
  X(TooFastOfClient, "too many connection requests of this client") \
  X(Draining, "the appliance is being drained")

enum class Verdict : std::uint8_t {
#define SLUICE_VERDICT(name, what) name,
  SLUICE_VERDICTS(SLUICE_VERDICT)
#undef SLUICE_VERDICT
};
inline constexpr const char* kVerdicts[] = {
#define SLUICE_VERDICT(name, what) what,
    SLUICE_VERDICTS(SLUICE_VERDICT)
#undef SLUICE_VERDICT
};
/// Names for programs, as label values of a metric and fields of events and of the status.
inline constexpr const char* kVerdictNames[] = {"admitted", "too_many_connections", "too_many_of_client",
                                                "too_fast", "too_fast_of_client",   "draining"};
static_assert(std::size(kVerdictNames) == std::size(kVerdicts));
inline const char* name_of(Verdict verdict) {
  return kVerdictNames[static_cast<std::size_t>(verdict)];
}
inline const char* to_string(Verdict verdict) {
  return kVerdicts[static_cast<std::size_t>(verdict)];
}

struct AdmissionLimits {
  std::uint32_t max_connections = 0;
  std::uint32_t max_requests_per_second = 0;
  std::uint32_t max_requests_per_second_per_client = 0;
};

}  // namespace sluice::policy
