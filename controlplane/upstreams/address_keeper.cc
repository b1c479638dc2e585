// SPDX-License-Identifier: Apache-2.0
#include "controlplane/upstreams/address_keeper.h"

#include <algorithm>
#include <utility>

namespace sluice::upstreams {
namespace {

AddressService::Upstreams upstreams_of(const segment::ConfigBlock& config) {
  return {config.upstreams.begin(), config.upstreams.begin() + config.upstream_count};
}

std::uint64_t failures_of(const segment::Layout& layout) {
  using Counter = segment::UpstreamCounter;
  std::uint64_t sum = 0;
  for (const segment::ReactorArea& reactor : layout.reactors)
    for (const segment::UpstreamArea& upstream : reactor.upstreams)
      for (const Counter counter : {Counter::connect_failures, Counter::silent_resets})
        sum += layout.places.value(segment::CounterFamily::Upstream, static_cast<std::size_t>(counter),
                                   upstream.counters);
  return sum;
}

}  // namespace

AddressService::AddressService(const Upstreams& upstreams, segment::SharedUpstreamAddresses& shared,
                               Failures failures, LookUp look_up, AsOwner as_owner)
    : shared_(shared),
      failures_(std::move(failures)),
      look_up_(std::move(look_up)),
      as_owner_(std::move(as_owner)),
      failures_seen_(failures_()) {
  read(upstreams);
}

void AddressService::read(const Upstreams& upstreams) {
  books_.clear();
  for (const segment::UpstreamConfig& upstream : upstreams)
    books_.push_back(std::make_unique<AddressBook>(upstream, arena_, look_up_));
  publish();
}

void AddressService::publish() {
  segment::UpstreamAddressTable table{};
  for (std::size_t i = 0; i < std::min(books_.size(), table.size()); ++i) table[i] = books_[i]->list();
  as_owner_([&] { shared_.write(table); });
}

void AddressService::reconfigure(Upstreams upstreams) {
  const std::lock_guard lock(mutex_);
  next_ = std::move(upstreams);
}

void AddressService::look_around(std::uint64_t now_ns) {
  if (now_ns < look_around_ns_) return;
  look_around_ns_ = now_ns + kLookAroundNs;
  std::optional<Upstreams> next;
  {
    const std::lock_guard lock(mutex_);
    next.swap(next_);
  }
  if (next) read(*next);
  if (const std::uint64_t failures = failures_(); std::exchange(failures_seen_, failures) != failures)
    for (const auto& book : books_) book->hurry(now_ns);
}

void AddressService::prepare(mount::PollSet& set) {
  set.wake_at(look_around_ns_);
  set.add(arena_.descriptor(), POLLIN);
  for (const auto& book : books_) book->prepare(set);
}

void AddressService::turn(const mount::PollSet& set, std::uint64_t now_ns) {
  arena_.deliver();
  bool changed = false;
  for (const auto& book : books_) changed |= book->turn(set, now_ns);
  if (changed) publish();
  look_around(now_ns);
}

AddressKeeper::AddressKeeper(const segment::ConfigBlock& config, segment::Layout& layout,
                             AddressService::AsOwner as_owner)
    : service_(
          upstreams_of(config), layout.upstream_addresses, [&layout] { return failures_of(layout); }, look_up,
          std::move(as_owner)),
      thread_(service_) {}

void AddressKeeper::reconfigure(const segment::ConfigBlock& config) {
  service_.reconfigure(upstreams_of(config));
}

}  // namespace sluice::upstreams
