// SPDX-License-Identifier: Apache-2.0
//
// Which connections there are, from the tables that reactors publish. Events of reactors only say where to look: one
// that is lost delays what follows from it until its part of the table is looked at in turn. One thread.
#pragma once

#include <cstdint>
#include <vector>

#include "dataplane/base/net_address.h"
#include "dataplane/segment/tables.h"

namespace sluice::segment {
struct Layout;
}

namespace sluice::cm {

/// Entries that are looked at in turn at each poll of the control plane, all reactors together.
inline constexpr std::uint32_t kEntriesPerLook = 1024;

/// A connection as its entry shows it.
struct SeenConnection {
  segment::ConnectionState state = segment::ConnectionState::Unused;
  std::uint32_t incarnation = 0;  ///< zero: there is none
  std::uint32_t cm_id = 0;
  std::uint32_t queue_pair = 0;
  bool outgoing = false;
  PeerAddress peer;
  bool was_up = false;         ///< it has been Open
  std::uint64_t since_ns = 0;  ///< wall clock
};

class ConnectionWatch {
 public:
  class Listener {
   public:
    virtual void on_appeared(std::uint32_t reactor, std::uint32_t number, const SeenConnection& seen) = 0;
    /// Its state or its cm_id.
    virtual void on_changed(std::uint32_t reactor, std::uint32_t number, const SeenConnection& seen) = 0;
    virtual void on_gone(std::uint32_t reactor, std::uint32_t number, const SeenConnection& seen) = 0;
    /// One that expect() told of came and went between two looks.
    virtual void on_missed(std::uint32_t reactor, std::uint32_t number, const SeenConnection& expected) = 0;

   protected:
    ~Listener() = default;
  };

  /// `layout` and `listener` outlive it.
  ConnectionWatch(segment::Layout& layout, std::uint32_t reactors, std::uint32_t connections,
                  Listener& listener);

  /// At this entry, now. Any numbers are valid input.
  void look(std::uint32_t reactor, std::uint32_t number);
  /// The reactor has said that it made this connection, after it had published it.
  void expect(std::uint32_t reactor, std::uint32_t number, const SeenConnection& connection);
  /// At the next kEntriesPerLook entries. Repeats the hint to reactors that are behind what is wanted.
  void look_in_turn();
  void look_at_all();

  /// As of the last look; incarnation zero where there is none. Numbers below those given to the constructor.
  const SeenConnection& seen(std::uint32_t reactor, std::uint32_t number) const {
    return entries_[reactor * connections_ + number].connection;
  }
  /// `visit(reactor, number, seen)` for each connection.
  template <typename Visit>
  void for_each(Visit&& visit) const {
    for (std::uint32_t i = 0; i < entries_.size(); ++i)
      if (entries_[i].connection.incarnation != 0)
        visit(i / connections_, i % connections_, entries_[i].connection);
  }
  std::uint32_t connections() const { return connections_; }
  /// Hints that were given again.
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
  /// False when the entry is being written.
  bool read(std::uint32_t reactor, std::uint32_t number);
  /// True when it is settled whether the connection is there.
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
