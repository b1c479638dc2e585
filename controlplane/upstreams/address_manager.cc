// SPDX-License-Identifier: Apache-2.0
#include "controlplane/upstreams/address_manager.h"

#include <algorithm>
#include <utility>

#include "controlplane/events/journal.h"
#include "controlplane/events/kinds.h"
#include "dataplane/segment/layout.h"

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

AddressService::AddressService(const Upstreams& upstreams, segment::Driver driver,
                               segment::SharedUpstreamAddresses& shared, Failures failures, LookUp look_up,
                               AsOwner as_owner)
    : driver_(driver),
      shared_(shared),
      failures_(std::move(failures)),
      look_up_(std::move(look_up)),
      as_owner_(std::move(as_owner)),
      failures_seen_(failures_()) {
  read(upstreams);
}

void AddressService::read(const Upstreams& upstreams) {
  const auto former = std::exchange(books_, {});
  for (const segment::UpstreamConfig& upstream : upstreams) {
    books_.push_back(std::make_unique<AddressTable>(upstream, driver_, arena_, look_up_));
    for (const auto& book : former) books_.back()->adopt(*book);
  }
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

void AddressService::reconcile(std::uint64_t now_ns) {
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

void AddressService::prepare(PollSet& set) {
  set.wake_at(look_around_ns_);
  set.add(arena_.descriptor(), POLLIN);
  for (const auto& book : books_) book->prepare(set);
}

void AddressService::poll(const PollSet& set, std::uint64_t now_ns) {
  arena_.deliver();
  bool changed = false;
  for (const auto& book : books_) changed |= book->poll(set, now_ns);
  if (changed) publish();
  reconcile(now_ns);
}

AddressManager::AddressManager(onc_rpc::PollThread& thread, const segment::ConfigBlock& config,
                               segment::Layout& layout, AddressService::AsOwner as_owner)
    : service_(
          upstreams_of(config), config.driver, layout.upstream_addresses,
          [&layout] { return failures_of(layout); }, look_up, std::move(as_owner)),
      attachment_(thread, service_) {}

void AddressManager::reconfigure(const segment::ConfigBlock& config) {
  service_.reconfigure(upstreams_of(config));
}

namespace {

/// Consecutive samples without a connection after which an upstream counts as lost. A single sample may hit
/// the moment before a connection is established.
constexpr std::uint32_t kLooksUntilLost = 2;

}  // namespace

void UpstreamMonitor::poll(const segment::ConfigBlock& config, bool data_plane_alive, std::uint64_t now_ns) {
  if (!data_plane_alive) return;
  for (std::uint32_t i = 0; i < std::min(config.upstream_count, segment::kMaxUpstreams); ++i) {
    State& state = states_[i];
    if (state.upstream != config.upstreams[i].name) state = {.upstream = config.upstreams[i].name};
    watch_reach(state, i, config.reactors, now_ns);
    for (std::uint32_t reactor = 0; reactor < config.reactors; ++reactor)
      watch_operations(state.upstream, layout_.reactors[reactor].upstreams[i].unknown_operation);
  }
  for (std::uint32_t reactor = 0; reactor < config.reactors; ++reactor)
    watch_operations("reverse", layout_.reactors[reactor].reverse.unknown_operation);
}

void UpstreamMonitor::watch_reach(State& state, std::uint32_t number, std::uint32_t reactors,
                                  std::uint64_t now_ns) {
  std::uint64_t connections = 0;
  std::uint64_t connecting = 0;
  std::uint64_t waiting = 0;
  for (std::uint32_t reactor = 0; reactor < reactors; ++reactor) {
    const segment::UpstreamArea& area = layout_.reactors[reactor].upstreams[number];
    connections += area.connections.load(std::memory_order_relaxed);
    connecting += area.connecting.load(std::memory_order_relaxed);
    waiting += area.waiting.load(std::memory_order_relaxed);
  }
  state.looks_without = connections == 0 && connecting > 0 ? state.looks_without + 1 : 0;
  if (connections > 0 && state.reach != Reach::Found) {
    const bool was_lost = state.reach == Reach::Lost;
    const std::uint64_t lost_ms = was_lost ? (now_ns - state.lost_ns) / 1'000'000 : 0;
    state.reach = Reach::Found;
    journal_.add(
        events::UpstreamFound{.upstream = state.upstream, .lost_s = static_cast<double>(lost_ms) * 1e-3});
  } else if (state.looks_without >= kLooksUntilLost && state.reach != Reach::Lost) {
    state.reach = Reach::Lost;
    state.lost_ns = now_ns;
    journal_.add(events::UpstreamLost{.upstream = state.upstream, .waiting = waiting});
  }
}

void UpstreamMonitor::watch_operations(const std::string& upstream, const LastValue& last) {
  const std::optional<std::uint32_t> number = last.get();
  if (!number) return;
  const std::pair reported{upstream, *number};
  if (std::find(refused_.begin(), refused_.end(), reported) != refused_.end()) return;
  const auto of_upstream =
      std::count_if(refused_.begin(), refused_.end(), [&](const auto& one) { return one.first == upstream; });
  if (static_cast<std::size_t>(of_upstream) >= kMaxOperationsRefused) return;
  refused_.push_back(reported);
  journal_.add(events::OperationRefused{.upstream = upstream, .operation = *number});
}

}  // namespace sluice::upstreams
