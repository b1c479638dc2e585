// SPDX-License-Identifier: Apache-2.0
//
// The journal of the control plane: the last events, in two rings, which readers follow by sequence numbers. Whoever
// adds an event waits for nobody: what a reader has not read in time is overwritten, and counted. Any thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "controlplane/events/event.h"
#include "dataplane/base/function.h"
#include "dataplane/base/owned.h"
#include "dataplane/segment/segment.h"

namespace sluice::events {

/// Events that are kept of each cause.
inline constexpr std::size_t kEventsKept = 2048;
/// Of each kind: as many at once, and then so many a second. Others are counted only, so that whoever makes them fills
/// neither ring nor log.
inline constexpr std::uint32_t kBurst = 128;
inline constexpr std::uint32_t kPerSecond = 16;
/// Of each kind and peer, of these: one peer leaves room for the others.
inline constexpr std::uint32_t kBurstOfPeer = kBurst / 4;
inline constexpr std::uint32_t kPerSecondOfPeer = kPerSecond / 4;
/// Pairs of kind and peer from which those are forgotten that have rested. The rates of the kinds bound the others: they are
/// fewer than two bursts of each.
inline constexpr std::size_t kPeersKnown = 1024;

/// Any thread may read them.
struct JournalStatistics {
  std::atomic<std::uint64_t> recorded{0};
  std::atomic<std::uint64_t> suppressed{0};  ///< came too fast
  std::atomic<std::uint64_t> unread{0};      ///< overwritten before anybody had read them
};

class Journal {
 public:
  using Clock = std::uint64_t (*)();
  /// Is given each event that is recorded, on the thread that has added it, and waits for nothing.
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
  /// From time to time: says of floods that are over how much was not recorded.
  void turn();

  struct Part {
    std::vector<Event> events;  ///< in the order in which they happened
    std::uint64_t next = 1;     ///< where to read on
    std::uint64_t missed = 0;   ///< that were asked for and are no longer there
  };
  /// From sequence number `from` on, at most `most`.
  Part read(std::uint64_t from, std::size_t most);
  /// True when there is an event of `from` or later, false when stop() was called.
  bool wait(std::uint64_t from);
  /// Ends every wait(), now and later.
  void stop();

  /// Tells this journal from that of another control plane, whose sequence numbers mean other events.
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
