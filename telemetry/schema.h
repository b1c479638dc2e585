// SPDX-License-Identifier: Apache-2.0
//
// Every metric there is: the exporter can show no other, and the metrics reference is made from it.
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

/// In the order of the reference.
const std::vector<MetricInfo>& schema();

/// The metrics reference, in Markdown.
std::string reference();

}  // namespace sluice::telemetry
