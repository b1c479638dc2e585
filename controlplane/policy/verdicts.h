// SPDX-License-Identifier: Apache-2.0
//
// Limits of admission control, its verdicts, and the other reasons for refusing a client's request. Value
// types; any thread.
#pragma once

#include <array>
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

// X(enumerator, name, cm::RejectReason, text). Names are for programs, as label values of a metric and fields
// of events and of the status. Texts are for people.
#define SLUICE_REFUSALS(X)                                                                                  \
  X(InvalidServiceId, invalid_service_id, InvalidServiceId, "no service at this port")                      \
  X(InvalidTransport, invalid_transport_service_type, InvalidTransportServiceType,                          \
    "not for a reliable connection")                                                                        \
  X(UnsupportedRequest, unsupported_request, UnsupportedRequest, "without IP addressing")                   \
  X(InvalidPathMtu, invalid_path_mtu, InvalidPathMtu, "a path MTU above that of the port")                  \
  X(StaleConnection, stale_connection, StaleConnection, "the client's queue pair already had a connection") \
  X(HalfOpenOfClient, half_open_of_client, NoResources, "too many unconfirmed requests of this client")     \
  X(HalfOpen, half_open, NoResources, "too many unconfirmed requests")                                      \
  X(NoPlace, no_place, NoResources, "the table of connections was full")                                    \
  X(NotConfirmed, not_confirmed, Timeout, "admitted, but the client did not confirm the connection")        \
  X(NotMadeInTime, not_made_in_time, Timeout, "admitted, but the data plane did not answer in time")        \
  X(NoRoomInDataPlane, no_room_in_data_plane, NoResources,                                                  \
    "admitted, but the data plane had no free connection")                                                  \
  X(FailedInDataPlane, failed_in_data_plane, NoResources, "admitted, but the data plane could not connect") \
  X(DataPlaneReplaced, data_plane_replaced, NoResources, "admitted, but the data plane was replaced")       \
  X(NoReactor, no_reactor, Consumer, "no reactor polls the device's port")                                  \
  X(NoAttributes, no_attributes, Consumer, "the kernel provides no attributes for the queue pair")

enum class Refusal : std::uint8_t {
#define SLUICE_REFUSAL(enumerator, name, reason, text) enumerator,
  SLUICE_REFUSALS(SLUICE_REFUSAL)
#undef SLUICE_REFUSAL
};

struct RefusalInfo {
  const char* name;
  const char* text;
};
inline constexpr RefusalInfo kRefusals[] = {
#define SLUICE_REFUSAL(enumerator, name, reason, text) {#name, text},
    SLUICE_REFUSALS(SLUICE_REFUSAL)
#undef SLUICE_REFUSAL
};
inline constexpr std::size_t kRefusalCount = std::size(kRefusals);

constexpr const RefusalInfo& info_of(Refusal refusal) noexcept {
  return kRefusals[static_cast<std::size_t>(refusal)];
}

/// Number of requests refused since the start, indexed by reason.
using RefusalCounts = std::array<std::uint64_t, kRefusalCount>;

}  // namespace sluice::policy
