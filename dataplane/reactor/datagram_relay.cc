// SPDX-License-Identifier: Apache-2.0
#include "dataplane/reactor/datagram_relay.h"

#include <array>

namespace sluice::reactor {

bool DatagramRelay::poll() noexcept {
  std::array<rdma::Datagram, kDatagramsPerPass> datagrams;
  const std::size_t received = device_.receive_datagrams(datagrams);
  for (std::size_t i = 0; i < received; ++i)
    if (!area_.punt_up.push({datagrams[i]})) ++counters_.punts_lost;
  segment::Punt punt;
  std::size_t sent = 0;
  while (sent < kDatagramsPerPass && area_.punt_down.pop(punt)) {
    ++sent;
    device_.send_datagram(punt.datagram);
  }
  counters_.punts += received + sent;
  return received + sent > 0;
}

}  // namespace sluice::reactor
