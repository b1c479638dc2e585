// SPDX-License-Identifier: Apache-2.0
//
// Resident memory of an engine at start, before anybody connects, for each connection that it is configured
// for.
#include <malloc.h>
#include <unistd.h>

#include <cstdio>
#include <stdexcept>

#include "dataplane/rpcrdma/engine.h"
#include "pmd/loopback/loopback.h"
#include "tests/bench/worker.h"

namespace sluice::bench {
namespace {

constexpr std::uint16_t kConnections = 1024;
constexpr std::uint16_t kFewConnections = 64;

double resident_bytes() {
  unsigned long total = 0;
  unsigned long resident = 0;
  std::FILE* const file = std::fopen("/proc/self/statm", "re");
  if (file == nullptr || std::fscanf(file, "%lu %lu", &total, &resident) != 2)
    throw std::runtime_error("The kernel does not show the memory of this process.");
  std::fclose(file);
  return static_cast<double>(resident) * static_cast<double>(::sysconf(_SC_PAGESIZE));
}

double bytes_of_engine(std::uint16_t connections, std::uint32_t credits) {
  rpcrdma::EngineConfig config;
  config.max_connections = connections;
  config.capacity.call_slots = credits;
  const auto device = rdma::loopback::make_device(rdma::loopback::Fabric::in_process({.links = 2}));
  ::malloc_trim(0);  // returns what an earlier engine has freed
  const double before = resident_bytes();
  const rpcrdma::Engine engine(*device, config);
  return resident_bytes() - before;
}

/// Returns the bytes that one more connection takes.
template <std::uint32_t kCredits>
double start_bytes(double) {
  const double few = bytes_of_engine(kFewConnections, kCredits);
  return (bytes_of_engine(kConnections, kCredits) - few) / (kConnections - kFewConnections);
}

constexpr Side kSides[] = {
    {"start_64_credits", start_bytes<64>},
    {"start_4_credits", start_bytes<4>},
};

}  // namespace
}  // namespace sluice::bench

int main() {
  return sluice::bench::serve(sluice::bench::kSides);
}
