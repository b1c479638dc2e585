// SPDX-License-Identifier: Apache-2.0
//
// sluice-metrics-reference: prints deploy/docs/metrics.md.
#include <iostream>

#include "telemetry/schema.h"

int main() {
  std::cout << sluice::telemetry::reference();
}
