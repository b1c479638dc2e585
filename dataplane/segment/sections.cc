// SPDX-License-Identifier: Apache-2.0
#include "dataplane/segment/sections.h"

#include <cstddef>
#include <string_view>

#include "dataplane/segment/shapes.h"

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

// The versions: count one up where the meaning of what stands there changes and its shape does not.
constexpr Sections kControl = {
    SLUICE_SECTION(ControlPart, config, 1),
    SLUICE_SECTION(ControlPart, reactors, 1),
    SLUICE_SECTION(ControlPart, control_counters, 1),
    SLUICE_SECTION(ControlPart, lock_gauges, 1),
    SLUICE_SECTION(ControlPart, state, 1),
    SLUICE_SECTION(ControlPart, upstream_addresses, 1),
    SLUICE_SECTION(ControlPart, clients, 1),
    SLUICE_SECTION(ControlPart, start_answered, 1),
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
    const auto* its = theirs.begin();
    while (its != theirs.end() && its->name != ours.name) ++its;
    const std::string name = "its section '" + name_of(ours) + "' ";
    if (its == theirs.end()) return name + "is missing";
    if (its->version != ours.version)
      return name + "has version " + std::to_string(its->version) + ", not " + std::to_string(ours.version);
    if (its->offset != ours.offset || its->bytes != ours.bytes || its->hash != ours.hash)
      return name + "has another layout";
    if (ours.offset + ours.bytes > file_bytes) return "it is cut short";
  }
  return {};
}

}  // namespace sluice::segment
