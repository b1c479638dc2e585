// SPDX-License-Identifier: Apache-2.0
#include "dataplane/gateway/tcp_upstream/upstreams.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "dataplane/base/invariant.h"
#include "dataplane/base/setup_error.h"
#include "dataplane/base/small_algorithms.h"
#include "dataplane/gateway/tcp_upstream/upstream_addresses.h"
#include "dataplane/tcp/sockets.h"
#include "dataplane/ulb/bindings.h"
#include "dataplane/ulb/nfs3.h"

namespace sluice::tcp_upstream {

/// The check at setup and at a reload reports a lack of permission before the first call.
std::string privilege_problem(const UpstreamSettings& settings) {
  if (!settings.privileged_port) return {};
  const int socket = tcp::connecting_socket(AF_INET, true, tcp::kPeerTimeoutMs);
  if (socket < 0)
    return "Upstream '" + settings.name + "' needs a local port below 1024 (" + std::strerror(-socket) +
           "): give the data plane CAP_NET_BIND_SERVICE, or set privileged_port = false.";
  ::close(socket);
  return {};
}

namespace {

std::uint32_t operations(const UpstreamsConfig& config) {
  std::uint32_t most = 0;
  for (const UpstreamSetup& setup : config.upstreams)
    most += kConnectionOperations * setup.config.all_connections();
  return most;
}

}  // namespace

Upstreams::Upstreams(rdma::Device& device, CreditLimits& credits, service::ServiceRegistry& registry,
                     const UpstreamsConfig& config, std::uint64_t (*clock)() noexcept)
    : uring_(operations(config), config.uring), clock_(clock) {
  for (const std::uint32_t program : {ulb::kNfsProgram, ulb::kNfsAclProgram}) {
    groups_.push_back(make_owned<ExportGroup>(ulb::binding_or_plain(program, ulb::kNfs3Version)));
    registry.add_unoffered(*groups_.back());
  }
  for (const UpstreamSetup& setup : config.upstreams) {
    if (std::string problem = privilege_problem(setup.config); !problem.empty()) throw SetupError(problem);
    std::construct_at(setup.area);  // resets the counters of an earlier data plane
    const UpstreamContext context{.uring = uring_, .device = device, .credits = credits, .clock = clock_};
    upstreams_.push_back(make_owned<Upstream>(setup.config, context, setup.number, *setup.area));
    static_cast<void>(SLUICE_INVARIANT(by_number_[setup.number] == nullptr, table_index));
    by_number_[setup.number] = upstreams_.back().get();
    sides_[setup.number] = make_owned<TcpSide>(*upstreams_.back(), registry, groups_);
  }
}

TcpSide::TcpSide(Upstream& upstream, service::ServiceRegistry& registry,
                 std::span<const Owned<ExportGroup>> groups)
    : upstream_(upstream), registry_(registry), groups_(groups), services_([&] {
        auto service = make_owned<ForwardService>(upstream);
        registry.add_unoffered(*service);
        return service;
      }) {}

void TcpSide::begin(const UpstreamSettings& settings, std::uint32_t number,
                    segment::UpstreamArea& area) noexcept {
  static_cast<void>(SLUICE_INVARIANT(number == upstream_.shared().number && &area == &upstream_.shared().area,
                                     table_index));
  upstream_.begin(settings);
}

/// Returns the place of a program: the group of an upstream with its own exports, or the upstream's port.
TcpSide::Place TcpSide::place_of(const service::Binding& binding,
                                 const UpstreamSettings& settings) const noexcept {
  if (settings.handle_tag != 0)
    for (const auto& group : groups_)
      if (group->binding().program == binding.program && group->binding().version == binding.version)
        return {.group = group.get(), .handle_tag = settings.handle_tag};
  return {.port = settings.listen_port};
}

bool TcpSide::offer(ForwardService& service, const Place& place) noexcept {
  service.set_handle_tag(place.handle_tag);
  if (place.group == nullptr) return registry_.offer(service, place.port);
  if (place.group->empty() && !registry_.offer(*place.group, 0)) return false;
  place.group->add(service);
  return true;
}

void TcpSide::withdraw(ForwardService& service, const Place& place) noexcept {
  if (place.group == nullptr) return registry_.withdraw(service);
  place.group->remove(service);
  if (place.group->empty()) registry_.withdraw(*place.group);
}

bool TcpSide::serve(const UpstreamSettings& settings) noexcept {
  upstream_.apply(settings);
  services_.for_each([&](ForwardService& service) { service.withhold(settings.withheld); });
  return services_.serve(
      settings.programs(), [&](const service::Binding& binding) { return place_of(binding, settings); },
      [this](ForwardService& service, const Place& place) { return offer(service, place); },
      [this](ForwardService& service, const Place& place) { withdraw(service, place); });
}

void TcpSide::withdraw() noexcept {
  services_.withdraw_all([this](ForwardService& service, const Place& place) { withdraw(service, place); });
}

std::uint64_t Upstreams::held_bytes(std::uint16_t client) const noexcept {
  std::uint64_t bytes = 0;
  for (const auto& upstream : upstreams_) bytes += upstream->calls().admission().held_bytes(client);
  return bytes;
}

Addresses::Addresses(const segment::SharedUpstreamAddresses& shared, std::string upstream, std::uint16_t port)
    : shared_(shared), upstream_(std::move(upstream)), port_(port) {
  upstream_.reserve(segment::kMaxNameBytes);
  poll(0);
}

void Addresses::select(std::string_view upstream, std::uint16_t port) noexcept {
  port_ = port;
  upstream_ = upstream.substr(0, segment::kMaxNameBytes);
  sequence_ = count_ = current_ = 0;
  poll(0);
}

Addresses::Entry* Addresses::find(const PeerAddress& address) noexcept {
  for (std::uint32_t i = 0; i < count_; ++i)
    if (entries_[i].address == address) return &entries_[i];
  return nullptr;
}

/// Replaces the addresses by the list. An address that was known before keeps its failure state.
void Addresses::take(const segment::UpstreamAddressList& list) noexcept {
  std::array<Entry, segment::kMaxUpstreamAddresses> entries{};
  const std::uint32_t count = smaller_of(list.count, segment::kMaxUpstreamAddresses);
  for (std::uint32_t i = 0; i < count; ++i) {
    const segment::UpstreamAddress& from = list.addresses[i];
    if (const Entry* const known = find(from.address)) entries[i] = *known;
    entries[i].address = from.address;
    if (from.answers < entries[i].answers) entries[i].answers_when_failed = 0;  // the count has restarted
    entries[i].answers = from.answers;
    entries[i].failures = from.failures;
    entries[i].host = from.host;
  }
  entries_ = entries;
  count_ = count;
  if (list.port != 0) port_ = static_cast<std::uint16_t>(list.port);
}

bool Addresses::poll(std::uint64_t now_ns) noexcept {
  const PeerAddress before = count_ > 0 ? entries_[current_].address : PeerAddress{};
  const std::uint16_t port_before = port_;
  const std::uint32_t sequence = shared_.sequence();
  if (sequence != sequence_ && sequence % 2 == 0) {
    const auto table = shared_.read();
    const segment::UpstreamAddressList* const list =
        table ? segment::addresses_of(*table, upstream_) : nullptr;
    if (table) sequence_ = sequence;
    // A control plane that has just started has not resolved any address yet.
    if (list != nullptr && list->count > 0) take(*list);
    const Entry* const still = find(before);
    current_ = still != nullptr ? static_cast<std::uint32_t>(still - entries_.data()) : best(now_ns);
  }
  if (count_ == 0) return false;
  current_ = preferred();
  static_cast<void>(SLUICE_INVARIANT(current_ < count_ && count_ <= entries_.size(), table_index));
  return entries_[current_].address != before || port_ != port_before;
}

/// Returns an address of a preferred host that has answered kGraceAnswers times. Otherwise returns the
/// current address, or an address that answers if the current one does not.
std::uint32_t Addresses::preferred() const noexcept {
  std::uint32_t chosen = current_;
  for (std::uint32_t i = 0; i < count_; ++i)
    if (entries_[i].host < entries_[chosen].host && entries_[i].answers_since() >= kGraceAnswers) chosen = i;
  if (chosen != current_) return chosen;
  if (!entries_[current_].bad()) return current_;
  for (std::uint32_t i = 0; i < count_; ++i)
    if (entries_[i].answers_since() > 0) return i;
  return current_;
}

/// Returns the address to use instead of a failed one. If all addresses have failed, returns the address with
/// the earliest retry time.
std::uint32_t Addresses::best(std::uint64_t now_ns) const noexcept {
  std::uint32_t earliest = 0;
  std::uint32_t suspect = count_;
  for (std::uint32_t i = 0; i < count_; ++i) {
    const Entry& entry = entries_[i];
    if (entry.retry_ns < entries_[earliest].retry_ns) earliest = i;
    if (now_ns < entry.retry_ns) continue;
    if (!entry.bad()) return i;
    suspect = smaller_of(suspect, i);
  }
  return suspect < count_ ? suspect : earliest;
}

/// Counts connections that fail together as one failure, because an address that failed recently is ignored.
bool Addresses::failed(const PeerAddress& address, std::uint64_t now_ns) noexcept {
  Entry* const entry = find(address);
  if (entry == nullptr || now_ns < entry->retry_ns) return false;
  entry->answers_when_failed = entry->answers;
  entry->retry_ns = now_ns + kAwayNs;
  if (entry != &entries_[current_]) return false;
  return std::exchange(current_, best(now_ns)) != current_;
}

}  // namespace sluice::tcp_upstream
