// SPDX-License-Identifier: Apache-2.0
//
// A closed connection keeps its queue pair and its slot until all posted work has completed and the service
// has released its calls, so memory that the driver may still access is not reused.
#include <gtest/gtest.h>

#include "tests/conformance/raw_server.h"
#include "tests/conformance/second_peer.h"

namespace sluice::conformance {
namespace {

using rpcrdma::CloseReason;
using rpcrdma::WrKind;
using State = rpcrdma::Connection::State;

template <typename Lab>
void hold(Lab& lab, WrKind kind) {
  lab.device->hold = [kind](const rdma::WorkCompletion& wc) {
    return rpcrdma::WrId::decode(wc.wr_id).kind == kind;
  };
}

/// Closes the connection, and checks that the held kind of work alone keeps it from ending.
template <typename Lab>
void expect_to_wait(Lab& lab, const char* what) {
  rpcrdma::Connection& connection = *lab.connection;
  ASSERT_EQ(connection.state(), State::Open) << what;
  connection.close(CloseReason::LocalClose);
  for (int i = 0; i < 20; ++i) lab.engine->poll(lab.now_ns += 1000);
  EXPECT_EQ(connection.state(), State::Draining) << what;
  EXPECT_EQ(lab.engine->take_closed(), nullptr) << what;
  EXPECT_NE(lab.engine->free_connection(), &connection) << what;
  lab.device->hold = nullptr;
  for (int i = 0; i < 20; ++i) lab.engine->poll(lab.now_ns += 1000);
  EXPECT_EQ(connection.state(), State::Closed) << what;
  // The connection is not reused before its end was reported.
  EXPECT_NE(lab.engine->free_connection(), &connection) << what;
  EXPECT_EQ(lab.engine->take_closed(), &connection) << what;
  EXPECT_EQ(lab.engine->take_closed(), nullptr) << what;
  EXPECT_EQ(lab.engine->free_connection(), &connection) << what;
}

TEST(Ends, V1_154_a_connection_waits_for_its_receives) {
  ServerLab lab;
  hold(lab, WrKind::Receive);
  expect_to_wait(lab, "Receives");
}

TEST(Ends, V1_154_a_connection_waits_for_its_replies) {
  ServerLab lab;
  hold(lab, WrKind::ReplySent);
  EXPECT_TRUE(lab.alive());
  expect_to_wait(lab, "replies");
}

TEST(Ends, V1_154_a_connection_waits_for_its_rdma_reads) {
  ServerLab lab;
  hold(lab, WrKind::ReadsDone);
  const auto memory = lab.peer->expose(64, rdma::kRemoteRead);
  lab.exchange(
      RawCall{.reads = {{44, memory.segment}}}.with(test_call(RawCall{}.xid, TestService::kSink, {64})));
  EXPECT_TRUE(lab.service->executed.empty());
  expect_to_wait(lab, "RDMA Reads");
  EXPECT_TRUE(lab.service->executed.empty());
  EXPECT_EQ(lab.engine->call_memory().available(), lab.options.engine.call_buffers);
}

TEST(Ends, V1_154_a_connection_waits_for_calls_that_the_service_has) {
  ServerLab lab;
  lab.exchange(RawCall{}.with(test_call(RawCall{}.xid, TestService::kLater)));
  ASSERT_EQ(lab.service->held(), 1u);
  lab.connection->close(CloseReason::LocalClose);
  lab.settle();
  EXPECT_EQ(lab.connection->state(), State::Draining);
  EXPECT_EQ(lab.service->releases, 0u);
  lab.service->complete_later();
  lab.settle();
  EXPECT_EQ(lab.connection->state(), State::Closed);
  EXPECT_EQ(lab.service->releases, 1u);
}

/// A service that ends the client's connection while it executes a call, before or after it completes the
/// call.
class EndingService final : public service::Service {
 public:
  explicit EndingService(bool completes_first) : completes_first_(completes_first) {}
  const service::Binding& binding() const noexcept override { return binding_; }
  service::Execution execute(service::Call& call) noexcept override {
    if (completes_first_) call.complete(rpc::AcceptStat::SystemErr);
    call.client()->disconnect();
    if (!completes_first_) call.complete(rpc::AcceptStat::SystemErr);
    return service::Execution::Started;
  }
  void release(service::Call&) noexcept override { ++releases; }

  std::uint32_t releases = 0;

 private:
  const bool completes_first_;
  service::Binding binding_{.program = 0x2000009f, .version = 1, .name = "ending"};
};

TEST(Ends, V1_154_a_call_whose_service_ends_the_connection_is_released) {
  for (const bool completes_first : {false, true})
    for (const bool with_chunk : {false, true}) {
      ServerLab lab;
      EndingService service(completes_first);
      lab.engine->add_service(service);
      RawCall header;
      if (with_chunk) header.reply = {{lab.peer->expose(64, rdma::kRemoteWrite).segment}};
      lab.peer->send(header.with(rpc_call(header.xid, 0x2000009f, 1, 0)));
      lab.settle();
      lab.peer->owned_qp.reset();
      lab.settle();
      EXPECT_EQ(lab.connection->state(), State::Closed) << completes_first << with_chunk;
      EXPECT_EQ(service.releases, 1u);
    }
}

TEST(Ends, V1_143_a_connection_waits_for_its_calls_and_what_fences_them) {
  for (const WrKind kind : {WrKind::CallSent, WrKind::Invalidated}) {
    ClientLab lab;
    hold(lab, kind);
    const CallerMemory memory = caller_memory(lab, 4096);
    const rdma::Sge piece = memory.piece(0, 64);
    const rpcrdma::WriteItem item{{&piece, 1}};
    const auto xid = lab.submit({.payload = null_call(), .writes = {&item, 1}, .max_reply_bytes = 64});
    lab.settle();
    if (kind == WrKind::Invalidated) {
      EXPECT_TRUE(lab.requester->cancel(rpc::Xid{*xid}));
      lab.settle();
      EXPECT_TRUE(lab.finished.empty());
    }
    expect_to_wait(lab, kind == WrKind::CallSent ? "calls" : "invalidations");
    EXPECT_FALSE(lab.requester->attached());
  }
}

TEST(Ends, the_others_go_on_while_one_drains) {
  ServerLab lab;
  SecondClient second(lab);
  hold(lab, WrKind::ReplySent);
  EXPECT_TRUE(lab.alive());
  rpcrdma::Connection* const first = lab.connection;
  first->close(CloseReason::LocalClose);
  for (int i = 0; i < 20; ++i) lab.turn();
  ASSERT_EQ(first->state(), State::Draining);
  // A draining connection does not delay the end of another one.
  rpcrdma::Connection* const other = second.connection;
  other->close(CloseReason::LocalClose);
  for (int i = 0; i < 20; ++i) lab.turn();
  EXPECT_EQ(other->state(), State::Closed);
  EXPECT_EQ(lab.engine->take_closed(), other);
  EXPECT_EQ(first->state(), State::Draining);
  lab.device->hold = nullptr;
  for (int i = 0; i < 20; ++i) lab.turn();
  EXPECT_EQ(first->state(), State::Closed);
}

}  // namespace
}  // namespace sluice::conformance
