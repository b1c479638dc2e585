// SPDX-License-Identifier: Apache-2.0
//
// Table of lock owners and of the locks that they hold through the gateway. For the upstream, all clients
// are one host, so each owner of a client has its own svid and oh there. An owner exists while it holds a
// lock or is in use.
//
// The resources of one network are bounded. Single-threaded; runs on the lock proxy's thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "controlplane/locks/protocol.h"
#include "controlplane/locks/statistics.h"
#include "dataplane/base/invariant.h"
#include "dataplane/base/net_address.h"
#include "dataplane/rpc/message.h"

namespace sluice::locks {

inline constexpr std::uint64_t kEndOfFile = ~std::uint64_t{0};

struct Range {
  std::uint64_t first = 0;
  std::uint64_t last = kEndOfFile;  ///< inclusive
  bool exclusive = false;
  bool operator==(const Range&) const = default;
};

/// Returns the range of a lock. A `length` of zero or beyond the maximum offset extends to the end of the
/// file.
inline Range range_of(std::uint64_t offset, std::uint64_t length, bool exclusive) {
  const bool to_end = length == 0 || length - 1 > kEndOfFile - offset;
  return {offset, to_end ? kEndOfFile : offset + (length - 1), exclusive};
}

inline bool overlap(const Range& a, const Range& b) {
  return a.first <= b.last && b.first <= a.last;
}

/// Byte ranges of a file that one owner has locked. They are split and merged according to the POSIX rules
/// for fcntl(): a new lock replaces the owner's locks in its range, and adjacent ranges of one kind are
/// merged.
class Ranges {
 public:
  void hold(const Range& range);
  /// Frees a range of both kinds.
  void free(const Range& range);
  /// Returns true if the entire range is held, in its kind or exclusively.
  bool covers(const Range& range) const;
  bool overlaps(const Range& range) const;
  /// Returns the ranges in ascending order, without overlaps.
  const std::vector<Range>& all() const { return all_; }

 private:
  bool ordered() const;

  std::vector<Range> all_;
};

/// Counts entries in total and per network, against both limits.
class Shares {
 public:
  Shares(std::size_t max, std::size_t max_of_network) : max_(max), max_of_network_(max_of_network) {}

  bool room(const PeerAddress& address) const {
    const auto at = networks_.find(key(address));
    return total_ < max_ && (at == networks_.end() || at->second < max_of_network_);
  }
  void add(const PeerAddress& address, std::size_t count = 1) {
    if (count == 0) return;
    total_ += count;
    networks_[key(address)] += count;
  }
  void remove(const PeerAddress& address, std::size_t count = 1) {
    const auto at = networks_.find(key(address));
    if (at == networks_.end() || count == 0) return;
    if (!SLUICE_INVARIANT(count <= at->second && at->second <= total_, pool_balance)) return;
    total_ -= count;
    at->second -= count;
    if (at->second == 0) networks_.erase(at);
  }
  std::size_t total() const { return total_; }

 private:
  static PeerAddress key(const PeerAddress& address) { return network_of(address); }

  const std::size_t max_;
  const std::size_t max_of_network_;
  std::size_t total_ = 0;
  std::map<PeerAddress, std::size_t> networks_;
};

/// Limits of owners and locked ranges: in total, and per network (base/net_address.h).
inline constexpr std::size_t kMaxOwners = 65536;
inline constexpr std::size_t kMaxOwnersOfNetwork = 8192;
inline constexpr std::size_t kMaxLocks = 262144;
inline constexpr std::size_t kMaxLocksOfNetwork = 32768;

/// A client host. The name distinguishes machines behind one address.
struct Host {
  PeerAddress address;
  std::string name;
  auto operator<=>(const Host& other) const {
    return std::tie(address, name) <=> std::tie(other.address, other.name);
  }
  bool operator==(const Host&) const = default;
};

/// Name of an owner as the client uses it.
struct OwnerName {
  Host host;
  Bytes owner;
  std::uint32_t svid = 0;
  bool operator<(const OwnerName& other) const {
    if (svid != other.svid) return svid < other.svid;
    if (host != other.host) return host < other.host;
    return BytesLess{}(owner, other.owner);
  }
};

/// A LOCK without an outcome. The upstream may have granted it.
struct AskedLock {
  Bytes handle;
  Range range;
  bool interrupted = false;  ///< its answer was due to a previous control plane
  bool operator==(const AskedLock&) const = default;
};

struct Owner {
  std::uint32_t id = 0;  ///< svid of the owner at the upstream
  OwnerName name;
  PeerAddress local;  ///< address of the gateway that the client knows
  rpc::AuthFlavor flavor = rpc::AuthFlavor::None;
  Bytes credential;                          ///< credential of the last call
  std::map<Bytes, Ranges, BytesLess> files;  ///< locked ranges by handle
  std::vector<AskedLock> asked;              ///< LOCKs without an outcome, in the order of their calls
  std::size_t uses = 0;                      ///< outstanding calls and awaited locks
  std::uint32_t state = 0;                   ///< NSM state of the host at its last LOCK; zero if unknown
  bool leaving = false;                      ///< the host has restarted; the locks are being released
  bool recorded = false;                     ///< the owner is in the journal
  bool empty() const { return files.empty() && asked.empty(); }
};

/// A client to be notified of the upstream's restart. `address` is the client's and `local` is the gateway's
/// address that it knows.
struct NoticeTo {
  PeerAddress address;
  PeerAddress local;
  auto operator<=>(const NoticeTo& other) const {
    return std::tie(address, local) <=> std::tie(other.address, other.local);
  }
  bool operator==(const NoticeTo&) const = default;
};

/// Observer of changes. It is called before the client gets its reply.
class TableObserver {
 public:
  virtual ~TableObserver() = default;
  virtual void owner(const Owner& owner) = 0;
  virtual void asked(std::uint32_t id, const Bytes& handle, const Range& range) = 0;
  /// Called when a LOCK was not granted.
  virtual void not_granted(std::uint32_t id, const Bytes& handle, const Range& range) = 0;
  virtual void held(std::uint32_t id, const Bytes& handle, const Range& range) = 0;
  virtual void freed(std::uint32_t id, const Bytes& handle, const Range& range) = 0;
  virtual void leaving(std::uint32_t id) = 0;
  virtual void notice(const NoticeTo& to, std::uint32_t state) = 0;
};

class Table {
 public:
  /// `statistics` and `observer` outlive this object; `observer` may be null. `first_id` is the id of the
  /// first owner.
  Table(LockStatistics& statistics, TableObserver* observer, std::uint32_t first_id);

  /// Returns the owner, which is added if necessary. Returns null if a limit is reached.
  Owner* find_or_make(const OwnerName& name, const PeerAddress& local);
  Owner* by_id(std::uint32_t id);
  bool room_for_lock(const Owner& owner) const { return lock_shares_.room(owner.name.host.address); }

  /// Keeps an owner in the table. Each use() needs an unuse(), which may erase the owner.
  void use(Owner& owner) { ++owner.uses; }
  void unuse(std::uint32_t id);
  /// Records that a LOCK is about to be sent. Its outcome is hold() or not_granted() of the range.
  void ask(Owner& owner, const Bytes& handle, const Range& range);
  void not_granted(Owner& owner, const Bytes& handle, const Range& range, bool interrupted = false);
  void hold(Owner& owner, const Bytes& handle, const Range& range);
  /// Frees a range that the upstream has released, and drops the interrupted LOCKs within it.
  void free(Owner& owner, const Bytes& handle, const Range& range);
  /// Detaches an owner whose host has restarted. Further calls with its name belong to a new owner.
  void leave(Owner& owner);

  /// Returns the owner with this id if one of its locks overlaps the range, otherwise null.
  const Owner* holder(std::uint32_t id, const Bytes& handle, const Range& range) const;
  const std::map<std::uint32_t, Owner>& owners() const { return owners_; }

  /// Sets the NSM state that the client is to be notified of; zero if nothing is pending.
  void set_notice(const NoticeTo& to, std::uint32_t state);
  const std::map<NoticeTo, std::uint32_t>& notices() const { return notices_; }

  /// Adds an owner from a journal.
  Owner& restore(Owner owner);
  /// Completes the restoration: removes owners without locks, and marks LOCKs without an outcome as
  /// interrupted.
  void restored();

 private:
  std::uint32_t next_id();
  Owner& add(Owner owner);
  static bool remove_asked(Owner& owner, const Bytes& handle, const Range& range, bool interrupted);
  void drop_interrupted(Owner& owner, const Bytes& handle, const Range& range);
  void record(Owner& owner);
  void count_locks(const Owner& owner, std::size_t before, std::size_t after);
  void erase(std::uint32_t id);

  LockStatistics& statistics_;
  TableObserver* const observer_;
  std::uint32_t last_id_;
  std::map<std::uint32_t, Owner> owners_;
  std::map<OwnerName, Owner*> names_;
  std::map<NoticeTo, std::uint32_t> notices_;
  Shares owner_shares_{kMaxOwners, kMaxOwnersOfNetwork};
  Shares lock_shares_{kMaxLocks, kMaxLocksOfNetwork};
};

}  // namespace sluice::locks
