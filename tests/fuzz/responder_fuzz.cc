// SPDX-License-Identifier: Apache-2.0
//
// Runs the whole responder over loopback: one hostile client sends a sequence of messages, each preceded by
// its length in two bytes.
#include <cstdlib>
#include <memory>

#include "tests/conformance/lab.h"

using namespace sluice;
using namespace sluice::conformance;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  // Each peer registers memory, and a device has a bounded number of regions, so the lab is replaced from
  // time to time.
  constexpr int kPeersOfALab = 1000;
  static std::unique_ptr<ServerLab> lab;
  static int peers = 0;
  if (lab && (lab->connection->state() != rpcrdma::Connection::State::Open || lab->peer->failed)) {
    if (++peers % kPeersOfALab == 0)
      lab.reset();
    else
      lab->reconnect();
  }
  if (!lab) {
    lab = std::make_unique<ServerLab>();
    lab->peer->expose(65536, rdma::kRemoteRead);
  }
  for (int messages = 0; size >= 2 && messages < 8; ++messages) {
    const std::size_t length = std::min<std::size_t>(size - 2, (data[0] | data[1] << 8) & 1023);
    lab->peer->send({reinterpret_cast<const std::byte*>(data) + 2, length});
    data += 2 + length;
    size -= 2 + length;
  }
  lab->settle(60);
  lab->service->complete_later();
  lab->settle(60);
  lab->peer->inbox.clear();
  lab->peer->send_completions.clear();
  lab->service->executed.clear();
  lab->lenient->executed.clear();
  lab->log.clear();
  return 0;
}
