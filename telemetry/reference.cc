// SPDX-License-Identifier: Apache-2.0
//
// sluice-metrics-reference: prints the reference of all metrics, which the build installs as
// metrics-reference.md.
#include <cstdio>
#include <string>

#include "telemetry/schema.h"

int main() {
  const std::string text = sluice::telemetry::reference();
  return std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0 ? 0 : 1;
}
