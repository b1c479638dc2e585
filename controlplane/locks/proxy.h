// SPDX-License-Identifier: Apache-2.0
//
// Proxy for the lock manager (NLM) of the upstream. Client calls are forwarded under the gateway's own owners
// (table.h), and a GRANTED of the upstream is forwarded to the waiting client. A LOCK for which a client
// waits is also retransmitted, because not every upstream sends GRANTED. Clients only get answers of the
// upstream; they wait while it is silent. The proxy notifies clients when the upstream has restarted, and
// releases the locks of clients that have restarted.
//
// A LOCK is in the journal before it is sent. After a restart of the control plane, the LOCKs without an
// outcome are sent again, and calls of their owners wait for the answer, because an upstream with several
// threads may reorder them.
//
// Single-threaded; runs on the lock proxy's thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "controlplane/locks/courier.h"
#include "controlplane/locks/protocol.h"
#include "controlplane/locks/table.h"
#include "controlplane/onc_rpc/sockets.h"
#include "dataplane/base/function.h"
#include "dataplane/rpc/message.h"

namespace sluice::locks {

/// Limits of calls that wait for the upstream, and of locks that clients wait for: in total, and per network.
inline constexpr std::size_t kMaxCalls = 2048;
inline constexpr std::size_t kMaxCallsOfNetwork = 64;
inline constexpr std::size_t kMaxWaiters = 8192;
inline constexpr std::size_t kMaxWaitersOfNetwork = 1024;
/// Timeout for a client to accept a granted lock. After the timeout the lock is returned.
inline constexpr std::uint64_t kGrantNs = 15'000'000'000;
/// Timeout for notifying a client of the upstream's restart.
inline constexpr std::uint64_t kNoticeNs = 120'000'000'000;
/// Deadline of the TEST that confirms a restart of the upstream.
inline constexpr std::uint64_t kConfirmNs = 15'000'000'000;
/// Minimum interval between log lines about notices that match neither the upstream nor a client.
inline constexpr std::uint64_t kUnknownNoticeNs = 60'000'000'000;
/// Retry interval for releasing a client's locks while the upstream is in its grace period.
inline constexpr std::uint64_t kReleaseAgainNs = 5'000'000'000;
/// Retry interval for an interrupted LOCK that the upstream can neither grant nor deny.
inline constexpr std::uint64_t kRepeatLockNs = 5'000'000'000;
/// Delay in nanoseconds after which a LOCK for which a client waits is sent again. An upstream may grant the
/// lock without a GRANTED, as the lock manager of Linux 6.12 does, and its clients ask again after 30 s only.
inline constexpr std::uint64_t kAskAgainNs = 2'000'000'000;
/// Minimum interval in nanoseconds between two LOCKs that are sent again for waiting clients.
inline constexpr std::uint64_t kAskAgainPaceNs = 2'000'000;
/// Interval between updates of the upstream's address and reports of its state.
inline constexpr std::uint64_t kLookNs = 1'000'000'000;
/// State of the gateway's NSM, as the upstream sees it. It is odd and constant, because the gateway's locks
/// outlive its processes.
inline constexpr std::uint32_t kOwnState = 1;

struct ProxySettings {
  std::string upstream;                            ///< name of the upstream for the log
  std::string name;                                ///< caller_name at the upstream
  bool privileged_port = true;                     ///< use a privileged port for calls to the upstream
                                                   ///< and to clients
  Function<std::optional<PeerAddress>()> where;    ///< returns the address of the upstream, or nothing
                                                   ///< if it is unknown
  Function<bool(const PeerAddress&)> is_upstream;  ///< returns true for addresses of the upstream
  std::vector<std::string> upstream_names{};       ///< names in the upstream's notices
  std::uint16_t upstream_rpcbind = onc_rpc::kRpcbindPort;  ///< default except in tests
  std::uint16_t client_rpcbind = onc_rpc::kRpcbindPort;
  std::uint32_t first_id = 1;     ///< id of the first owner
  std::uint32_t first_state = 1;  ///< first NSM state that clients see; odd, and higher than earlier ones
};

/// A call that needs a reply.
struct IncomingCall {
  rpc::Xid xid{};
  std::uint32_t procedure = 0;
  onc_rpc::Asker asker;
  rpc::OpaqueAuth credential;
  onc_rpc::CallHandler::Reply reply;
};

class LockProxy {
 public:
  /// `statistics` and `observer` outlive this object; `observer` may be null.
  LockProxy(ProxySettings settings, LockStatistics& statistics, TableObserver* observer);

  Table& table() { return table_; }
  /// Continues pending releases and notifications after the table was restored.
  void resume(std::uint64_t now_ns);

  /// Forwards TEST, LOCK, NM_LOCK, CANCEL or UNLOCK of a client.
  void forward(const IncomingCall& call, const LockArguments& arguments);
  /// Handles GRANTED or GRANTED_MSG of the upstream.
  void granted(const IncomingCall& call, const LockArguments& arguments);
  /// Handles the notice of a host's restart, and replies. The reply is an error if the sender has to repeat
  /// the notice.
  void restarted(const IncomingCall& call, const HostState& state);
  bool is_name_of_upstream(const std::string& name) const;
  /// Handles FREE_ALL, by which a client releases all its locks.
  void free_all(const PeerAddress& from, const HostState& state, std::uint64_t now_ns);

  void prepare(PollSet& set);
  void poll(const PollSet& set, std::uint64_t now_ns);

 private:
  using CallKey = std::tuple<std::uint32_t, std::uint32_t, std::uint32_t>;  ///< owner, XID, procedure
  struct Pending {
    PeerAddress address;
    LockArguments arguments;
    onc_rpc::CallHandler::Reply reply;
  };
  struct WaitKey {
    std::uint32_t id = 0;
    Bytes handle;
    std::uint64_t offset = 0;
    std::uint64_t length = 0;
    bool operator<(const WaitKey& other) const {
      const auto mine = std::tie(id, offset, length);
      const auto others = std::tie(other.id, other.offset, other.length);
      return mine != others ? mine < others : BytesLess{}(handle, other.handle);
    }
  };
  struct Waiter {
    LockArguments arguments;  ///< arguments of the client's call
    bool calling = false;
    /// True if the reply to a retransmitted LOCK has granted the lock. If the client refuses the lock, the
    /// proxy unlocks it at the upstream.
    bool acquired = false;
    bool queued = false;                                 ///< in to_ask_, in which a waiter has one place
    std::vector<std::pair<IncomingCall, Bytes>> grants;  ///< grants of the upstream, with their cookies
  };

  /// A client's call that is deferred until the interrupted LOCKs of its owner have an outcome.
  struct Deferred {
    CallKey key;
    LockArguments arguments;
    Bytes message;
  };

  Bytes to_upstream(std::uint32_t procedure, const Owner& owner, LockArguments arguments);
  Owner* owner_of(const IncomingCall& call, const LockArguments& arguments, std::uint32_t state);
  static void remember(Owner& owner, const IncomingCall& call, std::uint32_t state);
  void send(Deferred call);
  void repeat_locks(Owner& owner);
  void repeat_lock(std::uint32_t id, const AskedLock& lock);
  void lock_repeated(std::uint32_t id, const AskedLock& lock, std::span<const std::byte> reply);
  void end_deferral(std::uint32_t id);
  void repeat_and_release_later();
  void replied(const CallKey& key, const LockArguments& arguments, std::span<const std::byte> reply);
  void repeated(Pending& pending, const IncomingCall& call, const LockArguments& arguments);
  void settle(std::uint32_t procedure, Owner& owner, const LockArguments& arguments, LockResult& result);
  void translate(Holder& holder, const Bytes& handle) const;
  void respond(const CallKey& key, std::span<const std::byte> message);
  bool wait_for(Owner& owner, const LockArguments& arguments);
  void forget(const WaitKey& key);
  void ask_again_later(const WaitKey& key);
  void ask_again();
  void ask_again(const WaitKey& key, const LockArguments& arguments);
  void asked_again(const WaitKey& key, const LockArguments& arguments, std::span<const std::byte> reply);
  void unlock(Owner& owner, const LockArguments& arguments);
  void cancel(Owner& owner, const LockArguments& arguments);
  void call_client(const WaitKey& key, std::uint64_t now_ns);
  void delivered(const WaitKey& key, std::span<const std::byte> reply);
  void answer_grant(const IncomingCall& call, const Bytes& cookie, Stat stat);
  struct Sender {
    std::vector<Host> hosts;
    bool elsewhere = false;  ///< true if only hosts at other addresses have the name
  };
  Sender sender_of_notice(const PeerAddress& from, const std::string& name) const;
  void unknown_notice(const PeerAddress& from, const std::string& name);
  void confirm_restart(IncomingCall call, const HostState& state);
  std::optional<std::pair<std::uint32_t, Bytes>> any_lock() const;
  void upstream_restarted(std::uint32_t state);
  void release(const Host& host, std::uint32_t state);
  void release(const std::vector<Owner*>& gone);
  void release(Owner& owner);
  void release_file(Owner& owner, const Bytes& handle);
  void notify_clients();
  void notify(const NoticeTo& to, std::uint32_t state);
  void reconcile();

  ProxySettings settings_;
  LockStatistics& statistics_;
  Table table_;
  Courier upstream_;
  Callbacks clients_;
  Bytes own_credential_;
  std::map<CallKey, Pending> pending_;
  Shares call_shares_{kMaxCalls, kMaxCallsOfNetwork};
  std::map<WaitKey, Waiter> waiters_;
  Shares waiter_shares_{kMaxWaiters, kMaxWaitersOfNetwork};
  std::multimap<std::uint64_t, WaitKey> to_ask_;  ///< waiters by the time at which their LOCK is sent again
  std::set<std::uint32_t> asking_;                ///< owners with a LOCK that was sent again
  std::uint64_t ask_ns_ = 0;                      ///< earliest time of the next such LOCK
  std::vector<std::pair<std::uint32_t, Bytes>> to_release_;  ///< owners and files whose release is retried
  std::uint64_t release_ns_ = 0;
  /// LOCKs to be repeated before calls of an owner are sent, and those calls. An owner without an entry has
  /// none.
  struct Deferral {
    std::size_t repeating = 0;
    std::vector<Deferred> calls;
  };
  std::map<std::uint32_t, Deferral> deferrals_;
  std::vector<std::pair<std::uint32_t, AskedLock>> to_repeat_;  ///< owners and LOCKs that are retried
  std::uint64_t repeat_ns_ = 0;
  std::uint32_t upstream_state_ = 0;
  bool confirming_ = false;  ///< a TEST for a restart of the upstream is outstanding
  std::uint64_t log_unknown_ns_ = 0;
  std::uint32_t state_;
  std::uint64_t now_ns_ = 0;
  std::uint64_t look_ns_ = 0;
  const char* reported_ = nullptr;
};

}  // namespace sluice::locks
