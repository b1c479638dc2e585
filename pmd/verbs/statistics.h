// SPDX-License-Identifier: Apache-2.0
//
// Statistics of a verbs device.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace sluice::rdma::verbs {

/// Counters of one reactor's device. Written by that reactor, except for the counters of asynchronous events,
/// which the thread that calls handle_events() increments.
#define SLUICE_VERBS_STATISTICS(X)                                                                      \
  X(work_completions, "work completions taken from completion queues")                                  \
  X(waits, "times that the reactor slept until a work completion or a timeout")                         \
  X(wakeups, "sleeps of the reactor that a work completion ended")                                      \
  X(doorbells, "batches of send work requests posted to the device")                                    \
  X(receive_doorbells, "batches of Receives posted to the device")                                      \
  X(send_requests, "send work requests posted")                                                         \
  X(inline_sends, "send work requests posted with inline data")                                         \
  X(unsignaled, "send work requests posted without a work completion")                                  \
  X(windows_bound, "memory windows bound")                                                              \
  X(call_regions_registered, "regions registered for one call, on a device without memory windows")     \
  X(call_regions_refused, "regions for one call that the device refused to register or deregister")     \
  X(error_completions, "work completions with an error, except flushed ones")                           \
  X(stale_completions, "work completions of destroyed queue pairs")                                     \
  X(post_failures, "work requests that the provider refused")                                           \
  X(receive_overruns, "queue pairs closed because a peer sent more messages than Receives were posted") \
  X(flushed_by_driver, "work requests flushed by the driver because their queue pair was destroyed")    \
  X(queue_pairs_made, "queue pairs created")                                                            \
  X(queue_pairs_refused, "queue pairs that could not be created")                                       \
  X(queue_pair_events, "queue pairs that failed with an asynchronous event")                            \
  X(completion_queue_overruns, "completion queues that failed with an asynchronous event")              \
  X(shared_receive_errors, "shared receive queues that failed with an asynchronous event")              \
  X(port_down, "times that the port went down")                                                         \
  X(port_up, "times that the port came up")                                                             \
  X(flush_timeouts, "times that the device did not flush a queue pair in time and was closed")          \
  X(device_lost, "times that the device was removed, or closed because of an error")                    \
  X(device_returned, "times that the device was opened again")

struct Statistics {
#define SLUICE_VERBS_FIELD(name, help) std::uint64_t name = 0;
  SLUICE_VERBS_STATISTICS(SLUICE_VERBS_FIELD)
#undef SLUICE_VERBS_FIELD
};

struct Statistic {
  std::string_view name;
  std::string_view help;
};
inline constexpr Statistic kStatistics[] = {
#define SLUICE_VERBS_ENTRY(name, help) {#name, help},
    SLUICE_VERBS_STATISTICS(SLUICE_VERBS_ENTRY)
#undef SLUICE_VERBS_ENTRY
};

}  // namespace sluice::rdma::verbs
