// SPDX-License-Identifier: Apache-2.0
#include "controlplane/locks/proxy.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <utility>

#include "dataplane/log/log.h"

namespace sluice::locks {
namespace {

constexpr std::size_t kResultBytes =
    rpc::kMinReplyBytes + 3 * (xdr::kUnit + std::size_t{kMaxString}) + 10 * xdr::kUnit;

Bytes reply_message(rpc::Xid xid, const LockResult& result, bool test) {
  Bytes room(kResultBytes);
  xdr::Writer writer(room);
  rpc::encode_accepted(writer, xid, {}, rpc::AcceptStat::Success);
  encode(writer, result, test);
  room.resize(writer.position());
  return room;
}

Bytes own_credential() {
  Bytes room(rpc::kMaxAuthBytes);
  xdr::Writer writer(room);
  char host[rpc::kMaxMachineName + 1] = "";
  ::gethostname(host, sizeof host - 1);
  rpc::encode_auth_sys(writer, {.machine_name = host, .uid = 0, .gid = 0});
  room.resize(writer.position());
  return room;
}

/// Returns an owner handle for the upstream. It is as readable in the upstream's logs as that of a Linux
/// client.
Bytes own_oh(std::uint32_t id, const std::string& name) {
  const std::string text = std::to_string(id) + '@' + name;
  const auto bytes = std::as_bytes(std::span{text});
  return {bytes.begin(), bytes.end()};
}

Range range_of(const LockArguments& arguments) {
  return locks::range_of(arguments.lock.offset, arguments.lock.length, arguments.exclusive);
}

}  // namespace

LockProxy::LockProxy(ProxySettings settings, LockStatistics& statistics, TableObserver* observer)
    : settings_(std::move(settings)),
      statistics_(statistics),
      table_(statistics, observer, settings_.first_id),
      upstream_({.address = {},
                 .program = kNlmProgram,
                 .version = kNlmVersion,
                 .privileged_port = settings_.privileged_port,
                 .rpcbind_port = settings_.upstream_rpcbind},
                statistics),
      clients_(statistics),
      own_credential_(own_credential()),
      state_(settings_.first_state) {
  reconcile();
}

/// Encodes the arguments of a client's call with the owner's identity at the upstream.
Bytes LockProxy::to_upstream(std::uint32_t procedure, const Owner& owner, LockArguments arguments) {
  std::array<std::byte, xdr::kUnit> cookie;
  xdr::store_u32(cookie.data(), owner.id);
  arguments.cookie.assign(cookie.begin(), cookie.end());
  arguments.lock.caller = settings_.name;
  arguments.lock.owner = own_oh(owner.id, settings_.name);
  arguments.lock.svid = owner.id;
  arguments.state = kOwnState;
  std::array<std::byte, kMaxArgumentsBytes> room;
  xdr::Writer writer(room);
  encode(writer, procedure, arguments);
  return call_message({kNlmProgram, kNlmVersion, procedure}, {owner.flavor, owner.credential},
                      writer.written());
}

void LockProxy::forward(const IncomingCall& call, const LockArguments& arguments) {
  now_ns_ = call.asker.now_ns;
  const PeerAddress& address = call.asker.address;
  const auto refuse = [&] {
    count(statistics_.exhausted);
    call.reply(reply_message(call.xid,
                             {.cookie = arguments.cookie, .stat = Stat::DeniedNoLocks, .holder = {}}, false));
  };
  const bool lock = is_lock(call.procedure);
  Owner* const owner = owner_of(call, arguments, lock ? arguments.state : 0);
  if (owner == nullptr) return refuse();
  const CallKey key{owner->id, static_cast<std::uint32_t>(call.xid), call.procedure};
  if (const auto known = pending_.find(key); known != pending_.end())
    return repeated(known->second, call, arguments);
  table_.use(*owner);
  if (!call_shares_.room(address) ||
      (lock && !(table_.room_for_lock(*owner) && (!arguments.block || wait_for(*owner, arguments))))) {
    table_.unuse(owner->id);
    return refuse();
  }
  remember(*owner, call, lock ? arguments.state : owner->state);
  pending_[key] = {address, arguments, call.reply};
  call_shares_.add(address);
  if (lock) table_.ask(*owner, arguments.lock.handle, range_of(arguments));
  Deferred message{key, arguments, to_upstream(call.procedure, *owner, arguments)};
  if (const auto deferral = deferrals_.find(owner->id); deferral != deferrals_.end())
    deferral->second.calls.push_back(std::move(message));
  else
    send(std::move(message));
}

void LockProxy::send(Deferred call) {
  upstream_.send(std::move(call.message), now_ns_, kNoDeadline,
                 [this, key = call.key, arguments = std::move(call.arguments)](
                     std::span<const std::byte> reply) { replied(key, arguments, reply); });
}

/// Handles a retransmitted call, which came over another connection or in another datagram, and redirects the
/// reply there. A different call with an equal XID cannot be distinguished in the reply, so it gets none and
/// the client has to retransmit it.
void LockProxy::repeated(Pending& pending, const IncomingCall& call, const LockArguments& arguments) {
  count(statistics_.repeated);
  if (pending.arguments == arguments)
    std::exchange(pending.reply, call.reply)({});
  else
    call.reply({});
}

/// Returns the owner of a call. If the host's state has changed, the known owner is from before a restart
/// whose notice has not arrived yet, so it is released and replaced.
Owner* LockProxy::owner_of(const IncomingCall& call, const LockArguments& arguments, std::uint32_t state) {
  const OwnerName name{
      {call.asker.address, arguments.lock.caller}, arguments.lock.owner, arguments.lock.svid};
  Owner* const owner = table_.find_or_make(name, call.asker.local);
  if (owner == nullptr || state == 0 || owner->state == 0 || owner->state == state) return owner;
  release({owner});
  return table_.find_or_make(name, call.asker.local);
}

void LockProxy::remember(Owner& owner, const IncomingCall& call, std::uint32_t state) {
  const Bytes credential(call.credential.body.begin(), call.credential.body.end());
  if (owner.state == state && owner.flavor == call.credential.flavor && owner.credential == credential)
    return;
  owner.state = state;
  owner.flavor = call.credential.flavor;
  owner.credential = credential;
  owner.recorded = false;
}

void LockProxy::replied(const CallKey& key, const LockArguments& arguments,
                        std::span<const std::byte> reply) {
  const auto [id, xid, procedure] = key;
  const bool test = procedure == kTest;
  xdr::Reader reader(reply);
  const auto decoded = rpc::decode_reply(reader);
  auto result = decoded.ok && decoded.header.success() ? decode_result(reader, test) : std::nullopt;
  Owner& owner = *table_.by_id(id);  // in use by this call
  if (result) {
    settle(procedure, owner, arguments, *result);
    result->cookie = arguments.cookie;
    respond(key, reply_message(rpc::Xid{xid}, *result, test));
  } else {  // an RPC error, or one that replaces a malformed reply
    if (is_lock(procedure)) {
      table_.not_granted(owner, arguments.lock.handle, range_of(arguments));
      forget({id, arguments.lock.handle, arguments.lock.offset, arguments.lock.length});
    }
    Bytes error(reply.begin(), reply.end());
    if (!decoded.ok || decoded.header.success()) {
      error.resize(rpc::kMinReplyBytes);
      xdr::Writer writer(error);
      rpc::encode_accepted(writer, rpc::Xid{xid}, {}, rpc::AcceptStat::SystemErr);
    }
    xdr::store_u32(error.data(), xid);
    respond(key, error);
  }
  table_.unuse(id);
}

/// Records the outcome at the upstream before the client gets its reply.
void LockProxy::settle(std::uint32_t procedure, Owner& owner, const LockArguments& arguments,
                       LockResult& result) {
  const Bytes& handle = arguments.lock.handle;
  const WaitKey waited{owner.id, handle, arguments.lock.offset, arguments.lock.length};
  if (is_lock(procedure)) {
    result.stat == Stat::Blocked ? ask_again_later(waited) : forget(waited);
    if (result.stat != Stat::Granted) return table_.not_granted(owner, handle, range_of(arguments));
    table_.hold(owner, handle, range_of(arguments));
    if (owner.leaving) release_file(owner, handle);
  } else if (procedure == kUnlock) {
    if (result.stat == Stat::Granted) table_.free(owner, handle, range_of(arguments));
  } else if (procedure == kCancel) {
    if (result.stat == Stat::Granted) forget(waited);
  } else if (result.holder) {
    translate(*result.holder, handle);
  }
}

/// Translates a holder that is an owner of the gateway to the client's names. A server may omit the oh; in
/// this case the svid must be that of an owner with a lock in this range.
void LockProxy::translate(Holder& holder, const Bytes& handle) const {
  const bool named = holder.owner == own_oh(holder.svid, settings_.name);
  if (!named && !holder.owner.empty()) return;
  const Range range = locks::range_of(holder.offset, holder.length, holder.exclusive);
  const Owner* const owner = table_.holder(holder.svid, handle, range);
  if (owner == nullptr) return;
  holder.svid = owner->name.svid;
  holder.owner = owner->name.owner;
}

void LockProxy::respond(const CallKey& key, std::span<const std::byte> message) {
  auto pending = pending_.extract(key);
  if (pending.empty()) return;
  call_shares_.remove(pending.mapped().address);
  pending.mapped().reply(message);
}

/// Registers a waiter before the call is sent, because GRANTED may overtake the reply. For a waiter that
/// exists already, the arguments are replaced, because the client may have discarded the old cookie.
bool LockProxy::wait_for(Owner& owner, const LockArguments& arguments) {
  const WaitKey key{owner.id, arguments.lock.handle, arguments.lock.offset, arguments.lock.length};
  if (const auto known = waiters_.find(key); known != waiters_.end()) {
    known->second.arguments = arguments;
    return true;
  }
  const PeerAddress& address = owner.name.host.address;
  if (!waiter_shares_.room(address)) return false;
  waiters_[key].arguments = arguments;
  waiter_shares_.add(address);
  table_.use(owner);
  statistics_.waiting = waiters_.size();
  return true;
}

void LockProxy::forget(const WaitKey& key) {
  const auto at = waiters_.find(key);
  if (at == waiters_.end() || at->second.calling) return;  // the client's reply to GRANTED decides
  waiters_.erase(at);
  waiter_shares_.remove(table_.by_id(key.id)->name.host.address);
  statistics_.waiting = waiters_.size();
  table_.unuse(key.id);
}

// --- Retransmission of LOCKs for which clients wait

void LockProxy::ask_again_later(const WaitKey& key) {
  const auto at = waiters_.find(key);
  if (at != waiters_.end() && !std::exchange(at->second.queued, true))
    to_ask_.emplace(now_ns_ + kAskAgainNs, key);
}

/// Sends the next LOCK again if one is due. An owner has one such LOCK outstanding, and none while its
/// interrupted LOCKs are being repeated.
void LockProxy::ask_again() {
  while (!to_ask_.empty() && now_ns_ >= to_ask_.begin()->first && now_ns_ >= ask_ns_) {
    const WaitKey key = to_ask_.begin()->second;
    to_ask_.erase(to_ask_.begin());
    const auto at = waiters_.find(key);
    if (at == waiters_.end()) continue;
    at->second.queued = false;
    if (at->second.calling) continue;  // the client's reply to GRANTED decides
    if (asking_.contains(key.id) || deferrals_.contains(key.id))
      ask_again_later(key);
    else
      ask_again(key, at->second.arguments);
  }
}

void LockProxy::ask_again(const WaitKey& key, const LockArguments& arguments) {
  Owner& owner = *table_.by_id(key.id);
  ask_ns_ = now_ns_ + kAskAgainPaceNs;
  asking_.insert(key.id);
  count(statistics_.asked_again);
  table_.use(owner);
  table_.ask(owner, key.handle, range_of(arguments));
  upstream_.send(
      to_upstream(kLock, owner, arguments), now_ns_, kNoDeadline,
      [this, key, arguments](std::span<const std::byte> reply) { asked_again(key, arguments, reply); });
}

/// Handles the reply to a retransmitted LOCK. The client gets a GRANTED for a granted lock, as if the
/// upstream had sent one. A granted lock without a waiter is unlocked.
void LockProxy::asked_again(const WaitKey& key, const LockArguments& arguments,
                            std::span<const std::byte> reply) {
  asking_.erase(key.id);
  xdr::Reader reader(reply);
  const auto decoded = rpc::decode_reply(reader);
  const auto result = decoded.ok && decoded.header.success() ? decode_result(reader, false) : std::nullopt;
  Owner& owner = *table_.by_id(key.id);  // in use by this call
  const auto at = waiters_.find(key);
  if (!result || result->stat != Stat::Granted) {
    table_.not_granted(owner, key.handle, range_of(arguments));
    if (at == waiters_.end() && result && result->stat == Stat::Blocked) cancel(owner, arguments);
    ask_again_later(key);
  } else if (at != waiters_.end() && !owner.leaving) {
    at->second.acquired = true;
    if (!std::exchange(at->second.calling, true)) call_client(key, now_ns_);
  } else {
    unlock(owner, arguments);
  }
  table_.unuse(key.id);
}

/// Unlocks a lock that was granted to the gateway, unless the client has acquired it by another call.
void LockProxy::unlock(Owner& owner, const LockArguments& arguments) {
  const Range range = range_of(arguments);
  const auto file = owner.files.find(arguments.lock.handle);
  table_.not_granted(owner, arguments.lock.handle, range);
  if (!owner.leaving && file != owner.files.end() && file->second.covers(range)) return;
  table_.use(owner);
  upstream_.send(to_upstream(kUnlock, owner, arguments), now_ns_, kNoDeadline,
                 [this, id = owner.id](std::span<const std::byte>) { table_.unuse(id); });
}

void LockProxy::reconcile() {
  const auto address = settings_.where();
  if (address) upstream_.move_to(*address);
  const char* const problem = upstream_.problem();
  if (std::exchange(reported_, problem) == problem) return;
  if (problem != nullptr)
    log::warn("The lock manager (NLM) of upstream '{}' {}. Clients wait for their locks", settings_.upstream,
              problem);
  else
    log::info("The lock manager (NLM) of upstream '{}' answers again", settings_.upstream);
}

void LockProxy::prepare(PollSet& set) {
  upstream_.prepare(set);
  clients_.prepare(set);
  set.wake_at(look_ns_ + kLookNs);
  if (!to_release_.empty()) set.wake_at(release_ns_);
  if (!to_repeat_.empty()) set.wake_at(repeat_ns_);
  if (!to_ask_.empty()) set.wake_at(std::max(to_ask_.begin()->first, ask_ns_));
}

void LockProxy::poll(const PollSet& set, std::uint64_t now_ns) {
  now_ns_ = now_ns;
  upstream_.poll(set, now_ns);
  clients_.poll(set, now_ns);
  if (now_ns >= look_ns_ + kLookNs) {
    look_ns_ = now_ns;
    reconcile();
  }
  repeat_and_release_later();
  ask_again();
}

void LockProxy::repeat_and_release_later() {
  if (!to_repeat_.empty() && now_ns_ >= repeat_ns_) {
    for (const auto& [id, lock] : std::exchange(to_repeat_, {})) {
      // A later call of the client may have completed the lock.
      const Owner& owner = *table_.by_id(id);
      if (!owner.leaving && std::find(owner.asked.begin(), owner.asked.end(), lock) != owner.asked.end())
        repeat_lock(id, lock);
      table_.unuse(id);
    }
  }
  if (to_release_.empty() || now_ns_ < release_ns_) return;
  for (const auto& [id, handle] : std::exchange(to_release_, {})) {
    if (Owner* const owner = table_.by_id(id)) release_file(*owner, handle);
    table_.unuse(id);
  }
}

}  // namespace sluice::locks
