// SPDX-License-Identifier: Apache-2.0
//
// Tracks the existing connections by the tables that reactors publish. Events of reactors are only hints for
// a scan of an entry. A lost event delays the reaction until the periodic scan reaches its part of the table.
// Single-threaded.
#pragma once

#include <cstdint>
#include <vector>

#include "dataplane/base/net_address.h"
#include "dataplane/segment/tables.h"

namespace sluice::segment {
struct Layout;
}

namespace sluice::cm {

/// Entries that each poll of the control plane scans, over all reactors.
inline constexpr std::uint32_t kEntriesPerLook = 1024;

/// A connection as shown by its table entry.
struct SeenConnection {
  segment::ConnectionState state = segment::ConnectionState::Unused;
  std::uint32_t incarnation = 0;  ///< zero if there is no connection
  std::uint32_t cm_id = 0;
  std::uint32_t queue_pair = 0;
  bool outgoing = false;
  PeerAddress peer;
  bool was_up = false;         ///< the connection has been Open
  std::uint64_t since_ns = 0;  ///< wall clock
};

class ConnectionMonitor {
 public:
  class Listener {
   public:
    virtual void on_appeared(std::uint32_t reactor, std::uint32_t number, const SeenConnection& seen) = 0;
    /// The state or the cm_id has changed.
    virtual void on_changed(std::uint32_t reactor, std::uint32_t number, const SeenConnection& seen) = 0;
    virtual void on_gone(std::uint32_t reactor, std::uint32_t number, const SeenConnection& seen) = 0;
    /// A connection announced by expect() appeared and disappeared between two scans.
    virtual void on_missed(std::uint32_t reactor, std::uint32_t number, const SeenConnection& expected) = 0;

   protected:
    ~Listener() = default;
  };

  /// `layout` and `listener` outlive this object.
  ConnectionMonitor(segment::Layout& layout, std::uint32_t reactors, std::uint32_t connections,
                    Listener& listener);

  /// Scans this entry. Any numbers are valid input.
  void sample(std::uint32_t reactor, std::uint32_t number);
  /// Announces a connection. The reactor has reported it after publishing it.
  void expect(std::uint32_t reactor, std::uint32_t number, const SeenConnection& connection);
  /// Scans the next kEntriesPerLook entries. Repeats the hint to reactors that have not applied the desired
  /// state.
  void sample_next();
  void look_at_all();

  /// Returns the connection as of the last scan, with incarnation zero if there is none. The numbers must be
  /// below the limits given to the constructor.
  const SeenConnection& seen(std::uint32_t reactor, std::uint32_t number) const {
    return entries_[reactor * connections_ + number].connection;
  }
  /// Calls `visit(reactor, number, seen)` for each connection.
  template <typename Visit>
  void for_each(Visit&& visit) const {
    for (std::uint32_t i = 0; i < entries_.size(); ++i)
      if (entries_[i].connection.incarnation != 0)
        visit(i / connections_, i % connections_, entries_[i].connection);
  }
  std::uint32_t connections() const { return connections_; }
  /// Returns the number of repeated hints.
  std::uint64_t hints_repeated() const { return hints_repeated_; }

 private:
  struct Entry {
    std::uint32_t sequence = 0;
    SeenConnection connection;
  };
  struct Expected {
    std::uint32_t reactor = 0;
    std::uint32_t number = 0;
    SeenConnection connection;
  };
  /// Reads an entry. Returns false if it is being written.
  bool read(std::uint32_t reactor, std::uint32_t number);
  /// Returns true once the entry shows whether the expected connection exists.
  bool settle(const Expected& expected);
  void repeat_hint(std::uint32_t reactor, std::uint32_t number);

  segment::Layout& layout_;
  const std::uint32_t reactors_;
  const std::uint32_t connections_;
  Listener& listener_;
  std::vector<Entry> entries_;
  std::vector<Expected> expected_;
  std::uint32_t next_ = 0;
  std::uint64_t hints_repeated_ = 0;
};

}  // namespace sluice::cm
