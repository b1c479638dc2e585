// SPDX-License-Identifier: Apache-2.0
//
// Work of the main thread for the control plane while the reactors run: configurations, added upstreams, and
// the kernel's connections of a control plane that ends.
#include "dataplane/process/control_plane_monitor.h"

#include <algorithm>
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
#include "dataplane/ulb/bindings.h"

namespace sluice::process {
namespace {

void set_log_level(const segment::ConfigBlock& config) {
  log::set_level(static_cast<log::Level>(config.log_level));
}

/// Returns whether calls select the upstream only by the tags of file handles. Another upstream can then have
/// its slot.
bool serves_only_exports(const segment::UpstreamConfig& entry) {
  const auto routes = std::span(entry.routes).first(smaller_of(entry.route_count, segment::kMaxRoutes));
  return entry.handle_tag != 0 && std::ranges::all_of(routes, [](const segment::RouteConfig& route) {
           return tcp_upstream::ExportGroup::shares(ulb::binding_or_plain(route.program, route.version));
         });
}

bool is_same_upstream(const tcp_upstream::UpstreamSettings& served, const segment::UpstreamConfig& entry) {
  return served.is_same_upstream(upstream_settings(entry));
}

}  // namespace

ConfigMonitor::ConfigMonitor(segment::Layout& layout, ExportUpdate& exports, UpstreamHotAdd& hot_add,
                             SetSlowCall set_slow_call_ns, const segment::ConfigBlock& started)
    : layout_(layout),
      exports_(exports),
      hot_add_(hot_add),
      set_slow_call_ns_(std::move(set_slow_call_ns)),
      generation_(started.generation) {
  apply_at_once(started);
  layout_.generation_applied = generation_;
}

void ConfigMonitor::apply_at_once(const segment::ConfigBlock& config) const {
  set_log_level(config);
  set_slow_call_ns_(std::uint64_t{config.slow_call_ms} * 1'000'000);
}

void ConfigMonitor::poll() {
  if (pending_ && exports_.take_back() != nullptr) pending_.reset();
  if (pending_ || !hot_add_.taken()) return;
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
  hot_add_.apply(*config);
  pending_ = std::make_unique<ExportUpdate::List>(export_options(*config));
  exports_.offer(*pending_);
}

// --- Upstreams that a reload adds

UpstreamHotAdd::UpstreamHotAdd(const segment::ConfigBlock& started, std::vector<Places> places,
                               SeqLock<segment::UpstreamPlaces>& shown)
    : on_reactors_(std::move(places)), shown_(shown) {
  if (const segment::UpstreamConfig* const model = started.model_of_spares()) model_ = *model;
  if (started.listens_later()) at_port_ = *started.model_at_port();
  with_exports_ = started.model_with_exports() != nullptr;
  places_.count = started.upstream_places();
  for (std::uint32_t i = 0; i < places_.count; ++i) {
    const segment::UpstreamConfig& entry = started.upstreams[i];
    const bool spare = i >= started.upstream_count;
    const bool can_change = i < on_reactors_.size() && !on_reactors_[i].empty();
    places_.changes[i] = can_change && (spare || serves_only_exports(entry)) ? 1 : 0;
    if (!spare) std::ranges::copy(entry.name, places_.names[i].begin());
  }
  shown_.write(places_);
}

bool UpstreamHotAdd::may_come(const segment::UpstreamConfig& entry, std::uint32_t place) const {
  const bool at_port = entry.listen_port != 0 && places_.has_spare(place) && at_port_.has_value() &&
                       entry.has_programs_of(*at_port_);
  const bool with_exports = entry.handle_tag != 0 && with_exports_;
  return (at_port || with_exports) && entry.removed == 0 && entry.fits_slot_of(*model_) &&
         !places_.serves(entry.name);
}

/// Offers the settings to the slots with other ones. Those of one upstream have been offered the same.
void UpstreamHotAdd::offer(std::uint32_t place, const segment::UpstreamConfig& entry) {
  const tcp_upstream::UpstreamSettings settings = upstream_settings(entry);
  for (tcp_upstream::UpstreamSlot* const slot : on_reactors_[place]) {
    if (slot->offered() == settings) continue;
    if (slot == on_reactors_[place].front() && !slot->offered().privileged_port)
      if (const std::string problem = tcp_upstream::privilege_problem(settings); !problem.empty())
        log::error("{}", problem);
    slot->offer(settings);
  }
}

void UpstreamHotAdd::apply(const segment::ConfigBlock& config) {
  for (std::uint32_t i = 0; i < smaller_of(config.upstream_count, places_.count); ++i) {
    const segment::UpstreamConfig& entry = config.upstreams[i];
    if (std::string_view(places_.names[i].data()) == entry.name && i < on_reactors_.size() &&
        (on_reactors_[i].empty() || is_same_upstream(on_reactors_[i].front()->offered(), entry))) {
      offer(i, entry);
      continue;
    }
    if (!places_.may_change(i) || !may_come(entry, i)) continue;
    if (!places_.has_spare(i))
      log::info("Upstream '{}' is no longer served", std::string_view(places_.names[i].data()));
    std::ranges::copy(entry.name, places_.names[i].begin());
    offer(i, entry);
    if (entry.listen_port != 0) places_.changes[i] = 0;  // its clients keep using its port
    log::info("Upstream '{}' is now served", entry.name);
  }
  shown_.write(places_);
}

bool UpstreamHotAdd::taken() const noexcept {
  return std::all_of(on_reactors_.begin(), on_reactors_.end(), [](const Places& places) {
    return std::all_of(places.begin(), places.end(), [](const auto* place) { return place->settled(); });
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
  return std::any_of(channels_.begin(), channels_.end(),
                     [epoch](const Channel& channel) { return channel.epoch == epoch; });
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
