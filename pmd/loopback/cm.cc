// SPDX-License-Identifier: Apache-2.0
//
// Connection management of loopback. A link's state goes Free -> Claimed -> Requested -> Accepted ->
// Established, or Requested -> Rejected; it is Free again once both sides have dropped it.
#include <unistd.h>

#include <cstring>
#include <utility>

#include "dataplane/base/invariant.h"
#include "dataplane/base/setup_error.h"
#include "dataplane/base/small_algorithms.h"
#include "pmd/loopback/device.h"

namespace sluice::rdma::loopback {
namespace {

constexpr std::uint32_t kStateMask = (1u << kStateBits) - 1;
constexpr std::uint32_t kLinkBits = 8;
static_assert(kMaxLinks == 1u << kLinkBits);

LinkState state_of(const Link& link) noexcept {
  // Pairs with set_state() and Fabric::drop_side(): the fields of the link that the state implies.
  return static_cast<LinkState>(link.state.load(std::memory_order_acquire) & kStateMask);
}

void set_state(Link& link, LinkState state) noexcept {
  // Pairs with state_of(), Fabric::take_over() and Fabric::free_links(): the fields of the link.
  link.state.store(static_cast<std::uint32_t>(state), std::memory_order_release);
}

}  // namespace

LoopbackCm::~LoopbackCm() {
  for (Listener& listener : fabric_.header().listeners)
    if (listener.port.load() != 0 && listener.device.load() == device_) listener.port.store(0);
}

CmId LoopbackCm::id_of(std::uint32_t link) const noexcept {
  static_cast<void>(SLUICE_INVARIANT(link < fabric_.links(), table_index));
  return static_cast<CmId>(local_[link].generation << kLinkBits | link);
}

std::optional<std::uint32_t> LoopbackCm::number_of(CmId id) const noexcept {
  const std::uint32_t number = static_cast<std::uint32_t>(id) & (kMaxLinks - 1);
  if (number >= fabric_.links() || !local_[number].mine || id_of(number) != id) return std::nullopt;
  return number;
}

Link* LoopbackCm::link_of(CmId id) const noexcept {
  const auto number = number_of(id);
  return number ? &fabric_.link(*number) : nullptr;
}

void LoopbackCm::listen(std::uint16_t port) {
  for (Listener& listener : fabric_.header().listeners) {
    std::uint32_t unused = 0;
    if (!listener.port.compare_exchange_strong(unused, kMaxLinks << 16)) continue;  // claimed, not yet valid
    listener.device.store(device_);
    listener.port.store(port + 1u);
    return;
  }
  throw SetupError("All " + std::to_string(kMaxListeners) + " listeners of the loopback fabric are in use.");
}

/// Returns the number of a device that listens on the port. Several devices may listen on one port: requests
/// are distributed round-robin.
std::optional<std::uint32_t> LoopbackCm::listener(std::uint16_t port) noexcept {
  for (std::uint32_t i = 0; i < kMaxListeners; ++i) {
    const Listener& candidate = fabric_.header().listeners[(next_listener_ + i) % kMaxListeners];
    if (candidate.port.load() != port + 1u) continue;
    next_listener_ = (next_listener_ + i + 1) % kMaxListeners;
    return candidate.device.load() % kMaxDevices;
  }
  return std::nullopt;
}

void LoopbackCm::set_device(Link& link, std::uint32_t side, std::uint32_t device) noexcept {
  static_cast<void>(SLUICE_INVARIANT(side < 2 && device < kMaxDevices, table_index));
  link.devices[side].store(device, std::memory_order_relaxed);
  link.claims[side].store(fabric_.header().devices[device].claims.load(), std::memory_order_relaxed);
}

bool LoopbackCm::peer_is_gone(std::uint32_t number) const noexcept {
  const Link& link = fabric_.link(number);
  const std::uint32_t peer = 1 - local_[number].side;
  return fabric_.gone(link.devices[peer].load(std::memory_order_relaxed),
                      link.claims[peer].load(std::memory_order_relaxed));
}

void LoopbackCm::set_private_data(Link& link, std::uint32_t side, std::span<const std::byte> data) noexcept {
  const std::size_t bytes = smaller_of(data.size(), kMaxPrivateData);
  if (bytes > 0) std::memcpy(link.private_data[side].data(), data.data(), bytes);
  link.private_data_bytes[side].store(static_cast<std::uint32_t>(bytes), std::memory_order_relaxed);
}

void LoopbackCm::ring(Link& link, std::uint32_t side) noexcept {
  static_cast<void>(SLUICE_INVARIANT(side < 2, table_index));
  const std::uint32_t device = link.devices[side].load(std::memory_order_relaxed) % kMaxDevices;
  // Pairs with poll_events(): the link's state and its bit of `closed`.
  fabric_.header().devices[device].doorbell.fetch_add(1, std::memory_order_release);
}

std::optional<CmId> LoopbackCm::connect(QueuePair& qp, std::uint16_t port,
                                        std::span<const std::byte> private_data) noexcept {
  for (std::uint32_t i = 0; i < fabric_.links(); ++i) {
    const std::uint32_t number = (next_link_ + i) % fabric_.links();
    Link& link = fabric_.link(number);
    auto free = static_cast<std::uint32_t>(LinkState::Free);
    if (!link.state.compare_exchange_strong(free, claimed_by(device_))) continue;
    next_link_ = number + 1;
    const std::uint32_t generation = (link.generation.load() + 1) & ((1u << (32 - kLinkBits)) - 1);
    link.generation.store(generation, std::memory_order_relaxed);
    for (Side& side : link.sides) {
      side.produced.store(0, std::memory_order_relaxed);
      side.consumed.store(0, std::memory_order_relaxed);
      side.fault.store(0, std::memory_order_relaxed);
      side.dead.store(0, std::memory_order_relaxed);
      side.hazard.store(0, std::memory_order_relaxed);
    }
    link.closed.store(0, std::memory_order_relaxed);
    link.dropped.store(0, std::memory_order_relaxed);
    link.port.store(port, std::memory_order_relaxed);
    link.connector_pid.store(static_cast<std::uint32_t>(::getpid()), std::memory_order_relaxed);
    set_device(link, kConnector, device_);
    set_private_data(link, kConnector, private_data);
    local_[number] = {.mine = true,
                      .side = kConnector,
                      .generation = generation,
                      .reported = LinkState::Requested,
                      .qp = &static_cast<LoopbackQueuePair&>(qp)};
    const auto target = listener(port);
    if (!target) {  // no listener: reject on its behalf
      set_private_data(link, kAcceptor, {});
      set_device(link, kAcceptor, device_);
      fabric_.drop_side(link, kAcceptor);
      set_state(link, LinkState::Rejected);
      ring(link, kConnector);
      return id_of(number);
    }
    set_device(link, kAcceptor, *target);
    set_state(link, LinkState::Requested);
    ring(link, kAcceptor);
    return id_of(number);
  }
  return std::nullopt;
}

bool LoopbackCm::accept(CmId id, QueuePair& qp, std::span<const std::byte> private_data) noexcept {
  const auto number = number_of(id);
  if (!number || local_[*number].side != kAcceptor) return false;
  Link& link = fabric_.link(*number);
  if (state_of(link) != LinkState::Requested) return false;
  auto& loopback_qp = static_cast<LoopbackQueuePair&>(qp);
  local_[*number].qp = &loopback_qp;
  set_private_data(link, kAcceptor, private_data);
  static_cast<void>(SLUICE_INVARIANT(loopback_qp.link() == nullptr, connection_state));
  loopback_qp.attach(link, kAcceptor);
  set_state(link, LinkState::Accepted);
  ring(link, kConnector);
  return true;
}

void LoopbackCm::reject(CmId id, std::span<const std::byte> private_data) noexcept {
  const auto number = number_of(id);
  if (!number || local_[*number].side != kAcceptor) return;
  Link& link = fabric_.link(*number);
  if (state_of(link) != LinkState::Requested) return;
  set_private_data(link, kAcceptor, private_data);
  drop_request(*number);
}

/// Rejects the request and drops this side of the link. The state is written first, because a link that the
/// connecting side has already dropped is free as soon as this side drops it.
void LoopbackCm::drop_request(std::uint32_t number) noexcept {
  static_cast<void>(
      SLUICE_INVARIANT(number < fabric_.links() && local_[number].side == kAcceptor, table_index));
  Link& link = fabric_.link(number);
  local_[number] = {};
  set_state(link, LinkState::Rejected);
  ring(link, kConnector);
  fabric_.drop_side(link, kAcceptor);
}

void LoopbackCm::disconnect(CmId id) noexcept {
  const auto number = number_of(id);
  if (!number) return;
  Link& link = fabric_.link(*number);
  Local& local = local_[*number];
  link.closed.fetch_or(1u << local.side, std::memory_order_relaxed);
  if (local.qp != nullptr) local.qp->to_error();
  ring(link, 1 - local.side);
  ring(link, local.side);
}

void LoopbackCm::release_link(const LoopbackQueuePair& qp) noexcept {
  for (std::uint32_t number = 0; number < fabric_.links(); ++number) {
    Local& local = local_[number];
    if (local.qp != &qp) continue;
    Link& link = fabric_.link(number);
    link.closed.fetch_or(1u << local.side, std::memory_order_relaxed);
    ring(link, 1 - local.side);
    fabric_.drop_side(link, std::exchange(local, {}).side);
    return;
  }
}

std::uint32_t LoopbackCm::peer_pid(CmId id) const noexcept {
  const Link* const link = link_of(id);
  return link == nullptr ? 0 : link->connector_pid.load(std::memory_order_relaxed);
}

/// Performs the cleanup that the peer's process would have done on exit.
void LoopbackCm::give_up_for_peer(std::uint32_t number) noexcept {
  static_cast<void>(
      SLUICE_INVARIANT(local_[number].mine && !local_[number].disconnect_reported, connection_state));
  Link& link = fabric_.link(number);
  const std::uint32_t dead_side = 1 - local_[number].side;
  Side& side = link.sides[dead_side];
  for (WindowEntry& window : side.windows) window.key.store(0, std::memory_order_relaxed);
  side.hazard.store(0, std::memory_order_relaxed);
  // Pairs with LoopbackQueuePair::poll(): all that this side sent.
  side.dead.store(1, std::memory_order_release);
  link.closed.fetch_or(1u << dead_side, std::memory_order_relaxed);
  fabric_.drop_side(link, dead_side);
}

void LoopbackCm::fill(CmEvent& event, CmEventType type, std::uint32_t number,
                      std::uint32_t from_side) noexcept {
  const Link& link = fabric_.link(number);
  event = {};
  event.type = type;
  event.id = id_of(number);
  event.port = static_cast<std::uint16_t>(link.port.load(std::memory_order_relaxed));
  event.peer_address = PeerAddress::from_ipv4(127, 0, 0, 1);
  const std::uint32_t bytes = link.private_data_bytes[from_side].load(std::memory_order_relaxed);
  event.private_data_bytes = static_cast<std::uint8_t>(smaller_of<std::size_t>(bytes, kMaxPrivateData));
  std::memcpy(event.private_data, link.private_data[from_side].data(), event.private_data_bytes);
}

bool LoopbackCm::check_as_acceptor(std::uint32_t number, CmEvent& event) noexcept {
  Link& link = fabric_.link(number);
  Local& local = local_[number];
  const LinkState state = state_of(link);
  const std::uint32_t generation = link.generation.load(std::memory_order_relaxed);
  if (!local.mine) {
    if (state != LinkState::Requested || link.devices[kAcceptor].load(std::memory_order_relaxed) != device_)
      return false;
    local = {.mine = true, .side = kAcceptor, .generation = generation, .reported = LinkState::Requested};
    fill(event, CmEventType::ConnectRequest, number, kConnector);
    return true;
  }
  if (state == LinkState::Established && local.reported == LinkState::Requested) {
    local.reported = LinkState::Established;
    fill(event, CmEventType::Established, number, kConnector);
    return true;
  }
  return false;
}

/// Rejects the connection because the queue pair was destroyed in the meantime, and notifies the acceptor.
void LoopbackCm::withdraw(std::uint32_t number, CmEvent& event) noexcept {
  static_cast<void>(
      SLUICE_INVARIANT(local_[number].mine && local_[number].side == kConnector, connection_state));
  Link& link = fabric_.link(number);
  fill(event, CmEventType::Rejected, number, kAcceptor);
  event.private_data_bytes = 0;
  local_[number] = {};
  link.closed.fetch_or(1u << kConnector, std::memory_order_relaxed);
  ring(link, kAcceptor);
  fabric_.drop_side(link, kConnector);
}

bool LoopbackCm::check_as_connector(std::uint32_t number, CmEvent& event) noexcept {
  Link& link = fabric_.link(number);
  Local& local = local_[number];
  if (local.reported != LinkState::Requested) return false;
  static_cast<void>(SLUICE_INVARIANT(local.qp != nullptr, connection_state));
  switch (state_of(link)) {
    case LinkState::Accepted:
      if (local.qp->state() != QueuePair::State::Init) return withdraw(number, event), true;
      local.reported = LinkState::Established;
      local.qp->attach(link, kConnector);
      set_state(link, LinkState::Established);
      ring(link, kAcceptor);
      fill(event, CmEventType::Established, number, kAcceptor);
      return true;
    case LinkState::Rejected:
      fill(event, CmEventType::Rejected, number, kAcceptor);
      local = {};
      fabric_.drop_side(link, kConnector);
      return true;
    default:
      return false;
  }
}

/// Reports one new event of a link. Returns false if the link has none.
bool LoopbackCm::check_link(std::uint32_t number, CmEvent& event) noexcept {
  Local& local = local_[number];
  if (local.mine && !local.disconnect_reported && peer_is_gone(number)) give_up_for_peer(number);
  if (local.mine && local.side == kConnector) {
    if (check_as_connector(number, event)) return true;
  } else if (check_as_acceptor(number, event)) {
    return true;
  }
  if (!local.mine || local.disconnect_reported ||
      fabric_.link(number).closed.load(std::memory_order_relaxed) == 0)
    return false;
  local.disconnect_reported = true;
  fill(event, CmEventType::Disconnected, number, 1 - local.side);
  event.private_data_bytes = 0;
  if (local.qp != nullptr)
    local.qp->to_error();
  else
    drop_request(number);  // withdrawn before it was accepted
  return true;
}

std::size_t LoopbackCm::poll_events(std::span<CmEvent> events) noexcept {
  // Pairs with ring() and Fabric::look_for_peers(): states, `closed` and ended processes.
  const std::uint32_t doorbell = fabric_.header().devices[device_].doorbell.load(std::memory_order_acquire);
  if (doorbell == seen_doorbell_ && !more_) return 0;
  seen_doorbell_ = doorbell;
  std::size_t count = 0;
  for (std::uint32_t number = 0; number < fabric_.links() && count < events.size(); ++number)
    if (check_link(number, events[count])) ++count;
  more_ = count > 0;  // a link may have a second event
  return count;
}

}  // namespace sluice::rdma::loopback
