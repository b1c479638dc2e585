// SPDX-License-Identifier: Apache-2.0
//
// Tracks the existing connections by the tables that reactors publish, counts them for admission control,
// and reports them to the journal. Events of reactors are only hints for a scan of an entry. A lost event
// delays the reaction until the periodic scan reaches its part of the table. Single-threaded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "controlplane/policy/admission.h"
#include "dataplane/base/net_address.h"
#include "dataplane/segment/tables.h"

namespace sluice::segment {
struct Event;
struct Layout;
}  // namespace sluice::segment
namespace sluice::events {
class Journal;
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

/// Scans the tables, and calls its listener for each change.
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

/// Reconciles the connection count of admission control with the connections in the reactors' tables and
/// with admitted connections that are not in a table yet. Each connection is counted once, even if its
/// events are reordered, duplicated or lost.
class AdmissionTable {
 public:
  /// `admission` outlives this object.
  explicit AdmissionTable(policy::Admission& admission) : admission_(admission) {}

  /// Records a request that admission control has counted. It holds a slot until the connection appears or
  /// fails.
  void admitted(std::uint32_t reactor, std::uint32_t cm_id, const PeerAddress& peer) {
    if (!held_.emplace(key(reactor, cm_id), peer).second) admission_.disconnected(peer);
  }
  /// Releases the slot of a connection that failed. Returns its peer if it held a slot.
  std::optional<PeerAddress> failed(std::uint32_t reactor, std::uint32_t cm_id) {
    const auto at = held_.find(key(reactor, cm_id));
    if (at == held_.end()) return std::nullopt;
    const PeerAddress peer = at->second;
    admission_.disconnected(peer);
    held_.erase(at);
    return peer;
  }
  void appeared(std::uint32_t reactor, const SeenConnection& seen) {
    if (seen.outgoing) return;
    failed(reactor, seen.cm_id);
    admission_.connected(seen.peer);
  }
  void gone(const SeenConnection& seen) {
    if (!seen.outgoing) admission_.disconnected(seen.peer);
  }
  /// Releases all held slots. Called when another data plane has started, because it does not have the
  /// requests of its predecessor.
  void forget_held() {
    for (const auto& [id, peer] : held_) admission_.disconnected(peer);
    held_.clear();
  }
  std::size_t held() const { return held_.size(); }

 private:
  static std::uint64_t key(std::uint32_t reactor, std::uint32_t cm_id) {
    return std::uint64_t{reactor} << 32 | cm_id;
  }

  policy::Admission& admission_;
  std::unordered_map<std::uint64_t, PeerAddress> held_;
};

/// Time for which the report of a closed connection waits for the reactor's event.
inline constexpr std::uint64_t kReasonWaitNs = 500'000'000;

/// Reports connections that come up and go down, and refused requests, to the journal. The tables show
/// which connections exist, but only the reactor's event contains the reason for a close. This event may
/// arrive before or after the connection disappears, or be lost. Therefore the report of a closed
/// connection is delayed for a short time until the event arrives.
class ConnectionReports {
 public:
  /// `journal` outlives this object.
  explicit ConnectionReports(events::Journal& journal) : journal_(journal) {}

  /// Reports a client's request that admission control refused. Admission control counts it.
  void refused(const PeerAddress& peer, policy::Verdict verdict);
  /// Reports and counts a client's request that was refused for another reason. `detail` is a sentence for
  /// people, or empty.
  void refused(const PeerAddress& peer, policy::Refusal why, const std::string& detail = {});
  const policy::RefusalCounts& refusals() const { return refusals_; }
  /// Reports an own request that a server refused.
  void server_refused(const PeerAddress& server, const std::string& reason, const std::string& detail = {});
  /// Reports a connection on which the peer was heard.
  void up(std::uint32_t reactor, std::uint32_t number, const SeenConnection& seen);
  void gone(std::uint32_t reactor, std::uint32_t number, const SeenConnection& seen, std::uint64_t now_ns);
  /// Records the reason from the reactor's ConnectionDown. Its fields may have any values.
  void reason(std::uint32_t reactor, const segment::Event& event, std::uint64_t now_ns);
  /// Reports the connections that have waited for kReasonWaitNs.
  void poll(std::uint64_t now_ns);
  std::size_t waiting() const { return waiting_.size(); }

 private:
  /// Limit of waiting entries. Beyond it, connections are reported without a reason, and reasons are dropped.
  static constexpr std::size_t kMaxWaiting = 4096;
  struct Half {
    std::uint32_t number = 0;
    SeenConnection seen{};  ///< incarnation is zero until the connection has disappeared
    const char* why = nullptr;
    const char* work_status = "";  ///< of the failed work request
    std::uint32_t vendor_error = 0;
    std::uint64_t since_ns = 0;
  };
  using Key = std::pair<std::uint32_t, std::uint32_t>;  ///< reactor, incarnation
  void report(std::uint32_t reactor, const Half& half);

  events::Journal& journal_;
  policy::RefusalCounts refusals_{};
  std::map<Key, Half> waiting_;
};

}  // namespace sluice::cm
