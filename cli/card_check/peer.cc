// SPDX-License-Identifier: Apache-2.0
#include "cli/card_check/peer.h"

#include <ostream>

namespace sluice::card_check {

void print_peer_commands(std::ostream& out, const std::string& device) {
  const std::string chosen = device.empty() ? "" : " --rdma-device " + device;
  out << "Only a second machine shows MTU, PFC, ECN, retransmission and a pulled cable. Serve an [[export]] "
         "on one\n"
         "machine (deploy/docs/running.md, driver = \"verbs\"), and run on the other one, with its "
         "ADDRESS:\n\n"
         "  sluice-conformance --device verbs"
      << chosen
      << " --server ADDRESS --mount-port 20048 --json > conformance.json\n"
         "  sluice-bench --device verbs"
      << chosen
      << " --server ADDRESS --seconds 10 --json nfs3 --mount-host ADDRESS --verify > bench.json\n\n"
         "Both are clients, so the card of their machine needs memory windows. Without them run sluice-bench "
         "with\n"
         "--no-memory-windows, and not the other. Send the files with the report.\n";
}

}  // namespace sluice::card_check
