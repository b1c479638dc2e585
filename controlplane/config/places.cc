// SPDX-License-Identifier: Apache-2.0
#include "controlplane/config/places.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "controlplane/config/export_groups.h"

namespace sluice::config {

void keep_places(const segment::ConfigBlock& before, segment::ConfigBlock& block) {
  const auto wanted = block.exports;
  block.exports = before.exports;
  for (segment::ExportConfig& entry : block.exports) entry.in_use = 0;
  const auto place_of = [&](const segment::ExportConfig& entry) -> segment::ExportConfig* {
    segment::ExportConfig* unused = nullptr;
    for (segment::ExportConfig& place : block.exports) {
      if (std::string_view(place.path) == entry.path) return &place;
      if (unused == nullptr && place.path[0] == '\0') unused = &place;
    }
    return unused;
  };
  for (const segment::ExportConfig& entry : wanted) {
    if (entry.in_use == 0) continue;
    segment::ExportConfig* const place = place_of(entry);
    if (place == nullptr)
      throw ConfigError("There is no place for export " + std::string(entry.path) + ": " +
                        std::to_string(block.exports.size()) +
                        " paths were exported since the data plane was started. Start it again to free those "
                        "that are gone.\n");
    *place = entry;
  }
}

void keep_upstreams(const segment::ConfigBlock& before, segment::ConfigBlock& block) {
  std::vector<std::pair<std::uint32_t, segment::UpstreamConfig>> placed;
  std::uint32_t free = 0;
  const auto is_free = [&](std::uint32_t place) {
    return place >= before.upstream_count || upstream_named(block, before.upstreams[place].name) == nullptr;
  };
  for (std::uint32_t i = 0; i < block.upstream_count; ++i) {
    const segment::UpstreamConfig& entry = block.upstreams[i];
    if (const segment::UpstreamConfig* const known = upstream_named(before, entry.name)) {
      placed.emplace_back(static_cast<std::uint32_t>(known - before.upstreams.data()), entry);
      continue;
    }
    while (!is_free(free)) ++free;
    placed.emplace_back(free++, entry);
  }
  std::stable_sort(placed.begin(), placed.end(),
                   [](const auto& one, const auto& other) { return one.first < other.first; });
  for (std::uint32_t i = 0; i < placed.size(); ++i) block.upstreams[i] = placed[i].second;
}

void keep_classes(const segment::ConfigBlock& before, Config& config) {
  const auto name_of = [](const auto& name) {
    return std::string(name.data(), ::strnlen(name.data(), name.size()));
  };
  std::vector<policy::ClientClass> placed = {config.classes[0]};
  std::vector<policy::ClientClass> left(config.classes.begin() + 1, config.classes.end());
  for (std::uint32_t i = 1; i < std::min(before.class_count, segment::kMaxClasses); ++i) {
    const std::string name = name_of(before.class_names[i]);
    const auto at =
        std::find_if(left.begin(), left.end(), [&](const auto& entry) { return entry.name == name; });
    if (at == left.end()) {
      placed.push_back({.name = name, .clients = {}, .credits = config.classes[0].credits, .gone = true});
    } else {
      placed.push_back(*at);
      left.erase(at);
    }
  }
  for (const policy::ClientClass& entry : left) {
    const auto gone =
        std::find_if(placed.begin() + 1, placed.end(), [](const auto& old) { return old.gone; });
    if (placed.size() < segment::kMaxClasses)
      placed.push_back(entry);
    else if (gone != placed.end())
      *gone = entry;
  }
  config.classes = std::move(placed);
  fill_derived(config);
}

}  // namespace sluice::config
