// SPDX-License-Identifier: Apache-2.0
//
// The program sluice-metrics-reference, which prints deploy/docs/metrics.md.
#include <cstdio>
#include <string>

#include "telemetry/schema.h"

int main() {
  const std::string text = sluice::telemetry::reference();
  return std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0 ? 0 : 1;
}
