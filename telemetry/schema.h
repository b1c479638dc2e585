// SPDX-License-Identifier: Apache-2.0
//
// All metrics. The exporter can export no other, and the metrics reference is generated from the schema.
// Any thread.
#pragma once

#include <string>
#include <vector>

namespace sluice::telemetry {

enum class Type { Counter, Gauge, Histogram };

struct MetricInfo {
  std::string name;
  Type type = Type::Counter;
  std::vector<std::string> labels;
  std::string help;
};

/// Returns all metrics in the order of the reference.
const std::vector<MetricInfo>& schema();

/// Returns the metrics reference in Markdown. The build writes it to deploy/metrics-reference.md.
std::string reference();

}  // namespace sluice::telemetry
