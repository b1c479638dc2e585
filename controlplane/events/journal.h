// SPDX-License-Identifier: Apache-2.0
//
// Events of the control plane, and the journal that keeps the most recent ones in two rings, which readers
// follow by sequence numbers. Adding an event never blocks on a reader: events that no reader has read in
// time are overwritten and counted. Any thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "dataplane/base/function.h"
#include "dataplane/base/owned.h"
#include "dataplane/segment/segment.h"

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

/// An event of the journal: what happened, when, and which peer was involved.
struct Event {
  std::uint64_t sequence = 0;  ///< number of the event in its journal, counted from 1
  std::uint64_t wall_ns = 0;
  const Kind* kind = nullptr;
  std::uint64_t suppressed = 0;  ///< events of this kind dropped by the rate limit since the previous one
  std::vector<Field> fields{};
};

/// Events kept per cause.
inline constexpr std::size_t kEventsKept = 2048;
/// Rate limit per kind: a burst of kBurst events, then kPerSecond events per second. Further events are only
/// counted, so that a flood fills neither the ring nor the log.
inline constexpr std::uint32_t kBurst = 128;
inline constexpr std::uint32_t kPerSecond = 16;
/// Rate limit per pair of kind and peer, as a part of the kind's limit, so that one peer leaves allowance for
/// others.
inline constexpr std::uint32_t kBurstOfPeer = kBurst / 4;
inline constexpr std::uint32_t kPerSecondOfPeer = kPerSecond / 4;
/// Number of tracked pairs of kind and peer above which pairs with a full allowance are dropped. The rates of
/// the kinds bound the number of the remaining pairs to less than two bursts per kind.
inline constexpr std::size_t kPeersKnown = 1024;

/// Counters of the journal. Any thread may read them.
struct JournalStatistics {
  std::atomic<std::uint64_t> recorded{0};
  std::atomic<std::uint64_t> suppressed{0};  ///< events dropped by the rate limit
  std::atomic<std::uint64_t> unread{0};      ///< events overwritten before any reader had read them
};

class Journal {
 public:
  using Clock = std::uint64_t (*)();
  /// Receives each recorded event, on the thread that added it. It must not block.
  using Log = Function<void(const Event&)>;

  /// `clock` is monotonic, in nanoseconds.
  explicit Journal(Log log, Clock clock = segment::monotonic_ns);
  ~Journal();
  Journal(const Journal&) = delete;
  Journal& operator=(const Journal&) = delete;

  template <typename Described>
  void add(const Described& described) {
    std::vector<Field> fields;
    described.each([&](const char* name, const auto& value, const char*) {
      using Type = std::decay_t<decltype(value)>;
      if constexpr (std::is_same_v<Type, std::string>)
        fields.push_back({name, value.substr(0, kMaxTextBytes)});
      else if constexpr (std::is_same_v<Type, bool> || std::is_same_v<Type, double>)
        fields.push_back({name, value});
      else
        fields.push_back({name, std::uint64_t{value}});
    });
    record(Described::kKind, std::move(fields));
  }
  /// Reports the number of suppressed events of floods that are over. Called periodically.
  void poll();

  struct Part {
    std::vector<Event> events;  ///< events in the order in which they happened
    std::uint64_t next = 1;     ///< sequence number to continue from
    std::uint64_t missed = 0;   ///< requested events that have been overwritten
  };
  /// Returns at most `most` events, from sequence number `from` on.
  Part read(std::uint64_t from, std::size_t most);
  /// Returns true if there is an event with sequence number `from` or higher.
  bool has(std::uint64_t from);

  /// Identifies this journal. Other control planes have other journals, with their own sequence numbers.
  std::uint64_t id() const { return id_; }
  const JournalStatistics& statistics() const { return statistics_; }
  std::size_t peers_known();

 private:
  struct State;

  void record(const Kind& kind, std::vector<Field> fields);

  const Log log_;
  const Clock clock_;
  const std::uint64_t id_;
  JournalStatistics statistics_;
  const Owned<State> state_;
};

}  // namespace sluice::events
