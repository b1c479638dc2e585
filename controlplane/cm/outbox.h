// SPDX-License-Identifier: Apache-2.0
//
// Messages from the control plane to reactors that cannot be expressed as desired state
// (dataplane/segment/desired_state.h): commands that make connections, management datagrams, and replies to
// properties. Entries that do not fit a ring are queued and sent by a later flush(). The queues are not
// preserved over a restart, because peers and reactors repeat their requests to a new control plane.
// Single-threaded.
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

namespace sluice::cm {

/// Limit of queued datagrams per reactor. Datagrams beyond it are dropped, as a network would do, and
/// connection management retransmits them.
inline constexpr std::size_t kMaxWaitingDatagrams = 1024;
/// Limit of ring slots that commands which make connections may fill. The rest of the ring is reserved for
/// commands that end something.
inline constexpr std::uint32_t kMakingSlots = 192;

struct OutboxStatistics {
  std::uint64_t commands_delayed = 0;   ///< commands that were queued because the ring was full
  std::uint64_t datagrams_delayed = 0;  ///< datagrams that were queued because the ring was full
  std::uint64_t datagrams_lost = 0;     ///< datagrams dropped because kMaxWaitingDatagrams were queued
  std::uint64_t parts_delayed = 0;      ///< parts of properties queued because the ring was full
};

class Outbox {
 public:
  /// `layout` outlives this object.
  explicit Outbox(segment::Layout& layout) : layout_(layout) {}
  Outbox(const Outbox&) = delete;
  Outbox& operator=(const Outbox&) = delete;

  /// Sends a command, or queues it. Commands of one urgency are sent in order. The senders bound the length
  /// of the queue: there is at most one command for each request that a reactor or the connection manager
  /// holds open.
  void send(std::uint32_t reactor, const segment::Command& command);
  void send(std::uint32_t reactor, const segment::Punt& datagram);
  /// Sends a part, or queues it. Parts are sent in order and without gaps.
  void send(std::uint32_t reactor, const segment::PropertyPart& part);

  /// Removes the queued command that makes the connection `cm_id`. Returns false if it has been sent.
  bool withdraw(std::uint32_t reactor, std::uint32_t cm_id);
  /// Drops everything queued. Called when another data plane has started, because the queued entries refer to
  /// its predecessor.
  void forget();
  /// Sends queued entries as far as the rings have room. Returns true if something was sent.
  bool flush();
  /// Returns the total number of queued entries.
  std::size_t waiting() const;
  const OutboxStatistics& statistics() const { return statistics_; }

 private:
  /// Urgency classes, in the order in which their commands are sent.
  enum Urgency : std::size_t {
    Refuse,  ///< frees a slot at the reactor, or ends something there
    Make,    ///< makes a connection
  };
  struct OfReactor {
    std::array<std::deque<segment::Command>, 2> commands;  ///< by Urgency
    std::deque<segment::Punt> datagrams;
    std::deque<segment::PropertyPart> parts;
  };
  static Urgency urgency_of(segment::CommandType type);
  OfReactor& of(std::uint32_t reactor);
  bool flush(std::uint32_t reactor);

  segment::Layout& layout_;
  std::array<OfReactor, segment::kMaxReactors> reactors_;
  OutboxStatistics statistics_;
};

}  // namespace sluice::cm
