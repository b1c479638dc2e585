// SPDX-License-Identifier: Apache-2.0
//
// Calls to an upstream and to clients, which are retransmitted until their deadlines, and the table of the
// owners of locks with their ranges.
#include "controlplane/locks/courier.h"

#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "controlplane/locks/table.h"

namespace sluice::locks {

using onc_rpc::Failure;

void Courier::move_to(const PeerAddress& address) {
  if (address == to_.address) return;
  to_.address = address;
  port_ = 0;
  not_before_ns_ = 0;
}

void Courier::send(Bytes call, std::uint64_t now_ns, std::uint64_t deadline_ns, Done done) {
  now_ns_ = now_ns;
  calls_.push_back({.number = ++last_number_,
                    .message = std::move(call),
                    .deadline_ns = deadline_ns,
                    .done = std::move(done)});
  dispatch(now_ns);
}

void Courier::find_port(std::uint64_t now_ns) {
  if (to_.address == PeerAddress{}) return again(Failure::Unresolved);
  if (std::exchange(finding_port_, true)) return;
  rpcbind_.set_server({onc_rpc::server_at(to_.address, to_.rpcbind_port, false)});
  std::array<std::byte, 64> room;
  xdr::Writer arguments(room);
  const bool four = is_mapped_ipv4(to_.address);
  if (four)
    arguments.words(to_.program, to_.version, IPPROTO_TCP, 0);
  else
    encode(arguments,
           onc_rpc::Registration{
               .program = to_.program, .version = to_.version, .netid = "tcp6", .address = {}, .owner = {}});
  rpcbind_.call(four ? onc_rpc::kGetPort : onc_rpc::kGetAddress, arguments.written(), false, now_ns,
                now_ns + kAskPortNs, [this, address = to_.address](Failure failure, xdr::Reader results) {
                  finding_port_ = false;
                  if (address == to_.address) port_found(failure, results);  // else it is repeated
                });
}

void Courier::port_found(Failure failure, xdr::Reader results) {
  if (failure != Failure::None) return again(failure);
  const std::uint32_t port = is_mapped_ipv4(to_.address)
                                 ? results.u32()
                                 : onc_rpc::port_of_universal(results.string(onc_rpc::kMaxUniversalAddress));
  if (!results.ok() || port == 0 || port > 65535) return again(Failure::Unreachable);
  port_ = static_cast<std::uint16_t>(port);
  dispatch(now_ns_);
}

/// Sends waiting calls in order. Waits until calls that were sent earlier have been retransmitted.
void Courier::dispatch(std::uint64_t now_ns) {
  const bool waiting =
      std::any_of(calls_.begin(), calls_.end(), [](const Call& call) { return !call.under_way; });
  if (!waiting || now_ns < not_before_ns_) return;
  if (port_ == 0) return find_port(now_ns);
  onc_rpc::Server server = onc_rpc::server_at(to_.address, port_, to_.privileged_port);
  server.from = to_.from;
  link_.set_server(server);
  for (Call& call : calls_) {
    if (std::exchange(call.under_way, true)) continue;
    link_.pass_on(call.message, now_ns, std::min(call.deadline_ns, now_ns + kAttemptNs),
                  [this, number = call.number](Failure failure, std::span<const std::byte> reply) {
                    answered(number, failure, reply);
                  });
  }
}

/// Completes or retransmits a call. PROG_UNAVAIL is not accepted as a reply, because the program has probably
/// moved to another port.
void Courier::answered(std::uint64_t number, Failure failure, std::span<const std::byte> reply) {
  const auto at =
      std::find_if(calls_.begin(), calls_.end(), [&](const Call& call) { return call.number == number; });
  if (at == calls_.end()) return;
  if (failure == Failure::None) {
    xdr::Reader reader(reply);
    const auto decoded = rpc::decode_reply(reader);
    const bool other_program = decoded.ok && decoded.header.stat == rpc::ReplyStat::Accepted &&
                               decoded.header.accept == rpc::AcceptStat::ProgUnavail;
    if (!decoded.ok || other_program) failure = Failure::Refused;
  }
  if (failure != Failure::None) {
    at->under_way = false;
    count(statistics_.resent);
    return again(failure);
  }
  problem_ = nullptr;
  const Done done = std::move(at->done);
  calls_.erase(at);
  done(reply);
}

void Courier::again(Failure failure) {
  if (failure != Failure::Lost) {
    problem_ = onc_rpc::to_string(failure);
    port_ = 0;
  }
  not_before_ns_ = now_ns_ + kAgainNs;
}

void Courier::prepare(PollSet& set) {
  rpcbind_.prepare(set);
  link_.prepare(set);
  for (const Call& call : calls_) {
    set.wake_at(call.deadline_ns);
    if (!call.under_way && !finding_port_) set.wake_at(not_before_ns_);
  }
}

void Courier::poll(const PollSet& set, std::uint64_t now_ns) {
  now_ns_ = now_ns;
  rpcbind_.poll(set, now_ns);
  link_.poll(set, now_ns);
  dispatch(now_ns);
  // Overdue calls are removed first, because their callbacks may send further calls.
  std::list<Call> overdue;
  for (auto at = calls_.begin(); at != calls_.end();) {
    const auto next = std::next(at);
    if (at->deadline_ns <= now_ns) overdue.splice(overdue.end(), calls_, at);
    at = next;
  }
  for (const Call& call : overdue) call.done({});
}

Bytes call_message(const onc_rpc::Procedure& procedure, const rpc::OpaqueAuth& credential,
                   std::span<const std::byte> arguments) {
  Bytes message(rpc::kMinCallBytes + rpc::kMaxAuthBytes + arguments.size());
  xdr::Writer writer(message);
  rpc::encode_call(writer, {.xid = {},
                            .program = procedure.program,
                            .version = procedure.version,
                            .procedure = procedure.procedure,
                            .credential = credential,
                            .verifier = {}});
  writer.opaque_fixed(arguments);
  message.resize(writer.position());
  return message;
}

bool Callbacks::call(const Destination& to, Bytes message, std::uint64_t now_ns, std::uint64_t deadline_ns,
                     Courier::Done done) {
  const Key key{to.address, to.from.value_or(PeerAddress{}), to.program};
  auto at = callees_.find(key);
  if (at == callees_.end()) {
    if (callees_.size() >= kMaxCallees) {
      const auto unused = std::find_if(callees_.begin(), callees_.end(),
                                       [](const auto& entry) { return entry.second.courier.idle(); });
      if (in_turn_ || unused == callees_.end()) return false;
      callees_.erase(unused);
    }
    at = callees_.try_emplace(key, to, statistics_).first;
  }
  at->second.used_ns = now_ns;
  at->second.courier.send(std::move(message), now_ns, deadline_ns, std::move(done));
  return true;
}

void Callbacks::prepare(PollSet& set) {
  for (auto& [key, callee] : callees_) {
    callee.courier.prepare(set);
    if (callee.courier.idle()) set.wake_at(callee.used_ns + kIdleCalleeNs);
  }
}

void Callbacks::poll(const PollSet& set, std::uint64_t now_ns) {
  // Iterates over a snapshot, because callbacks may add callees, which are not processed in this iteration.
  std::vector<Callee*> all;
  for (auto& [key, callee] : callees_) all.push_back(&callee);
  in_turn_ = true;
  for (Callee* const callee : all) callee->courier.poll(set, now_ns);
  in_turn_ = false;
  std::erase_if(callees_, [&](const auto& entry) {
    return entry.second.courier.idle() && now_ns >= entry.second.used_ns + kIdleCalleeNs;
  });
}

void Ranges::free(const Range& range) {
  std::vector<Range> rest;
  for (const Range& one : all_) {
    if (!overlap(one, range)) {
      rest.push_back(one);
      continue;
    }
    if (one.first < range.first) rest.push_back({one.first, range.first - 1, one.exclusive});
    if (one.last > range.last) rest.push_back({range.last + 1, one.last, one.exclusive});
  }
  all_ = std::move(rest);
  static_cast<void>(SLUICE_INVARIANT(ordered() && !overlaps(range), list_membership));
}

/// Returns true if the ranges are in ascending order, without overlaps.
bool Ranges::ordered() const {
  for (std::size_t i = 1; i < all_.size(); ++i)
    if (all_[i].first <= all_[i - 1].last) return false;
  return true;
}

void Ranges::hold(const Range& range) {
  free(range);
  auto next = all_.begin();
  while (next != all_.end() && next->first < range.first) ++next;
  all_.insert(next, range);
  std::vector<Range> merged;
  for (const Range& one : all_) {
    Range* const before = merged.empty() ? nullptr : &merged.back();
    if (before != nullptr && before->exclusive == one.exclusive && before->last + 1 == one.first)
      before->last = one.last;
    else
      merged.push_back(one);
  }
  all_ = std::move(merged);
  static_cast<void>(SLUICE_INVARIANT(ordered() && covers(range), list_membership));
}

bool Ranges::covers(const Range& range) const {
  std::uint64_t next = range.first;
  for (const Range& one : all_) {
    if (one.last < next || (range.exclusive && !one.exclusive)) continue;
    if (one.first > next) return false;
    if (one.last >= range.last) return true;
    next = one.last + 1;
  }
  return false;
}

bool Ranges::overlaps(const Range& range) const {
  for (const Range& one : all_)
    if (overlap(one, range)) return true;
  return false;
}

Table::Table(LockStatistics& statistics, TableObserver* observer, std::uint32_t first_id)
    : statistics_(statistics), observer_(observer), last_id_(first_id - 1) {}

/// Returns the next free id. It is positive because servers treat it as a process id.
std::uint32_t Table::next_id() {
  constexpr std::uint32_t kMaxId = 0x7FFFFFFF;
  do last_id_ = last_id_ % kMaxId + 1;
  while (owners_.contains(last_id_));
  return last_id_;
}

Owner* Table::find_or_make(const OwnerName& name, const PeerAddress& local) {
  if (const auto known = names_.find(name); known != names_.end()) {
    if (local != PeerAddress{}) known->second->local = local;
    return known->second;
  }
  if (!owner_shares_.room(name.host.address)) return nullptr;
  Owner owner;
  owner.id = next_id();
  owner.name = name;
  owner.local = local;
  return &add(std::move(owner));
}

Owner& Table::restore(Owner owner) {
  if (owners_.contains(owner.id)) erase(owner.id);
  last_id_ = owner.id;
  return add(std::move(owner));
}

Owner& Table::add(Owner owner) {
  const std::uint32_t id = owner.id;
  Owner& kept = owners_[id] = std::move(owner);
  if (!kept.leaving) names_[kept.name] = &kept;
  owner_shares_.add(kept.name.host.address);
  statistics_.owners = owners_.size();
  return kept;
}

Owner* Table::by_id(std::uint32_t id) {
  const auto at = owners_.find(id);
  return at == owners_.end() ? nullptr : &at->second;
}

void Table::unuse(std::uint32_t id) {
  Owner* const owner = by_id(id);
  if (owner == nullptr || !SLUICE_INVARIANT(owner->uses > 0, pool_balance)) return;
  --owner->uses;
  if (owner->uses == 0 && owner->empty()) erase(id);
}

void Table::erase(std::uint32_t id) {
  const auto at = owners_.find(id);
  if (!SLUICE_INVARIANT(at != owners_.end(), table_index)) return;
  const Owner& owner = at->second;
  const auto named = names_.find(owner.name);
  if (named != names_.end() && named->second == &owner) names_.erase(named);
  owner_shares_.remove(owner.name.host.address);
  owners_.erase(at);
  static_cast<void>(SLUICE_INVARIANT(owner_shares_.total() == owners_.size(), pool_balance));
  statistics_.owners = owners_.size();
}

void Table::restored() {
  std::vector<std::uint32_t> unused;
  for (auto& [id, owner] : owners_) {
    for (AskedLock& asked : owner.asked) asked.interrupted = true;
    if (owner.uses == 0 && owner.empty()) unused.push_back(id);
  }
  for (const std::uint32_t id : unused) erase(id);
}

void Table::count_locks(const Owner& owner, std::size_t before, std::size_t after) {
  if (after > before) lock_shares_.add(owner.name.host.address, after - before);
  if (before > after) lock_shares_.remove(owner.name.host.address, before - after);
  statistics_.held = lock_shares_.total();
}

/// Records the owner before its first lock.
void Table::record(Owner& owner) {
  if (!std::exchange(owner.recorded, true)) observer_->owner(owner);
}

void Table::ask(Owner& owner, const Bytes& handle, const Range& range) {
  owner.asked.push_back({.handle = handle, .range = range});
  if (observer_ == nullptr) return;
  record(owner);
  observer_->asked(owner.id, handle, range);
}

/// Removes one of the LOCKs with this range. Returns false if there is none.
bool Table::remove_asked(Owner& owner, const Bytes& handle, const Range& range, bool interrupted) {
  const auto at = std::find_if(owner.asked.begin(), owner.asked.end(), [&](const AskedLock& asked) {
    return asked.interrupted == interrupted && asked.range == range && asked.handle == handle;
  });
  if (at == owner.asked.end()) return false;
  owner.asked.erase(at);
  return true;
}

void Table::not_granted(Owner& owner, const Bytes& handle, const Range& range, bool interrupted) {
  if (remove_asked(owner, handle, range, interrupted) && observer_ != nullptr)
    observer_->not_granted(owner.id, handle, range);
}

void Table::drop_interrupted(Owner& owner, const Bytes& handle, const Range& range) {
  std::erase_if(owner.asked, [&](const AskedLock& asked) {
    const bool within = asked.interrupted && asked.handle == handle && asked.range.first >= range.first &&
                        asked.range.last <= range.last;
    if (within && observer_ != nullptr) observer_->not_granted(owner.id, handle, asked.range);
    return within;
  });
}

void Table::hold(Owner& owner, const Bytes& handle, const Range& range) {
  Ranges& ranges = owner.files[handle];
  const std::size_t before = ranges.all().size();
  ranges.hold(range);
  remove_asked(owner, handle, range, false);
  count_locks(owner, before, ranges.all().size());
  if (observer_ == nullptr) return;  // without a journal no LOCK is interrupted
  record(owner);
  observer_->held(owner.id, handle, range);
  drop_interrupted(owner, handle, range);
}

void Table::free(Owner& owner, const Bytes& handle, const Range& range) {
  drop_interrupted(owner, handle, range);
  const auto at = owner.files.find(handle);
  if (at == owner.files.end()) return;
  const std::size_t before = at->second.all().size();
  at->second.free(range);
  count_locks(owner, before, at->second.all().size());
  if (at->second.all().empty()) owner.files.erase(at);
  if (observer_ != nullptr) observer_->freed(owner.id, handle, range);
}

void Table::leave(Owner& owner) {
  if (std::exchange(owner.leaving, true)) return;
  const auto named = names_.find(owner.name);
  if (named != names_.end() && named->second == &owner) names_.erase(named);
  if (observer_ == nullptr || owner.empty()) return;
  record(owner);
  observer_->leaving(owner.id);
}

void Table::set_notice(const NoticeTo& to, std::uint32_t state) {
  if (state != 0)
    notices_[to] = state;
  else
    notices_.erase(to);
  if (observer_ != nullptr) observer_->notice(to, state);
}

const Owner* Table::holder(std::uint32_t id, const Bytes& handle, const Range& range) const {
  const auto at = owners_.find(id);
  if (at == owners_.end()) return nullptr;
  const auto file = at->second.files.find(handle);
  return file != at->second.files.end() && file->second.overlaps(range) ? &at->second : nullptr;
}

}  // namespace sluice::locks
