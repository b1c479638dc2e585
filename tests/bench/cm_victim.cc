// SPDX-License-Identifier: Apache-2.0
//
// Number of refused requests, of 100, of a client that connects once a second while another source connects 7
// or 45 times a second and answers no DREQ. The names of the sides contain the connection limit and the rate.
// Virtual time.
#include <iterator>

#include "tests/bench/worker.h"
#include "tests/unit/controlplane/cm/fairness_lab.h"

namespace sluice::bench {
namespace {

template <std::uint32_t Places, std::uint64_t PerSecond>
double refusals(double) {
  cm::lab::Gateway gateway(Places);
  cm::lab::pass_beside(gateway,
                       {.connections = Places, .connected = 0, .per_second = PerSecond, .answers = false});
  return gateway.refused;
}

constexpr Side kSides[] = {{"32_7", refusals<32, 7>},
                           {"32_45", refusals<32, 45>},
                           {"256_7", refusals<256, 7>},
                           {"256_45", refusals<256, 45>}};

}  // namespace
}  // namespace sluice::bench

int main() {
  return sluice::bench::serve(sluice::bench::kSides);
}
