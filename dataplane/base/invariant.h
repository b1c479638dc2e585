// SPDX-License-Identifier: Apache-2.0
//
// Invariants: conditions that only a bug in Sluice can violate. They must not depend on peer input: invalid
// input has its own protocol error and counter.
//
// Sanitizer, fuzzing and debug builds abort on a failed invariant. A release build counts it, by kind and
// reactor, or for the control plane as a process, and continues: the caller closes the affected object,
// usually one connection.
//
//   if (!SLUICE_INVARIANT(balance() >= 0, credit_balance)) return close(CloseReason::InternalError);
//
// A condition must have no side effects. Functions of the message path use SLUICE_INVARIANT_DEBUG, which a
// release build does not evaluate; all others use SLUICE_INVARIANT.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string_view>

// X(name, help): `name` is the value of the metric's label.
#define SLUICE_INVARIANTS(X)                                                                               \
  X(call_slot_state, "A call slot made an illegal state transition")                                       \
  X(request_state, "A request slot made an illegal state transition")                                      \
  X(connection_state, "A connection made an illegal state transition")                                     \
  X(credit_balance, "More credits were used than were granted")                                            \
  X(pool_balance, "More elements than a pool has provided, or foreign ones, were returned to it")          \
  X(ring_index, "The distance of a ring's indices exceeds its capacity")                                   \
  X(psn_window, "A packet sequence number lies outside its window")                                        \
  X(list_membership, "An element was removed from a list that does not contain it, or added to two lists") \
  X(handover_ticket, "A cross-reactor call was returned twice, or to another caller")                      \
  X(xid_table, "An XID's table entry does not refer to the request that has the XID")                      \
  X(gateway_state, "A gateway's call or connection made an illegal state transition")                      \
  X(ethdev_use, "An ethdev made an illegal state transition")                                              \
  X(queue_pair_state, "A queue pair or its device made an illegal state transition")                       \
  X(buffer_bounds, "A piece of data lies outside its buffer, or is longer than its limit")                 \
  X(table_index, "An index lies outside its table, or the entry belongs to another object")                \
  X(timer_state, "A timer was not in its wheel, or its deadline was not the earliest")                     \
  X(object_owner, "An object was used by a thread that is not its owner's")                                \
  X(file_storage, "The references, size or blocks of a file disagree with its inode")                      \
  X(sequence_lock, "A second writer wrote to a sequence lock")                                             \
  X(reactor_state, "A reactor's connection set-up, command or table made an illegal state transition")     \
  X(segment_state, "A file of the shared segment, or its owner, made an illegal state transition")

namespace sluice {

#define SLUICE_INVARIANT_NAME(name, help) name,
enum class Invariant : std::uint8_t { SLUICE_INVARIANTS(SLUICE_INVARIANT_NAME) };
#undef SLUICE_INVARIANT_NAME

struct InvariantInfo {
  std::string_view name;
  std::string_view help;
};
#define SLUICE_INVARIANT_INFO(name, help) InvariantInfo{#name, help},
inline constexpr InvariantInfo kInvariants[] = {SLUICE_INVARIANTS(SLUICE_INVARIANT_INFO)};
#undef SLUICE_INVARIANT_INFO
inline constexpr std::size_t kInvariantCount = std::size(kInvariants);

#ifdef SLUICE_ABORT_ON_INVARIANT
inline constexpr bool kAbortOnInvariant = true;
#else
inline constexpr bool kAbortOnInvariant = false;
#endif

/// Returns the failure counts of this thread, by kind. Each reactor publishes its own.
inline std::array<std::uint64_t, kInvariantCount>& invariant_failures() noexcept {
  static thread_local std::array<std::uint64_t, kInvariantCount> failures{};
  return failures;
}

/// Returns a flag for tests of the handling of failed invariants: while it is set, builds that would abort
/// count instead.
inline bool& count_invariants() noexcept {
  static thread_local bool count = false;
  return count;
}

/// Returns the failure counts of all threads of this process, by kind.
inline std::uint64_t* invariant_failures_of_process() noexcept {
  static std::uint64_t failures[kInvariantCount] = {};
  return failures;
}
/// Returns one of these counts. Any thread.
inline std::uint64_t invariant_failures_of_process(std::size_t kind) noexcept {
  return __atomic_load_n(&invariant_failures_of_process()[kind], __ATOMIC_RELAXED);
}

inline void count_failure(Invariant invariant) noexcept {
  const auto kind = static_cast<std::size_t>(invariant);
  ++invariant_failures()[kind];
  // A builtin, because every source includes this header, and <atomic> is long.
  __atomic_fetch_add(&invariant_failures_of_process()[kind], 1, __ATOMIC_RELAXED);
}

/// Handles a failed invariant. Called by SLUICE_INVARIANT only.
[[gnu::cold, gnu::noinline]] inline void invariant_failed(Invariant invariant, const char* condition,
                                                          const char* file, int line) noexcept {
  if (kAbortOnInvariant && !count_invariants()) {
    std::fprintf(stderr, "%s:%d: invariant %s does not hold: %s\n", file, line,
                 kInvariants[static_cast<std::size_t>(invariant)].name.data(), condition);
    std::abort();
  }
  count_failure(invariant);
}

}  // namespace sluice

/// Evaluates to the condition as bool. `kind` is a name from SLUICE_INVARIANTS.
#define SLUICE_INVARIANT(condition, kind) \
  (static_cast<bool>(condition) ||        \
   (::sluice::invariant_failed(::sluice::Invariant::kind, #condition, __FILE__, __LINE__), false))

/// Checks a condition in builds that abort. A release build compiles the condition but never evaluates it.
/// For functions of the message path, which must not become slower, and for conditions that take a loop.
#define SLUICE_INVARIANT_DEBUG(condition, kind) \
  static_cast<void>(!::sluice::kAbortOnInvariant || SLUICE_INVARIANT(condition, kind))
