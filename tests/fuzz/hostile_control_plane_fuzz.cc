// SPDX-License-Identifier: Apache-2.0
//
// Simulates a control plane that writes arbitrary bytes into its part of the segment: commands, the desired
// state of connections, properties, datagrams and the configuration. The readers of the reactor must not
// crash or read out of bounds, and each of their iterations ends.
#include <cstdlib>
#include <cstring>

#include "dataplane/base/invariant.h"
#include "dataplane/segment/checked.h"
#include "tests/unit/reactor/reactor_lab.h"

using namespace sluice;

namespace {

/// Consumes the bytes of one input from the front. fill() leaves the rest of its target unchanged when the
/// input is too short.
struct Script {
  const std::uint8_t* at;
  std::size_t left;

  std::uint8_t byte() {
    std::uint8_t value = 0;
    fill(&value, 1);
    return value;
  }
  void fill(void* to, std::size_t bytes) {
    const std::size_t count = std::min(bytes, left);
    std::memcpy(to, at, count);
    at += count;
    left -= count;
  }
};

template <typename Ring>
void put(Ring& ring, Script& script) {
  script.fill(&ring.slots[ring.tail % ring.slots.size()], sizeof ring.slots[0]);
  ++ring.tail;
}

void write_something(segment::ControlPart& part, Script& script) {
  segment::ReactorControl& reactor = part.reactors[0];
  const std::uint8_t what = script.byte();
  const std::uint32_t number = what / 8 % reactor::kConnections;
  switch (what % 8) {
    case 0:
      return put(reactor.commands, script);
    case 1:
      return put(reactor.punt_down, script);
    case 2:
      return put(reactor.properties_down, script);
    case 3:
      return put(reactor.wanted.hints, script);
    case 4:
      return script.fill(static_cast<void*>(&reactor.wanted.words[number]),
                         sizeof reactor.wanted.words[number]);
    case 5:
      return script.fill(static_cast<void*>(&reactor.wanted.details[number]),
                         sizeof reactor.wanted.details[number]);
    case 6:
      return script.fill(static_cast<void*>(&reactor.commands.tail), 4);
    default:
      return script.fill(static_cast<void*>(&reactor.events.head), 4);
  }
}

}  // namespace

/// The first byte is the number of connections that are established before the input is applied.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  count_invariants() = true;
  Script script{data, size};
  reactor::FakeDevice device;
  reactor::Parts parts(device);
  for (std::uint32_t i = script.byte() % (reactor::kConnections + 1); i > 0; --i) parts.establish(i);
  auto config = std::make_unique<segment::ConfigBlock>();
  if (script.byte() % 4 == 0) script.fill(static_cast<void*>(config.get()), sizeof *config);
  segment::defect_of(*config);
  std::uint64_t now_ns = 1;
  while (script.left > 0) {
    write_something(parts.segment.control(), script);
    reactor::pass_time(10'000'000);
    parts.setup.poll();
    parts.connector->announce();
    parts.properties.poll();
    parts.commands.poll();
    parts.reconciler.poll();
    for (std::uint16_t number = 0; number < reactor::kConnections; ++number) {
      rpcrdma::Connection& connection = parts.connections.connection(number);
      if (connection.is_open()) parts.reconciler.reconcile(connection);
    }
    parts.setup.report_closed();
    parts.engine.poll(++now_ns);
    if (parts.connections.in_use() > reactor::kConnections) std::abort();
  }
  return 0;
}
