// SPDX-License-Identifier: Apache-2.0
//
// What the control plane sends to reactors and cannot write as state (dataplane/segment/wanted.h): what makes
// connections, management datagrams, and answers to properties. What a ring has no room for waits here and is sent by a
// later flush(). It is not kept over a restart: peers and reactors ask a new control plane again. One thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>

#include "dataplane/segment/messages.h"
#include "dataplane/segment/tables.h"

namespace sluice::segment {
struct Layout;
}

namespace sluice::controlplane {

/// Datagrams that wait for one reactor. Further ones are lost, as on the wire: connection management repeats them.
inline constexpr std::size_t kMaxWaitingDatagrams = 1024;
/// Connections that are to be made fill no more than this of a ring: what ends something always has room.
inline constexpr std::uint32_t kMakingSlots = 192;

struct OutboxStatistics {
  std::uint64_t commands_delayed = 0;   ///< found the ring full, and waited
  std::uint64_t datagrams_delayed = 0;  ///< the same
  std::uint64_t datagrams_lost = 0;     ///< beyond kMaxWaitingDatagrams
  std::uint64_t parts_delayed = 0;      ///< of answers to properties
};

class Outbox {
 public:
  /// `layout` outlives it.
  explicit Outbox(segment::Layout& layout) : layout_(layout) {}
  Outbox(const Outbox&) = delete;
  Outbox& operator=(const Outbox&) = delete;

  /// Commands of one urgency are sent in order. How many may wait is bounded by who sends them: one for each request
  /// that a reactor or the connection manager holds open.
  void send(std::uint32_t reactor, const segment::Command& command);
  void send(std::uint32_t reactor, const segment::Punt& datagram);
  /// Parts are sent in order and without a gap.
  void send(std::uint32_t reactor, const segment::PropertyPart& part);

  /// Takes back the command that makes the connection `cm_id`. False when it has been sent.
  bool withdraw(std::uint32_t reactor, std::uint32_t cm_id);
  /// Another data plane runs: nothing that waits means anything to it.
  void forget();
  /// Sends what there is room for. True when something was sent.
  bool flush();
  /// All that waits.
  std::size_t waiting() const;
  const OutboxStatistics& statistics() const { return statistics_; }

 private:
  /// In the order in which commands are sent.
  enum Urgency : std::size_t {
    Refuse,  ///< frees a place at the reactor, or ends something there
    Make,    ///< makes a connection
  };
  struct OfReactor {
    std::array<std::deque<segment::Command>, 2> commands;  ///< by Urgency
    std::deque<segment::Punt> datagrams;
    std::deque<segment::PropertyPart> parts;
  };
  static Urgency urgency_of(segment::CommandType type);
  bool flush(std::uint32_t reactor);

  segment::Layout& layout_;
  std::array<OfReactor, segment::kMaxReactors> reactors_;
  OutboxStatistics statistics_;
};

}  // namespace sluice::controlplane
