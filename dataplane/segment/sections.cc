// SPDX-License-Identifier: Apache-2.0
//
// Compatibility with the other plane's part in any release: sections of equal layout, counters of equal name,
// and values within their bounds.
#include "dataplane/segment/layout.h"

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "dataplane/base/invariant.h"
#include "dataplane/base/owned.h"
#include "dataplane/base/small_algorithms.h"
#include "dataplane/segment/checked.h"
#include "dataplane/segment/config_block.h"
#include "dataplane/segment/config_ranges.h"
#include "dataplane/segment/counters.h"
#include "dataplane/segment/gateways.h"
#include "dataplane/segment/part_file.h"
#include "dataplane/segment/shapes.h"
#include "pmd/softroce/statistics.h"
#include "pmd/verbs/statistics.h"

namespace sluice::segment {
namespace {

using Sections = std::array<Section, kMaxSections>;

constexpr Section section(std::string_view name, std::uint32_t version, std::size_t offset, std::size_t bytes,
                          shape::Hash hash) {
  Section made{};
  name.copy(made.name.data(), made.name.size());
  made.version = version;
  made.offset = offset;
  made.bytes = bytes;
  made.hash = hash;
  return made;
}

#define SLUICE_SECTION(part, member, version) \
  section(#member, version, offsetof(part, member), sizeof(part::member), shape::of<decltype(part::member)>)

// The number is the version of a section. Increment it if the meaning of the contents changes and their shape
// does not.
constexpr Sections kControl = {
    SLUICE_SECTION(ControlPart, config, 1),
    SLUICE_SECTION(ControlPart, reactors, 1),
    SLUICE_SECTION(ControlPart, control_counters, 1),
    SLUICE_SECTION(ControlPart, lock_gauges, 1),
    SLUICE_SECTION(ControlPart, state, 1),
    SLUICE_SECTION(ControlPart, upstream_addresses, 1),
    SLUICE_SECTION(ControlPart, clients, 1),
    SLUICE_SECTION(ControlPart, start_answered, 1),
    SLUICE_SECTION(ControlPart, path_question, 1),
};
constexpr Sections kData = {
    SLUICE_SECTION(DataPart, generation_applied, 1),
    SLUICE_SECTION(DataPart, upstream_places, 1),
    SLUICE_SECTION(DataPart, reactors, 1),
    SLUICE_SECTION(DataPart, exports, 1),
    SLUICE_SECTION(DataPart, memory, 1),
    SLUICE_SECTION(DataPart, capture_status, 1),
    SLUICE_SECTION(DataPart, counter_names, 1),
    SLUICE_SECTION(DataPart, process, 1),
    SLUICE_SECTION(DataPart, slow_calls, 1),
    SLUICE_SECTION(DataPart, kept_epoch, 1),
    SLUICE_SECTION(DataPart, start_asked, 1),
    SLUICE_SECTION(DataPart, path_answer, 1),
};
#undef SLUICE_SECTION

std::string name_of(const Section& section) {
  const std::string_view all(section.name.data(), section.name.size());
  return std::string(all.substr(0, all.find('\0')));
}

}  // namespace

const Sections& sections_of(Part part) noexcept {
  return part == Part::Control ? kControl : kData;
}

std::string difference(Part part, const Sections& theirs, std::uint64_t file_bytes) {
  for (const Section& ours : sections_of(part)) {
    if (ours.name[0] == '\0') continue;
    static_cast<void>(SLUICE_INVARIANT(ours.offset + ours.bytes <= bytes_of(part), buffer_bounds));
    const auto* its = theirs.begin();
    while (its != theirs.end() && its->name != ours.name) ++its;
    const std::string name = "its section '" + name_of(ours) + "' ";
    if (its == theirs.end()) return name + "is missing";
    if (its->version != ours.version)
      return name + "has version " + std::to_string(its->version) + ", not " + std::to_string(ours.version);
    if (its->offset != ours.offset || its->bytes != ours.bytes || its->hash != ours.hash)
      return name + "has another layout";
    if (ours.offset + ours.bytes > file_bytes) return "it is truncated";
  }
  return {};
}

// --- Counters

namespace {

static_assert(kTransportCounterRoom <= kMostCounters && kUpstreamCounterRoom <= kMostCounters);
static_assert(kInvariantCount <= kInvariantRoom);

template <typename List>
void put(CounterNames& names, CounterFamily family, const List& list) noexcept {
  static_cast<void>(SLUICE_INVARIANT(std::size(list) <= kMostCounters, table_index));
  auto* to = names.names[static_cast<std::size_t>(family)].data();
  for (const auto& entry : list) {
    const std::string_view name = entry.name;
    static_cast<void>(SLUICE_INVARIANT(name.size() <= kCounterNameBytes, buffer_bounds));
    name.copy((to++)->data(), kCounterNameBytes);
  }
}

bool is_none(const CounterNames::Name& name) noexcept {
  return name[0] == '\0';
}

}  // namespace

void own_counter_names(CounterNames& names) noexcept {
  names = {};
  put(names, CounterFamily::Transport, kTransportCounters);
  put(names, CounterFamily::Reactor, kReactorCounters);
  put(names, CounterFamily::Invariant, kInvariants);
  put(names, CounterFamily::Upstream, kUpstreamCounters);
  put(names, CounterFamily::Reverse, kReverseCounters);
  put(names, CounterFamily::SoftRoce, rdma::softroce::kStatistics);
  put(names, CounterFamily::Verbs, rdma::verbs::kStatistics);
}

/// Starts with the indices of this release.
CounterPlaces::CounterPlaces() noexcept {
  for (auto& family : places_)
    for (std::uint32_t i = 0; i < family.size(); ++i) family[i].store(i, std::memory_order_relaxed);
}

void CounterPlaces::follow(const CounterNames& theirs) {
  const Owned<CounterNames> ours(new CounterNames());
  own_counter_names(*ours);
  for (std::size_t family = 0; family < kCounterFamilies; ++family)
    for (std::size_t own = 0; own < kMostCounters; ++own) {
      const CounterNames::Name& name = ours->names[family][own];
      if (is_none(name)) continue;
      const auto& list = theirs.names[family];
      std::uint32_t place = 0;
      while (place < list.size() && list[place] != name) ++place;
      places_[family][own].store(place < list.size() ? place : kNone, std::memory_order_relaxed);
    }
}

// --- The configuration

namespace {

/// Validation that keeps the first defect.
class Validation {
 public:
  void within(const char* key, std::uint64_t value, std::uint64_t least, std::uint64_t most) {
    if (!defect_.empty() || (least <= value && value <= most)) return;
    defect_ = std::string(key) + " is " + std::to_string(value) + ", not from " + std::to_string(least) +
              " to " + std::to_string(most);
  }
  template <typename Text>
  void ends(const char* key, const Text& text) {
    if (defect_.empty() && std::memchr(std::data(text), '\0', std::size(text)) == nullptr)
      defect_ = std::string(key) + " has no end";
  }
  /// Checks the integers of `part` that have ranges.
  template <typename Part>
  void integers(const Part& part) {
    for (const IntegerRange<Part>& range : ranges_of<Part>())
      within(range.name, part.*range.member, range.least, range.most);
  }
  const std::string& defect() const { return defect_; }

 private:
  std::string defect_;
};

void validate_device(Validation& validation, const ConfigBlock& config) {
  validation.within("device.driver", static_cast<std::uint32_t>(config.driver), 0,
                    static_cast<std::uint32_t>(Driver::Verbs));
  validation.within("reactor.idle", static_cast<std::uint32_t>(config.idle), 0,
                    static_cast<std::uint32_t>(IdlePolicy::Backoff));
  validation.ends("device.loopback_path", config.loopback_path);
  validation.within("device.loopback_arena_mib", config.loopback_arena_bytes, 0, kMaxLoopbackArenaMib << 20);
  validation.ends("device.ethdev", config.ethdev);
  validation.within("device.addresses", config.address_count, 0, kMaxAddresses);
  for (const AllowedPrefix& address : config.addresses)
    validation.within("device.addresses", address.prefix_bits, 0, 128);
  validation.within("device.devices", config.verbs_port_count, 0, kMaxReactors);
  for (const VerbsPort& port : config.verbs_ports) validation.ends("device.devices", port.device);
  validation.within("device.gateways", config.gateway_count, 0, config.gateways.size());
}

void validate_transport(Validation& validation, const ConfigBlock& config) {
  validation.within("transport.reply_buffer_bytes", config.reply_buffer_bytes, 1024, 1u << 20);
  validation.within("classes", config.class_count, 1, kMaxClasses);
  for (const auto& name : config.class_names) validation.ends("classes.name", name);
}

void validate_upstream(Validation& validation, const UpstreamConfig& upstream) {
  validation.integers(upstream);
  validation.ends("upstream.name", upstream.name);
  validation.within("upstream.hosts", upstream.host_count, 0, kMaxUpstreamHosts);
  for (const auto& host : upstream.hosts) validation.ends("upstream.hosts", host);
  validation.within("upstream.transport", static_cast<std::uint32_t>(upstream.transport), 0,
                    static_cast<std::uint32_t>(Transport::Rdma));
  validation.within("upstream.listen_port", upstream.listen_port, 0, 65535);
  validation.within("upstream.clients", upstream.allowed_count, 0, kMaxAllowed);
  validation.within("upstream.programs", upstream.route_count, 0, kMaxRoutes);
  validation.ends("upstream.prefix", upstream.prefix);
  validation.within("upstream.exports", upstream.export_count, 0, kMaxUpstreamExports);
  for (const auto& path : upstream.exports) validation.ends("upstream.exports", path);
}

void validate_reverse(Validation& validation, const ReverseConfig& reverse) {
  validation.integers(reverse);
  validation.within("reverse.calls, a power of two", std::has_single_bit(reverse.calls), 1, 1);
  validation.within("reverse.allowed", reverse.allowed_count, 0, kMaxAllowed);
}

void validate_exports(Validation& validation, const ConfigBlock& config) {
  validation.within("memory.size_mib", config.memory_bytes, 0, kMaxMemoryMib << 20);
  for (const ExportConfig& entry : config.exports) {
    validation.ends("export.path", entry.path);
    validation.within("export.clients", entry.allowed_count, 0, kMaxAllowed);
    validation.within("export.hosts", entry.host_count, 0, kMaxExportHosts);
  }
}

}  // namespace

std::string defect_of(const ConfigBlock& config) {
  Validation validation;
  validation.integers(config);
  validate_device(validation, config);
  validate_transport(validation, config);
  validation.within("upstream", config.upstream_count, 0, kMaxUpstreams);
  for (std::uint32_t i = 0; i < smaller_of(config.upstream_count, kMaxUpstreams); ++i)
    validate_upstream(validation, config.upstreams[i]);
  const UpstreamSlots& made = config.started_slots;
  validation.within("upstream slots", made.count, made.count > 0 ? config.upstream_count : 0, kMaxUpstreams);
  validation.within("upstream slots over RDMA", made.over_rdma, 0, kMaxUpstreams);
  validation.within("connections of a slot over RDMA", made.rdma_connections, 0, kMaxUpstreamConnections);
  if (config.reverse.in_use != 0) validate_reverse(validation, config.reverse);
  validate_exports(validation, config);
  if (!validation.defect().empty()) return validation.defect();
  validation.within("connections in all", config.all_connections(), 1, kMaxConnections);
  return validation.defect();
}

}  // namespace sluice::segment
