// SPDX-License-Identifier: Apache-2.0
//
// List of all counters. The transport's struct, the shared block, the exporter, sluicectl and the metrics
// reference are generated from it. X(name, group, help): `group` is the metric's label value. Constants only;
// the arrays in layout.h and rpcrdma document the writer of each counter.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>

// clang-format off
#ifdef SLUICE_TEST_OTHER_COUNTERS  // a release with other counters, for tests
#define SLUICE_TEST_COUNTER(X) X(counter_of_another_release, rx, "A counter that this release does not have")
#else
#define SLUICE_TEST_COUNTER(X)
#endif

#define SLUICE_TRANSPORT_COUNTERS(X)                                                                            \
  SLUICE_TEST_COUNTER(X)                                                                                         \
  X(messages_received, rx, "Sends received")                                                                     \
  X(calls_received, rx, "RPC calls that entered a call slot")                                                      \
  X(replies_received, rx, "RPC replies received for calls of ours")                                              \
  X(errors_received, rx, "RDMA_ERROR messages that ended a call of ours")                                        \
  X(inline_bytes_received, bytes, "Bytes received by Send")                                                         \
  X(replies_sent, tx, "RPC replies sent")                                                                        \
  X(inline_bytes_sent, bytes, "Bytes sent by Send")                                                                 \
  X(calls_sent, tx, "RPC calls sent")                                                                            \
  X(calls_replanned, tx, "RPC calls retransmitted in the form that the responder requested")                       \
  X(err_vers_sent, tx, "RDMA_ERROR ERR_VERS sent")                                                               \
  X(err_chunk_sent, tx, "RDMA_ERROR ERR_CHUNK sent")                                                             \
  X(rdma_reads, rdma, "RDMA Read work requests posted")                                                          \
  X(rdma_read_bytes, bytes, "Bytes requested by RDMA Read")                                                       \
  X(rdma_writes, rdma, "RDMA Write work requests posted")                                                        \
  X(rdma_write_bytes, bytes, "Bytes placed by RDMA Write")                                                        \
  X(probes_sent, tx, "Empty RDMA Writes sent to probe silent peers")                               \
  X(slow_calls, rx, "RPC calls that took longer than [observability] slow_call_ms")                                \
  X(stalled_calls, error, "Connections closed because a call waited too long for the peer")                       \
  X(parts_before_admission, error,                                                                                \
    "Continued calls refused because the peer had not authenticated itself yet")                                       \
  X(waits_call_slot, wait, "Calls that waited for a call slot")                                                  \
  X(waits_send_queue, wait, "Calls that waited for space in the send queue")                                      \
  X(waits_call_memory, wait, "Calls that waited for a long-call buffer")                                         \
  X(waits_reply_memory, wait, "Calls that waited for a large reply buffer")                                      \
  X(waits_refusal, wait, "Error messages that waited because the iteration had sent its limit of them")               \
  X(waits_credit, wait, "Times that calls of this side waited for a credit")                                              \
  X(waits_assembly, wait, "Times that continued messages waited for memory")                                     \
  X(grants_received, rx, "Version 2 messages received that only carry credits")                                  \
  X(grants_sent, tx, "Version 2 messages sent that only carry credits")                                          \
  X(parts_received, rx, "Parts of continued messages received")                                                  \
  X(parts_sent, tx, "Parts of continued messages sent, the last ones not counted")                               \
  X(properties_received, rx, "Sets of transport properties received")                                            \
  X(properties_sent, tx, "Sets of transport properties sent")                                                    \
  X(v2_errors_sent, tx, "RDMA2_ERROR messages sent, ERR_VERS not counted")                                       \
  X(remote_invalidations, rdma, "Replies that invalidated a handle of the requester")                            \
  X(bad_fragment, error, "Messages too short to be complete, dropped")                                           \
  X(bad_version, error, "Messages with an unsupported rdma_vers")                                                \
  X(bad_procedure, error, "Messages with an undefined rdma_proc")                                                \
  X(bad_chunk_lists, error, "Messages whose chunk lists cannot be decoded")                                      \
  X(too_many_segments, error, "Messages with more segments than the limit")                                      \
  X(xid_mismatch, error, "Calls whose RPC XID differs from rdma_xid")                                            \
  X(misaligned_position, error, "Calls with a Position that is not a multiple of four")                          \
  X(position_zero_in_msg, error, "RDMA_MSG calls with a position-zero Read chunk")                               \
  X(no_position_zero, error, "RDMA_NOMSG calls without a position-zero Read chunk")                              \
  X(bad_position, error, "Calls with Positions beyond the message, overlapping or too many")                     \
  X(call_too_long, error, "Calls longer than a long-call buffer")                                                \
  X(no_payload, error, "Messages without a usable RPC header")                                                   \
  X(too_many_chunks, error, "Calls with more Read or Write chunks than the limit")                               \
  X(count_mismatch, error, "Calls whose Read chunks differ from their count words")                              \
  X(not_eligible, error, "Calls with chunks for items that are not DDP-eligible")                                \
  X(write_chunk_too_small, error, "Results that did not fit their Write chunk")                                  \
  X(reply_too_large, error, "Replies that fit neither inline nor the Reply chunk")                               \
  X(reverse_chunks_refused, error, "Reverse-direction calls with chunks")                                        \
  X(done_dropped, error, "RDMA_DONE messages dropped")                                                           \
  X(msgp_refused, error, "RDMA_MSGP messages refused")                                                           \
  X(credit_overruns, error, "Calls beyond the credits granted")                                                  \
  X(failed_transfer_refused, error, "Retransmissions refused because their RDMA failed before")                  \
  X(rpc_mismatch, error, "Calls with an RPC version other than 2")                                               \
  X(rpc_bad_auth, error, "Calls with AUTH_TLS, or an oversized credential or verifier")                                       \
  X(program_unavailable, error, "Calls for a program or version that is not served")                             \
  X(unknown_xid, error, "Replies and errors whose XID is not outstanding")                                       \
  X(exposed_memory_changed, error, "Calls whose arguments changed while the responder could read them")          \
  X(unusable_reply, error, "Replies that contradict their call")                                                 \
  X(bad_error_message, error, "RDMA_ERROR messages that cannot be used, dropped")                                \
  X(bad_flags, error, "Version 2 messages with unknown or invalid flags")                                        \
  X(broken_sequences, error, "Continued messages that were broken or not continued")                             \
  X(parts_dropped, error, "Parts of continued messages that were abandoned")                                     \
  X(direction_mismatch, error, "Messages whose RESPONSE flag and msg_type disagree")                             \
  X(faulty_responses, error, "Version 2 responses with a defect, dropped")                                       \
  X(bad_properties, error, "Sets of transport properties that cannot be decoded")                                \
  X(late_properties, error, "Properties that came after the first set, ignored")                                 \
  X(clamped_properties, error, "Property values out of range")                                                   \
  X(grants_capped, error, "Grants of more credits than can be represented")                                      \
  X(zero_limits, error, "Credit words with a limit of zero")                                                     \
  X(grants_with_handle, error, "Version 2 grants with a handle to invalidate, which is ignored")                  \
  X(parts_with_handle, error, "Parts but the last with a handle to invalidate, which is ignored")                 \
  X(unmatched_invalidate, error, "Calls whose handle to invalidate is in none of their segments")                \
  X(direction_not_served, error, "Calls in a direction that this connection does not serve")                     \
  X(connections_opened, connection, "Connections opened")                                                        \
  X(connections_closed, connection, "Connections closed")                                                        \
  X(connection_errors, connection, "Connections closed by an error")                                             \
  X(fallbacks, connection, "Connections that fell back to version 1")                                            \
  X(invalidation_errors, connection, "Memory that could not be invalidated")

#define SLUICE_REACTOR_COUNTERS(X)                                                                               \
  SLUICE_TEST_COUNTER(X)                                                                                         \
  X(polls_busy, reactor, "Loop iterations that found work")                                                    \
  X(polls_idle, reactor, "Loop iterations that found no work")                                                    \
  X(device_ns, time, "Nanoseconds in device polls that found work")                                        \
  X(calls_ns, time, "Nanoseconds in processing work completions and posting work requests")      \
  X(services_ns, time, "Nanoseconds in cross-reactor calls and background work of services")     \
  X(upstreams_ns, time, "Nanoseconds in connections of upstream servers and TCP clients")                     \
  X(control_ns, time, "Nanoseconds in control passes, which do the work outside of the message path")                          \
  X(idle_ns, time, "Nanoseconds in iterations that found no work, including pauses and sleep after them")             \
  X(work_completions, reactor, "Work completions handled")                                                       \
  X(commands, reactor, "Commands of the control plane executed")                                              \
  X(commands_refused, reactor, "Commands of the control plane that failed")                                         \
  X(wants_followed, reactor, "Changes of desired connection states applied")                   \
  X(wants_found, reactor, "Applied changes that no hint announced, found by the scan of all connections")     \
  X(credits_restored, reactor, "Connections that were granted all credits because no control plane ran")        \
  X(answers_delayed, reactor, "Answers to commands that waited because the events' ring was full")               \
  X(events_lost, reactor, "Events dropped because their ring was full; the tables have the state that they announce") \
  X(connect_requests, reactor, "Connection requests seen")                                                       \
  X(connect_requests_refused, reactor, "Connection requests refused without the control plane")           \
  X(connections_delayed, reactor, "Connection setups that were deferred to leave time for calls")             \
  X(punts, reactor, "Management datagrams passed between network and control plane")                             \
  X(punts_lost, reactor, "Management datagrams dropped because the control plane's ring was full")               \
  X(control_plane_changes, reactor, "Times that a new control plane took over")

// Counters of the control plane. X(name, family, value): each family is one metric, with `value` as its
// label.
#define SLUICE_CONTROL_COUNTERS(X)                                                              \
  X(requests_admitted, connection_requests, admitted)                                           \
  X(requests_beyond_limit, connection_requests, too_many_connections)                           \
  X(requests_beyond_client_limit, connection_requests, too_many_of_client)                      \
  X(requests_too_fast, connection_requests, too_fast)                                           \
  X(requests_too_fast_of_client, connection_requests, too_fast_of_client)                       \
  X(requests_while_draining, connection_requests, draining)                                     \
  X(requests_invalid_service_id, connection_requests, invalid_service_id)                       \
  X(requests_invalid_transport_service_type, connection_requests, invalid_transport_service_type)\
  X(requests_unsupported_request, connection_requests, unsupported_request)                     \
  X(requests_invalid_path_mtu, connection_requests, invalid_path_mtu)                           \
  X(requests_stale_connection, connection_requests, stale_connection)                           \
  X(requests_half_open_of_client, connection_requests, half_open_of_client)                     \
  X(requests_half_open, connection_requests, half_open)                                         \
  X(requests_no_place, connection_requests, no_place)                                           \
  X(requests_not_confirmed, connection_requests, not_confirmed)                                 \
  X(requests_not_made_in_time, connection_requests, not_made_in_time)                           \
  X(requests_no_room_in_data_plane, connection_requests, no_room_in_data_plane)                 \
  X(requests_failed_in_data_plane, connection_requests, failed_in_data_plane)                   \
  X(requests_data_plane_replaced, connection_requests, data_plane_replaced)                     \
  X(requests_no_reactor, connection_requests, no_reactor)                                       \
  X(requests_no_attributes, connection_requests, no_attributes)                                 \
  X(cm_received, cm_messages, received)                                                         \
  X(cm_sent, cm_messages, sent)                                                                 \
  X(cm_malformed, cm_messages, malformed)                                                       \
  X(cm_unexpected, cm_messages, unexpected)                                                     \
  X(cm_unknown, cm_messages, unknown)                                                           \
  X(cm_requests, cm_messages, requests)                                                         \
  X(cm_duplicate_requests, cm_messages, duplicate_requests)                                     \
  X(cm_stale, cm_messages, stale)                                                               \
  X(cm_refused_service, cm_messages, refused_service)                                           \
  X(cm_refused_parameters, cm_messages, refused_parameters)                                     \
  X(cm_refused_resources, cm_messages, refused_resources)                                       \
  X(cm_retransmissions, cm_messages, retransmissions)                                           \
  X(cm_timeouts, cm_messages, timeouts)                                                         \
  X(cm_established, cm_messages, established)                                                   \
  X(cm_ended, cm_messages, ended)                                                               \
  X(cm_evicted, cm_messages, evicted)                                                           \
  X(properties_sets, property_exchange, sets)                                                   \
  X(properties_clamped, property_exchange, clamped)                                             \
  X(properties_authenticated, property_exchange, authenticated)                                 \
  X(properties_refused, property_exchange, refused)                                             \
  X(properties_parts_lost, property_exchange, parts_lost)                                       \
  X(properties_parts_delayed, property_exchange, parts_delayed)                                 \
  X(policy_recomputations, credit_policy, recomputations)                                       \
  X(policy_changes, credit_policy, grants_changed)                                              \
  X(keeper_hints_repeated, connection_keeper, hints_repeated)                                   \
  X(keeper_commands_delayed, connection_keeper, commands_delayed)                               \
  X(keeper_datagrams_delayed, connection_keeper, datagrams_delayed)                             \
  X(keeper_datagrams_lost, connection_keeper, datagrams_lost)                                   \
  X(keeper_data_parts_cut, connection_keeper, data_parts_cut)                                   \
  X(keeper_starts_answered, connection_keeper, starts_answered)                                 \
  X(tasks_started, tasks, started)                                                              \
  X(tasks_delayed, tasks, delayed)                                                              \
  X(tasks_refused, tasks, refused)                                                              \
  X(events_recorded, events, recorded)                                                          \
  X(events_suppressed, events, suppressed)                                                      \
  X(events_overwritten_unread, events, overwritten_unread)                                      \
  X(events_lost_by_targets, events, lost_by_targets)                                            \
  X(events_log_lines_dropped, events, log_lines_dropped)                                        \
  X(admin_clients_cut_off, admin, clients_cut_off)                                              \
  X(admin_requests_queued, admin, requests_queued)                                              \
  X(mount_calls, mount, calls)                                                                  \
  X(mount_malformed, mount, malformed)                                                          \
  X(mount_denied, mount, denied)                                                                \
  X(mount_connections, mount, connections)                                                      \
  X(mount_connections_refused, mount, connections_refused)                                      \
  X(mount_connections_replaced, mount, connections_replaced)                                    \
  X(mount_connections_overdue, mount, connections_overdue)                                      \
  X(mount_records_too_long, mount, records_too_long)                                            \
  X(mount_questions, mount, questions)                                                          \
  X(mount_questions_cached, mount, questions_cached)                                            \
  X(mount_questions_failed, mount, questions_failed)                                            \
  X(mount_questions_timed_out, mount, questions_timed_out)                                      \
  X(mount_questions_refused, mount, questions_refused)                                          \
  X(mount_handles_too_long, mount, handles_too_long)                                            \
  X(mount_registrations_foreign, mount, registrations_foreign)                                  \
  X(kerberos_calls, kerberos, calls)                                                            \
  X(kerberos_malformed, kerberos, malformed)                                                    \
  X(kerberos_denied, kerberos, denied)                                                          \
  X(kerberos_connections, kerberos, connections)                                                \
  X(kerberos_connections_refused, kerberos, connections_refused)                                \
  X(kerberos_connections_replaced, kerberos, connections_replaced)                              \
  X(kerberos_connections_overdue, kerberos, connections_overdue)                                \
  X(kerberos_records_too_long, kerberos, records_too_long)                                      \
  X(kerberos_questions, kerberos, questions)                                                    \
  X(kerberos_questions_failed, kerberos, questions_failed)                                      \
  X(kerberos_questions_timed_out, kerberos, questions_timed_out)                                \
  X(locks_tests, locks, tests)                                                                  \
  X(locks_locks, locks, locks)                                                                  \
  X(locks_cancels, locks, cancels)                                                              \
  X(locks_unlocks, locks, unlocks)                                                              \
  X(locks_grants, locks, grants)                                                                \
  X(locks_grants_delivered, locks, grants_delivered)                                            \
  X(locks_grants_refused, locks, grants_refused)                                                \
  X(locks_repeated, locks, repeated)                                                            \
  X(locks_asked_again, locks, asked_again)                                                      \
  X(locks_exhausted, locks, exhausted)                                                          \
  X(locks_denied, locks, denied)                                                                \
  X(locks_malformed, locks, malformed)                                                          \
  X(locks_resent, locks, resent)                                                                \
  X(locks_client_reboots, locks, client_reboots)                                                \
  X(locks_upstream_reboots, locks, upstream_reboots)                                            \
  X(locks_notices, locks, notices)                                                              \
  X(locks_notices_failed, locks, notices_failed)                                                \
  X(locks_notices_unknown, locks, notices_unknown)                                              \
  X(locks_connections, locks, connections)                                                      \
  X(locks_connections_refused, locks, connections_refused)                                      \
  X(locks_connections_replaced, locks, connections_replaced)                                    \
  X(locks_connections_overdue, locks, connections_overdue)                                      \
  X(locks_records_too_long, locks, records_too_long)                                            \
  X(locks_registrations_foreign, locks, registrations_foreign)
// clang-format on

#include "dataplane/base/invariant.h"

namespace sluice::segment {

struct CounterInfo {
  std::string_view name;
  std::string_view group;
  std::string_view help;
};

struct ControlCounterInfo {
  std::string_view family;
  std::string_view value;
};

#define SLUICE_COUNTER_INFO(name, family, value) ControlCounterInfo{#family, #value},
inline constexpr ControlCounterInfo kControlCounters[] = {SLUICE_CONTROL_COUNTERS(SLUICE_COUNTER_INFO)};
#undef SLUICE_COUNTER_INFO
#define SLUICE_COUNTER_INFO(name, family, value) name,
enum class ControlCounter : std::size_t { SLUICE_CONTROL_COUNTERS(SLUICE_COUNTER_INFO) };
#undef SLUICE_COUNTER_INFO
inline constexpr std::size_t kControlCounterCount = std::size(kControlCounters);

/// Current state of the lock proxy.
enum class LockGauge : std::size_t { Held, Owners, Waiting };
inline constexpr std::string_view kLockGauges[] = {"held", "owners", "waiting"};

#define SLUICE_COUNTER_INFO(name, group, help) CounterInfo{#name, #group, help},
/// Counters per client class.
inline constexpr CounterInfo kTransportCounters[] = {SLUICE_TRANSPORT_COUNTERS(SLUICE_COUNTER_INFO)};
/// Counters per reactor.
inline constexpr CounterInfo kReactorCounters[] = {SLUICE_REACTOR_COUNTERS(SLUICE_COUNTER_INFO)};
#undef SLUICE_COUNTER_INFO
inline constexpr std::size_t kTransportCounterCount = std::size(kTransportCounters);
inline constexpr std::size_t kReactorCounterCount = std::size(kReactorCounters);

/// Capacity for counters in the segment, so that an added counter does not move anything else. Another
/// release finds the counters by name (dataplane/segment/counters.h).
inline constexpr std::size_t kTransportCounterRoom = 128;
inline constexpr std::size_t kReactorCounterRoom = 64;
inline constexpr std::size_t kInvariantRoom = 32;
inline constexpr std::size_t kUpstreamCounterRoom = 96;
inline constexpr std::size_t kReverseCounterRoom = 64;
inline constexpr std::size_t kControlCounterRoom = 192;
inline constexpr std::size_t kLockGaugeRoom = 16;
static_assert(kTransportCounterCount <= kTransportCounterRoom &&
              kReactorCounterCount <= kReactorCounterRoom && kControlCounterCount <= kControlCounterRoom &&
              std::size(kLockGauges) <= kLockGaugeRoom);

enum class CounterFamily : std::uint32_t {
  Transport,
  Reactor,
  Invariant,
  Upstream,
  Reverse,
  SoftRoce,
  Verbs
};
inline constexpr std::size_t kCounterFamilies = 7;
inline constexpr std::size_t kMostCounters = 128;  ///< per family
inline constexpr std::size_t kCounterNameBytes = 40;

/// Names of the data plane's counters, published in the segment so that a reader of another release finds the
/// counters that both releases have, even at different indices. The data plane writes its names at start.
struct CounterNames {
  using Name = std::array<char, kCounterNameBytes>;  ///< padded with zeros; empty: no counter
  std::array<std::array<Name, kMostCounters>, kCounterFamilies> names;
  bool operator==(const CounterNames&) const = default;
};

/// Writes the counter names of this release.
void own_counter_names(CounterNames& names) noexcept;

/// Indices of the data plane's counters in a reading process. One thread updates it, and all threads may read
/// it during the update.
class CounterPlaces {
 public:
  CounterPlaces() noexcept;
  /// Adopts the counter names of a data plane. Called at setup.
  void follow(const CounterNames& theirs);

  /// Returns the data plane's value of counter `own` of this release; zero if the data plane has no counter
  /// of that name.
  template <std::size_t N>
  std::uint64_t value(CounterFamily family, std::size_t own,
                      const std::array<std::atomic<std::uint64_t>, N>& counters) const noexcept {
    static_cast<void>(SLUICE_INVARIANT(
        own < kMostCounters && static_cast<std::size_t>(family) < kCounterFamilies, table_index));
    const std::uint32_t place =
        places_[static_cast<std::size_t>(family)][own].load(std::memory_order_relaxed);
    return place < N ? counters[place].load(std::memory_order_relaxed) : 0;
  }

 private:
  static constexpr std::uint32_t kNone = ~0u;
  std::array<std::array<std::atomic<std::uint32_t>, kMostCounters>, kCounterFamilies> places_;
};

}  // namespace sluice::segment
