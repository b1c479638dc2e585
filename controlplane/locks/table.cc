// SPDX-License-Identifier: Apache-2.0
//
// Owners of locks, and the ranges of files that they hold.
#include "controlplane/locks/table.h"

#include <algorithm>
#include <utility>

#include "controlplane/locks/ranges.h"

namespace sluice::locks {

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

/// Servers keep it as a process id: positive.
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
  if (owner == nullptr) return;
  --owner->uses;
  if (owner->uses == 0 && owner->empty()) erase(id);
}

void Table::erase(std::uint32_t id) {
  const auto at = owners_.find(id);
  const Owner& owner = at->second;
  const auto named = names_.find(owner.name);
  if (named != names_.end() && named->second == &owner) names_.erase(named);
  owner_shares_.remove(owner.name.host.address);
  owners_.erase(at);
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
