// SPDX-License-Identifier: Apache-2.0
//
// Sends a sequence of management datagrams to an agent whose consumer accepts every request. The agent must
// not crash and must not keep more connections than its limit.
#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "controlplane/cm/agent.h"

using namespace sluice;
using namespace sluice::cm;

namespace {

constexpr std::uint32_t kMaxConnections = 16;
const PeerAddress kServer = PeerAddress::from_ipv4(192, 0, 2, 1);

struct Consumer final : Agent::Host {
  Agent* agent = nullptr;
  std::uint64_t now = 1;
  void send_mad(const Endpoint&, std::span<const std::byte, kMadBytes>) override {}
  void on_request(Id id, const PeerParameters&) override {
    agent->accept(id, {.qpn = 5, .private_data = {}}, now);
  }
  void on_reply(Id id, const PeerParameters&) override { agent->ready(id, now); }
  void on_established(Id) override {}
  void on_rejected(Id, RejectReason, std::span<const std::byte>) override {}
  void on_disconnected(Id) override {}
};

}  // namespace

/// The input is a list of steps: one byte of elapsed time, one byte that selects the sender, then a datagram.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Consumer consumer;
  Agent agent(consumer, {.seed = 1, .max_connections = kMaxConnections, .max_half_open = 8});
  consumer.agent = &agent;
  agent.listen(20049);
  agent.connect({kServer, PeerAddress::from_ipv4(192, 0, 2, 2), {}}, 20049, 4096,
                {.qpn = 7, .private_data = {}}, 1);
  while (size >= 2) {
    consumer.now += data[0] * std::uint64_t{20'000'000};
    const auto peer = PeerAddress::from_ipv4(192, 0, 2, static_cast<std::uint8_t>(2 + data[1] % 3));
    data += 2;
    size -= 2;
    const std::size_t bytes = std::min(size, kMadBytes);
    agent.on_mad({kServer, peer, {}}, {reinterpret_cast<const std::byte*>(data), bytes}, consumer.now);
    agent.advance(consumer.now);
    if (agent.connections() > kMaxConnections) std::abort();
    data += bytes;
    size -= bytes;
  }
  return 0;
}
