// SPDX-License-Identifier: Apache-2.0
//
// Calls from the upstream and to clients, and restarts of either.

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include "controlplane/locks/proxy.h"
#include "dataplane/log/log.h"

namespace sluice::locks {
namespace {

/// Returns true if the names match. A host may use its name with or without its domain.
bool same_name(const std::string& a, const std::string& b) {
  const std::string& shorter = a.size() < b.size() ? a : b;
  const std::string& longer = a.size() < b.size() ? b : a;
  return longer.compare(0, shorter.size(), shorter) == 0 &&
         (longer.size() == shorter.size() || (!shorter.empty() && longer[shorter.size()] == '.'));
}

/// Returns true if `state` is newer. NSM states only increase, and their counter may wrap.
bool is_newer(std::uint32_t state, std::uint32_t than) {
  return static_cast<std::int32_t>(state - than) > 0;
}

void answer_notice(const IncomingCall& call, bool taken) {
  std::array<std::byte, rpc::kMinReplyBytes> room;
  xdr::Writer writer(room);
  rpc::encode_accepted(writer, call.xid, {}, taken ? rpc::AcceptStat::Success : rpc::AcceptStat::SystemErr);
  call.reply(writer.written());
}

std::optional<PeerAddress> known(const PeerAddress& address) {
  return address == PeerAddress{} ? std::nullopt : std::optional(address);
}

}  // namespace

void LockProxy::granted(const IncomingCall& call, const LockArguments& arguments) {
  now_ns_ = call.asker.now_ns;
  const Lock& lock = arguments.lock;
  const WaitKey key{lock.svid, lock.handle, lock.offset, lock.length};
  const auto waiter = waiters_.find(key);
  if (waiter == waiters_.end() || table_.by_id(lock.svid)->leaving) {
    // The client may hold the lock already, if this is a retransmission of a grant whose reply was lost.
    const Owner* const owner = table_.by_id(lock.svid);
    const bool held =
        owner != nullptr && !owner->leaving && owner->files.contains(lock.handle) &&
        owner->files.at(lock.handle).covers(range_of(lock.offset, lock.length, arguments.exclusive));
    if (!held) count(statistics_.grants_refused);
    return answer_grant(call, arguments.cookie, held ? Stat::Granted : Stat::Denied);
  }
  waiter->second.grants.emplace_back(call, arguments.cookie);
  waiter->second.grants.back().first.credential = {};  // points into the message
  if (!std::exchange(waiter->second.calling, true)) call_client(key, call.asker.now_ns);
}

void LockProxy::call_client(const WaitKey& key, std::uint64_t now_ns) {
  const Owner& owner = *table_.by_id(key.id);
  LockArguments arguments = waiters_.at(key).arguments;
  arguments.lock.caller = settings_.name;
  std::array<std::byte, kMaxArgumentsBytes> room;
  xdr::Writer writer(room);
  encode(writer, kGranted, arguments);
  const Destination to{.address = owner.name.host.address,
                       .from = known(owner.local),
                       .program = kNlmProgram,
                       .version = kNlmVersion,
                       .privileged_port = settings_.privileged_port,
                       .rpcbind_port = settings_.client_rpcbind};
  Bytes message = call_message({kNlmProgram, kNlmVersion, kGranted}, {rpc::AuthFlavor::Sys, own_credential_},
                               writer.written());
  if (!clients_.call(to, std::move(message), now_ns, now_ns + kGrantNs,
                     [this, key](std::span<const std::byte> reply) { delivered(key, reply); }))
    delivered(key, {});
}

/// Handles a client's reply to GRANTED. A lock that the client does not confirm is returned to the upstream.
void LockProxy::delivered(const WaitKey& key, std::span<const std::byte> reply) {
  const auto at = waiters_.find(key);
  Waiter waiter = at->second;
  xdr::Reader reader(reply);
  const auto decoded = rpc::decode_reply(reader);
  const auto result = decoded.ok && decoded.header.success() ? decode_result(reader, false) : std::nullopt;
  const Stat stat = result ? result->stat : Stat::Denied;
  Owner& owner = *table_.by_id(key.id);
  const bool taken = stat == Stat::Granted && !owner.leaving;
  at->second.calling = at->second.acquired = false;
  if (taken) {
    const Lock& lock = waiter.arguments.lock;
    table_.hold(owner, lock.handle, range_of(lock.offset, lock.length, waiter.arguments.exclusive));
    count(statistics_.grants_delivered);
  } else {
    count(statistics_.grants_refused);
  }
  const bool later = stat == Stat::DeniedGracePeriod && !owner.leaving;
  at->second.grants.clear();
  if (waiter.acquired && !taken) unlock(owner, waiter.arguments);
  if (later)
    ask_again_later(key);
  else
    forget(key);
  for (const auto& [call, cookie] : waiter.grants)
    answer_grant(call, cookie, taken || later ? stat : Stat::Denied);
}

void LockProxy::answer_grant(const IncomingCall& call, const Bytes& cookie, Stat stat) {
  std::array<std::byte, rpc::kMinReplyBytes + 2 * xdr::kUnit + kMaxString> room;
  xdr::Writer writer(room);
  const LockResult result{.cookie = cookie, .stat = stat, .holder = {}};
  rpc::encode_accepted(writer, call.xid, {}, rpc::AcceptStat::Success);
  if (call.procedure == kGrantedMsg) {
    // The reply to GRANTED_MSG is empty and has been sent. The result goes in a separate call.
    writer.rewind(0);
    encode(writer, result, false);
    upstream_.send(call_message({kNlmProgram, kNlmVersion, kGrantedRes},
                                {rpc::AuthFlavor::Sys, own_credential_}, writer.written()),
                   now_ns_, now_ns_ + kGrantNs, [](std::span<const std::byte>) {});
    return;
  }
  encode(writer, result, false);
  call.reply(writer.written());
}

bool LockProxy::is_name_of_upstream(const std::string& name) const {
  return std::any_of(settings_.upstream_names.begin(), settings_.upstream_names.end(),
                     [&](const std::string& known) { return same_name(known, name); });
}

/// Returns the hosts that a notice with this source address and name applies to. Both have to match, because
/// otherwise any client could release the locks of another. A notice may contain the address instead of the
/// name if only one host has the address.
LockProxy::Sender LockProxy::sender_of_notice(const PeerAddress& from, const std::string& name) const {
  std::set<Host> there;
  std::set<Host> both;
  bool elsewhere = false;
  for (const auto& [id, owner] : table_.owners()) {
    if (owner.leaving) continue;
    const Host& host = owner.name.host;
    const bool named = same_name(host.name, name);
    if (host.address == from) there.insert(host);
    if (host.address == from && named) both.insert(host);
    if (host.address != from && named) elsewhere = true;
  }
  if (both.empty() && there.size() == 1 && name == to_string(from)) both = there;
  return {{both.begin(), both.end()}, both.empty() && elsewhere};
}

void LockProxy::unknown_notice(const PeerAddress& from, const std::string& name) {
  count(statistics_.notices_unknown);
  if (now_ns_ < log_unknown_ns_) return;
  log_unknown_ns_ = now_ns_ + kUnknownNoticeNs;
  log::warn(
      "{} sent a notice of the restart of '{}', which is neither a client with locks at this address nor a "
      "restart of upstream '{}'. Nothing is released. Further notices within a minute are only counted",
      to_string(from), name, settings_.upstream);
}

/// Refuses a name that only hosts at other addresses have, because the sender may repeat the notice from
/// another address.
void LockProxy::restarted(const IncomingCall& call, const HostState& state) {
  now_ns_ = call.asker.now_ns;
  const PeerAddress& from = call.asker.address;
  const bool upstream = settings_.is_upstream(from);
  if (upstream) upstream_restarted(state.state);
  const Sender sender = sender_of_notice(from, state.name);
  for (const Host& host : sender.hosts) release(host, state.state);
  if (upstream || !sender.hosts.empty()) return answer_notice(call, true);
  if (is_name_of_upstream(state.name)) return confirm_restart(call, state);
  unknown_notice(from, state.name);
  answer_notice(call, !sender.elsewhere);
}

/// Returns the owner and the handle of a lock that a client has or waits for.
std::optional<std::pair<std::uint32_t, Bytes>> LockProxy::any_lock() const {
  for (const auto& [id, owner] : table_.owners())
    if (!owner.leaving && !owner.files.empty()) return {{id, owner.files.begin()->first}};
  if (waiters_.empty()) return std::nullopt;
  return {{waiters_.begin()->first.id, waiters_.begin()->first.handle}};
}

/// Sends a TEST to the upstream, and accepts the notice if the reply is a denial during the grace period.
/// Without this check, a forged notice would make clients reclaim their locks outside of a grace period and
/// lose them.
void LockProxy::confirm_restart(IncomingCall call, const HostState& state) {
  const auto lock = any_lock();
  if (!lock) return answer_notice(call, true);  // no client has anything to reclaim
  if (std::exchange(confirming_, true)) return answer_notice(call, false);
  call.credential = {};  // points into the message
  LockArguments arguments;
  arguments.exclusive = true;
  arguments.lock.handle = lock->second;
  Owner& owner = *table_.by_id(lock->first);
  table_.use(owner);
  upstream_.send(to_upstream(kTest, owner, arguments), now_ns_, now_ns_ + kConfirmNs,
                 [this, call, state, id = owner.id](std::span<const std::byte> reply) {
                   confirming_ = false;
                   xdr::Reader reader(reply);
                   const auto decoded = rpc::decode_reply(reader);
                   const auto result =
                       decoded.ok && decoded.header.success() ? decode_result(reader, true) : std::nullopt;
                   const bool restarted = result && result->stat == Stat::DeniedGracePeriod;
                   if (restarted)
                     upstream_restarted(state.state);
                   else
                     unknown_notice(call.asker.address, state.name);
                   answer_notice(call, restarted);
                   table_.unuse(id);
                 });
}

void LockProxy::upstream_restarted(std::uint32_t state) {
  if (state == 0 || std::exchange(upstream_state_, state) != state) notify_clients();
}

void LockProxy::free_all(const PeerAddress& from, const HostState& state, std::uint64_t now_ns) {
  now_ns_ = now_ns;
  release({from, state.name}, 0);
}

/// Releases the locks that the host acquired before it had this state, or all of them if the state is zero.
/// An owner without a known state is released unless another owner of the host has the state of the notice,
/// or a newer one.
void LockProxy::release(const Host& host, std::uint32_t state) {
  std::vector<Owner*> gone;
  bool late = false;
  for (const auto& [id, owner] : table_.owners())
    late = late || (!owner.leaving && owner.name.host == host && owner.state != 0 && state != 0 &&
                    !is_newer(state, owner.state));
  for (const auto& [id, owner] : table_.owners()) {
    const bool older = state == 0 || (owner.state == 0 ? !late : is_newer(state, owner.state));
    if (!owner.leaving && owner.name.host == host && older) gone.push_back(table_.by_id(id));
  }
  if (gone.empty()) return;
  count(statistics_.client_reboots);
  log::info("{} ('{}') has restarted, so its locks are released", to_string(host.address), host.name);
  release(gone);
}

void LockProxy::release(const std::vector<Owner*>& gone) {
  for (Owner* const owner : gone) {
    table_.use(*owner);
    table_.leave(*owner);
    release(*owner);
    table_.unuse(owner->id);
  }
}

void LockProxy::resume(std::uint64_t now_ns) {
  now_ns_ = now_ns;
  std::vector<Owner*> gone;
  for (const auto& [id, owner] : table_.owners())
    if (owner.leaving) gone.push_back(table_.by_id(id));
  for (Owner* const owner : gone) release(*owner);
  std::vector<Owner*> interrupted;
  for (const auto& [id, owner] : table_.owners())
    if (!owner.leaving && !owner.asked.empty()) interrupted.push_back(table_.by_id(id));
  for (Owner* const owner : interrupted) repeat_locks(*owner);
  const auto notices = table_.notices();
  for (const auto& [to, state] : notices) notify(to, state);
}

void LockProxy::cancel(Owner& owner, const LockArguments& arguments) {
  table_.use(owner);
  upstream_.send(to_upstream(kCancel, owner, arguments), now_ns_, kNoDeadline,
                 [this, id = owner.id](std::span<const std::byte>) { table_.unuse(id); });
}

void LockProxy::release(Owner& owner) {
  std::vector<std::pair<WaitKey, LockArguments>> waits;
  for (auto at = waiters_.lower_bound({.id = owner.id, .handle = {}});
       at != waiters_.end() && at->first.id == owner.id; ++at)
    waits.emplace_back(at->first, at->second.arguments);
  for (const auto& [key, arguments] : waits) {
    cancel(owner, arguments);
    forget(key);
  }
  std::vector<Bytes> handles;
  for (const auto& [handle, ranges] : owner.files) handles.push_back(handle);
  for (const AskedLock& lock : owner.asked)
    if (lock.interrupted && std::find(handles.begin(), handles.end(), lock.handle) == handles.end())
      handles.push_back(lock.handle);
  for (const Bytes& handle : handles) release_file(owner, handle);
}

/// Sends all LOCKs again for which a previous control plane has not recorded an outcome.
void LockProxy::repeat_locks(Owner& owner) {
  const std::vector<AskedLock> locks = owner.asked;
  deferrals_[owner.id].repeating = locks.size();
  for (const AskedLock& lock : locks) repeat_lock(owner.id, lock);
}

/// Repeats a LOCK without waiting at the upstream. If another owner has the lock, the interrupted LOCK was
/// not granted either.
void LockProxy::repeat_lock(std::uint32_t id, const AskedLock& lock) {
  Owner& owner = *table_.by_id(id);
  LockArguments arguments;
  arguments.exclusive = lock.range.exclusive;
  arguments.lock.handle = lock.handle;
  arguments.lock.offset = lock.range.first;
  arguments.lock.length = lock.range.last == kEndOfFile ? 0 : lock.range.last - lock.range.first + 1;
  table_.use(owner);
  upstream_.send(to_upstream(kLock, owner, arguments), now_ns_, kNoDeadline,
                 [this, id, lock](std::span<const std::byte> reply) { lock_repeated(id, lock, reply); });
}

void LockProxy::lock_repeated(std::uint32_t id, const AskedLock& lock, std::span<const std::byte> reply) {
  xdr::Reader reader(reply);
  const auto decoded = rpc::decode_reply(reader);
  const auto result = decoded.ok && decoded.header.success() ? decode_result(reader, false) : std::nullopt;
  Owner& owner = *table_.by_id(id);
  if (result && result->stat == Stat::Granted) {
    table_.hold(owner, lock.handle, lock.range);
    if (owner.leaving) release_file(owner, lock.handle);
  } else if (result && result->stat != Stat::DeniedGracePeriod && result->stat != Stat::DeniedNoLocks) {
    table_.not_granted(owner, lock.handle, lock.range, true);
  } else if (!owner.leaving) {  // otherwise release() has sent an UNLOCK
    table_.use(owner);
    to_repeat_.emplace_back(id, lock);
    repeat_ns_ = now_ns_ + kRepeatLockNs;
  }
  end_deferral(id);
  table_.unuse(id);
}

/// Sends the deferred calls after each interrupted LOCK was answered once. They do not wait for the end of a
/// grace period, because reclaims would then miss it.
void LockProxy::end_deferral(std::uint32_t id) {
  const auto at = deferrals_.find(id);
  if (at == deferrals_.end() || --at->second.repeating > 0) return;
  const Deferral ended = std::move(at->second);
  deferrals_.erase(at);
  for (const Deferred& call : ended.calls) send(call);
}

void LockProxy::release_file(Owner& owner, const Bytes& handle) {
  LockArguments all;
  all.lock.handle = handle;
  table_.use(owner);
  upstream_.send(to_upstream(kUnlock, owner, all), now_ns_, kNoDeadline,
                 [this, id = owner.id, handle](std::span<const std::byte> reply) {
                   xdr::Reader reader(reply);
                   const auto decoded = rpc::decode_reply(reader);
                   const auto result =
                       decoded.ok && decoded.header.success() ? decode_result(reader, false) : std::nullopt;
                   if (result && result->stat == Stat::DeniedGracePeriod) {
                     to_release_.emplace_back(id, handle);  // keeps the use() of the owner
                     release_ns_ = now_ns_ + kReleaseAgainNs;
                     return;
                   }
                   table_.free(*table_.by_id(id), handle, {});
                   table_.unuse(id);
                 });
}

/// Notifies every client with locks or waiting requests, on behalf of the server address that it knows.
void LockProxy::notify_clients() {
  count(statistics_.upstream_reboots);
  state_ += 2;
  std::set<NoticeTo> told;
  for (const auto& [id, owner] : table_.owners())
    if (!owner.leaving) told.insert({owner.name.host.address, owner.local});
  for (const NoticeTo& to : told) {
    table_.set_notice(to, state_);
    notify(to, state_);
  }
  log::warn("Upstream '{}' has restarted. {} clients are notified to reclaim their locks", settings_.upstream,
            told.size());
}

void LockProxy::notify(const NoticeTo& to, std::uint32_t state) {
  std::array<std::byte, 3 * xdr::kUnit + kMaxString> room;
  xdr::Writer writer(room);
  encode(writer, HostState{to.local == PeerAddress{} ? settings_.name : text_without_zone(to.local), state});
  const Destination monitor{.address = to.address,
                            .from = known(to.local),
                            .program = kNsmProgram,
                            .version = kNsmVersion,
                            .privileged_port = settings_.privileged_port,
                            .rpcbind_port = settings_.client_rpcbind};
  const auto done = [this, to, state](std::span<const std::byte> reply) {
    count(reply.empty() ? statistics_.notices_failed : statistics_.notices);
    const auto at = table_.notices().find(to);
    if (at != table_.notices().end() && at->second == state) table_.set_notice(to, 0);
  };
  Bytes message = call_message({kNsmProgram, kNsmVersion, kNsmNotify}, {}, writer.written());
  if (!clients_.call(monitor, std::move(message), now_ns_, now_ns_ + kNoticeNs, done)) done({});
}

}  // namespace sluice::locks
