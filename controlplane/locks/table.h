// SPDX-License-Identifier: Apache-2.0
//
// Who holds which locks through the gateway. To the upstream all clients are one host, so each owner of a client has an
// svid and an oh of its own there. An owner stays while it holds a lock or is in use.
//
// What one network can take is bounded. One thread, the lock proxy's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "controlplane/locks/protocol.h"
#include "controlplane/locks/ranges.h"
#include "controlplane/locks/shares.h"
#include "controlplane/locks/statistics.h"
#include "dataplane/base/net_address.h"
#include "dataplane/rpc/message.h"

namespace sluice::locks {

/// Owners and locked ranges: of all, and of one network (mount/network.h).
inline constexpr std::size_t kMaxOwners = 65536;
inline constexpr std::size_t kMaxOwnersOfNetwork = 8192;
inline constexpr std::size_t kMaxLocks = 262144;
inline constexpr std::size_t kMaxLocksOfNetwork = 32768;

/// A client: machines behind one address have names.
struct Host {
  PeerAddress address;
  std::string name;
  auto operator<=>(const Host& other) const {
    return std::tie(address, name) <=> std::tie(other.address, other.name);
  }
  bool operator==(const Host&) const = default;
};

/// As the client calls it.
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

/// A LOCK without an outcome: the upstream may have granted it.
struct AskedLock {
  Bytes handle;
  Range range;
  bool interrupted = false;  ///< its answer was due to a previous control plane
  bool operator==(const AskedLock&) const = default;
};

struct Owner {
  std::uint32_t id = 0;  ///< its svid at the upstream
  OwnerName name;
  PeerAddress local;  ///< the gateway's address that the client knows
  rpc::AuthFlavor flavor = rpc::AuthFlavor::None;
  Bytes credential;                          ///< of its last call
  std::map<Bytes, Ranges, BytesLess> files;  ///< by handle
  std::vector<AskedLock> asked;              ///< in the order of their calls
  std::size_t uses = 0;                      ///< calls outstanding, and locks waited for
  std::uint32_t state = 0;                   ///< of the host's NSM, when it last locked; zero: not known
  bool leaving = false;                      ///< its host is gone: what it holds is to be released
  bool recorded = false;                     ///< the journal has it
  bool empty() const { return files.empty() && asked.empty(); }
};

/// A client that is to be told of the upstream's restart, at its address and as the gateway that it knows.
struct NoticeTo {
  PeerAddress address;
  PeerAddress local;
  auto operator<=>(const NoticeTo& other) const {
    return std::tie(address, local) <=> std::tie(other.address, other.local);
  }
  bool operator==(const NoticeTo&) const = default;
};

/// Told of each change before the client is.
class TableObserver {
 public:
  virtual ~TableObserver() = default;
  virtual void owner(const Owner& owner) = 0;
  virtual void asked(std::uint32_t id, const Bytes& handle, const Range& range) = 0;
  /// A LOCK has not been granted.
  virtual void not_granted(std::uint32_t id, const Bytes& handle, const Range& range) = 0;
  virtual void held(std::uint32_t id, const Bytes& handle, const Range& range) = 0;
  virtual void freed(std::uint32_t id, const Bytes& handle, const Range& range) = 0;
  virtual void leaving(std::uint32_t id) = 0;
  virtual void notice(const NoticeTo& to, std::uint32_t state) = 0;
};

class Table {
 public:
  /// Both outlive it; `observer` may be null. `first_id`: of the first owner.
  Table(LockStatistics& statistics, TableObserver* observer, std::uint32_t first_id);

  /// Null: there is no room.
  Owner* find_or_make(const OwnerName& name, const PeerAddress& local);
  Owner* by_id(std::uint32_t id);
  bool room_for_lock(const Owner& owner) const { return lock_shares_.room(owner.name.host.address); }

  /// An owner that is used stays. Each use() has an unuse(), which may end it.
  void use(Owner& owner) { ++owner.uses; }
  void unuse(std::uint32_t id);
  /// Notes that a LOCK is about to be sent. Its outcome is hold() or not_granted() of the range.
  void ask(Owner& owner, const Bytes& handle, const Range& range);
  void not_granted(Owner& owner, const Bytes& handle, const Range& range, bool interrupted = false);
  void hold(Owner& owner, const Bytes& handle, const Range& range);
  /// Frees a range that the upstream has released, and drops the interrupted LOCKs within it.
  void free(Owner& owner, const Bytes& handle, const Range& range);
  /// From here on a call of the same owner is one of another owner: the host has started anew.
  void leave(Owner& owner);

  /// The owner among ours whose lock is in the way of that range, if it has this id.
  const Owner* holder(std::uint32_t id, const Bytes& handle, const Range& range) const;
  const std::map<std::uint32_t, Owner>& owners() const { return owners_; }

  /// `state`: that the client is to hear of; zero: nothing more.
  void set_notice(const NoticeTo& to, std::uint32_t state);
  const std::map<NoticeTo, std::uint32_t>& notices() const { return notices_; }

  /// Takes over an owner that a journal has.
  Owner& restore(Owner owner);
  /// Call after all was restored: removes owners without locks, and marks LOCKs without an outcome as
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
