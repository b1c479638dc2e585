// SPDX-License-Identifier: Apache-2.0
//
// An event of the journal: what happened, when, and which peer was involved. Value types; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

namespace sluice::events {

enum class Severity : std::uint8_t { Info, Warning, Error };
inline constexpr const char* kSeverities[] = {"info", "warning", "error"};

/// Origin of an event. Events that peers cause have their own ring, so that peers cannot displace the
/// gateway's own events.
enum class Cause : std::uint8_t { Peers, Ourselves };
inline constexpr std::size_t kCauses = 2;

struct Kind {
  const char* name;      ///< stable name that programs search for
  const char* sentence;  ///< sentence for people, without the fields
  Severity severity;
  Cause cause;
};

/// Name of the field with the address of the peer that caused the event, where the kind has one.
inline constexpr const char* kPeerField = "peer";

/// Value of a field. A text may contain arbitrary bytes from a peer and is escaped when it is written.
using Value = std::variant<std::string, std::uint64_t, double, bool>;

struct Field {
  const char* name;
  Value value;
};

/// Maximum number of bytes of a text that an event keeps.
inline constexpr std::size_t kMaxTextBytes = 256;

struct Event {
  std::uint64_t sequence = 0;  ///< number of the event in its journal, counted from 1
  std::uint64_t wall_ns = 0;
  const Kind* kind = nullptr;
  std::uint64_t suppressed = 0;  ///< events of this kind dropped by the rate limit since the previous one
  std::vector<Field> fields{};
};

}  // namespace sluice::events
