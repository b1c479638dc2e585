// SPDX-License-Identifier: Apache-2.0
#include "dataplane/process/newcomers.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <string_view>
#include <utility>

namespace sluice::process {

Newcomers::Newcomers(const segment::ConfigBlock& started, std::vector<const forward::Upstreams*> reactors,
                     SeqLock<segment::UpstreamPlaces>& shown)
    : reactors_(std::move(reactors)), shown_(shown) {
  if (const segment::UpstreamConfig* const model = started.model_of_spares()) model_ = *model;
  if (started.listens_later()) at_port_ = *started.model_at_port();
  with_exports_ = started.model_with_exports() != nullptr;
  places_.count = started.upstream_places();
  for (std::uint32_t i = 0; i < places_.count; ++i) {
    const segment::UpstreamConfig& entry = started.upstreams[i];
    const bool spare = i >= started.upstream_count;
    const bool can_change = !reactors_.empty() && reactors_.front()->place(i) != nullptr;
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
      spdlog::info("Upstream '{}' is served no more", std::string_view(places_.names[i].data()));
    std::ranges::copy(entry.name, places_.names[i].begin());
    for (const forward::Upstreams* const upstreams : reactors_)
      upstreams->place(i)->offer({.name = entry.name,
                                  .port = static_cast<std::uint16_t>(entry.port),
                                  .handle_tag = entry.handle_tag,
                                  .listen_port = static_cast<std::uint16_t>(entry.listen_port)});
    if (entry.listen_port != 0) places_.changes[i] = 0;  // its clients stay with their port
    spdlog::info("Upstream '{}' is served from now on", entry.name);
  }
  shown_.write(places_);
}

bool Newcomers::taken() const noexcept {
  return std::all_of(reactors_.begin(), reactors_.end(), [this](const forward::Upstreams* upstreams) {
    for (std::uint32_t i = 0; i < places_.count; ++i) {
      const forward::UpstreamPlace* const place = upstreams->place(i);
      if (place != nullptr && !place->settled()) return false;
    }
    return true;
  });
}

}  // namespace sluice::process
