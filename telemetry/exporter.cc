// SPDX-License-Identifier: Apache-2.0
#include "telemetry/exporter.h"

#include <prometheus/collectable.h>
#include <prometheus/exposer.h>
#include <prometheus/metric_family.h>

#include "pmd/softroce/statistics.h"

namespace sluice::telemetry {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;

ClientMetric metric(double value, std::vector<ClientMetric::Label> labels, bool counter) {
  ClientMetric result;
  result.label = std::move(labels);
  (counter ? result.counter.value : result.gauge.value) = value;
  return result;
}

class SegmentCollector final : public prometheus::Collectable {
 public:
  SegmentCollector(const segment::Layout& layout, std::uint32_t reactors)
      : layout_(layout), reactors_(reactors) {}

  std::vector<MetricFamily> Collect() const override {
    std::vector<MetricFamily> families;
    for (std::size_t i = 0; i < segment::kCounterCount; ++i) {
      const segment::CounterInfo& info = segment::kCounters[i];
      MetricFamily family{
          "sluice_" + std::string(info.name) + "_total", std::string(info.help), MetricType::Counter, {}};
      for (std::uint32_t r = 0; r < reactors_; ++r)
        family.metric.push_back(
            metric(static_cast<double>(layout_.reactors[r].counters[i].load(std::memory_order_relaxed)),
                   {{"reactor", std::to_string(r)}}, true));
      families.push_back(std::move(family));
    }
    add_device_statistics(families);
    families.push_back(heartbeats());
    families.push_back(connections());
    families.push_back(rings());
    add_exports(families);
    return families;
  }

 private:
  void add_device_statistics(std::vector<MetricFamily>& families) const {
    const auto config = layout_.config.read();
    if (!config || config->driver != segment::Driver::SoftRoce) return;
    for (std::size_t i = 0; i < std::size(rdma::softroce::kStatistics); ++i) {
      const auto& info = rdma::softroce::kStatistics[i];
      MetricFamily family{"sluice_roce_" + std::string(info.name) + "_total",
                          "softroce: " + std::string(info.help),
                          MetricType::Counter,
                          {}};
      for (std::uint32_t r = 0; r < reactors_; ++r)
        family.metric.push_back(metric(
            static_cast<double>(layout_.reactors[r].device_statistics[i].load(std::memory_order_relaxed)),
            {{"reactor", std::to_string(r)}}, true));
      families.push_back(std::move(family));
    }
  }

  MetricFamily heartbeats() const {
    MetricFamily family{"sluice_plane_up", "Whether a plane's heartbeat beats", MetricType::Gauge, {}};
    const std::uint64_t now = segment::monotonic_ns();
    family.metric.push_back(
        metric(segment::alive(layout_.control_plane, now), {{"plane", "control"}}, false));
    family.metric.push_back(metric(segment::alive(layout_.data_plane, now), {{"plane", "data"}}, false));
    return family;
  }

  MetricFamily connections() const {
    MetricFamily family{"sluice_connections", "Connections that are open", MetricType::Gauge, {}};
    for (std::uint32_t r = 0; r < reactors_; ++r) {
      const auto info = layout_.reactors[r].info.read();
      family.metric.push_back(metric(info ? info->connections : 0, {{"reactor", std::to_string(r)}}, false));
    }
    return family;
  }

  MetricFamily rings() const {
    MetricFamily family{
        "sluice_ring_used_slots", "Messages waiting in a ring between the planes", MetricType::Gauge, {}};
    for (std::uint32_t r = 0; r < reactors_; ++r) {
      const auto& area = layout_.reactors[r];
      const std::string reactor = std::to_string(r);
      family.metric.push_back(
          metric(area.commands.size(), {{"reactor", reactor}, {"ring", "commands"}}, false));
      family.metric.push_back(metric(area.events.size(), {{"reactor", reactor}, {"ring", "events"}}, false));
    }
    return family;
  }

  void add_exports(std::vector<MetricFamily>& families) const {
    MetricFamily used{"sluice_export_used_bytes", "Bytes that an export's files take", MetricType::Gauge, {}};
    MetricFamily files{"sluice_export_files", "Files and directories of an export", MetricType::Gauge, {}};
    MetricFamily calls{"sluice_export_calls_total", "NFS calls on an export", MetricType::Counter, {}};
    MetricFamily errors{
        "sluice_export_errors_total", "NFS calls answered with an error", MetricType::Counter, {}};
    for (const auto& entry : layout_.exports) {
      const auto info = entry.read();
      if (!info || info->in_use == 0) continue;
      const std::vector<ClientMetric::Label> labels = {{"export", info->path}};
      used.metric.push_back(metric(static_cast<double>(info->used_bytes), labels, false));
      files.metric.push_back(metric(static_cast<double>(info->files), labels, false));
      calls.metric.push_back(metric(static_cast<double>(info->calls), labels, true));
      errors.metric.push_back(metric(static_cast<double>(info->errors), labels, true));
    }
    for (MetricFamily* family : {&used, &files, &calls, &errors}) families.push_back(std::move(*family));
  }

  const segment::Layout& layout_;
  const std::uint32_t reactors_;
};

}  // namespace

struct Exporter::State {
  std::shared_ptr<SegmentCollector> collector;
  std::unique_ptr<prometheus::Exposer> exposer;
};

Exporter::Exporter(const std::string& address, const segment::Layout& layout, std::uint32_t reactors)
    : state_(std::make_unique<State>()) {
  state_->collector = std::make_shared<SegmentCollector>(layout, reactors);
  try {
    state_->exposer = std::make_unique<prometheus::Exposer>(address, 1);
  } catch (const std::exception&) {
    throw rdma::SetupError("Cannot serve metrics on " + address +
                           ": set metrics.address to another host:port, or to \"\" for none.");
  }
  state_->exposer->RegisterCollectable(state_->collector);
}

Exporter::~Exporter() = default;

}  // namespace sluice::telemetry
