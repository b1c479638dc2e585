// SPDX-License-Identifier: Apache-2.0
//
// The parts of a reactor over a device of the test. The test plays the control plane: it writes commands into
// the segment's rings and reads events and tables.
#pragma once

#include <gtest/gtest.h>

#include "dataplane/reactor/commands.h"
#include "dataplane/rpcrdma/requester/requester.h"
#include "dataplane/service/api/null.h"
#include "tests/unit/reactor/fake_device.h"
#include "tests/unit/reactor/memory_segment.h"

namespace sluice::reactor {

inline constexpr std::uint32_t kConnections = 4;

ReactorConfig lab_config();
rpcrdma::EngineConfig lab_engine();
/// Returns the time of the test. Only pass_time() advances it.
std::uint64_t lab_clock() noexcept;
void pass_time(std::uint64_t ns);

/// Server of the connections that tests dial.
inline const rdma_server::Server kServer{
    .address = PeerAddress::from_ipv4(10, 0, 0, 9), .port = 20049, .credits_requested = 8};

struct Parts {
  explicit Parts(rdma::Device& used, const ReactorConfig& chosen = lab_config());
  ~Parts();

  /// Runs a command one setup interval after the previous one, so that a connection can be set up. Returns
  /// the answer.
  segment::Event run(segment::Command command);
  segment::CommandStatus status_of(const segment::Command& command) { return run(command).status; }
  /// Establishes a client's connection like a control plane that sends datagrams itself.
  rpcrdma::Connection& establish(std::uint32_t cm_id);
  std::uint32_t incarnation(const rpcrdma::Connection& connection) {
    return connections.record(connection).incarnation;
  }
  /// Polls the engine until closed connections are released.
  void settle();

  const ReactorConfig config;
  rdma::Device& device;
  rpcrdma::Engine engine;
  MemorySegment segment;
  Counters counters;
  ConnectionTable connections{engine, segment.area().incarnations};
  Publisher publisher{config, engine, connections, counters, segment.area()};
  EventSender events{segment.area(), counters};
  ConnectionProperties properties{segment.area(), connections};
  const Owned<Connector> connector =
      make_connector(config, device, connections, segment.area(), events, counters);
  ConnectionSetup setup{config, engine, connections, *connector, properties, publisher, events, counters};
  ServerDialer dialer{config, engine, connections, *connector, setup, publisher};
  Reconciler reconciler{segment.area(), connections, setup, publisher, counters};
  Commands commands{segment.area(), setup, dialer, events, counters, lab_clock};
  /// The control plane's writer of the desired state.
  segment::DesiredStateWriter wanted{segment.area().wanted};

 private:
  std::uint32_t next_id_ = 1;
  std::uint64_t now_ns_ = 1;
};

/// A caller of a reverse gateway.
struct Caller {
  explicit Caller(Parts& parts)
      : requester(parts.engine.requester_context(), parts.device,
                  {.requests = 8, .credits_requested = 8, .windows = 0, .long_buffers = 0}) {}
  rpcrdma::Requester requester;
  service::NullService callee;
};

}  // namespace sluice::reactor
