// SPDX-License-Identifier: Apache-2.0
//
// Work of the main thread for the control plane while the reactors run: configurations, added upstreams, and
// the kernel's connections of a control plane that ends.
#include "dataplane/process/control_plane_monitor.h"

#include <cstring>
#include <exception>
#include <span>
#include <string_view>
#include <utility>

#include "dataplane/base/small_algorithms.h"
#include "dataplane/gateway/tcp_upstream/upstreams.h"
#include "dataplane/log/log.h"
#include "dataplane/process/settings.h"
#include "dataplane/segment/checked.h"

namespace sluice::process {
namespace {

void set_log_level(const segment::ConfigBlock& config) {
  log::set_level(static_cast<log::Level>(config.log_level));
}

template <typename Name>
void put_name(Name& name, const segment::UpstreamConfig& upstream) noexcept {
  static_assert(sizeof name == sizeof upstream.name);
  std::memcpy(&name, &upstream.name, sizeof name);
}

}  // namespace

ConfigMonitor::ConfigMonitor(segment::Layout& layout, const std::vector<ExportUpdate*>& exports,
                             UpstreamChanges& upstreams, SetSlowCall set_slow_call_ns,
                             const segment::ConfigBlock& started)
    : layout_(layout),
      upstreams_(upstreams),
      set_slow_call_ns_(std::move(set_slow_call_ns)),
      generation_(started.generation) {
  for (ExportUpdate* const update : exports) exports_.push_back({update, nullptr});
  apply_at_once(started);
  layout_.generation_applied = generation_;
}

void ConfigMonitor::apply_at_once(const segment::ConfigBlock& config) const {
  set_log_level(config);
  set_slow_call_ns_(std::uint64_t{config.slow_call_ms} * 1'000'000);
}

/// Takes back the lists that reactors have applied. Returns whether every reactor has.
bool ConfigMonitor::exports_taken() noexcept {
  bool all = true;
  for (ReactorExports& each : exports_) {
    if (each.pending && each.update->take_back() != nullptr) each.pending.reset();
    all &= !each.pending;
  }
  return all;
}

void ConfigMonitor::poll() {
  if (!exports_taken() || !upstreams_.taken()) return;
  if (layout_.generation_applied != generation_) {
    layout_.generation_applied = generation_;
    log::info("Configuration {} is in force", generation_);
  }
  if (layout_.config.sequence() == sequence_) return;
  sequence_ = layout_.config.sequence();
  const auto config = layout_.config.read_copy();
  if (!config || config->generation == generation_) return;
  if (const std::string defect = segment::defect_of(*config); !defect.empty()) {
    log::error("Configuration {} was rejected, and the previous one stays in force: {}", config->generation,
               defect);
    return;
  }
  generation_ = config->generation;
  apply_at_once(*config);
  upstreams_.apply(*config);
  for (ReactorExports& each : exports_) {
    each.pending = std::make_unique<ExportUpdate::List>(export_options(*config));
    each.update->offer(*each.pending);
  }
}

// --- Upstreams that a reload changes, adds or removes

UpstreamChanges::UpstreamChanges(const segment::ConfigBlock& started, std::vector<Slots> slots,
                                 SeqLock<segment::UpstreamPlaces>& shown)
    : slots_(std::move(slots)),
      started_(std::make_unique<const segment::ConfigBlock>(started)),
      shown_(shown) {
  places_.count = static_cast<std::uint32_t>(slots_.size());
  for (std::uint32_t i = 0; i < smaller_of(started.upstream_count, places_.count); ++i)
    put_name(places_.names[i], started.upstreams[i]);
  shown_.write(places_);
}

/// Offers the settings of an upstream to its slot on every reactor, unless they have not changed.
void UpstreamChanges::offer(std::uint32_t slot, const segment::UpstreamConfig& entry) {
  const gateway::UpstreamSettings settings = upstream_settings(entry);
  const gateway::UpstreamSettings& before = slots_[slot].front()->offered();
  if (before == settings) return;
  if (!before.privileged_port)
    if (const std::string problem = tcp_upstream::privilege_problem(settings); !problem.empty())
      log::error("{}", problem);
  if (before.name != settings.name) {
    if (!before.name.empty()) log::info("Upstream '{}' is no longer served", before.name);
    log::info("Upstream '{}' is now served", settings.name);
  }
  put_name(places_.names[slot], entry);
  for (gateway::UpstreamSlot* const each : slots_[slot]) each->offer(settings);
}

void UpstreamChanges::apply(const segment::ConfigBlock& config) {
  std::uint32_t over_rdma = 0;
  for (std::uint32_t i = 0; i < smaller_of(config.upstream_count, places_.count); ++i) {
    const segment::UpstreamConfig& entry = config.upstreams[i];
    if (entry.transport == segment::Transport::Rdma) ++over_rdma;
    const bool too_many =
        entry.transport == segment::Transport::Rdma && over_rdma > started_->slots().over_rdma;
    if (entry.removed == 0 && !too_many && segment::may_serve(*started_, entry)) offer(i, entry);
  }
  shown_.write(places_);
}

bool UpstreamChanges::taken() const noexcept {
  return !has_match(slots_, [](const Slots& slots) {
    return has_match(slots, [](const auto* slot) { return !slot->settled(); });
  });
}

// --- Connections of the kernel

namespace {

constexpr int kOffersPerPoll = 16;
/// Maximum of channels: one per control plane with a connection that still exists.
constexpr std::size_t kMaxChannels = 1024;
/// Mode of the socket. Other users cannot write to it and so cannot fill it, which leaves room for the
/// control plane's offers.
constexpr mode_t kSocketMode = 0660;

segment::KeptConnection kept_of(const segment::ConnectionInfo& info) {
  segment::KeptConnection kept;
  static_assert(sizeof kept <= segment::kCmStateBytes);
  std::memcpy(&kept, info.cm_state.data(), sizeof kept);
  return kept;
}

}  // namespace

KeptConnections::KeptConnections(segment::Segment& segment)
    : segment_(segment),
      layout_(segment.layout()),
      inbox_(segment::kept_socket_of(segment.name()), kSocketMode,
             segment.file(segment::Part::Control)->user()) {
  layout_.kept_epoch.store(0, std::memory_order_relaxed);
}

void KeptConnections::poll() {
  take_offered();
  const std::uint32_t owner = segment::epoch_of(layout_.control_plane.owner.load(std::memory_order_relaxed));
  layout_.kept_epoch.store(holds(owner) ? owner : 0, std::memory_order_relaxed);
  std::erase_if(channels_, [this](const Channel& channel) { return is_orphan(channel) && !in_use(channel); });
}

/// Receives offered channels. The channels of a control plane that has exited are received too, because its
/// connections still use them.
void KeptConnections::take_offered() {
  for (int i = 0; i < kOffersPerPoll; ++i) {
    segment::KeptChannel offer;
    FileDescriptor descriptor;
    const auto got = inbox_.receive(std::as_writable_bytes(std::span(&offer, 1)), descriptor);
    if (got == segment::DatagramInbox::Got::Nothing) return;
    const bool is_offer = got == segment::DatagramInbox::Got::Datagram &&
                          offer.magic == segment::kKeptChannelMagic && offer.epoch != 0 && descriptor;
    if (is_offer && !holds(offer.epoch) && channels_.size() < kMaxChannels)
      channels_.push_back({.epoch = offer.epoch, .descriptor = std::move(descriptor)});
  }
}

bool KeptConnections::holds(std::uint32_t epoch) const {
  return has_match(channels_, [epoch](const Channel& channel) { return channel.epoch == epoch; });
}

/// Returns whether the control plane that opened the channel has a successor or has ended.
bool KeptConnections::is_orphan(const Channel& channel) const {
  const std::uint64_t owner = layout_.control_plane.owner.load(std::memory_order_relaxed);
  return segment::epoch_of(owner) != channel.epoch || !segment_.control_plane_runs(channel.epoch);
}

bool KeptConnections::in_use(const Channel& channel) const {
  for (const segment::ReactorArea& area : layout_.reactors)
    for (const auto& entry : area.connections) {
      if (entry.sequence() == 0) continue;
      const auto info = entry.read();
      if (!info) return true;
      if (info->state != segment::ConnectionState::Unused && kept_of(*info).epoch == channel.epoch)
        return true;
    }
  return false;
}

}  // namespace sluice::process
