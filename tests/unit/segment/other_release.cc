// SPDX-License-Identifier: Apache-2.0
//
// A release with different counters (SLUICE_TEST_OTHER_COUNTERS), reduced to its accesses to the segment:
//   other_release data NAME       its data plane: counts, prints "up", and exits when its input ends
//   other_release control NAME    its control plane: takes over and prints what it reads
#include <cstdio>
#include <cstring>
#include <memory>
#include <string_view>

#include "dataplane/segment/ownership.h"

using namespace sluice;
using namespace sluice::segment;

namespace {

std::size_t place(std::string_view name) {
  for (std::size_t i = 0; i < kTransportCounterCount; ++i)
    if (kTransportCounters[i].name == name) return i;
  return kTransportCounterCount;
}

int data(const char* name) {
  const auto segment = Segment::attach(name);
  const DataPlaneOwnership ownership(*segment);
  auto& counters = segment->layout().reactors[0].transport_counters[0];
  counters[place("counter_of_another_release")] = 9;
  counters[place("messages_received")] = 7;
  ReactorArea& area = segment->layout().reactors[0];
  area.counters[0] = area.invariant_failures[0] = area.device_statistics[0] = 1;
  area.upstreams[0].counters[0] = area.reverse.counters[0] = 1;
  start_heartbeat(segment->layout().data_plane, monotonic_ns(), wall_ns());
  std::puts("up");
  std::fflush(stdout);
  while (std::getchar() != EOF) {
  }
  return 0;
}

int control(const char* name) {
  ControlOwnership ownership(name);
  ownership.take();
  Layout& layout = ownership.layout();
  const auto config = layout.config.read_copy();
  const auto& counters = layout.reactors[0].transport_counters[0];
  const auto value = [&](std::string_view counter) {
    return layout.places.value(CounterFamily::Transport, place(counter), counters);
  };
  std::printf("epoch %u generation %llu received %llu other %llu runs %d\n", ownership.epoch(),
              static_cast<unsigned long long>(config ? config->generation : 0),
              static_cast<unsigned long long>(value("messages_received")),
              static_cast<unsigned long long>(value("counter_of_another_release")),
              ownership.segment().data_plane_runs());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  try {
    return std::strcmp(argv[1], "data") == 0 ? data(argv[2]) : control(argv[2]);
  } catch (const SetupError& error) {
    std::printf("%s\n", error.what());
    return 1;
  }
}
