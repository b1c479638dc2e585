// SPDX-License-Identifier: Apache-2.0
#include "dataplane/process/config_watch.h"

#include <utility>

#include "dataplane/log/log.h"
#include "dataplane/process/settings.h"
#include "dataplane/segment/checked.h"

namespace sluice::process {
namespace {

void set_log_level(const segment::ConfigBlock& config) {
  log::set_level(static_cast<log::Level>(config.log_level));
}

}  // namespace

ConfigWatch::ConfigWatch(segment::Layout& layout, ExportUpdate& exports, Newcomers& newcomers,
                         SetSlowCall set_slow_call_ns, const segment::ConfigBlock& started)
    : layout_(layout),
      exports_(exports),
      newcomers_(newcomers),
      set_slow_call_ns_(std::move(set_slow_call_ns)),
      generation_(started.generation) {
  apply_at_once(started);
  layout_.generation_applied = generation_;
}

void ConfigWatch::apply_at_once(const segment::ConfigBlock& config) const {
  set_log_level(config);
  set_slow_call_ns_(std::uint64_t{config.slow_call_ms} * 1'000'000);
}

void ConfigWatch::poll() {
  if (pending_ && exports_.take_back() != nullptr) pending_.reset();
  if (pending_ || !newcomers_.taken()) return;
  if (layout_.generation_applied != generation_) {
    layout_.generation_applied = generation_;
    log::info("Configuration {} is in force", generation_);
  }
  if (layout_.config.sequence() == sequence_) return;
  sequence_ = layout_.config.sequence();
  const auto config = layout_.config.read_copy();
  if (!config || config->generation == generation_) return;
  if (const std::string defect = segment::defect_of(*config); !defect.empty()) {
    log::error("Configuration {} is not taken, the old one stays in force: {}", config->generation, defect);
    return;
  }
  generation_ = config->generation;
  apply_at_once(*config);
  newcomers_.look(*config);
  pending_ = std::make_unique<ExportUpdate::List>(export_options(*config));
  exports_.offer(*pending_);
}

}  // namespace sluice::process
