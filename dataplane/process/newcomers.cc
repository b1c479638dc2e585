// SPDX-License-Identifier: Apache-2.0
#include "dataplane/process/newcomers.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "dataplane/log/log.h"

namespace sluice::process {

Newcomers::Newcomers(const segment::ConfigBlock& started, std::vector<Places> places,
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
    places_.changes[i] = can_change && (spare || entry.is_served_like(*model_)) ? 1 : 0;
    if (!spare) std::ranges::copy(entry.name, places_.names[i].begin());
  }
  shown_.write(places_);
}

bool Newcomers::may_come(const segment::UpstreamConfig& entry, std::uint32_t place) const {
  const bool at_port = entry.listen_port != 0 && places_.has_spare(place) && at_port_.has_value() &&
                       entry.has_programs_of(*at_port_);
  const bool with_exports = entry.handle_tag != 0 && with_exports_;
  return (at_port || with_exports) && entry.removed == 0 && entry.is_served_like(*model_) &&
         !places_.serves(entry.name);
}

void Newcomers::look(const segment::ConfigBlock& config) {
  for (std::uint32_t i = 0; i < config.upstream_count; ++i) {
    const segment::UpstreamConfig& entry = config.upstreams[i];
    if (!places_.may_change(i) || !may_come(entry, i)) continue;
    if (!places_.has_spare(i))
      log::info("Upstream '{}' is served no more", std::string_view(places_.names[i].data()));
    std::ranges::copy(entry.name, places_.names[i].begin());
    for (forward::UpstreamPlace* const place : on_reactors_[i])
      place->offer({.name = entry.name,
                    .port = static_cast<std::uint16_t>(entry.port),
                    .handle_tag = entry.handle_tag,
                    .listen_port = static_cast<std::uint16_t>(entry.listen_port)});
    if (entry.listen_port != 0) places_.changes[i] = 0;  // its clients stay with their port
    log::info("Upstream '{}' is served from now on", entry.name);
  }
  shown_.write(places_);
}

bool Newcomers::taken() const noexcept {
  return std::all_of(on_reactors_.begin(), on_reactors_.end(), [](const Places& places) {
    return std::all_of(places.begin(), places.end(), [](const auto* place) { return place->settled(); });
  });
}

}  // namespace sluice::process
