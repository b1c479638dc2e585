// SPDX-License-Identifier: Apache-2.0
//
// An event of the journal: what happened, when, and with whom. Values; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

namespace sluice::events {

enum class Severity : std::uint8_t { Info, Warning, Error };
inline constexpr const char* kSeverities[] = {"info", "warning", "error"};

/// Who makes such events. Those that peers cause have a ring of their own: whatever peers do, ours are still there.
enum class Cause : std::uint8_t { Peers, Ourselves };
inline constexpr std::size_t kCauses = 2;

struct Kind {
  const char* name;      ///< stable: programs look for it
  const char* sentence;  ///< for people, without the fields
  Severity severity;
  Cause cause;
};

/// The field that names who has caused an event: the address of a client, where the kind has one.
inline constexpr const char* kPeerField = "peer";

/// A text may hold whatever a peer has sent: it is escaped where it is written.
using Value = std::variant<std::string, std::uint64_t, double, bool>;

struct Field {
  const char* name;
  Value value;
};

/// Bytes of a text that an event keeps.
inline constexpr std::size_t kMaxTextBytes = 256;

struct Event {
  std::uint64_t sequence = 0;  ///< counts all events of a journal, from 1
  std::uint64_t wall_ns = 0;
  const Kind* kind = nullptr;
  std::uint64_t suppressed = 0;  ///< of its kind, since the one before: they came too fast
  std::vector<Field> fields{};
};

}  // namespace sluice::events
