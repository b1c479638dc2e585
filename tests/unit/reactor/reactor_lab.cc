// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/reactor/reactor_lab.h"

namespace sluice::reactor {
namespace {

std::uint64_t lab_now_ns = 1;

}  // namespace

std::uint64_t lab_clock() noexcept {
  return lab_now_ns;
}

void pass_time(std::uint64_t ns) {
  lab_now_ns += ns;
}

ReactorConfig lab_config() {
  ReactorConfig config;
  config.cpu = 3;
  config.numa_node = 1;
  config.max_version = 2;
  config.dial = {.inline_bytes = 4096, .call_backs = 4};
  return config;
}

rpcrdma::EngineConfig lab_engine() {
  rpcrdma::EngineConfig config;
  config.max_connections = kConnections;
  config.capacity.call_slots = 8;
  config.capacity.requests = 8;
  config.call_buffers = config.reply_buffers = config.assembly_buffers = 1;
  return config;
}

Parts::Parts(rdma::Device& used, const ReactorConfig& chosen)
    : config(chosen), device(used), engine(device, lab_engine()) {}

Parts::~Parts() {
  for (std::uint16_t i = 0; i < engine.connection_count(); ++i)
    engine.connection(i).close(rpcrdma::CloseReason::LocalClose);
  settle();
}

segment::Event Parts::run(segment::Command command) {
  command.id = next_id_++;
  pass_time(SetupPace::kIntervalNs);
  EXPECT_TRUE(segment.area().commands.push(command));
  EXPECT_TRUE(commands.poll());
  while (const auto event = segment.event())
    if (event->type == segment::EventType::CommandDone && event->id == command.id) return *event;
  ADD_FAILURE() << "no answer to a command";
  return {};
}

rpcrdma::Connection& Parts::establish(std::uint32_t cm_id) {
  segment::Command command{.type = segment::CommandType::Accept,
                           .cm_id = cm_id,
                           .credits = 8,
                           .receive_inline_bytes = 4096,
                           .send_inline_bytes = 1024};
  command.attributes.remote = PeerAddress::from_ipv4(10, 0, 0, 7);
  command.attributes.remote_qp = rdma::QueuePairNumber{77};
  const segment::Event done = run(command);
  EXPECT_EQ(done.status, segment::CommandStatus::Done);
  return engine.connection(static_cast<std::uint16_t>(done.connection));
}

void Parts::settle() {
  for (int i = 0; i < 20; ++i) engine.poll(now_ns_ += 1000);
}

}  // namespace sluice::reactor
