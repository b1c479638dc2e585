// SPDX-License-Identifier: Apache-2.0
//
// Desired state of each connection: the control plane writes it and a reactor applies it. It replaces
// messages, which can be lost.
//
// The control plane's main thread is the only writer. Each word is self-contained and carries the incarnation
// of its connection (ConnectionInfo), so that a word for a former connection in the same slot is never
// applied, and a process that ends between two stores leaves no torn state. Data of more than one word is
// stored before the flag that announces it, and only once per incarnation. A hint contains the number of a
// connection to check. It may be dropped if the ring is full, because reactors also scan all words
// periodically; they publish the words that they have applied (ConnectionUse).
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "dataplane/base/host_name.h"
#include "dataplane/base/invariant.h"
#include "dataplane/base/small_algorithms.h"
#include "dataplane/base/spsc_ring.h"
#include "dataplane/base/store_point.h"
#include "dataplane/segment/tables.h"

namespace sluice::segment {

/// Wire-size form of rpcrdma::v2::Agreement.
struct Parameters {
  std::uint32_t send_bytes = 0;
  std::uint32_t max_segment_bytes = 0;
  std::uint32_t max_segments = 0;
  std::uint32_t reverse = 0;
  bool operator==(const Parameters&) const = default;
};

/// Reason to close a connection.
enum class End : std::uint32_t {
  No,
  PeerGone,    ///< the peer has disconnected
  Disconnect,  ///< this side closes it, for a rpcrdma::CloseReason
};

/// Desired state of one connection.
struct DesiredState {
  bool established = false;  ///< the peer is ready
  bool draining = false;     ///< one credit, and closed once it has no call
  bool traced = false;
  bool parameters = false;  ///< version 2: DesiredStateDetails::parameters are valid
  bool admitted = false;    ///< version 2: the peer is authenticated and DesiredStateDetails::host is valid
  End end = End::No;
  std::uint32_t reason = 0;  ///< End::Disconnect: rpcrdma::CloseReason
  bool operator==(const DesiredState&) const = default;
};

inline constexpr std::uint32_t kKeepClass = 0xFF;
inline constexpr std::uint32_t kMaxDesiredCredits = (1u << 24) - 1;

struct Grant {
  std::uint32_t credits = 0;                ///< zero: unchanged
  std::uint32_t client_class = kKeepClass;  ///< kKeepClass: unchanged
  bool operator==(const Grant&) const = default;
};

/// Desired state of one connection, in 16 bytes because reactors scan the words of all connections.
struct DesiredStateWords {
  std::atomic<std::uint64_t> course;
  std::atomic<std::uint64_t> grant;
};

struct DesiredStateDetails {
  static constexpr std::size_t kHostWords = sizeof(HostName) / sizeof(std::uint64_t);
  std::array<std::atomic<std::uint64_t>, 2> parameters;
  std::array<std::atomic<std::uint64_t>, kHostWords> host;
};
static_assert(sizeof(HostName) % sizeof(std::uint64_t) == 0);

inline constexpr std::uint32_t kHints = 1024;

/// Desired state that the control plane writes.
struct DesiredStatePart {
  RingOfProducer<std::uint32_t, kHints> hints;  ///< numbers of connections
  alignas(kCacheLine) std::array<DesiredStateWords, kMaxConnections> words;
  std::array<DesiredStateDetails, kMaxConnections> details;
};

/// References to the control plane's DesiredStatePart and to the reactor's ring positions.
struct DesiredStateArea {
  DesiredStateArea(DesiredStatePart& part, RingOfConsumer& hints_read) noexcept
      : hints(part.hints, hints_read), words(part.words), details(part.details) {}
  Ring<std::uint32_t, kHints> hints;
  std::array<DesiredStateWords, kMaxConnections>& words;
  std::array<DesiredStateDetails, kMaxConnections>& details;
};

/// Applied state: the words that a reactor has applied to a connection.
struct AppliedState {
  std::uint64_t course = 0;
  std::uint64_t grant = 0;
};

// --- Words: the upper half is the incarnation, which is never zero, and the lower half is the value.

constexpr std::uint32_t incarnation_of(std::uint64_t word) noexcept {
  return static_cast<std::uint32_t>(word >> 32);
}
constexpr std::uint64_t pack(std::uint32_t incarnation, std::uint32_t value) noexcept {
  return std::uint64_t{incarnation} << 32 | value;
}
constexpr std::uint32_t encode(const DesiredState& course) noexcept {
  return static_cast<std::uint32_t>(course.established) | static_cast<std::uint32_t>(course.draining) << 1 |
         static_cast<std::uint32_t>(course.traced) << 2 | static_cast<std::uint32_t>(course.parameters) << 3 |
         static_cast<std::uint32_t>(course.admitted) << 4 |
         (static_cast<std::uint32_t>(course.end) & 3) << 8 | (course.reason & 0xFF) << 16;
}
constexpr DesiredState decode_course(std::uint64_t word) noexcept {
  const auto value = static_cast<std::uint32_t>(word);
  return {.established = (value & 1) != 0,
          .draining = (value >> 1 & 1) != 0,
          .traced = (value >> 2 & 1) != 0,
          .parameters = (value >> 3 & 1) != 0,
          .admitted = (value >> 4 & 1) != 0,
          .end = static_cast<End>(value >> 8 & 3),
          .reason = value >> 16 & 0xFF};
}
constexpr std::uint32_t encode(const Grant& grant) noexcept {
  return smaller_of(grant.credits, kMaxDesiredCredits) | (grant.client_class & 0xFF) << 24;
}
constexpr Grant decode_grant(std::uint64_t word) noexcept {
  const auto value = static_cast<std::uint32_t>(word);
  return {.credits = value & kMaxDesiredCredits, .client_class = value >> 24};
}

// --- The reactor's side

/// Reconciles a connection with its desired state. `Connection` has these functions, all noexcept:
/// set_parameters(Parameters), admit(HostName), set_grant(Grant), set_established(), set_draining(bool),
/// set_traced(bool), end(End, reason). Each is called once per change. Returns true if there was a change.
template <typename Connection>
bool follow(const DesiredStateArea& wanted, std::uint32_t number, std::uint32_t incarnation,
            AppliedState& followed, Connection&& connection) noexcept {
  static_cast<void>(SLUICE_INVARIANT(number < kMaxConnections, table_index));
  const DesiredStateWords& words = wanted.words[number];
  // The course is read first, because admit() writes the class of the host to the grant before it sets the
  // flag. Pairs with store(): the details of the course, and that grant.
  const std::uint64_t course_word = words.course.load(std::memory_order_acquire);
  const std::uint64_t grant_word = words.grant.load(std::memory_order_relaxed);
  const bool course_changed = course_word != followed.course && incarnation_of(course_word) == incarnation;
  const bool grant_changed = grant_word != followed.grant && incarnation_of(grant_word) == incarnation;
  if (!course_changed && !grant_changed) return false;
  if (grant_changed) {
    followed.grant = grant_word;
    connection.set_grant(decode_grant(grant_word));
  }
  if (!course_changed) return true;
  const DesiredState before = decode_course(followed.course);
  const DesiredState now = decode_course(course_word);
  followed.course = course_word;
  if (now.end != End::No) {
    if (before.end == End::No) connection.end(now.end, now.reason);
    return true;
  }
  const DesiredStateDetails& details = wanted.details[number];
  if (now.parameters && !before.parameters) {
    std::array<std::uint64_t, 2> raw;
    for (std::size_t i = 0; i < raw.size(); ++i)
      raw[i] = details.parameters[i].load(std::memory_order_relaxed);
    Parameters parameters;
    static_assert(sizeof raw == sizeof parameters);
    std::memcpy(static_cast<void*>(&parameters), raw.data(), sizeof parameters);
    connection.set_parameters(parameters);
  }
  if (now.admitted && !before.admitted) {
    std::array<std::uint64_t, DesiredStateDetails::kHostWords> raw;
    for (std::size_t i = 0; i < raw.size(); ++i) raw[i] = details.host[i].load(std::memory_order_relaxed);
    HostName host;
    std::memcpy(static_cast<void*>(&host), raw.data(), sizeof host);
    connection.admit(host);
  }
  if (now.established && !before.established) connection.set_established();
  if (now.draining != before.draining) connection.set_draining(now.draining);
  if (now.traced != before.traced) connection.set_traced(now.traced);
  return true;
}

// --- The control plane's side

/// Writes the desired state of the connections of one reactor. There may be any number of writers, all in the
/// control plane's main thread. Functions return false if the slot has a later connection than `incarnation`
/// or if nothing changes. `number` is below kMaxConnections; it comes from our own table or the caller has
/// checked it.
class DesiredStateWriter {
 public:
  explicit DesiredStateWriter(DesiredStateArea& area) : area_(area) {}

  bool grant(std::uint32_t number, std::uint32_t incarnation, const Grant& grant) noexcept {
    if (!SLUICE_INVARIANT(number < kMaxConnections, table_index)) return false;
    return store(area_.words[number].grant, number, incarnation, encode(grant));
  }
  bool established(std::uint32_t number, std::uint32_t incarnation) noexcept {
    return change(number, incarnation, [](DesiredState& course) { course.established = true; });
  }
  bool drain(std::uint32_t number, std::uint32_t incarnation, bool on) noexcept {
    return change(number, incarnation, [on](DesiredState& course) { course.draining = on; });
  }
  bool trace(std::uint32_t number, std::uint32_t incarnation, bool on) noexcept {
    return change(number, incarnation, [on](DesiredState& course) { course.traced = on; });
  }
  /// Closes the connection. Later calls do not change the reason.
  bool end(std::uint32_t number, std::uint32_t incarnation, End how, std::uint32_t reason = 0) noexcept {
    return change(number, incarnation, [=](DesiredState& course) {
      if (course.end != End::No) return;
      course.end = how;
      course.reason = reason;
    });
  }
  /// Sets the parameters. Later calls do not change them.
  bool parameters(std::uint32_t number, std::uint32_t incarnation, const Parameters& parameters) noexcept {
    if (!SLUICE_INVARIANT(number < kMaxConnections, table_index)) return false;
    if (is_past(area_.words[number].course, incarnation) || course(number, incarnation).parameters)
      return false;
    put(area_.details[number].parameters, parameters);
    return change(number, incarnation, [](DesiredState& course) { course.parameters = true; });
  }
  /// Admits the connection for an authenticated host. Later calls do not change the host. `client_class` may
  /// be kKeepClass.
  bool admit(std::uint32_t number, std::uint32_t incarnation, const HostName& host,
             std::uint32_t client_class) noexcept {
    if (!SLUICE_INVARIANT(number < kMaxConnections, table_index)) return false;
    if (is_past(area_.words[number].course, incarnation) || course(number, incarnation).admitted)
      return false;
    put(area_.details[number].host, host);
    Grant granted = grant(number, incarnation);
    if (client_class != kKeepClass) granted.client_class = client_class;
    if (granted != Grant{}) grant(number, incarnation, granted);
    return change(number, incarnation, [](DesiredState& course) { course.admitted = true; });
  }

  /// Returns the desired state as set by this control plane or a predecessor.
  DesiredState course(std::uint32_t number, std::uint32_t incarnation) const noexcept {
    if (!SLUICE_INVARIANT(number < kMaxConnections, table_index)) return {};
    const std::uint64_t word = area_.words[number].course.load(std::memory_order_relaxed);
    return incarnation_of(word) == incarnation ? decode_course(word) : DesiredState{};
  }
  Grant grant(std::uint32_t number, std::uint32_t incarnation) const noexcept {
    if (!SLUICE_INVARIANT(number < kMaxConnections, table_index)) return {};
    const std::uint64_t word = area_.words[number].grant.load(std::memory_order_relaxed);
    return incarnation_of(word) == incarnation ? decode_grant(word) : Grant{};
  }
  /// Returns whether `incarnation`, which has applied `followed`, has yet to apply newer words.
  bool is_behind(std::uint32_t number, std::uint32_t incarnation,
                 const AppliedState& followed) const noexcept {
    if (!SLUICE_INVARIANT(number < kMaxConnections, table_index)) return false;
    const DesiredStateWords& words = area_.words[number];
    const auto differs = [&](const std::atomic<std::uint64_t>& wanted, std::uint64_t of) {
      const std::uint64_t word = wanted.load(std::memory_order_relaxed);
      return incarnation_of(word) == incarnation && word != of;
    };
    return differs(words.course, followed.course) || differs(words.grant, followed.grant);
  }
  /// Sends a hint; dropped if the ring is full.
  void hint(std::uint32_t number) noexcept { area_.hints.push(number); }

 private:
  /// Returns whether the word belongs to a later incarnation. Incarnations of a reactor count up, modulo
  /// 2^32.
  static bool is_past(const std::atomic<std::uint64_t>& word, std::uint32_t incarnation) noexcept {
    const std::uint32_t there = incarnation_of(word.load(std::memory_order_relaxed));
    return there != 0 && static_cast<std::int32_t>(incarnation - there) < 0;
  }
  template <typename Change>
  bool change(std::uint32_t number, std::uint32_t incarnation, Change&& apply) noexcept {
    if (!SLUICE_INVARIANT(number < kMaxConnections, table_index)) return false;
    DesiredState next = course(number, incarnation);
    apply(next);
    return store(area_.words[number].course, number, incarnation, encode(next));
  }
  bool store(std::atomic<std::uint64_t>& word, std::uint32_t number, std::uint32_t incarnation,
             std::uint32_t value) noexcept {
    if (is_past(word, incarnation)) return false;
    const std::uint64_t next = pack(incarnation, value);
    if (word.load(std::memory_order_relaxed) == next) return false;
    SLUICE_STORE_POINT();
    // Pairs with follow(): the details of a course, and the grant.
    word.store(next, std::memory_order_release);
    SLUICE_STORE_POINT();
    hint(number);
    return true;
  }
  template <std::size_t N, typename Value>
  static void put(std::array<std::atomic<std::uint64_t>, N>& to, const Value& value) noexcept {
    static_assert(sizeof value == N * sizeof(std::uint64_t));
    std::array<std::uint64_t, N> raw;
    std::memcpy(raw.data(), &value, sizeof value);
    for (std::size_t i = 0; i < N; ++i) {
      SLUICE_STORE_POINT();
      to[i].store(raw[i], std::memory_order_relaxed);
    }
  }

  DesiredStateArea& area_;
};

}  // namespace sluice::segment
