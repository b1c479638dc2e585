// SPDX-License-Identifier: Apache-2.0
#include "dataplane/process/newcomers.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

namespace sluice::process {

Newcomers::Newcomers(const segment::ConfigBlock& started, std::vector<const forward::Upstreams*> reactors,
                     SeqLock<segment::UpstreamPlaces>& shown)
    : reactors_(std::move(reactors)), first_spare_(started.upstream_count), shown_(shown) {
  places_.count = started.upstream_places();
  for (std::size_t i = 0; i < first_spare_; ++i)
    std::ranges::copy(started.upstreams[i].name, places_.names[i].begin());
  if (places_.count > first_spare_) model_ = *started.model_of_spares();
  shown_.write(places_);
}

bool Newcomers::may_come(const segment::UpstreamConfig& entry) const {
  return entry.handle_tag != 0 && entry.is_served_like(*model_) && !places_.serves(entry.name);
}

void Newcomers::look(const segment::ConfigBlock& config) {
  for (std::size_t i = first_spare_; i < config.upstream_count; ++i) {
    const segment::UpstreamConfig& entry = config.upstreams[i];
    if (!places_.has_spare(i) || !may_come(entry)) continue;
    std::ranges::copy(entry.name, places_.names[i].begin());
    for (const forward::Upstreams* const upstreams : reactors_) {
      forward::SpareUpstream& spare = *upstreams->spares()[i - first_spare_];
      spare.offer({.name = entry.name,
                   .port = static_cast<std::uint16_t>(entry.port),
                   .handle_tag = entry.handle_tag});
      given_.push_back(&spare);
    }
    spdlog::info("Upstream '{}' is served from now on", entry.name);
  }
  shown_.write(places_);
}

bool Newcomers::taken() const noexcept {
  return std::all_of(given_.begin(), given_.end(), [](const auto* spare) { return spare->taken(); });
}

}  // namespace sluice::process
